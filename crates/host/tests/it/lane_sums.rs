//! Sums over the lanes of several vectors, on every instruction set of this machine.

use panoply_host::isa::{Isa, Simd};
use panoply_host::lane_sums::lane_sums;
use panoply_host::simd::{self, Number, Real, Task, Vector};

/// Numbers whose sum depends on the order of additions.
fn numbers<T: Real>(count: usize) -> Vec<T> {
    (0..count).map(|at| T::of(1.0 / (1.0 + (at * 7 % 31) as f64))).collect()
}

/// Adds the second half of the numbers to the first until one is left.
fn halved<T: Number>(mut lanes: Vec<T>) -> T {
    while lanes.len() > 1 {
        let half = lanes.len() / 2;
        lanes = (0..half).map(|at| T::add(lanes[at], lanes[at + half])).collect();
    }
    lanes[0]
}

/// Compares the sums of N vectors.
struct Compare<'a, T, const N: usize> {
    numbers: &'a [T],
}

impl<T: Real, const N: usize> Task for Compare<'_, T, N> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let lanes = <T::Vector<M> as Vector>::LANES;
        // SAFETY: the set is available, and there are numbers for all lanes.
        let sums = unsafe {
            let vectors: [T::Vector<M>; N] =
                std::array::from_fn(|at| T::Vector::<M>::load(self.numbers[at * lanes..][..lanes].as_ptr()));
            lane_sums(vectors)
        };
        for (at, sum) in sums.into_iter().enumerate() {
            let want = halved(self.numbers[at * lanes..][..lanes].to_vec());
            assert!(sum.wide().to_bits() == want.wide().to_bits(), "vector {at} of {N} with {lanes} lanes");
        }
    }
}

fn compare<T: Real>(isa: Isa) {
    let numbers = numbers::<T>(16 * 16);
    // SAFETY: the set is available.
    unsafe {
        simd::run(isa, Compare::<T, 1> { numbers: &numbers });
        simd::run(isa, Compare::<T, 2> { numbers: &numbers });
        simd::run(isa, Compare::<T, 8> { numbers: &numbers });
        simd::run(isa, Compare::<T, 16> { numbers: &numbers });
    }
}

#[test]
fn sums_over_lanes_are_added_by_halves() {
    for isa in Isa::available() {
        compare::<f32>(isa);
        compare::<f64>(isa);
    }
}
