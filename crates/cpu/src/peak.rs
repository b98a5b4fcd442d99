//! What the machine's multipliers give when nothing is in the way: what benchmarks compare products with.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use panoply_ir::DType;
use web_time::Instant;

use crate::pool::Pool;
use crate::simd::{self, Real, Task, Vector};
#[cfg(target_arch = "x86_64")]
use crate::vm::isa::{Avx512Pairs, has_pairs};
use crate::vm::isa::{Isa, Machine};

/// Sums side by side: more than additions under way, and no more than half of the fewest registers with room for a factor.
const CHAINS: usize = 12;
/// Multiply-adds of a chain between two looks at the clock.
const ROUNDS: usize = 1 << 16;

/// Floating-point operations a second, of so many threads together, on f64, on bf16 as matrix products take it, or on f32: the best of
/// what was seen in this time.
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

/// Does one round on this thread and says how many operations it was.
fn round(isa: Isa, dtype: DType, done: &mut usize) {
    // SAFETY: the set is the machine's own, and pairs are only multiplied where it has them.
    unsafe {
        match dtype {
            DType::F64 => simd::run(isa, Round { one: 1.0_f64, done }),
            #[cfg(target_arch = "x86_64")]
            DType::BF16 if isa == Isa::Avx512 && has_pairs() => Avx512Pairs::run(PairsRound { done }),
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
    unsafe fn run<M: Machine>(self) {
        // SAFETY: the caller's promise.
        *self.done = 2 * unsafe { chains::<T::Vector<M>>(self.one) };
    }
}

#[cfg(target_arch = "x86_64")]
struct PairsRound<'a> {
    done: &'a mut usize,
}

#[cfg(target_arch = "x86_64")]
impl Task for PairsRound<'_> {
    #[inline(always)]
    unsafe fn run<M: Machine>(self) {
        // Two products and two additions in each lane.
        // SAFETY: the caller's promise.
        *self.done = 4 * unsafe { chains::<simd::Pairs>(1.0) };
    }
}

/// Multiplies and adds in registers; how many lanes that were.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn chains<V: Vector>(one: V::Elem) -> usize {
    let mut last = [V::Elem::default(); 64];
    // SAFETY: the caller's promise; no vector has more lanes than there is room for.
    unsafe {
        let factor = V::splat(black_box(one));
        // Each is hidden from the compiler, which would take two that begin alike for one.
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
