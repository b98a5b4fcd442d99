//! What flows to the filters of a convolution.
//!
//! For every tap, the product over positions of what flows to the output with the plane at the tap's offset. Vectors run
//! along the filters: what flows is turned so that those of one position stand together, and each row of a tile is one
//! tap of one channel. A thread keeps the sums of a block of channels while it goes through the batch.

use std::ops::Range;

use panoply_ir::routine::Conv;

use super::grid::Pass;
use super::{BLOCK_TAPS, PLANE_BYTES, Sizes, even};
use crate::pool::Pool;
use crate::routine::tile::{self, Tile, most_rows, row_blocks, vector_parts};
use crate::routine::{Shared, in_numbers};
use crate::simd::{self, Real, Task, Vector};
use crate::vm::isa::{Isa, Machine};

/// What flows to the filters, from what flows to the output and the input.
///
/// # Safety
/// As [`crate::routine::run`].
pub unsafe fn filters<T: Real>(pool: &Pool, isa: Isa, conv: &Conv, buffers: &[*mut u8]) {
    let [flow, source, result] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let sizes = Sizes::new(conv, false);
    let mut pass = Pass::output(conv).pop().expect("the output is one pass");
    let channels = even(sizes.channels, BLOCK_TAPS / pass.taps.len()).min(sizes.channels.div_ceil(pool.threads()));
    // What is read where it lies needs no room; what flows does.
    let room = if pass.in_place(0).is_some() { 1024 } else { PLANE_BYTES / size_of::<T>() / channels };
    pass.divide(room, 1);
    let blocks = sizes.channels.div_ceil(channels);
    // Where there are too few blocks for all threads, parts of the batch are summed apart.
    let splits = pool.threads().div_ceil(sizes.groups * blocks).min(sizes.batch);
    let lanes = 64 / size_of::<T>();
    let width = sizes.results.next_multiple_of(lanes);
    let sums = channels * pass.taps.len() * width;
    let mut partial = pool.scratch().take::<T>(sizes.groups * blocks * splits * sums);
    let partial = Shared(partial.start().cast());
    in_numbers(pool, sizes.groups * blocks * splits, sizes.work, |number| {
        let (block, split) = (number / splits, number % splits);
        let first = block % blocks * channels;
        let part = Part::<T> {
            sizes: &sizes,
            pass: &pass,
            pool,
            group: block / blocks,
            channels: first..sizes.channels.min(first + channels),
            items: sizes.batch * split / splits..sizes.batch * (split + 1) / splits,
            width,
            flow: flow.at(0).cast(),
            source: source.at(0).cast(),
            sums: partial.at(0).cast::<T>().wrapping_add(number * sums),
        };
        // SAFETY: the caller's promise; parts have sums of their own.
        unsafe { simd::run(isa, part) };
    });
    let add = Add { sizes: &sizes, taps: pass.taps.len(), channels, splits, width };
    let parts = sizes.results.div_ceil(TOGETHER);
    in_numbers(pool, sizes.groups * parts, add.work(), |number| {
        let (group, first) = (number / parts, number % parts * TOGETHER);
        let filters = first..sizes.results.min(first + TOGETHER);
        // SAFETY: the caller's promise; all parts have been summed.
        unsafe { add.run::<T>(partial.at(0).cast(), result.at(0).cast(), group, filters) };
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
    fn row(&self, pass: &Pass, n: usize) -> *const T {
        let taps = pass.offsets.len();
        self.start.wrapping_add(n / taps * self.channel + pass.offsets[n % taps])
    }
}

/// A row of positions: where it starts in a plane and in what flows, and its length.
type Run = (usize, usize, usize);

/// The sums of a block of channels over some items.
struct Part<'a, T> {
    sizes: &'a Sizes,
    pass: &'a Pass,
    pool: &'a Pool,
    group: usize,
    channels: Range<usize>,
    items: Range<usize>,
    /// Filters, in whole vectors.
    width: usize,
    flow: *const T,
    source: *const T,
    /// For each channel and tap one number for each filter.
    sums: *mut T,
}

impl<T: Real> Task for Part<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine>(self) {
        let Part { sizes, pass, width, .. } = self;
        let (channel, count) = (pass.channel(), self.channels.len());
        let positions: usize = pass.runs(0).map(|(_, _, length)| length).sum();
        let mut scratch = self.pool.scratch().take::<T>(count * channel + positions * width);
        let own = scratch.start();
        let turned = own.wrapping_add(count * channel);
        // SAFETY: the caller's promise, here and below; the scratch memory has room for planes and what flows in a band.
        unsafe { (0..positions * width).for_each(|at| *turned.add(at) = T::default()) };
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
                    let planes = match pass.in_place(band) {
                        Some(start) => Planes { start: source.add(start), channel: sizes.source },
                        None => {
                            for at in 0..count {
                                pass.pack(band, source.add(at * sizes.source), own.add(at * channel));
                            }
                            Planes { start: own, channel }
                        }
                    };
                    if sizes.results <= FEW_FILTERS {
                        self.dot::<M>(&runs, planes, flow, fresh);
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

impl<T: Real> Part<'_, T> {
    /// Puts what flows to all filters at one position together, for the results of a band one after the other.
    #[inline(always)]
    unsafe fn turn(&self, runs: &[Run], flow: *const T, turned: *mut T) {
        const SIDE: usize = 16;
        let (results, width) = (self.sizes.results, self.width);
        let mut to = turned;
        for &(_, start, length) in runs {
            // In squares, so that each line of memory is used whole while it is near.
            for column in (0..length).step_by(SIDE) {
                for row in (0..results).step_by(SIDE) {
                    for at in column..length.min(column + SIDE) {
                        for result in row..results.min(row + SIDE) {
                            // SAFETY: the caller's promise.
                            unsafe {
                                *to.add(at * width + result) = *flow.add(result * self.sizes.result + start + at)
                            };
                        }
                    }
                }
            }
            to = to.wrapping_add(length * width);
        }
    }

    #[inline(always)]
    unsafe fn multiply<M: Machine>(&self, runs: &[Run], planes: Planes<T>, turned: *const T, fresh: bool) {
        let lanes = <T::Vector<M> as Vector>::LANES;
        let taps = self.pass.offsets.len();
        for (vector, width) in vector_parts(self.width / lanes) {
            for (start, rows) in row_blocks(self.channels.len() * taps, most_rows::<T::Vector<M>>()) {
                let product = Product {
                    part: self,
                    runs,
                    start,
                    planes,
                    turned: turned.wrapping_add(vector * lanes),
                    sums: self.sums.wrapping_add(start * self.width + vector * lanes),
                    fresh,
                };
                // SAFETY: the caller's promise.
                unsafe { tile::with_extents::<M, T::Vector<M>, _>(rows, width, &product) };
            }
        }
    }
}

impl<T: Real> Part<'_, T> {
    /// The same for few filters: vectors of positions, added up at the end.
    #[inline(always)]
    unsafe fn dot<M: Machine>(&self, runs: &[Run], planes: Planes<T>, flow: *const T, fresh: bool) {
        for filter in 0..self.sizes.results {
            let flow = flow.wrapping_add(filter * self.sizes.result);
            let rows = self.channels.len() * self.pass.offsets.len();
            for (start, rows) in row_blocks(rows, most_rows::<T::Vector<M>>()) {
                let sums = self.sums.wrapping_add(start * self.width + filter);
                let dot = Dot { part: self, runs, start, planes, flow, sums, fresh };
                // SAFETY: the caller's promise.
                unsafe { tile::with_extents::<M, T::Vector<M>, _>(rows, 1, &dot) };
            }
        }
    }
}

/// A column of sums over a band.
struct Dot<'a, T> {
    part: &'a Part<'a, T>,
    runs: &'a [Run],
    start: usize,
    planes: Planes<T>,
    flow: *const T,
    sums: *mut T,
    fresh: bool,
}

