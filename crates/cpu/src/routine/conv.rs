//! Convolution and what flows back from it, without a matrix of windows.
//!
//! Output and input are sums over taps of shifted planes ([`grid`]): a thread copies a band of some channels into planes
//! in its own scratch memory, where they stay in the second-level cache, and every block of filters goes over them.
//! Filters are products of what flows to the output, one vector of filters for each position, with the same planes
//! ([`filters`]). Each result is summed in an order that depends on the shapes alone, or for filters on the number of
//! threads too.
//!
//! Sources: Georganas et al., Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures, 2018;
//! Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008 (blocking).

mod filters;
mod grid;

use panoply_ir::routine::{Conv, ConvAxis, Gemm, Layout};

use super::tile::{self, Taps, Tile, most_rows, row_blocks, vector_parts};
use super::{Shared, gemm, in_numbers};
use crate::pool::Pool;
use crate::simd::{self, Real, Task, Vector};
use crate::vm::isa::{Isa, Machine};
use grid::Pass;

pub use filters::filters;

/// Bytes of a thread's planes: a part of the second-level cache.
const PLANE_BYTES: usize = 256 << 10;
/// Taps of a block of channels: with 8 filters they take a part of the first-level cache.
const BLOCK_TAPS: usize = 384;

/// What is computed: `results` channels from `channels` for each group.
struct Sizes {
    batch: usize,
    groups: usize,
    channels: usize,
    results: usize,
    /// Elements of a source's and of a result's channel.
    source: usize,
    result: usize,
    /// Elements of a filter's channel.
    filter: usize,
    /// Elements between filters of neighbouring results, and of neighbouring channels.
    steps: [usize; 2],
    /// Multiplications and additions.
    work: usize,
}

impl Sizes {
    fn new(conv: &Conv, to_input: bool) -> Sizes {
        let elems = |lengths: [usize; 3]| lengths.iter().product::<usize>();
        let (input, filter, output) = (elems(conv.lengths()), elems(conv.sizes()), elems(conv.positions()));
        let Conv { batch, groups, inputs, outputs, .. } = *conv;
        let work = [batch, groups, inputs, outputs, filter, output].iter().fold(1, |n: usize, m| n.saturating_mul(*m));
        let (channels, results, source, result) =
            if to_input { (outputs, inputs, output, input) } else { (inputs, outputs, input, output) };
        let steps = if to_input { [filter, inputs * filter] } else { [inputs * filter, filter] };
        Sizes { batch, groups, channels, results, source, result, filter, steps, work }
    }
}

/// The output from input and filters, or, the other way round, what flows to the input.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn sums<T: Real>(pool: &Pool, isa: Isa, conv: &Conv, buffers: &[*mut u8], to_input: bool) {
    if let Some(gemm) = product(conv, to_input) {
        // SAFETY: the caller's promise.
        return unsafe { gemm::run(pool, isa, &gemm, [buffers[1], buffers[0], buffers[2]], None) };
    }
    let [source, filters, result] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let sizes = Sizes::new(conv, to_input);
    let passes = if to_input { Pass::input(conv) } else { Pass::output(conv) };
    for mut pass in passes {
        let items = sizes.batch * sizes.groups;
        let channels = even(sizes.channels, BLOCK_TAPS / pass.taps.len().max(1));
        pass.divide(PLANE_BYTES / size_of::<T>() / channels, (2 * pool.threads()).div_ceil(items));
        let parts = (2 * pool.threads()).div_ceil(items * pass.bands());
        // A part of the results of a group, in whole tiles.
        let slice = sizes.results.div_ceil(parts).next_multiple_of(8).min(sizes.results);
        let job = Job { sizes: &sizes, pass: &pass, channels, slice, pool, isa };
        let mut packed = pool.scratch().take::<T>(items_of(&sizes, &pass));
        let packed = Shared(packed.start().cast());
        // SAFETY: the caller's promise; the scratch memory has room for the taps that count of every filter.
        unsafe {
            job.pack::<T>(filters, packed);
            job.sum::<T>(source, packed, result);
        }
    }
}

