//! The gradient of a convolution's filters.
//!
//! For every tap, it is the product over positions of the output gradient with the plane at the tap's offset. Vectors
//! run along the filters: the output gradient is transposed so that the filters of one position are contiguous, and
//! each row of a tile is one tap of one channel. A thread keeps the sums of a block of channels while it iterates over
//! the batch.

use std::ops::Range;

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{Number, Task, Vector};
use panoply_ir::routine::Conv;

use super::grid::{ConvSweep, Row};
use super::{BLOCK_TAPS, PLANE_BYTES, Sizes, even};
use crate::element_format::Format;
use crate::tile::{self, Tile, most_rows, most_vectors, row_blocks, vector_parts};
use crate::{PARTS, Shared, in_numbers};

/// Computes the gradient of the filters from the gradient of the output and the input.
///
/// # Safety
/// As [`crate::run`].
pub unsafe fn filters<F: Format>(pool: &Pool, isa: Isa, conv: &Conv, buffers: &[*mut u8]) {
    let [grad_output, source, result] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let sizes = Sizes::new(conv, false);
    let mut pass = ConvSweep::output(conv).pop().expect("the output is one pass");
    let most = even(sizes.channels, BLOCK_TAPS / pass.taps.len());
    // If there are few blocks of channels, the batch is split and the parts are summed separately. Bands and parts are sums of their own,
    // so they must not depend on the number of threads.
    let splits = PARTS.div_ceil(sizes.groups * sizes.channels.div_ceil(most)).min(sizes.batch);
    // A source read in place needs no scratch memory; the transposed output gradient does.
    let in_place = F::IN_PLACE && pass.in_place(0).is_some();
    pass.divide(if in_place { 1024 } else { PLANE_BYTES / size_of::<F::Plane>() / most }, 1);
    let channels = most.min(sizes.channels.div_ceil(pool.threads().div_ceil(sizes.groups * splits)));
    let blocks = sizes.channels.div_ceil(channels);
    let lanes = 64 / size_of::<F::Sum>();
    let width = sizes.results.next_multiple_of(lanes);
    let sums = channels * pass.taps.len() * width;
    let mut partial = pool.scratch().take::<F::Sum>(sizes.groups * blocks * splits * sums);
    let partial = Shared(partial.start().cast());
    in_numbers(pool, sizes.groups * blocks * splits, sizes.work, |number| {
        let (block, split) = (number / splits, number % splits);
        let first = block % blocks * channels;
        let part = FilterBlock::<F> {
            sizes: &sizes,
            pass: &pass,
            pool,
            group: block / blocks,
            channels: first..sizes.channels.min(first + channels),
            items: sizes.batch * split / splits..sizes.batch * (split + 1) / splits,
            width,
            grad_output: grad_output.at(0).cast(),
            source: source.at(0).cast(),
            sums: partial.at(0).cast::<F::Sum>().wrapping_add(number * sums),
        };
        // SAFETY: the caller's promise; parts have separate sums.
        unsafe { F::run(isa, part) };
    });
    let add = Add { sizes: &sizes, taps: pass.taps.len(), channels, splits, width };
    let parts = sizes.results.div_ceil(TOGETHER);
    in_numbers(pool, sizes.groups * parts, add.work(), |number| {
        let (group, first) = (number / parts, number % parts * TOGETHER);
        let filters = first..sizes.results.min(first + TOGETHER);
        // SAFETY: the caller's promise; all parts have been summed.
        unsafe { add.run::<F>(partial.at(0).cast(), result.at(0).cast(), group, filters) };
    });
}

/// Maximum number of filters of a group for which vectors run along positions instead.
const FEW_FILTERS: usize = 4;

/// The planes of channels.
#[derive(Clone, Copy)]
struct Planes<T> {
    start: *const T,
    /// Elements from one channel to the next.
    channel: usize,
}

impl<T> Planes<T> {
    /// Returns the address that row `n` reads at the first position; rows are numbered by channel, then by tap.
    #[inline(always)]
    fn row(&self, pass: &ConvSweep, n: usize) -> *const T {
        let taps = pass.offsets.len();
        self.start.wrapping_add(n / taps * self.channel + pass.offsets[n % taps])
    }
}

