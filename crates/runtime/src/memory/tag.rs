//! Thread-local memory tag.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static TAG: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Returns the current tag.
pub(crate) fn current() -> Option<Arc<str>> {
    TAG.with_borrow(Clone::clone)
}

/// Runs `work` under a tag and restores the previous tag afterwards, also after a panic.
pub(crate) fn with<R>(tag: &str, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<str>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            TAG.set(self.0.take());
        }
    }
    let _restore = Restore(TAG.replace(Some(tag.into())));
    work()
}
