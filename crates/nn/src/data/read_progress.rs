//! Progress of reading.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fractions of the read of a table after which its cells are separated, and its columns are parsed.
pub(super) const SEPARATED: f64 = 0.3;
pub(super) const FITTED: f64 = 0.8;

/// A function that is called with the fraction of a read that is done, in `0.0..=1.0`, from any thread.
///
/// Reads of tables and images report their progress. Two of these are always equal: they do not change what is read.
#[derive(Clone, Default)]
pub struct ReadProgress(Option<Arc<dyn Fn(f64) + Send + Sync>>);

impl ReadProgress {
    /// Creates the progress that calls this function.
    pub fn new(report: impl Fn(f64) + Send + Sync + 'static) -> ReadProgress {
        ReadProgress(Some(Arc::new(report)))
    }

    /// Reports that this fraction of the read is done.
    pub(super) fn report(&self, fraction: f64) {
        if let Some(report) = &self.0 {
            report(fraction);
        }
    }

    /// Returns a function to call after each of `count` steps of equal work, which take the read from one fraction to another.
    pub(super) fn steps(&self, count: usize, (from, to): (f64, f64)) -> impl Fn() + Sync {
        let done = AtomicUsize::new(0);
        move || {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            // The last step ends exactly there.
            self.report(if done == count { to } else { from + (to - from) * done as f64 / count as f64 });
        }
    }
}

impl fmt::Debug for ReadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadProgress")
    }
}

impl PartialEq for ReadProgress {
    fn eq(&self, _: &ReadProgress) -> bool {
        true
    }
}
