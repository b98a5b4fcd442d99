//! The persistent thread pool of the CPU device.
//!
//! [`Pool::run`] calls a function for every part of a job, on the pool's threads and on the calling one. It returns
//! when all calls have returned. The pool does not depend on kernels.
//!
//! # Protocol
//! The job is on the caller's stack. The caller *opens* it by publishing its address under a new epoch. Workers that
//! notice *enter*, claim parts until none are left, and *leave*. The caller claims parts too, then *closes* the job, so
//! that no worker enters any more, and waits until the workers inside have left. A worker that wakes up late finds the
//! job closed, which costs nothing: the caller finishes a short job before a sleeping worker has woken up.
//!
//! The protocol uses one atomic word, `Shared::state`, with the epoch, the number of workers inside, and three flags. A
//! worker reads the job's address only while it is counted as inside, and the job is alive until that count is zero.
//! The one `unsafe` block relies on this invariant.
//!
//! Workers spin for 50 us after a run, because kernels come in bursts, and then sleep on a condition variable.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use web_time::Instant;

use crate::scratch::Scratch;

/// Time an idle thread spins before it sleeps. Waking a sleeping thread takes about as long.
const SPIN: Duration = Duration::from_micros(50);

/// Maximum number of threads of a pool, limited by the count in the state word.
pub const MAX_THREADS: usize = 1024;

thread_local! {
    /// True while this thread executes a part of a run.
    static IN_PART: Cell<bool> = const { Cell::new(false) };
}

/// A fixed set of threads that execute the parts of one job at a time.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let pool = panoply_host::pool::Pool::new(2);
/// let sum = AtomicUsize::new(0);
/// pool.run(100, &|part| {
///     sum.fetch_add(part, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// True while a caller's job is open to the workers.
    taken: AtomicBool,
    scratch: Scratch,
}

impl Pool {
    /// Creates a pool of `threads` threads, including the calling one, at least one and at most [`MAX_THREADS`].
    ///
    /// If the system cannot start that many threads, the pool is smaller; see [`Pool::threads`].
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, MAX_THREADS);
        // Spinning is only useful if every thread has its own core.
        let spin = if threads <= available_threads() { SPIN } else { Duration::ZERO };
        let shared = Arc::new(Shared::new(spin));
        let start = |number| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("panoply-cpu-{number}")).spawn(move || shared.serve()).ok()
        };
        let workers = (1..threads).map_while(start).collect();
        Pool { shared, workers, taken: AtomicBool::new(false), scratch: Scratch::default() }
    }

    /// Creates a pool with one thread per core available to this process, given its affinity mask and cgroup limits.
    pub fn for_machine() -> Self {
        Self::new(available_threads())
    }

    /// Returns the scratch memory of routines.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Returns the bytes of scratch memory kept for later jobs.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.bytes()
    }

    /// Returns the number of threads that execute a job, including the calling one.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each number below `parts`, in any order, on the pool's threads and the calling one.
    /// Returns when all calls have returned.
    ///
    /// Adjacent numbers tend to run on the same thread. The calling thread alone executes all parts in order if there
    /// is a single part, if the pool has one thread, if `run` is called from inside a part, or if another thread's run
    /// is in progress.
    ///
    /// # Panics
    /// If a call panics, no further parts start. Once the parts in progress have returned, `run` resumes the first
    /// panic. The pool remains usable.
    pub fn run(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        if parts <= 1 || self.workers.is_empty() || IN_PART.get() || self.taken.swap(true, Ordering::Acquire) {
            return (0..parts).for_each(work);
        }
        let job = Job::new(parts, self.threads(), work);
        self.shared.open(&job);
        job.work_off();
        self.shared.close();
        self.taken.store(false, Ordering::Release);
        job.finish();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its parts, so there is nothing to report here.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

/// Returns the number of threads this process can run in parallel.
fn available_threads() -> usize {
    thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// One call of [`Pool::run`].
struct Job<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    parts: usize,
    /// Divisor of the remaining parts that gives the size of one claim.
    share: usize,
    /// The first part that is not yet claimed.
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<'a> Job<'a> {
    fn new(parts: usize, threads: usize, work: &'a (dyn Fn(usize) + Sync)) -> Self {
        Job { work, parts, share: 4 * threads, next: AtomicUsize::new(0), panic: Mutex::new(None) }
    }

    /// Executes parts until none are left. Does not unwind.
    fn work_off(&self) {
        IN_PART.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while let Some(parts) = self.claim() {
                parts.for_each(self.work);
            }
        }));
        IN_PART.set(false);
        if let Err(payload) = outcome {
            self.next.store(self.parts, Ordering::Relaxed);
            let mut first = lock(&self.panic);
            if first.is_none() {
                *first = Some(payload);
            } else {
                // Dropping a payload can panic too; the payload of that panic is leaked.
                std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload))));
            }
        }
    }

    /// Claims the next parts: large ranges first, single parts at the end, so that all threads finish together.
    fn claim(&self) -> Option<Range<usize>> {
        let mut next = self.next.load(Ordering::Relaxed);
        while next < self.parts {
            let end = next + ((self.parts - next) / self.share).max(1);
            match self.next.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(next..end),
                Err(now) => next = now,
            }
        }
        None
    }

    /// Resumes the panic of a part, if there was one.
    fn finish(self) {
        if let Some(payload) = self.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
    }
}

