//! Work on several threads of the host: compilation, and reading of files.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use panoply_ir::Result;

/// Applies `work` to all items on up to one thread per processor. Returns the results in order, or the first failure in that order.
/// Items after a failure can be skipped.
pub fn parallel_map<T: Sync, R: Send + Sync>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let done: Vec<OnceLock<Result<R>>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        let take = || next.fetch_add(1, Ordering::Relaxed);
        for at in std::iter::repeat_with(take).take_while(|at| *at < items.len()) {
            if done[at].get_or_init(|| work(&items[at])).is_err() {
                // All earlier items have been started.
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, this one does all the work.
            let _ = thread::Builder::new().name("panoply-worker".into()).spawn_scoped(scope, worker);
        }
        worker();
    });
    done.into_iter().map_while(OnceLock::into_inner).collect()
}
