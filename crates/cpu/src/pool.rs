//! The CPU's own persistent threads.
//!
//! [`Pool::run`] calls a function for every part of a job, on the pool's threads and on the calling one, and returns when
//! all calls have returned. The pool knows nothing of kernels.
//!
//! # How a run goes
//! The job lives on the caller's stack. The caller *opens* it by publishing its address under a new epoch; workers that
//! notice *enter*, claim parts until none are left, and *leave*; the caller claims parts like everybody else, then *closes*
//! the job so that nobody enters any more, and waits until those inside have left. A worker that wakes up late finds the
//! job closed and costs nothing: a short job is done by the caller before a sleeping worker has opened its eyes.
//!
//! All of that is one word, `Shared::state`: epoch, number of workers inside, and three flags. A worker reads the job's
//! address only while it is counted as being inside, and the job lives until that count is zero; this is the invariant
//! behind the one `unsafe` block.
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

use crate::routine::fourier::FftPlans;
use crate::scratch::Scratch;

/// How long a thread with nothing to do keeps looking before it sleeps. Waking a sleeper takes about as long.
const SPIN: Duration = Duration::from_micros(50);

/// The most threads a pool has: what the count in the state word holds.
pub const MAX_THREADS: usize = 1024;

thread_local! {
    /// Whether this thread is executing a part of some run.
    static IN_PART: Cell<bool> = const { Cell::new(false) };
}

/// A fixed set of threads that share the parts of one job at a time.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let pool = panoply_cpu::pool::Pool::new(2);
/// let sum = AtomicUsize::new(0);
/// pool.run(100, &|part| {
///     sum.fetch_add(part, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the one caller whose job the workers may be in.
    taken: AtomicBool,
    scratch: Scratch,
    transforms: FftPlans,
}

impl Pool {
    /// A pool in which `threads` threads work on a job, the calling one included; at least one, at most [`MAX_THREADS`].
    ///
    /// If the system refuses to start as many, the pool is smaller: see [`Pool::threads`].
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, MAX_THREADS);
        // Spinning is only worth it where every thread has a core to spin on.
        let spin = if threads <= available_threads() { SPIN } else { Duration::ZERO };
        let shared = Arc::new(Shared::new(spin));
        let start = |number| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("panoply-cpu-{number}")).spawn(move || shared.serve()).ok()
        };
        let workers = (1..threads).map_while(start).collect();
        Pool {
            shared,
            workers,
            taken: AtomicBool::new(false),
            scratch: Scratch::default(),
            transforms: FftPlans::default(),
        }
    }

    /// A pool with one thread for each core this process may use (its affinity mask and control group are honored).
    pub fn for_machine() -> Self {
        Self::new(available_threads())
    }

    /// Memory for what its parts work in.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// How Fourier transforms of lengths that were asked for are done.
    pub(crate) fn transforms(&self) -> &FftPlans {
        &self.transforms
    }

    /// Bytes it keeps for the parts of later jobs to work in.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.bytes()
    }

    /// How many threads work on a job, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each number below `parts`, in any order, on the threads of the pool and the calling one, and
    /// returns when all calls have returned.
    ///
    /// Neighboring numbers tend to go to the same thread. A single part, a pool of one thread, a call from inside a part,
    /// and a call while another thread's run is under way are executed by the calling thread alone, in order.
    ///
    /// # Panics
    /// If a call panics, no further parts are started, and once those under way have returned, `run` panics with the first
    /// payload. The pool remains usable.
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
            // A worker catches what its parts throw, so there is nothing to report here.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

/// How many threads this process may run at once.
fn available_threads() -> usize {
    thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// One call of [`Pool::run`].
struct Job<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    parts: usize,
    /// One claim takes this share of what is left.
    share: usize,
    /// The first part nobody has claimed.
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
                // Even dropping a payload may panic; what that throws is not dropped again.
                std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload))));
            }
        }
    }

    /// The next parts to execute: large pieces first, single parts at the end, so that all threads finish together.
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

    /// Panics if a part did.
    fn finish(self) {
        if let Some(payload) = self.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
    }
}

/// A job may be entered.
const OPEN: usize = 1;
/// The caller sleeps until the last worker has left.
const CALLER_SLEEPS: usize = 1 << 1;
/// The pool is being dropped.
const STOP: usize = 1 << 2;
/// One worker inside the job; the next eleven bits count them.
const INSIDE: usize = 1 << 3;
const INSIDE_MASK: usize = (2 * MAX_THREADS - 1) * INSIDE;
/// The rest counts the runs, so that a worker enters each only once. It may wrap: a worker that sleeps through all the
/// runs until the count comes round misses one, which is harmless.
const EPOCH: usize = INSIDE_MASK + INSIDE;

