//! What flows to the filters of a convolution.
//!
//! For every tap, the product over positions of what flows to the output with the plane at the tap's offset. Vectors run
//! along the filters: what flows is turned so that those of one position stand together, and each row of a tile is one
//! tap of one channel. A thread keeps the sums of a block of channels while it goes through the batch.

use std::ops::Range;

use panoply_ir::routine::Conv;

use super::grid::ConvSweep;
use super::{BLOCK_TAPS, PLANE_BYTES, Sizes, even};
use crate::pool::Pool;
use crate::routine::element_format::Format;
use crate::routine::tile::{self, Tile, most_rows, row_blocks, vector_parts};
use crate::routine::{Shared, in_numbers};
use crate::simd::{Number, Task, Vector};
use crate::vm::isa::{Isa, Machine};

/// What flows to the filters, from what flows to the output and the input.
///
/// # Safety
/// As [`crate::routine::run`].
pub unsafe fn filters<F: Format>(pool: &Pool, isa: Isa, conv: &Conv, buffers: &[*mut u8]) {
    let [flow, source, result] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let sizes = Sizes::new(conv, false);
    let mut pass = ConvSweep::output(conv).pop().expect("the output is one pass");
    let channels = even(sizes.channels, BLOCK_TAPS / pass.taps.len()).min(sizes.channels.div_ceil(pool.threads()));
    // What is read where it lies needs no room; what flows does.
    let in_place = F::IN_PLACE && pass.in_place(0).is_some();
    let room = if in_place { 1024 } else { PLANE_BYTES / size_of::<F::Plane>() / channels };
    pass.divide(room, 1);
    let blocks = sizes.channels.div_ceil(channels);
    // Where there are too few blocks for all threads, parts of the batch are summed apart.
    let splits = pool.threads().div_ceil(sizes.groups * blocks).min(sizes.batch);
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
            flow: flow.at(0).cast(),
            source: source.at(0).cast(),
            sums: partial.at(0).cast::<F::Sum>().wrapping_add(number * sums),
        };
        // SAFETY: the caller's promise; parts have sums of their own.
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

/// Filters of a group up to which vectors run along positions instead.
const FEW_FILTERS: usize = 4;

/// Where channels' planes are.
#[derive(Clone, Copy)]
struct Planes<T> {
    start: *const T,
    /// Elements from one channel to the next.
    channel: usize,
}

impl<T> Planes<T> {
    /// What the n-th tap sees at the first position, as the taps of a channel and then channels follow one another.
    #[inline(always)]
    fn row(&self, pass: &ConvSweep, n: usize) -> *const T {
        let taps = pass.offsets.len();
        self.start.wrapping_add(n / taps * self.channel + pass.offsets[n % taps])
    }
}

/// A row of positions: where it starts in a plane and in what flows, and its length.
type Run = (usize, usize, usize);

/// The sums of a block of channels over some items.
struct FilterBlock<'a, F: Format> {
    sizes: &'a Sizes,
    pass: &'a ConvSweep,
    pool: &'a Pool,
    group: usize,
    channels: Range<usize>,
    items: Range<usize>,
    /// Filters, in whole vectors.
    width: usize,
    flow: *const F::Elem,
    source: *const F::Elem,
    /// For each channel and tap one number for each filter.
    sums: *mut F::Sum,
}

