//! The device a program chose for a stretch of code or for the whole process.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock};

use crate::device::Device;

thread_local! {
    static SCOPES: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

static DEFAULT: RwLock<Option<Device>> = RwLock::new(None);

/// The innermost scope of this thread.
pub(super) fn current() -> Option<Device> {
    SCOPES.with_borrow(|scopes| scopes.last().cloned())
}

/// The default of the process.
pub(super) fn default() -> Option<Device> {
    DEFAULT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Device {
    /// Runs work with this as the current device of this thread. The one before is back afterwards, after an error or a panic
    /// too. Scopes nest; other threads do not see them.
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

    /// Makes this the current device of all threads that are in no scope.
    pub fn set_default(&self) {
        *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
    }

    /// Leaves the current device to `PANOPLY_DEVICE` and to what is here.
    pub fn clear_default() {
        *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
