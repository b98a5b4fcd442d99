//! The current device of a scope or of the process.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock};

use crate::device::Device;

thread_local! {
    static SCOPES: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

static DEFAULT: RwLock<Option<Device>> = RwLock::new(None);

/// Returns the device of this thread's innermost scope.
pub(super) fn current() -> Option<Device> {
    SCOPES.with_borrow(|scopes| scopes.last().cloned())
}

/// Returns the process default.
pub(super) fn default() -> Option<Device> {
    DEFAULT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Device {
    /// Runs `work` with this device as the current device of this thread, and restores the previous one afterwards, also after an
    /// error or a panic. Scopes nest. Other threads are unaffected.
    pub fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                SCOPES.with_borrow_mut(|scopes| scopes.pop());
            }
        }
        SCOPES.with_borrow_mut(|scopes| scopes.push(self.clone()));
        let _leave = Leave;
        work()
    }

    /// Makes this the current device of all threads outside of a scope.
    pub fn set_default(&self) {
        *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
    }

    /// Clears the process default, so that `PANOPLY_DEVICE` or automatic selection applies.
    pub fn clear_default() {
        *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