impl<F: Format> Task for FilterBlock<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Machine>(self) {
        let FilterBlock { sizes, pass, width, .. } = self;
        let (channel, count) = (pass.channel(), self.channels.len());
        let rows: usize = pass.runs(0).map(|(_, _, length)| length.div_ceil(F::DEPTH)).sum();
        let planes = (count * channel * size_of::<F::Plane>()).div_ceil(size_of::<F::Sum>());
        let mut scratch = self.pool.scratch().take::<F::Sum>(planes + rows * width);
        let turned = scratch.start().wrapping_add(planes);
        let own = scratch.start().cast::<F::Plane>();
        // SAFETY: the caller's promise, here and below; the scratch memory has room for planes and what flows in a band.
        unsafe { (0..rows * width).for_each(|at| *turned.add(at) = F::Sum::default()) };
        let (mut fresh, mut runs) = (true, Vec::new());
        for item in self.items.clone() {
            let group = item * sizes.groups + self.group;
            let source = self.source.wrapping_add((group * sizes.channels + self.channels.start) * sizes.source);
            let flow = self.flow.wrapping_add(group * sizes.results * sizes.result);
            for band in 0..pass.bands() {
                runs.clear();
                runs.extend(pass.runs(band));
                // SAFETY: as above.
                unsafe {
                    let planes = match pass.in_place(band).filter(|_| F::IN_PLACE) {
                        Some(start) => Planes { start: source.add(start).cast(), channel: sizes.source },
                        None => {
                            for at in 0..count {
                                let (from, to) = (source.add(at * sizes.source), own.add(at * channel));
                                pass.pack(band, [from], to, |[elem]| F::plane(elem));
                            }
                            Planes { start: own, channel }
                        }
                    };
                    if F::IN_PLACE && sizes.results <= FEW_FILTERS {
                        self.dot::<M>(&runs, planes, flow.cast(), fresh);
                    } else {
                        self.turn(&runs, flow, turned);
                        self.multiply::<M>(&runs, planes, turned, fresh);
                    }
                }
                fresh = false;
            }
        }
    }
}