impl<T: Real> Tile for Dot<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine, const R: usize, const C: usize>(&self) {
        let lanes = <T::Vector<M> as Vector>::LANES;
        let left: [*const T; R] = std::array::from_fn(|row| self.planes.row(self.part.pass, self.start + row));
        // SAFETY: the caller's promise, here and below. No machine has vectors longer than 64 bytes.
        let mut sums = unsafe { tile::zeros::<T::Vector<M>, R, 1>() };
        let mut add = |left: [*const T; R], flow: *const T| unsafe {
            let flow = T::Vector::<M>::load(flow);
            for (sum, left) in sums.iter_mut().zip(left) {
                sum[0] = T::Vector::<M>::load(left).mul_add(flow, sum[0]);
            }
        };
        for &(at, start, length) in self.runs {
            let (left, flow) = (left.map(|row| row.wrapping_add(at)), self.flow.wrapping_add(start));
            let whole = length / lanes * lanes;
            for at in (0..whole).step_by(lanes) {
                add(left.map(|row| row.wrapping_add(at)), flow.wrapping_add(at));
            }
            if whole < length {
                // Nothing behind the row may count, not even times zero.
                let mut rest = [[T::default(); 16]; R];
                let mut last = [T::default(); 16];
                for at in whole..length {
                    unsafe {
                        last[at - whole] = *flow.add(at);
                        rest.iter_mut().zip(left).for_each(|(rest, left)| rest[at - whole] = *left.add(at));
                    }
                }
                add(rest.each_ref().map(|rest| rest.as_ptr()), last.as_ptr());
            }
        }
        for (row, sum) in sums.into_iter().enumerate() {
            let mut parts = [T::default(); 16];
            unsafe {
                sum[0].store(parts.as_mut_ptr());
                let sum = parts[1..lanes].iter().fold(parts[0], |sum, part| T::add(sum, *part));
                let to = self.sums.add(row * self.part.width);
                *to = if self.fresh { sum } else { T::add(*to, sum) };
            }
        }
    }
}

/// A tile of sums over a band.
struct Product<'a, T> {
    part: &'a Part<'a, T>,
    runs: &'a [Run],
    /// The first row, as a channel's taps and channels follow one another.
    start: usize,
    planes: Planes<T>,
    turned: *const T,
    sums: *mut T,
    fresh: bool,
}

impl<T: Real> Tile for Product<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine, const R: usize, const C: usize>(&self) {
        let (pass, distance) = (self.part.pass, self.part.width);
        let left: [*const T; R] = std::array::from_fn(|row| self.planes.row(pass, self.start + row));
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.fresh {
                true => tile::zeros::<T::Vector<M>, R, C>(),
                false => tile::load::<T::Vector<M>, R, C>(self.sums, distance),
            };
            let mut right = self.turned;
            for &(at, _, length) in self.runs {
                let left = left.map(|row| row.wrapping_add(at));
                tile::rows(&mut sums, left, 1, right, distance, length);
                right = right.wrapping_add(length * distance);
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

    unsafe fn run<T: Real>(&self, partial: *const T, result: *mut T, group: usize, filters: Range<usize>) {
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
                    let sum = (1..self.splits).fold(*from, |sum, split| T::add(sum, *from.add(split * sums)));
                    *to.add(filter * deep + row) = sum;
                }
            }
        }
    }
}