/// The sums of a block of channels over some batch items.
struct FilterBlock<'a, F: Format> {
    sizes: &'a Sizes,
    pass: &'a ConvSweep,
    pool: &'a Pool,
    group: usize,
    channels: Range<usize>,
    items: Range<usize>,
    /// Number of filters, padded to whole vectors.
    width: usize,
    grad_output: *const F::Elem,
    source: *const F::Elem,
    /// One number per channel, tap and filter.
    sums: *mut F::Sum,
}

impl<F: Format> Task for FilterBlock<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let FilterBlock { sizes, pass, width, .. } = self;
        let (channel, count) = (pass.channel(), self.channels.len());
        let rows: usize = pass.result_rows(0).iter().map(|row| row.count.div_ceil(F::DEPTH)).sum();
        let planes = (count * channel * size_of::<F::Plane>()).div_ceil(size_of::<F::Sum>());
        let mut scratch = self.pool.scratch().take::<F::Sum>(planes + rows * width);
        let transposed = scratch.start().wrapping_add(planes);
        let own = scratch.start().cast::<F::Plane>();
        // SAFETY: the caller's promise, here and below; the scratch memory has room for the planes and the output
        // gradient of a band.
        unsafe { (0..rows * width).for_each(|at| *transposed.add(at) = F::Sum::default()) };
        for band in 0..pass.bands() {
            let result_rows = pass.result_rows(band);
            let in_place = pass.in_place(band).filter(|_| F::IN_PLACE);
            let source_rows = if in_place.is_none() { pass.source_rows(band) } else { Vec::new() };
            for item in self.items.clone() {
                let group = item * sizes.groups + self.group;
                let source = self.source.wrapping_add((group * sizes.channels + self.channels.start) * sizes.source);
                let grad_output = self.grad_output.wrapping_add(group * sizes.results * sizes.result);
                let is_first = item == self.items.start;
                let fresh = is_first && band == 0;
                // SAFETY: as above.
                unsafe {
                    let planes = match in_place {
                        Some(start) => Planes { start: source.add(start).cast(), channel: sizes.source },
                        None => {
                            for at in 0..count {
                                let (from, to) = (source.add(at * sizes.source), own.add(at * channel));
                                // The planes of all items have their zeros at the same places.
                                pass.pack(&source_rows, [from], to, is_first, |[elem]| F::plane(elem));
                            }
                            Planes { start: own, channel }
                        }
                    };
                    if F::IN_PLACE && sizes.results <= FEW_FILTERS {
                        let dots = BandDots::<F> {
                            pass,
                            result_rows: &result_rows,
                            rows: count * pass.offsets.len(),
                            width,
                            filters: sizes.results,
                            filter: sizes.result,
                            planes,
                            grad_output: grad_output.cast(),
                            sums: self.sums,
                            fresh,
                        };
                        M::run(&dots);
                    } else {
                        self.transpose(&result_rows, grad_output, transposed);
                        let tiles = BandTiles::<F::Packed> {
                            pass,
                            result_rows: &result_rows,
                            rows: count * pass.offsets.len(),
                            width,
                            planes,
                            transposed,
                            sums: self.sums,
                            fresh,
                        };
                        M::run(&tiles);
                    }
                }
            }
        }
    }
}

impl<F: Format> FilterBlock<'_, F> {
    /// Transposes the output gradient of a band: the filters at one position, or at the positions of one lane, become contiguous.
    #[inline(always)]
    unsafe fn transpose(&self, result_rows: &[Row], grad_output: *const F::Elem, transposed: *mut F::Sum) {
        const SIDE: usize = 16;
        let (results, width) = (self.sizes.results, self.width);
        let mut to = transposed;
        for row in result_rows {
            let (start, length) = (row.channel, row.count);
            let lanes = length.div_ceil(F::DEPTH);
            // Copied in square blocks, so that each cache line is used completely while it is cached.
            for column in (0..lanes).step_by(SIDE) {
                for row in (0..results).step_by(SIDE) {
                    for lane in column..lanes.min(column + SIDE) {
                        let at = lane * F::DEPTH;
                        let both = F::DEPTH > 1 && at + 1 < length;
                        for result in row..results.min(row + SIDE) {
                            let from = grad_output.wrapping_add(result * self.sizes.result + start + at);
                            // SAFETY: the caller's promise.
                            unsafe {
                                let second = if both { *from.add(1) } else { F::Elem::default() };
                                *to.add(lane * width + result) = F::lane(*from, second);
                            }
                        }
                    }
                }
            }
            to = to.wrapping_add(lanes * width);
        }
    }
}