impl<F: Format> FilterBlock<'_, F> {
    /// Puts what flows to all filters at one position together, or at those that are multiplied at once, for the results of a band
    /// one after the other.
    #[inline(always)]
    unsafe fn turn(&self, runs: &[Run], flow: *const F::Elem, turned: *mut F::Sum) {
        const SIDE: usize = 16;
        let (results, width) = (self.sizes.results, self.width);
        let mut to = turned;
        for &(_, start, length) in runs {
            let lanes = length.div_ceil(F::DEPTH);
            // In squares, so that each line of memory is used whole while it is near.
            for column in (0..lanes).step_by(SIDE) {
                for row in (0..results).step_by(SIDE) {
                    for lane in column..lanes.min(column + SIDE) {
                        let at = lane * F::DEPTH;
                        let both = F::DEPTH > 1 && at + 1 < length;
                        for result in row..results.min(row + SIDE) {
                            let from = flow.wrapping_add(result * self.sizes.result + start + at);
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

    #[inline(always)]
    unsafe fn multiply<M: Machine>(&self, runs: &[Run], planes: Planes<F::Plane>, turned: *const F::Sum, fresh: bool) {
        let lanes = <F::Vector<M> as Vector>::LANES;
        let taps = self.pass.offsets.len();
        for (vector, width) in vector_parts(self.width / lanes) {
            for (start, rows) in row_blocks(self.channels.len() * taps, most_rows::<F::Vector<M>>()) {
                let product = Product::<F> {
                    part: self,
                    runs,
                    start,
                    planes,
                    turned: turned.wrapping_add(vector * lanes),
                    sums: self.sums.wrapping_add(start * self.width + vector * lanes),
                    fresh,
                };
                // SAFETY: the caller's promise.
                unsafe { tile::with_extents::<M, F::Vector<M>, _>(rows, width, &product) };
            }
        }
    }
}

impl<F: Format> FilterBlock<'_, F> {
    /// The same for few filters: vectors of positions, added up at the end.
    #[inline(always)]
    unsafe fn dot<M: Machine>(&self, runs: &[Run], planes: Planes<F::Plane>, flow: *const F::Plane, fresh: bool) {
        for filter in 0..self.sizes.results {
            let flow = flow.wrapping_add(filter * self.sizes.result);
            let rows = self.channels.len() * self.pass.offsets.len();
            for (start, rows) in row_blocks(rows, most_rows::<F::Vector<M>>()) {
                let sums = self.sums.wrapping_add(start * self.width + filter);
                let dot = Dot::<F> { part: self, runs, start, planes, flow, sums, fresh };
                // SAFETY: the caller's promise.
                unsafe { tile::with_extents::<M, F::Vector<M>, _>(rows, 1, &dot) };
            }
        }
    }
}

/// A column of sums over a band.
struct Dot<'a, F: Format> {
    part: &'a FilterBlock<'a, F>,
    runs: &'a [Run],
    start: usize,
    planes: Planes<F::Plane>,
    flow: *const F::Plane,
    sums: *mut F::Sum,
    fresh: bool,
}

impl<F: Format> Tile for Dot<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Machine, const R: usize, const C: usize>(&self) {
        let step = <F::Vector<M> as Vector>::LANES * F::DEPTH;
        let left: [*const F::Plane; R] = std::array::from_fn(|row| self.planes.row(self.part.pass, self.start + row));
        // SAFETY: the caller's promise, here and below. No machine has vectors longer than 64 bytes.
        let mut sums = unsafe { tile::zeros::<F::Vector<M>, R, 1>() };
        // SAFETY: it is called with whole vectors.
        let mut add = |left: [*const F::Plane; R], flow: *const F::Plane| unsafe {
            let flow = F::Vector::<M>::load(flow.cast());
            for (sum, left) in sums.iter_mut().zip(left) {
                sum[0] = F::Vector::<M>::load(left.cast()).mul_add(flow, sum[0]);
            }
        };
        for &(at, start, length) in self.runs {
            let (left, flow) = (left.map(|row| row.wrapping_add(at)), self.flow.wrapping_add(start));
            let whole = length / step * step;
            for at in (0..whole).step_by(step) {
                add(left.map(|row| row.wrapping_add(at)), flow.wrapping_add(at));
            }
            if whole < length {
                // Nothing behind the row may count, not even times zero.
                let mut rest = [[F::Plane::default(); 32]; R];
                let mut last = [F::Plane::default(); 32];
                for at in whole..length {
                    // SAFETY: as above.
                    unsafe {
                        last[at - whole] = *flow.add(at);
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
                let to = self.sums.add(row * self.part.width);
                *to = if self.fresh { sum } else { F::Sum::add(*to, sum) };
            }
        }
    }
}

/// A tile of sums over a band.
struct Product<'a, F: Format> {
    part: &'a FilterBlock<'a, F>,
    runs: &'a [Run],
    /// The first row, as a channel's taps and channels follow one another.
    start: usize,
    planes: Planes<F::Plane>,
    turned: *const F::Sum,
    sums: *mut F::Sum,
    fresh: bool,
}

impl<F: Format> Tile for Product<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Machine, const R: usize, const C: usize>(&self) {
        let (pass, distance) = (self.part.pass, self.part.width);
        let left: [*const F::Plane; R] = std::array::from_fn(|row| self.planes.row(pass, self.start + row));
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.fresh {
                true => tile::zeros::<F::Vector<M>, R, C>(),
                false => tile::load::<F::Vector<M>, R, C>(self.sums, distance),
            };
            let mut right = self.turned;
            for &(at, _, length) in self.runs {
                let left = left.map(|row| row.wrapping_add(at));
                let whole = length / F::DEPTH;
                tile::rows(&mut sums, left.map(|row| row.cast()), 1, right, distance, whole);
                right = right.wrapping_add(whole * distance);
                if whole * F::DEPTH < length {
                    // Nothing behind the row may count, not even times zero.
                    let last = left.map(|row| F::alone(*row.add(length - 1)));
                    let last = std::array::from_fn(|row| std::ptr::from_ref(&last[row]));
                    tile::rows(&mut sums, last, 1, right, distance, 1);
                    right = right.wrapping_add(distance);
                }
            }
            tile::store(sums, self.sums, distance);
        }
    }
}

/// Filters that are put together at once: as many as share a line of memory.
const TOGETHER: usize = 16;

/// Adds up what parts of the batch gave, in their order, and puts each filter together.
struct Add<'a> {
    sizes: &'a Sizes,
    taps: usize,
    channels: usize,
    splits: usize,
    width: usize,
}

impl Add<'_> {
    /// How many numbers are moved, which is worth about eight multiplications each.
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
