//! Parts that threads make ready before they are asked for, taken in their order. Knows nothing of what they are.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Parts by number, made by any thread that [`Prefetcher::work`]s, at most so many more than were taken.
pub(super) struct Prefetcher<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    count: usize,
    most: usize,
}

struct State<T> {
    /// The next that a thread makes.
    begun: usize,
    /// The next that is taken.
    taken: usize,
    ready: BTreeMap<usize, T>,
    /// Whether nobody takes any more, or a thread has panicked.
    ended: bool,
}

impl<T> Prefetcher<T> {
    /// None made yet of the parts from `first` to before `count`.
    pub fn new(first: usize, count: usize, most: usize) -> Prefetcher<T> {
        let state = State { begun: first, taken: first, ready: BTreeMap::new(), ended: false };
        Prefetcher { state: Mutex::new(state), changed: Condvar::new(), count, most: most.max(1) }
    }

    /// Makes parts until there are no more or nobody takes any: what a thread does.
    pub fn work(&self, make: impl Fn(usize) -> T) {
        let unwound = StopGuard(self);
        while let Some(at) = self.begin() {
            let part = make(at);
            self.state().ready.insert(at, part);
            self.changed.notify_all();
        }
        std::mem::forget(unwound);
    }

    /// The next part, when it is ready; none at the end.
    pub fn take(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            let at = state.taken;
            if let Some(part) = state.ready.remove(&at) {
                state.taken += 1;
                self.changed.notify_all();
                return Some(part);
            }
            if at >= self.count || state.ended {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends it when it goes out of scope.
    pub fn ending(&self) -> StopGuard<'_, T> {
        StopGuard(self)
    }

    /// Nobody takes any more.
    pub fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    fn begin(&self) -> Option<usize> {
        let mut state = self.state();
        loop {
            if state.ended || state.begun >= self.count {
                return None;
            }
            if state.begun < state.taken + self.most {
                state.begun += 1;
                return Some(state.begun - 1);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what it stands for when it is dropped.
pub(super) struct StopGuard<'a, T>(&'a Prefetcher<T>);

impl<T> Drop for StopGuard<'_, T> {
    fn drop(&mut self) {
        self.0.end();
    }
}
