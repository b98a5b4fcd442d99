//! Products of a few rows with columns whose elements are contiguous. The columns are read in place, a few of them for
//! all rows before the next.
//!
//! Each result is summed in as many parts as a vector has lanes.

use panoply_host::isa::Simd;
use panoply_host::lane_sums::lane_sums;
use panoply_host::simd::Vector;

use super::block::GemmBlock;
use super::pack;
use crate::element_format::Format;

/// Number of columns that are read side by side.
const STREAMS: usize = 8;

/// Computes a part whose operands are contiguous along `k`.
///
/// # Safety
/// The machine has the instructions; the operands of the part are valid.
#[inline(always)]
pub unsafe fn write<M: Simd, F: Format>(part: &GemmBlock<'_, F>) {
    let step = F::Vector::<M>::LANES * F::DEPTH;
    let whole = part.k / step * step;
    for column in (0..part.n).step_by(STREAMS) {
        // The last column is repeated instead of reading beyond it.
        let at: [usize; STREAMS] = std::array::from_fn(|i| (column + i).min(part.n - 1));
        let starts = at.map(|column| part.b.from(0, column).start.cast_const());
        for row in 0..part.m {
            let left = part.a.from(row, 0).start.cast_const();
            // SAFETY: the caller's promise.
            unsafe {
                let mut sums = [F::Vector::<M>::splat(F::Sum::default()); STREAMS];
                for k in (0..whole).step_by(step) {
                    let left = pack::vector::<M, F>(left.add(k), step);
                    for (sum, start) in sums.iter_mut().zip(starts) {
                        *sum = left.mul_add(pack::vector::<M, F>(start.add(k), step), *sum);
                    }
                }
                if whole < part.k {
                    let rest = part.k - whole;
                    let left = pack::vector::<M, F>(left.add(whole), rest);
                    for (sum, start) in sums.iter_mut().zip(starts) {
                        *sum = left.mul_add(pack::vector::<M, F>(start.add(whole), rest), *sum);
                    }
                }
                for (at, sum) in at.into_iter().zip(lane_sums(sums)) {
                    *part.c.from(row, at).start = F::narrow(sum);
                }
            }
        }
    }
}
