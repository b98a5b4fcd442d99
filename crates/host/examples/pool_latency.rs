//! Cost of running a job on the thread pool.
//!
//! `cargo run --release -p panoply-cpu --example pool_latency [threads]`

use std::hint::black_box;
use std::time::Instant;

use panoply_host::pool::Pool;

/// Number of runs timed together; small, so that some timings are undisturbed.
const RUNS: usize = 200;

fn main() {
    let threads = std::env::args().nth(1).map(|text| text.parse::<usize>().expect("a number of threads"));
    let pool = threads.map_or_else(Pool::for_machine, Pool::new);
    println!("{} threads, ns per run of empty parts", pool.threads());
    for parts in [1, 2, 4, 16, 256] {
        println!("{parts:4} parts: {:.0}", nanoseconds(|| pool.run(parts, &|part| _ = black_box(part))));
    }
    println!("two parts of 10 us each: {:.0}", nanoseconds(|| pool.run(2, &|_| busy(10_000))));
}

/// Busy-waits for the given time.
fn busy(nanoseconds: u128) {
    let start = Instant::now();
    while start.elapsed().as_nanos() < nanoseconds {}
}

fn nanoseconds(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..500 {
        let start = Instant::now();
        for _ in 0..RUNS {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / RUNS as f64);
    }
    best
}