/// The job can be entered.
const OPEN: usize = 1;
/// The caller sleeps until the last worker has left.
const CALLER_SLEEPS: usize = 1 << 1;
/// The pool is being dropped.
const STOP: usize = 1 << 2;
/// One worker inside the job; the next eleven bits hold the count.
const INSIDE: usize = 1 << 3;
const INSIDE_MASK: usize = (2 * MAX_THREADS - 1) * INSIDE;
/// The remaining bits count the runs, so that a worker enters each run only once. The count may wrap: a worker that
/// sleeps through a full cycle misses one run, which is harmless.
const EPOCH: usize = INSIDE_MASK + INSIDE;

/// State shared by the caller and the workers.
struct Shared {
    /// See the constants above. It has its own cache line because all threads spin on it.
    state: Padded<AtomicUsize>,
    /// The open job; only valid for workers inside.
    job: AtomicPtr<Job<'static>>,
    spin: Duration,
    /// Number of workers that sleep or are about to.
    sleepers: AtomicUsize,
    /// Protects only the interval between the last check and the wait.
    bed: Mutex<()>,
    wake_workers: Condvar,
    wake_caller: Condvar,
}

#[repr(align(128))]
struct Padded<T>(T);

/// Result of a worker's check for work.
enum WorkCheck {
    Nothing,
    Entered { epoch: usize },
    Stop,
}

impl Shared {
    fn new(spin: Duration) -> Self {
        Shared {
            state: Padded(AtomicUsize::new(0)),
            job: AtomicPtr::new(ptr::null_mut()),
            spin,
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            wake_workers: Condvar::new(),
            wake_caller: Condvar::new(),
        }
    }

    /// Caller: lets workers enter. `close` must be called before `job` is dropped.
    fn open(&self, job: &Job<'_>) {
        self.job.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        let epoch = (self.state.0.load(Ordering::Relaxed) & !(EPOCH - 1)).wrapping_add(EPOCH);
        // Sequentially consistent with `sleep`: either the sleeper sees the open job or it is counted here.
        self.state.0.store(epoch | OPEN, Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            // A worker that has counted itself but does not wait yet holds the lock until it does.
            drop(lock(&self.bed));
            (0..sleepers.min(job.parts - 1)).for_each(|_| self.wake_workers.notify_one());
        }
    }

    /// Caller: stops workers from entering and waits until none is inside.
    fn close(&self) {
        // Acquires the writes of the workers that have left, here and below.
        let is_empty = |state: usize| state & INSIDE_MASK == 0;
        if is_empty(self.state.0.fetch_and(!OPEN, Ordering::Acquire)) {
            return;
        }
        if spin_until(self.spin, || is_empty(self.state.0.load(Ordering::Acquire)).then_some(())).is_some() {
            return;
        }
        let mut bed = lock(&self.bed);
        self.state.0.fetch_or(CALLER_SLEEPS, Ordering::Relaxed);
        while !is_empty(self.state.0.load(Ordering::Acquire)) {
            bed = self.wake_caller.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.state.0.fetch_and(!CALLER_SLEEPS, Ordering::Relaxed);
    }

    /// Owner: tells the workers to stop.
    fn stop(&self) {
        self.state.0.fetch_or(STOP, Ordering::SeqCst);
        drop(lock(&self.bed));
        self.wake_workers.notify_all();
    }

    /// Main loop of a worker.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            match self.wait(seen) {
                WorkCheck::Entered { epoch } => seen = epoch,
                WorkCheck::Stop => return,
                WorkCheck::Nothing => continue,
            }
            // SAFETY: this worker is counted as inside. The caller stored the address before it opened the job, is
            // still in `Pool::run`, and waits in `close` until `leave`; until then the job is not moved or dropped.
            // `work_off` does not unwind past `leave`. The job is `Sync` because all its fields are.
            unsafe { &*self.job.load(Ordering::Relaxed) }.work_off();
            self.leave();
        }
    }

    /// Worker: waits until there is a job it has not seen, or until the pool stops.
    fn wait(&self, seen: usize) -> WorkCheck {
        let look = || match self.look(seen) {
            WorkCheck::Nothing => None,
            found => Some(found),
        };
        spin_until(self.spin, look).unwrap_or_else(|| self.sleep(seen))
    }

    /// Worker: enters if there is a job it has not seen.
    fn look(&self, seen: usize) -> WorkCheck {
        let mut state = self.state.0.load(Ordering::SeqCst);
        loop {
            let epoch = state & !(EPOCH - 1);
            if state & STOP != 0 {
                return WorkCheck::Stop;
            }
            if state & OPEN == 0 || epoch == seen {
                return WorkCheck::Nothing;
            }
            match self.state.0.compare_exchange_weak(state, state + INSIDE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return WorkCheck::Entered { epoch },
                Err(now) => state = now,
            }
        }
    }

    fn sleep(&self, seen: usize) -> WorkCheck {
        let mut bed = lock(&self.bed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            match self.look(seen) {
                WorkCheck::Nothing => bed = self.wake_workers.wait(bed).unwrap_or_else(PoisonError::into_inner),
                found => break found,
            }
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// Worker: releases its writes, and wakes the caller if it is the last one inside.
    fn leave(&self) {
        let before = self.state.0.fetch_sub(INSIDE, Ordering::Release);
        if before & CALLER_SLEEPS != 0 && before & INSIDE_MASK == INSIDE {
            drop(lock(&self.bed));
            self.wake_caller.notify_one();
        }
    }
}

/// Calls `ask` repeatedly until it returns a value or the limit passes; at least once.
fn spin_until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if let found @ Some(_) = ask() {
                return found;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= limit {
            return None;
        }
    }
}

/// Locks a mutex, ignoring poisoning: its data cannot be left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
