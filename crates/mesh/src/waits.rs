//! Reports of long waits: a rank that waits for another says for what.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use panoply_runtime::log;

/// Time after which a wait is reported; it is reported again each time it has doubled.
const LIMIT: Duration = Duration::from_secs(30);

/// The waits of this process.
static WAITS: LazyLock<Arc<Waits>> = LazyLock::new(|| Waits::start(LIMIT, |line| log::warn(|| line.to_string())));

/// Waits that are going on, and the thread that reports long ones.
struct Waits {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    waits: BTreeMap<u64, Wait>,
    /// True while the thread sleeps without a deadline.
    is_idle: bool,
}

struct Wait {
    /// The rank or device that waits, such as `rank 1`.
    name: String,
    what: String,
    start: Instant,
    /// Time after which it is reported next.
    limit: Duration,
}

/// A wait, which ends when this is dropped.
pub(crate) struct WaitGuard {
    waits: Arc<Waits>,
    key: u64,
}

/// Begins a wait of `name`, such as `rank 1`, for something, such as `collect(0,0) from rank 0`.
pub(crate) fn begin(name: String, what: impl Into<String>) -> WaitGuard {
    Waits::begin(&WAITS, name, what.into())
}

impl Waits {
    /// Starts the thread. If it cannot be started, nothing is reported.
    fn start(limit: Duration, report: impl Fn(&str) + Send + 'static) -> Arc<Waits> {
        let waits = Arc::new(Waits { state: Mutex::default(), changed: Condvar::new() });
        let shared = waits.clone();
        let thread = std::thread::Builder::new().name("panoply-waits".to_string());
        let _ = thread.spawn(move || shared.run(limit, report));
        waits
    }

    fn begin(waits: &Arc<Waits>, name: String, what: String) -> WaitGuard {
        let mut state = waits.state();
        let key = state.next;
        state.next += 1;
        state.waits.insert(key, Wait { name, what, start: Instant::now(), limit: Duration::ZERO });
        if state.is_idle {
            waits.changed.notify_one();
        }
        drop(state);
        WaitGuard { waits: waits.clone(), key }
    }

    fn run(&self, limit: Duration, report: impl Fn(&str)) {
        let mut state = self.state();
        loop {
            let mut lines = Vec::new();
            for wait in state.waits.values_mut() {
                wait.limit = wait.limit.max(limit);
                let waited = wait.start.elapsed();
                if waited >= wait.limit {
                    lines.push(format!("{} has waited {:.0} s for {}", wait.name, waited.as_secs_f64(), wait.what));
                    wait.limit = waited * 2;
                }
            }
            if !lines.is_empty() {
                // Writing can block.
                drop(state);
                lines.iter().for_each(|line| report(line));
                state = self.state();
                continue;
            }
            let left = |wait: &Wait| wait.limit.saturating_sub(wait.start.elapsed());
            state = match state.waits.values().map(left).min() {
                Some(left) => {
                    self.changed.wait_timeout(state, left).map_or_else(|e| e.into_inner().0, |(state, _)| state)
                }
                None => {
                    state.is_idle = true;
                    let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.is_idle = false;
                    state
                }
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.waits.state().waits.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_reported_and_short_ones_are_not() {
        let (sender, lines) = std::sync::mpsc::channel();
        let waits = Waits::start(Duration::from_millis(50), move |line| sender.send(line.to_string()).unwrap());
        let next = || lines.recv_timeout(Duration::from_secs(60)).unwrap();
        for _ in 0..2 {
            drop(Waits::begin(&waits, "rank 1".to_string(), "a sum".to_string()));
            let long = Waits::begin(&waits, "rank 1".to_string(), "collect(0,0) from rank 0".to_string());
            assert_eq!(next(), "rank 1 has waited 0 s for collect(0,0) from rank 0");
            assert!(next().ends_with("for collect(0,0) from rank 0"), "it is reported again");
            drop(long);
            // One that was due before the wait ended can still come.
            while let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
                assert!(line.ends_with("collect(0,0) from rank 0"), "{line}");
            }
        }
    }
}
