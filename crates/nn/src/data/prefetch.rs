//! Ordered prefetching by threads, generic over the items.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Items by number, made by threads that run [`Prefetcher::work`], at most `most` ahead of the consumer.
pub(super) struct Prefetcher<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    count: usize,
    most: usize,
}

struct State<T> {
    /// Number of the next item to make.
    begun: usize,
    /// Number of the next item to take.
    taken: usize,
    ready: BTreeMap<usize, T>,
    /// True if the consumer has stopped, or a thread has panicked.
    ended: bool,
}

impl<T> Prefetcher<T> {
    /// Creates a prefetcher for the items `first` .. `count`.
    pub fn new(first: usize, count: usize, most: usize) -> Prefetcher<T> {
        let state = State { begun: first, taken: first, ready: BTreeMap::new(), ended: false };
        Prefetcher { state: Mutex::new(state), changed: Condvar::new(), count, most: most.max(1) }
    }

    /// Makes items until there are no more or the consumer stops; runs on a worker thread.
    pub fn work(&self, make: impl Fn(usize) -> T) {
        let unwound = StopGuard(self);
        while let Some(at) = self.begin() {
            let part = make(at);
            self.state().ready.insert(at, part);
            self.changed.notify_all();
        }
        std::mem::forget(unwound);
    }

    /// Waits for the next item; `None` at the end.
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

    /// Returns a guard that stops the prefetcher when it is dropped.
    pub fn ending(&self) -> StopGuard<'_, T> {
        StopGuard(self)
    }

    /// Stops the workers.
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

/// Guard that stops the prefetcher when it is dropped.
pub(super) struct StopGuard<'a, T>(&'a Prefetcher<T>);

impl<T> Drop for StopGuard<'_, T> {
    fn drop(&mut self) {
        self.0.end();
    }
}
