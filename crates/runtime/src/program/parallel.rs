//! Many compilations at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use panoply_ir::Result;

/// Does something with each of these, with as many at once as there are processors. The results in their order, or the first failure by
/// that order; what comes after a failure may be left undone.
pub(crate) fn parallel_map<T: Sync, R: Send + Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let done: Vec<OnceLock<Result<R>>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        let take = || next.fetch_add(1, Ordering::Relaxed);
        for at in std::iter::repeat_with(take).take_while(|at| *at < items.len()) {
            if done[at].get_or_init(|| work(&items[at])).is_err() {
                // All before it were begun.
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had this one does it all.
            let _ = thread::Builder::new().name("panoply-compile".into()).spawn_scoped(scope, worker);
        }
        worker();
    });
    done.into_iter().map_while(OnceLock::into_inner).collect()
}
