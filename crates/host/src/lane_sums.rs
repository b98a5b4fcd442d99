//! Sums of the lanes of several vectors at once.

use crate::simd::Vector;

/// Adds pairs of lanes of each vector until one vector or one lane for each is left, and returns these two numbers. Then lane *i* of vector
/// *k* belongs to the sum of vector *k* + *i* × (vectors left), modulo their number, which is a power of two.
///
/// # Safety
/// As [`Vector::splat`].
#[inline(always)]
pub unsafe fn add_lane_pairs<V: Vector>(sums: &mut [V]) -> [usize; 2] {
    // Two vectors become one that has the lanes of the first at even places and those of the second at odd ones.
    let (mut vectors, mut lanes) = (sums.len(), V::LANES);
    while vectors > 1 && lanes > 1 {
        (vectors, lanes) = (vectors / 2, lanes / 2);
        for at in 0..vectors {
            // SAFETY: the caller's promise.
            unsafe {
                let [first, second] = sums[at].zip(sums[at + vectors]);
                sums[at] = first.add(second);
            }
        }
    }
    [vectors, lanes]
}

/// Returns the sum of the lanes of each vector: the second half of the lanes is added to the first until one is left. N is a power of two.
///
/// # Safety
/// As [`Vector::splat`].
#[inline(always)]
pub unsafe fn lane_sums<V: Vector, const N: usize>(mut sums: [V; N]) -> [V::Elem; N] {
    const MAX_LANES: usize = 16;
    const { assert!(N.is_power_of_two() && V::LANES <= MAX_LANES) };
    // SAFETY: the caller's promise.
    unsafe {
        let ([vectors, mut lanes], mut copies) = (add_lane_pairs(&mut sums[..]), 1);
        while lanes > 1 {
            (lanes, copies) = (lanes / 2, copies * 2);
            let [first, second] = sums[0].zip(sums[0]);
            sums[0] = first.add(second);
        }
        let mut stored = [[V::Elem::default(); MAX_LANES]; N];
        for (vector, to) in sums[..vectors].iter().zip(&mut stored) {
            vector.store(to.as_mut_ptr());
        }
        std::array::from_fn(|at| stored[at % vectors][at / vectors * copies])
    }
}
