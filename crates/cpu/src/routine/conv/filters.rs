//! What flows to the filters of a convolution.
//!
//! For every tap, the product over positions of what flows to the output with the plane at the tap's offset. Vectors run
//! along the filters: what flows is turned so that those of one position stand together, and each row of a tile is one
//! tap of one channel. A thread keeps the sums of a block of channels while it goes through the batch.

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
    pass.divide(PLANE_BYTES / size_of::<T>() / channels, 1);
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
    let add = Add { sizes: &sizes, channels, splits, width };
    // SAFETY: the caller's promise; all parts have been summed.
    unsafe { add.run::<T>(partial.at(0).cast(), result.at(0).cast(), &pass) };
}

/// The sums of a block of channels over some items.
struct Part<'a, T> {
    sizes: &'a Sizes,
    pass: &'a Pass,
    pool: &'a Pool,
    group: usize,
    channels: std::ops::Range<usize>,
    items: std::ops::Range<usize>,
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
        let runs: usize = pass.runs(0).map(|(_, _, length)| length).sum();
        let mut scratch = self.pool.scratch().take::<T>(count * channel + runs * width);
        let planes = scratch.start();
        let turned = planes.wrapping_add(count * channel);
        // SAFETY: the caller's promise, here and below; the scratch memory has room for planes and what flows in a band.
        unsafe { (0..runs * width).for_each(|at| *turned.add(at) = T::default()) };
        let mut fresh = true;
        for item in self.items.clone() {
            let group = item * sizes.groups + self.group;
            let source = self.source.wrapping_add((group * sizes.channels + self.channels.start) * sizes.source);
            let flow = self.flow.wrapping_add(group * sizes.results * sizes.result);
            for band in 0..pass.bands() {
                // SAFETY: as above.
                unsafe {
                    for at in 0..count {
                        pass.pack(band, source.add(at * sizes.source), planes.add(at * channel));
                    }
                    self.turn(band, flow, turned);
                    self.multiply::<M>(band, planes, turned, fresh);
                }
                fresh = false;
            }
        }
    }
}

impl<T: Real> Part<'_, T> {
    /// Puts what flows to all filters at one position together, for the results of a band one after the other.
    #[inline(always)]
    unsafe fn turn(&self, band: usize, flow: *const T, turned: *mut T) {
        const SIDE: usize = 16;
        let (results, width) = (self.sizes.results, self.width);
        let mut to = turned;
        for (_, start, length) in self.pass.runs(band) {
            // In squares, so that each line of memory is used whole while it is near.
            for column in (0..length).step_by(SIDE) {
                for row in (0..results).step_by(SIDE) {
                    for at in column..length.min(column + SIDE) {
                        for result in row..results.min(row + SIDE) {
                            // SAFETY: the caller's promise.
                            unsafe { *to.add(at * width + result) = *flow.add(result * self.sizes.result + start + at) };
                        }
                    }
                }
            }
            to = to.wrapping_add(length * width);
        }
    }

    #[inline(always)]
    unsafe fn multiply<M: Machine>(&self, band: usize, planes: *const T, turned: *const T, fresh: bool) {
        let lanes = <T::Vector<M> as Vector>::LANES;
        let taps = self.pass.offsets.len();
        for (vector, width) in vector_parts(self.width / lanes) {
            for (start, rows) in row_blocks(self.channels.len() * taps, most_rows::<T::Vector<M>>()) {
                let product = Product {
                    part: self,
                    band,
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

/// A tile of sums over a band.
struct Product<'a, T> {
    part: &'a Part<'a, T>,
    band: usize,
    /// The first row, as a channel's taps and channels follow one another.
    start: usize,
    planes: *const T,
    turned: *const T,
    sums: *mut T,
    fresh: bool,
}

impl<T: Real> Tile for Product<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine, const R: usize, const C: usize>(&self) {
        let (pass, distance) = (self.part.pass, self.part.width);
        let (channel, taps) = (pass.channel(), pass.offsets.len());
        let left: [*const T; R] = std::array::from_fn(|row| {
            let row = self.start + row;
            self.planes.wrapping_add(row / taps * channel + pass.offsets[row % taps])
        });
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.fresh {
                true => tile::zeros::<T::Vector<M>, R, C>(),
                false => tile::load::<T::Vector<M>, R, C>(self.sums, distance),
            };
            let mut right = self.turned;
            for (at, _, length) in pass.runs(self.band) {
                let left = left.map(|row| row.wrapping_add(at));
                tile::rows(&mut sums, left, 1, right, distance, length);
                right = right.wrapping_add(length * distance);
            }
            tile::store(sums, self.sums, distance);
        }
    }
}

/// Adds up what parts of the batch gave, in their order, and puts each filter together.
struct Add<'a> {
    sizes: &'a Sizes,
    channels: usize,
    splits: usize,
    width: usize,
}

impl Add<'_> {
    unsafe fn run<T: Real>(&self, partial: *const T, result: *mut T, pass: &Pass) {
        let (taps, blocks) = (pass.taps.len(), self.sizes.channels.div_ceil(self.channels));
        let sums = self.channels * taps * self.width;
        for group in 0..self.sizes.groups {
            for filter in 0..self.sizes.results {
                let to = (group * self.sizes.results + filter) * self.sizes.channels * taps;
                for channel in 0..self.sizes.channels {
                    let block = group * blocks + channel / self.channels;
                    for tap in 0..taps {
                        let at = (channel % self.channels * taps + tap) * self.width + filter;
                        let one = |split: usize| partial.wrapping_add((block * self.splits + split) * sums + at);
                        // SAFETY: the caller's promise.
                        unsafe {
                            let sum = (1..self.splits).fold(*one(0), |sum, split| T::add(sum, *one(split)));
                            *result.add(to + channel * taps + tap) = sum;
                        }
                    }
                }
            }
        }
    }
}
