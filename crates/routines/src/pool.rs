//! Gradient of max pooling.

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task};
use panoply_ir::routine::{self, PoolAxis};

use super::{Shared, in_numbers};

/// Computes the gradient of the input: each window's gradient is divided equally among its largest elements.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn max_gradient<T: Real>(pool: &Pool, isa: Isa, windows: &routine::Pool, buffers: &[*mut u8]) {
    let [input, output, grad_output, grad_input] = [0, 1, 2, 3].map(|at| Shared(buffers[at]));
    let elems = |of: fn(&PoolAxis) -> usize| windows.axes.iter().map(of).product::<usize>();
    let (long, short, size) = (elems(|axis| axis.length), elems(|axis| axis.positions), elems(|axis| axis.size));
    let places = WindowOffsets::new(&windows.axes);
    let work = windows.planes.saturating_mul(short).saturating_mul(8 * size);
    in_numbers(pool, windows.planes, work, |plane| {
        let of = |buffer: Shared, elems: usize| buffer.at(plane * elems * size_of::<T>()).cast::<T>();
        // SAFETY: the caller's promise; planes do not overlap.
        unsafe {
            let input = std::slice::from_raw_parts(of(input, long), long);
            let output = std::slice::from_raw_parts(of(output, short), short);
            let grad_output = std::slice::from_raw_parts(of(grad_output, short), short);
            let to = std::slice::from_raw_parts_mut(of(grad_input, long), long);
            match places.run {
                2 | 3 => simd::run(isa, Plane { places: &places, input, output, grad_output, to }),
                _ => places.spread(input, output, grad_output, to),
            }
        }
    });
}

/// Number of windows of a row from which replicating values per element and vectorizing pays off.
const LONG: usize = 6;

/// Positions of windows and their elements in a plane.
struct WindowOffsets {
    positions: [usize; 3],
    /// Elements from one window to the next along each axis.
    steps: [usize; 3],
    /// Offsets from a window's first element to each of its elements.
    offsets: Vec<usize>,
    /// Number of contiguous elements of a window's row, if the windows of a row are adjacent, not overlapping, and
    /// enough for vectors; 0 otherwise.
    run: usize,
}

impl WindowOffsets {
    fn new(axes: &[PoolAxis; 3]) -> WindowOffsets {
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
        let PoolAxis { size, stride, dilation, positions, .. } = axes[2];
        let run = if stride == size && dilation == 1 && positions >= LONG { size } else { 0 };
        WindowOffsets { positions: axes.map(|axis| axis.positions), steps, offsets, run }
    }

    /// Processes rows of windows without branching on equality, which would be unpredictable.
    fn spread<T: Real>(&self, input: &[T], output: &[T], grad_output: &[T], to: &mut [T]) {
        to.fill(T::default());
        let [_, rows, columns] = self.positions;
        let step = self.steps[2];
        let mut shares = vec![T::default(); columns];
        for (row, (largest, grad_output)) in
            output.chunks_exact(columns).zip(grad_output.chunks_exact(columns)).enumerate()
        {
            let first = row / rows * self.steps[0] + row % rows * self.steps[1];
            shares.fill(T::default());
            for offset in &self.offsets {
                let elements = input[first + offset..].iter().step_by(step);
                for ((hits, largest), element) in shares.iter_mut().zip(largest).zip(elements) {
                    *hits = T::add(*hits, if element == largest { T::of(1.0) } else { T::default() });
                }
            }
            for (share, grad_output) in shares.iter_mut().zip(grad_output) {
                *share = T::div(*grad_output, *share);
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

/// The windows of a plane and their gradients.
struct Plane<'a, T> {
    places: &'a WindowOffsets,
    input: &'a [T],
    output: &'a [T],
    grad_output: &'a [T],
    to: &'a mut [T],
}

impl<T: Real> Task for Plane<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        match self.places.run {
            3 => self.side_by_side::<3>(),
            _ => self.side_by_side::<2>(),
        }
    }
}

impl<T: Real> Plane<'_, T> {
    /// Processes adjacent windows of a row: a window's value is replicated for each of its `RUN` elements of a row, so
    /// that whole rows are compared and written in memory order.
    #[inline(always)]
    fn side_by_side<const RUN: usize>(self) {
        let Plane { places, input, output, grad_output, to } = self;
        let [_, rows, columns] = places.positions;
        let length = columns * RUN;
        let (mut largest, mut shares) = (vec![T::default(); length], vec![T::default(); length]);
        to.fill(T::default());
        for (row, (most, grad_output)) in
            output.chunks_exact(columns).zip(grad_output.chunks_exact(columns)).enumerate()
        {
            let first = row / rows * places.steps[0] + row % rows * places.steps[1];
            largest.as_chunks_mut::<RUN>().0.iter_mut().zip(most).for_each(|(run, most)| *run = [*most; RUN]);
            shares.fill(T::default());
            // Offsets of a window along a row are consecutive.
            for offset in places.offsets.iter().step_by(RUN) {
                let elements = &input[first + offset..][..length];
                for ((hits, largest), element) in shares.iter_mut().zip(&largest).zip(elements) {
                    *hits = T::add(*hits, if element == largest { T::of(1.0) } else { T::default() });
                }
            }
            for (run, grad_output) in shares.as_chunks_mut::<RUN>().0.iter_mut().zip(grad_output) {
                let hits = run.iter().fold(T::default(), |hits, hit| T::add(hits, *hit));
                *run = [T::div(*grad_output, hits); RUN];
            }
            for offset in places.offsets.iter().step_by(RUN) {
                let elements = &input[first + offset..][..length];
                let to = &mut to[first + offset..][..length];
                for ((to, share), (largest, element)) in to.iter_mut().zip(&shares).zip(largest.iter().zip(elements)) {
                    *to = T::add(*to, if element == largest { *share } else { T::default() });
                }
            }
        }
    }
}