/// Filters of one element that see every element once are a matrix, by which each item is multiplied.
fn product(conv: &Conv, to_input: bool) -> Option<Gemm> {
    let plain = |axis: &ConvAxis| axis.size == 1 && axis.stride == 1 && axis.padding == 0;
    if conv.groups > 1 || !conv.axes.iter().all(plain) {
        return None;
    }
    let (n, m, k) = (conv.positions().iter().product(), conv.outputs, conv.inputs);
    let items = |rows: usize| Layout { offset: 0, batch: rows * n, row: n, column: 1 };
    let filters = |row, column| Layout { offset: 0, batch: 0, row, column };
    let (m, k, a) = if to_input { (k, m, filters(1, k)) } else { (m, k, filters(k, 1)) };
    Some(Gemm { dtype: conv.dtype, tf32: false, bias: false, batch: conv.batch, m, n, k, a, b: items(k), c: items(m) })
}

/// Elements of all filters' taps that count.
fn items_of(sizes: &Sizes, pass: &Pass) -> usize {
    sizes.groups * sizes.results * sizes.channels * pass.taps.len()
}

/// Parts of `count`, at most so large, as even as can be.
fn even(count: usize, most: usize) -> usize {
    count.div_ceil(count.div_ceil(most.max(1)).max(1)).max(1)
}

struct Job<'a> {
    sizes: &'a Sizes,
    pass: &'a Pass,
    /// Channels of a block.
    channels: usize,
    /// Results of a group that one part does.
    slice: usize,
    pool: &'a Pool,
    isa: Isa,
}

impl Job<'_> {
    /// Puts filters of a tile's rows side by side, slice by slice.
    unsafe fn pack<T: Real>(&self, filters: Shared, packed: Shared) {
        let slices = self.sizes.results.div_ceil(self.slice);
        in_numbers(self.pool, self.sizes.groups * slices, self.sizes.work, |number| {
            let (group, first) = (number / slices, number % slices * self.slice);
            let task =
                Pack::<T> { job: self, group, first, filters: filters.at(0).cast(), packed: packed.at(0).cast() };
            // SAFETY: the caller's promise; parts are disjoint.
            unsafe { simd::run(self.isa, task) };
        });
    }

    unsafe fn sum<T: Real>(&self, source: Shared, packed: Shared, result: Shared) {
        let (bands, slices) = (self.pass.bands(), self.sizes.results.div_ceil(self.slice));
        in_numbers(self.pool, self.sizes.batch * self.sizes.groups * bands * slices, self.sizes.work, |number| {
            let (item, band, slice) = (number / (bands * slices), number / slices % bands, number % slices);
            let part = Part::<T> {
                job: self,
                group: item % self.sizes.groups,
                band,
                results: slice * self.slice..self.sizes.results.min((slice + 1) * self.slice),
                source: source.at(0).cast::<T>().wrapping_add(item * self.sizes.channels * self.sizes.source),
                packed: packed.at(0).cast(),
                result: result.at(0).cast::<T>().wrapping_add(item * self.sizes.results * self.sizes.result),
            };
            // SAFETY: the caller's promise; parts write results of their own.
            unsafe { simd::run(self.isa, part) };
        });
    }
}

/// Filters of a slice, packed.
struct Pack<'a, T> {
    job: &'a Job<'a>,
    group: usize,
    first: usize,
    filters: *const T,
    packed: *mut T,
}

impl<T: Real> Task for Pack<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine>(self) {
        let Job { sizes, pass, slice, .. } = self.job;
        let [by_result, by_channel] = sizes.steps;
        let deep = sizes.channels * pass.taps.len();
        let filters = self.filters.wrapping_add(self.group * sizes.results * sizes.channels * sizes.filter);
        let packed = self.packed.wrapping_add((self.group * sizes.results + self.first) * deep);
        let count = (sizes.results - self.first).min(*slice);
        let block = |start: usize, rows: usize, channel: usize| {
            let from = filters.wrapping_add((self.first + start) * by_result + channel * by_channel);
            let mut to = packed.wrapping_add(start * deep + channel * pass.taps.len() * rows);
            for tap in &pass.taps {
                for row in 0..rows {
                    // SAFETY: the caller's promise.
                    unsafe { *to.add(row) = *from.add(row * by_result + tap) };
                }
                to = to.wrapping_add(rows);
            }
        };
        // Filters are read in the order they lie in.
        let blocks = || row_blocks(count, most_rows::<T::Vector<M>>());
        if by_channel > by_result {
            (0..sizes.channels).for_each(|channel| blocks().for_each(|(start, rows)| block(start, rows, channel)));
        } else {
            blocks().for_each(|(start, rows)| (0..sizes.channels).for_each(|channel| block(start, rows, channel)));
        }
    }
}

