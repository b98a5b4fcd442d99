//! The tag under which this thread makes buffers.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static TAG: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The tag now.
pub(crate) fn current() -> Option<Arc<str>> {
    TAG.with_borrow(Clone::clone)
}

/// Runs `work` under a tag; the one before comes back after it, after a panic too.
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