/// The same sums for few filters: vectors run along positions and are reduced at the end.
struct BandDots<'a, F: Format> {
    pass: &'a ConvSweep,
    result_rows: &'a [Row],
    /// Number of rows: taps of all channels.
    rows: usize,
    /// Elements from one row of sums to the next.
    width: usize,
    filters: usize,
    /// Elements from one filter's output gradient to the next.
    filter: usize,
    planes: Planes<F::Plane>,
    grad_output: *const F::Plane,
    sums: *mut F::Sum,
    fresh: bool,
}

impl<F: Format> Task for &BandDots<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let BandDots { pass, result_rows, width, planes, fresh, .. } = *self;
        for filter in 0..self.filters {
            let grad_output = self.grad_output.wrapping_add(filter * self.filter);
            for (start, rows) in row_blocks(self.rows, most_rows::<F::Vector<M>>()) {
                let sums = self.sums.wrapping_add(start * width + filter);
                let dot = Dot::<F> { pass, result_rows, width, start, planes, grad_output, sums, fresh };
                // SAFETY: the caller's promise.
                unsafe { tile::with_rows::<M, F::Vector<M>, _>(rows, &dot) };
            }
        }
    }
}

/// A column of sums over a band.
struct Dot<'a, F: Format> {
    pass: &'a ConvSweep,
    result_rows: &'a [Row],
    width: usize,
    start: usize,
    planes: Planes<F::Plane>,
    grad_output: *const F::Plane,
    sums: *mut F::Sum,
    fresh: bool,
}

impl<F: Format> Tile for Dot<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self) {
        let step = <F::Vector<M> as Vector>::LANES * F::DEPTH;
        let left: [*const F::Plane; R] = std::array::from_fn(|row| self.planes.row(self.pass, self.start + row));
        // SAFETY: the caller's promise, here and below. Vectors have at most 64 bytes on every machine.
        let mut sums = unsafe { tile::zeros::<F::Vector<M>, R, 1>() };
        // SAFETY: it is called with whole vectors.
        let mut add = |left: [*const F::Plane; R], grad_output: *const F::Plane| unsafe {
            let grad_output = F::Vector::<M>::load(grad_output.cast());
            for (sum, left) in sums.iter_mut().zip(left) {
                sum[0] = F::Vector::<M>::load(left.cast()).mul_add(grad_output, sum[0]);
            }
        };
        for &Row { channel, plane, count: length } in self.result_rows {
            let (left, grad_output) = (left.map(|row| row.wrapping_add(plane)), self.grad_output.wrapping_add(channel));
            let whole = length / step * step;
            for at in (0..whole).step_by(step) {
                add(left.map(|row| row.wrapping_add(at)), grad_output.wrapping_add(at));
            }
            if whole < length {
                // Elements after the row must not be read as factors, not even times zero.
                let mut rest = [[F::Plane::default(); 32]; R];
                let mut last = [F::Plane::default(); 32];
                for at in whole..length {
                    // SAFETY: as above.
                    unsafe {
                        last[at - whole] = *grad_output.add(at);
                        rest.iter_mut().zip(left).for_each(|(rest, left)| rest[at - whole] = *left.add(at));
                    }
                }
                add(rest.each_ref().map(|rest| rest.as_ptr()), last.as_ptr());
            }
        }
        for (row, sum) in sums.into_iter().enumerate() {
            let mut parts = [F::Sum::default(); 16];
            // SAFETY: as above.
            unsafe {
                sum[0].store(parts.as_mut_ptr());
                let sum = parts[1..step / F::DEPTH].iter().fold(parts[0], |sum, part| F::Sum::add(sum, *part));
                let to = self.sums.add(row * self.width);
                *to = if self.fresh { sum } else { F::Sum::add(*to, sum) };
            }
        }
    }
}

/// The tiles of sums over a band. They are a function of their own, which formats that are packed alike share.
struct BandTiles<'a, F: Format> {
    pass: &'a ConvSweep,
    result_rows: &'a [Row],
    /// Number of rows: taps of all channels.
    rows: usize,
    /// Number of filters, padded to whole vectors.
    width: usize,
    planes: Planes<F::Plane>,
    transposed: *const F::Sum,
    sums: *mut F::Sum,
    fresh: bool,
}