/// Some results of one group of one item, in one band.
struct Part<'a, T> {
    job: &'a Job<'a>,
    group: usize,
    band: usize,
    results: std::ops::Range<usize>,
    source: *const T,
    packed: *const T,
    result: *mut T,
}

impl<T: Real> Task for Part<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine>(self) {
        let Job { sizes, pass, channels, pool, .. } = self.job;
        let lanes = <T::Vector<M> as Vector>::LANES;
        let positions = pass.positions(self.band).next_multiple_of(lanes);
        let (channel, deep) = (pass.channel(), sizes.channels * pass.taps.len());
        let mut scratch = pool.scratch().take::<T>(channels * channel + self.results.len() * positions);
        let planes = scratch.start();
        let sums = planes.wrapping_add(channels * channel);
        let packed = self.packed.wrapping_add((self.group * sizes.results + self.results.start) * deep);
        for first in (0..sizes.channels).step_by(*channels) {
            let count = (sizes.channels - first).min(*channels);
            for at in 0..count {
                // SAFETY: the caller's promise; the scratch memory has room for a block's planes.
                unsafe {
                    pass.pack(self.band, self.source.add((first + at) * sizes.source), planes.add(at * channel));
                }
            }
            for (vector, width) in vector_parts(positions / lanes) {
                for (start, rows) in row_blocks(self.results.len(), most_rows::<T::Vector<M>>()) {
                    let block = Block {
                        weights: packed.wrapping_add(start * deep + first * pass.taps.len() * rows),
                        source: planes.wrapping_add(vector * lanes),
                        sums: sums.wrapping_add(start * positions + vector * lanes),
                        row: positions,
                        fresh: first == 0,
                        taps: Taps { channels: count, channel, offsets: &pass.offsets },
                    };
                    // SAFETY: planes and sums have room for whole vectors; the filters were packed for these tiles.
                    unsafe { tile::with_extents::<M, T::Vector<M>, _>(rows, width, &block) };
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.write(sums, positions) };
    }
}

impl<T: Real> Part<'_, T> {
    /// Puts the sums that stand for results where they belong.
    #[inline(always)]
    unsafe fn write(&self, sums: *const T, positions: usize) {
        let Job { sizes, pass, .. } = self.job;
        for (number, result) in self.results.clone().enumerate() {
            let (from, to) = (sums.wrapping_add(number * positions), self.result.wrapping_add(result * sizes.result));
            for (at, start, count) in pass.runs(self.band) {
                // SAFETY: the caller's promise.
                unsafe {
                    match pass.step() {
                        1 => std::ptr::copy_nonoverlapping(from.add(at), to.add(start), count),
                        step => (0..count).for_each(|i| *to.add(start + i * step) = *from.add(at + i)),
                    }
                }
            }
        }
    }
}

/// Sums of a block of channels for one tile.
struct Block<'a, T> {
    weights: *const T,
    source: *const T,
    sums: *mut T,
    row: usize,
    /// Whether nothing was summed before.
    fresh: bool,
    taps: Taps<'a>,
}

impl<T: Real> Tile for Block<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Machine, const R: usize, const C: usize>(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.fresh {
                true => tile::zeros::<T::Vector<M>, R, C>(),
                false => tile::load::<T::Vector<M>, R, C>(self.sums, self.row),
            };
            tile::taps(&mut sums, self.weights, self.source, self.taps);
            tile::store(sums, self.sums, self.row);
        }
    }
}
