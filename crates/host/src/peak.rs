//! Measurement of the peak arithmetic throughput of the machine, as a reference for benchmarks of matrix products.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use panoply_ir::DType;
use web_time::Instant;

#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx512Bf16, has_avx512_bf16};
use crate::isa::{Isa, Simd};
use crate::pool::Pool;
use crate::simd::{self, Real, Task, Vector};

/// Number of independent accumulators: more than the additions in flight, and few enough to leave a register for a
/// factor out of 16.
const CHAINS: usize = 12;
/// Multiply-adds per accumulator between two readings of the clock.
const ROUNDS: usize = 1 << 16;

/// Measures the peak floating-point operations per second of `threads` threads, as the best round within `budget`.
/// Supported types are f64, bf16 (as used by matrix products, if the machine has the instructions) and f32; others are
/// measured as f32.
pub fn flops(threads: usize, dtype: DType, budget: Duration) -> f64 {
    let (pool, isa) = (Pool::new(threads), Isa::best());
    let (begin, mut best) = (Instant::now(), 0.0_f64);
    while best == 0.0 || begin.elapsed() < budget {
        let start = Instant::now();
        let counted = AtomicUsize::new(0);
        pool.run(pool.threads(), &|_| {
            let mut done = 0;
            round(isa, dtype, &mut done);
            counted.fetch_add(done, Ordering::Relaxed);
        });
        best = best.max(counted.into_inner() as f64 / start.elapsed().as_secs_f64());
    }
    best
}

/// Runs one round on this thread and stores the number of operations in `done`.
fn round(isa: Isa, dtype: DType, done: &mut usize) {
    // SAFETY: the instruction set is available, and pairs are only multiplied if the machine supports it.
    unsafe {
        match dtype {
            DType::F64 => simd::run(isa, Round { one: 1.0_f64, done }),
            #[cfg(target_arch = "x86_64")]
            DType::BF16 if isa == Isa::Avx512 && has_avx512_bf16() => Avx512Bf16::run(Bf16Round { done }),
            _ => simd::run(isa, Round { one: 1.0_f32, done }),
        }
    }
}

struct Round<'a, T> {
    one: T,
    done: &'a mut usize,
}

impl<T: Real> Task for Round<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        // SAFETY: the caller's promise.
        *self.done = 2 * unsafe { chains::<T::Vector<M>>(self.one) };
    }
}

#[cfg(target_arch = "x86_64")]
struct Bf16Round<'a> {
    done: &'a mut usize,
}

#[cfg(target_arch = "x86_64")]
impl Task for Bf16Round<'_> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        // Two products and two additions in each lane.
        // SAFETY: the caller's promise.
        *self.done = 4 * unsafe { chains::<simd::Bf16Dot>(1.0) };
    }
}

/// Runs chains of multiply-adds in registers and returns the number of multiply-adds over all lanes.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn chains<V: Vector>(one: V::Elem) -> usize {
    let mut last = [V::Elem::default(); 64];
    // SAFETY: the caller's promise; no vector has more than 64 lanes.
    unsafe {
        let factor = V::splat(black_box(one));
        // `black_box` stops the compiler from merging accumulators with equal initial values.
        let mut sums: [V; CHAINS] = std::array::from_fn(|_| V::splat(black_box(V::Elem::default())));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = factor.mul_add(factor, *sum);
            }
        }
        for sum in sums {
            sum.store(last.as_mut_ptr());
            black_box(&last);
        }
    }
    ROUNDS * CHAINS * V::LANES
}