impl<F: Format> Task for &BandTiles<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let BandTiles { pass, result_rows, planes, fresh, .. } = *self;
        let lanes = <F::Vector<M> as Vector>::LANES;
        for (vector, vectors) in vector_parts(self.width / lanes, most_vectors::<F::Vector<M>>()) {
            for (start, rows) in row_blocks(self.rows, most_rows::<F::Vector<M>>()) {
                let product = Product::<F> {
                    pass,
                    result_rows,
                    width: self.width,
                    start,
                    planes,
                    transposed: self.transposed.wrapping_add(vector * lanes),
                    sums: self.sums.wrapping_add(start * self.width + vector * lanes),
                    fresh,
                };
                // SAFETY: the caller's promise.
                unsafe { tile::with_extents::<M, F::Vector<M>, _>(rows, vectors, &product) };
            }
        }
    }
}

/// A tile of sums over a band.
struct Product<'a, F: Format> {
    pass: &'a ConvSweep,
    result_rows: &'a [Row],
    /// Elements from one row of sums to the next.
    width: usize,
    /// The first row, numbered by channel, then by tap.
    start: usize,
    planes: Planes<F::Plane>,
    transposed: *const F::Sum,
    sums: *mut F::Sum,
    fresh: bool,
}

impl<F: Format> Tile for Product<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self) {
        let (pass, distance) = (self.pass, self.width);
        let left: [*const F::Plane; R] = tile::each_row(|row| self.planes.row(pass, self.start + row));
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.fresh {
                true => tile::zeros::<F::Vector<M>, R, C>(),
                false => tile::load::<F::Vector<M>, R, C>(self.sums, distance),
            };
            let mut right = self.transposed;
            for &Row { plane, count: length, .. } in self.result_rows {
                let left: [*const F::Plane; R] = tile::each_row(|row| left[row].wrapping_add(plane));
                let whole = length / F::DEPTH;
                tile::rows(&mut sums, tile::each_row(|row| left[row].cast()), 1, right, distance, whole);
                right = right.wrapping_add(whole * distance);
                if const { F::DEPTH > 1 } && whole * F::DEPTH < length {
                    // Elements after the row must not be read as factors, not even times zero.
                    let last: [F::Sum; R] = tile::each_row(|row| F::alone(*left[row].add(length - 1)));
                    let last = tile::each_row(|row| std::ptr::from_ref(&last[row]));
                    tile::rows(&mut sums, last, 1, right, distance, 1);
                    right = right.wrapping_add(distance);
                }
            }
            tile::store(sums, self.sums, distance);
        }
    }
}

/// Number of filters that are transposed together: those that share a cache line.
const TOGETHER: usize = 16;

/// Adds the parts of the batch in order and transposes the sums into filters.
struct Add<'a> {
    sizes: &'a Sizes,
    taps: usize,
    channels: usize,
    splits: usize,
    width: usize,
}

impl Add<'_> {
    /// Returns the work, counting each number moved as about eight multiplications.
    fn work(&self) -> usize {
        8 * self.splits * self.sizes.groups * self.sizes.channels * self.taps * self.width
    }

    unsafe fn run<F: Format>(
        &self,
        partial: *const F::Sum,
        result: *mut F::Result,
        group: usize,
        filters: Range<usize>,
    ) {
        let (taps, blocks) = (self.taps, self.sizes.channels.div_ceil(self.channels));
        let deep = self.sizes.channels * taps;
        let sums = self.channels * taps * self.width;
        let to = result.wrapping_add(group * self.sizes.results * deep);
        for row in 0..deep {
            let (channel, tap) = (row / taps, row % taps);
            let block = group * blocks + channel / self.channels;
            let at = block * self.splits * sums + (channel % self.channels * taps + tap) * self.width;
            for filter in filters.clone() {
                // SAFETY: the caller's promise.
                unsafe {
                    let from = partial.add(at + filter);
                    let sum = (1..self.splits).fold(*from, |sum, split| F::Sum::add(sum, *from.add(split * sums)));
                    *to.add(filter * deep + row) = F::narrow(sum);
                }
            }
        }
    }
}