/// What the caller and the workers share.
struct Shared {
    /// See the constants above. On a cache line of its own: everybody spins on it.
    state: Padded<AtomicUsize>,
    /// The open job; only valid for those inside.
    job: AtomicPtr<Job<'static>>,
    spin: Duration,
    /// How many workers sleep, or are about to.
    sleepers: AtomicUsize,
    /// Guards nothing but the moment between looking and sleeping.
    bed: Mutex<()>,
    wake_workers: Condvar,
    wake_caller: Condvar,
}

#[repr(align(128))]
struct Padded<T>(T);

/// What a worker found when it looked.
enum Look {
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

    /// The caller: lets workers enter. `close` must follow before `job` goes away.
    fn open(&self, job: &Job<'_>) {
        self.job.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        let epoch = (self.state.0.load(Ordering::Relaxed) & !(EPOCH - 1)).wrapping_add(EPOCH);
        // Sequentially consistent with `sleep`: either the sleeper sees the open job or it is counted here.
        self.state.0.store(epoch | OPEN, Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            // Whoever has counted itself but does not wait yet holds the lock until it does.
            drop(lock(&self.bed));
            (0..sleepers.min(job.parts - 1)).for_each(|_| self.wake_workers.notify_one());
        }
    }

    /// The caller: lets nobody in any more and waits until nobody is inside.
    fn close(&self) {
        // Acquires what those wrote who have left, here and below.
        let nobody = |state: usize| state & INSIDE_MASK == 0;
        if nobody(self.state.0.fetch_and(!OPEN, Ordering::Acquire)) {
            return;
        }
        if spin_until(self.spin, || nobody(self.state.0.load(Ordering::Acquire)).then_some(())).is_some() {
            return;
        }
        let mut bed = lock(&self.bed);
        self.state.0.fetch_or(CALLER_SLEEPS, Ordering::Relaxed);
        while !nobody(self.state.0.load(Ordering::Acquire)) {
            bed = self.wake_caller.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.state.0.fetch_and(!CALLER_SLEEPS, Ordering::Relaxed);
    }

    /// The owner: tells the workers to end.
    fn stop(&self) {
        self.state.0.fetch_or(STOP, Ordering::SeqCst);
        drop(lock(&self.bed));
        self.wake_workers.notify_all();
    }

    /// A worker's life.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            match self.wait(seen) {
                Look::Entered { epoch } => seen = epoch,
                Look::Stop => return,
                Look::Nothing => continue,
            }
            // SAFETY: this worker is counted as inside, so the caller, who stored the address before it opened the job, is
            // still in `Pool::run` and waits in `close` until `leave`; until then the job stays where it is. `work_off`
            // does not unwind past `leave`. The job is `Sync`, because all it holds is.
            unsafe { &*self.job.load(Ordering::Relaxed) }.work_off();
            self.leave();
        }
    }

    /// A worker: waits until there is a job it has not seen, or the end.
    fn wait(&self, seen: usize) -> Look {
        let look = || match self.look(seen) {
            Look::Nothing => None,
            found => Some(found),
        };
        spin_until(self.spin, look).unwrap_or_else(|| self.sleep(seen))
    }

    /// A worker: enters if there is a job it has not seen.
    fn look(&self, seen: usize) -> Look {
        let mut state = self.state.0.load(Ordering::SeqCst);
        loop {
            let epoch = state & !(EPOCH - 1);
            if state & STOP != 0 {
                return Look::Stop;
            }
            if state & OPEN == 0 || epoch == seen {
                return Look::Nothing;
            }
            match self.state.0.compare_exchange_weak(state, state + INSIDE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Look::Entered { epoch },
                Err(now) => state = now,
            }
        }
    }

    fn sleep(&self, seen: usize) -> Look {
        let mut bed = lock(&self.bed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            match self.look(seen) {
                Look::Nothing => bed = self.wake_workers.wait(bed).unwrap_or_else(PoisonError::into_inner),
                found => break found,
            }
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// A worker: releases what it wrote, and wakes the caller if it is the last.
    fn leave(&self) {
        let before = self.state.0.fetch_sub(INSIDE, Ordering::Release);
        if before & CALLER_SLEEPS != 0 && before & INSIDE_MASK == INSIDE {
            drop(lock(&self.bed));
            self.wake_caller.notify_one();
        }
    }
}

/// Asks again and again for a while, at least once.
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

/// Takes a lock whose data cannot be left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
