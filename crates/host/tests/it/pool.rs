//! The thread pool: every part runs once, nesting, panics, concurrent callers, and shutdown.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use panoply_host::pool::Pool;

/// Miri is slow.
const RUNS: usize = if cfg!(miri) { 5 } else { 2000 };

/// Runs `parts` parts and checks that each was executed once when `run` returned.
fn check_coverage(pool: &Pool, parts: usize) {
    let counts: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
    pool.run(parts, &|part| {
        counts[part].fetch_add(1, Ordering::Relaxed);
    });
    let wrong = counts.iter().position(|count| count.load(Ordering::Relaxed) != 1);
    assert_eq!(wrong, None, "{parts} parts on {pool:?}");
}

#[test]
fn every_part_is_executed_once() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads);
        for parts in [0, 1, 2, 3, 7, 64, 1000] {
            for _ in 0..RUNS / 100 + 1 {
                check_coverage(&pool, parts);
            }
        }
    }
}

/// A slice whose elements are written by the thread that executes the part with that index.
struct Slots(*mut usize, usize);

// SAFETY: during a run every element is accessed by one part only, as `Pool::run` promises.
unsafe impl Sync for Slots {}

impl Slots {
    fn set(&self, at: usize, value: usize) {
        assert!(at < self.1);
        // SAFETY: in bounds, and see above.
        unsafe { self.0.add(at).write(value) }
    }
}

/// The writes are not synchronized, so that Miri would report missing synchronization of the pool as a data race.
#[test]
fn plain_writes_are_visible_after_the_run() {
    let pool = Pool::new(3);
    for run in 0..RUNS {
        let mut out = vec![0; 16];
        let slots = Slots(out.as_mut_ptr(), out.len());
        pool.run(16, &|part| slots.set(part, part + run));
        assert!(out.iter().enumerate().all(|(part, value)| *value == part + run));
    }
}

#[test]
fn a_run_uses_several_threads() {
    let pool = Pool::new(3);
    // The barrier opens only if three threads execute a part each at the same time.
    let meeting = Barrier::new(3);
    pool.run(3, &|_| {
        meeting.wait();
    });
}

#[test]
fn sleeping_workers_are_woken() {
    let pool = Pool::new(2);
    for _ in 0..3 {
        let meeting = Barrier::new(2);
        pool.run(2, &|_| {
            meeting.wait();
        });
        // Longer than workers spin; the next run must succeed whether they sleep by now or not.
        thread::park_timeout(std::time::Duration::from_millis(2));
    }
}

#[test]
fn one_part_runs_on_the_caller() {
    let pool = Pool::new(4);
    let caller = thread::current().id();
    pool.run(1, &|_| assert_eq!(thread::current().id(), caller));
    Pool::new(1).run(10, &|_| assert_eq!(thread::current().id(), caller));
}

#[test]
fn a_nested_run_is_executed_inline() {
    let pool = Pool::new(3);
    let count = AtomicUsize::new(0);
    pool.run(8, &|_| {
        let outer = thread::current().id();
        pool.run(5, &|_| {
            assert_eq!(thread::current().id(), outer);
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(count.into_inner(), 40);
}

#[test]
fn a_panic_reaches_the_caller_after_all_parts_stopped() {
    let pool = Pool::new(3);
    for bad in [0, 1, 31, 63] {
        let inside = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(64, &|part| {
                inside.fetch_add(1, Ordering::Relaxed);
                if part == bad {
                    inside.fetch_sub(1, Ordering::Relaxed);
                    panic!("part {part} is bad");
                }
                inside.fetch_sub(1, Ordering::Relaxed);
            });
        }));
        assert_eq!(inside.into_inner(), 0);
        let payload = outcome.expect_err("a part panicked");
        assert_eq!(payload.downcast_ref::<String>(), Some(&format!("part {bad} is bad")));
        check_coverage(&pool, 100);
    }
}

#[test]
fn all_parts_may_panic() {
    let pool = Pool::new(3);
    let meeting = Barrier::new(3);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pool.run(3, &|_| {
            meeting.wait();
            panic!("all of them");
        });
    }));
    assert_eq!(outcome.expect_err("every part panicked").downcast_ref(), Some(&"all of them"));
    check_coverage(&pool, 100);
}

#[test]
fn many_callers_share_a_pool() {
    let pool = Pool::new(3);
    let start = Barrier::new(6);
    thread::scope(|scope| {
        for caller in 0..6 {
            let (pool, start) = (&pool, &start);
            scope.spawn(move || {
                start.wait();
                for run in 0..RUNS {
                    check_coverage(pool, 2 + (caller + run) % 40);
                }
            });
        }
    });
}

#[test]
fn a_second_caller_does_not_wait_for_the_first() {
    let pool = Pool::new(2);
    let (send, receive) = mpsc::channel();
    let receive = std::sync::Mutex::new(receive);
    let first_runs = Barrier::new(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            pool.run(2, &|_| {
                first_runs.wait();
                // Both threads of the pool block here until the second caller is done.
                receive.lock().unwrap().recv().expect("the second caller sends twice");
            });
        });
        first_runs.wait();
        check_coverage(&pool, 10);
        for _ in 0..2 {
            send.send(()).unwrap();
        }
    });
}

#[test]
fn pools_can_be_created_and_dropped_repeatedly() {
    for run in 0..RUNS / 20 + 1 {
        let pool = Pool::new(1 + run % 4);
        if run % 3 != 0 {
            check_coverage(&pool, 10);
        }
    }
}

#[test]
fn a_pool_can_be_moved_between_threads() {
    let pool = Pool::for_machine();
    let pool = thread::spawn(move || {
        check_coverage(&pool, 10);
        pool
    });
    check_coverage(&pool.join().expect("the run does not panic"), 10);
}
