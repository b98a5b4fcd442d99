//! What flows back from the largest elements of windows.

use panoply_ir::routine::{self, PoolAxis};

use super::{Shared, in_numbers};
use crate::pool::Pool;
use crate::simd::Real;

/// What flows to the input: each window's flow, in equal parts to its largest elements.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn max_gradient<T: Real>(pool: &Pool, windows: &routine::Pool, buffers: &[*mut u8]) {
    let [input, output, flow, to_input] = [0, 1, 2, 3].map(|at| Shared(buffers[at]));
    let elems = |of: fn(&PoolAxis) -> usize| windows.axes.iter().map(of).product::<usize>();
    let (long, short, size) = (elems(|axis| axis.length), elems(|axis| axis.positions), elems(|axis| axis.size));
    let places = Places::new(&windows.axes);
    let work = windows.planes.saturating_mul(short).saturating_mul(8 * size);
    in_numbers(pool, windows.planes, work, |plane| {
        let of = |buffer: Shared, elems: usize| buffer.at(plane * elems * size_of::<T>()).cast::<T>();
        // SAFETY: the caller's promise; planes are apart.
        unsafe {
            let input = std::slice::from_raw_parts(of(input, long), long);
            let output = std::slice::from_raw_parts(of(output, short), short);
            let flow = std::slice::from_raw_parts(of(flow, short), short);
            places.spread(input, output, flow, std::slice::from_raw_parts_mut(of(to_input, long), long));
        }
    });
}

/// Where windows and their elements are in a plane.
struct Places {
    positions: [usize; 3],
    /// Elements from one window to the next along each axis.
    steps: [usize; 3],
    /// Elements from a window's first element to each of its elements.
    offsets: Vec<usize>,
}

impl Places {
    fn new(axes: &[PoolAxis; 3]) -> Places {
        let behind = |axis: usize| axes[axis + 1..].iter().map(|axis| axis.length).product::<usize>();
        let mut offsets = vec![0];
        for (at, axis) in axes.iter().enumerate() {
            let along = |before: &usize| {
                let before = *before;
                (0..axis.size).map(move |element| before + element * axis.dilation * behind(at))
            };
            offsets = offsets.iter().flat_map(along).collect();
        }
        let steps = std::array::from_fn(|axis| axes[axis].stride * behind(axis));
        Places { positions: axes.map(|axis| axis.positions), steps, offsets }
    }

    /// Rows of windows at once, and no branch on what is equal: nobody could predict it.
    fn spread<T: Real>(&self, input: &[T], output: &[T], flow: &[T], to: &mut [T]) {
        to.fill(T::default());
        let [_, rows, columns] = self.positions;
        let step = self.steps[2];
        let mut shares = vec![T::default(); columns];
        for (row, (largest, flow)) in output.chunks_exact(columns).zip(flow.chunks_exact(columns)).enumerate() {
            let first = row / rows * self.steps[0] + row % rows * self.steps[1];
            shares.fill(T::default());
            for offset in &self.offsets {
                let elements = input[first + offset..].iter().step_by(step);
                for ((hits, largest), element) in shares.iter_mut().zip(largest).zip(elements) {
                    *hits = T::add(*hits, if element == largest { T::of(1.0) } else { T::default() });
                }
            }
            for (share, flow) in shares.iter_mut().zip(flow) {
                *share = T::div(*flow, *share);
            }
            for offset in &self.offsets {
                let elements = input[first + offset..].iter().step_by(step);
                let to = to[first + offset..].iter_mut().step_by(step);
                for (((share, largest), element), to) in shares.iter().zip(largest).zip(elements).zip(to) {
                    *to = T::add(*to, if element == largest { *share } else { T::default() });
                }
            }
        }
    }
}
