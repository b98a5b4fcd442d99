//! Convolution and its gradients, without an im2col matrix.
//!
//! Output and input gradient are sums over taps of shifted planes ([`grid`]). A thread copies a band of some channels
//! into planes in its scratch memory, where they stay in the L2 cache, and every block of filters is applied to them.
//! Filter gradients are products of the output gradient, one vector of filters for each position, with the same planes
//! ([`backward_weight`]). The summation order of each result depends only on the shapes, and for `backward_weight` also
//! on the number of threads.
//!
//! Sources: Georganas et al., Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures, 2018; Goto
//! and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008 (blocking).

mod backward_weight;
mod grid;

use std::ops::Range;

use grid::{ConvSweep, Row};
use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{Task, Vector};
use panoply_ir::DType;
use panoply_ir::routine::{Conv, ConvAxis, Gemm, Layout};

use super::element_format::{Bf16, F16, Format, Plain};
#[cfg(target_arch = "x86_64")]
use super::element_format::{Bf16Pairs, has_bf16_dot};
use super::tile::{self, Taps, Tile, most_rows, most_vectors, row_blocks, vector_parts};
use super::{PARALLEL_FLOPS, Shared, gemm, in_numbers};

/// Size in bytes of a thread's planes: a part of the L2 cache.
const PLANE_BYTES: usize = 256 << 10;
/// Size in bytes of the planes of a group of one channel and one result, which are read only once: a part of the L1 cache.
const SINGLE_PLANE_BYTES: usize = 16 << 10;
/// Width in vectors of the tiles of a group of one result.
const SINGLE_VECTORS: usize = 8;
/// Number of taps of a block of channels: with 8 filters they take a part of the L1 cache.
const BLOCK_TAPS: usize = 384;

/// The pass of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ConvDirection {
    /// The output, from input and filters.
    Forward,
    /// The gradient of the input, from the gradient of the output and the filters.
    BackwardData,
    /// The gradient of the filters, from the gradient of the output and the input.
    BackwardFilter,
}

/// Number of elements of scratch memory that every convolution may use.
const MODERATE: u128 = 1 << 26;

/// Returns true if the planes of a convolution use memory in proportion to its buffers. Dilation and padding can make
/// the planes much larger; kernels, which index the input without a copy, are better then.
pub fn has_moderate_scratch(conv: &Conv) -> bool {
    let shift = |axis: &ConvAxis| (axis.size - 1).saturating_mul(axis.dilation) / axis.stride;
    let product = |extent: &dyn Fn(&ConvAxis) -> usize| {
        conv.axes.iter().fold(1u128, |product, axis| product.saturating_mul(extent(axis) as u128))
    };
    let output = product(&|axis| axis.positions.saturating_add(shift(axis)).saturating_mul(axis.size.min(axis.stride)));
    let input = product(&|axis| (axis.length / axis.stride).saturating_add(shift(axis)).saturating_add(2));
    let channels = conv.inputs.saturating_add(conv.outputs) as u128;
    let buffers = [
        [conv.batch, conv.groups, conv.inputs].into_iter().chain(conv.lengths()),
        [conv.outputs, conv.groups, conv.inputs].into_iter().chain(conv.sizes()),
        [conv.batch, conv.groups, conv.outputs].into_iter().chain(conv.positions()),
    ]
    .map(|lengths| lengths.fold(1u128, |product, length| product.saturating_mul(length as u128)));
    let allowed = buffers.iter().fold(MODERATE, |sum, elems| sum.saturating_add(elems.saturating_mul(32)));
    output.saturating_add(input).saturating_mul(channels) <= allowed
}

/// Runs a convolution.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn run(pool: &Pool, isa: Isa, conv: &Conv, of: ConvDirection, buffers: &[*mut u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        match conv.dtype {
            DType::F64 => of_format::<Plain<f64>>(pool, isa, conv, of, buffers),
            DType::F16 => of_format::<F16>(pool, isa, conv, of, buffers),
            #[cfg(target_arch = "x86_64")]
            DType::BF16 if has_bf16_dot(isa) => of_format::<Bf16Pairs>(pool, isa, conv, of, buffers),
            DType::BF16 => of_format::<Bf16>(pool, isa, conv, of, buffers),
            _ => of_format::<Plain<f32>>(pool, isa, conv, of, buffers),
        }
    }
}

/// Runs a convolution of elements of one format.
///
/// # Safety
/// As [`super::run`].
unsafe fn of_format<F: Format>(pool: &Pool, isa: Isa, conv: &Conv, of: ConvDirection, buffers: &[*mut u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        match of {
            ConvDirection::BackwardFilter => backward_weight::filters::<F>(pool, isa, conv, buffers),
            _ => sums::<F>(pool, isa, conv, buffers, of == ConvDirection::BackwardData),
        }
    }
}

/// Sizes of a convolution that computes `results` channels from `channels` in each group.
struct Sizes {
    batch: usize,
    groups: usize,
    channels: usize,
    results: usize,
    /// Elements of a channel of the source and of the result.
    source: usize,
    result: usize,
    /// Elements of a filter's channel.
    filter: usize,
    /// Elements between filters of adjacent results, and of adjacent channels.
    steps: [usize; 2],
    /// Number of multiply-adds.
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

/// Computes the output from input and filters, or, if `to_input` is true, the gradient of the input.
///
/// # Safety
/// As [`super::run`].
unsafe fn sums<F: Format>(pool: &Pool, isa: Isa, conv: &Conv, buffers: &[*mut u8], to_input: bool) {
    if let Some(gemm) = product(conv, to_input) {
        // SAFETY: the caller's promise.
        return unsafe { gemm::run(pool, isa, &gemm, [buffers[1], buffers[0], buffers[2]], None) };
    }
    let [source, filters, result] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let sizes = Sizes::new(conv, to_input);
    let lanes = sizes.channels.div_ceil(F::DEPTH);
    let passes = if to_input { ConvSweep::input(conv) } else { ConvSweep::output(conv) };
    let items = sizes.batch * sizes.groups;
    let wanted =
        if pool.threads() == 1 || sizes.work < PARALLEL_FLOPS { 1 } else { (2 * pool.threads()).div_ceil(items) };
    // Each band reads all filters, and each part of the results the whole source: the larger one is divided.
    let are_filters_larger = sizes.results.saturating_mul(sizes.filter) > sizes.source;
    let bands = if are_filters_larger && sizes.results >= 8 * wanted { 1 } else { wanted };
    for mut pass in passes {
        let block = even(lanes, BLOCK_TAPS / pass.taps.len().max(1));
        let bytes = if lanes == 1 && sizes.results == 1 { SINGLE_PLANE_BYTES } else { PLANE_BYTES };
        pass.divide(bytes / size_of::<F::Sum>() / block, bands);
        let parts = wanted.div_ceil(pass.bands());
        // A part of the results of a group, in whole tiles of a machine with 32 registers.
        let slice = sizes.results.div_ceil(parts).next_multiple_of(8).min(sizes.results);
        // Filters whose elements are summed in memory order are read in place.
        let is_packed = to_input || !F::IN_PLACE || F::DEPTH > 1;
        let job = Job { sizes: &sizes, pass: &pass, lanes, block, slice, is_packed, pool, isa };
        let packed_numel = if is_packed { job.weights(sizes.groups * sizes.results) } else { 0 };
        let mut packed = pool.scratch().take::<F::Sum>(packed_numel);
        let packed = Shared(packed.start().cast());
        // SAFETY: the caller's promise; the scratch memory has room for the used taps of every filter.
        unsafe {
            if is_packed {
                job.pack::<F>(filters, packed);
            }
            job.sum::<F>(source, if is_packed { packed } else { filters }, result);
        }
    }
}

/// Returns the matrix product that computes the convolution, if the filters have one element and unit stride without padding.
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

/// Returns the size of parts of `count`, at most `most` and as even as possible.
fn even(count: usize, most: usize) -> usize {
    count.div_ceil(count.div_ceil(most.max(1)).max(1)).max(1)
}

struct Job<'a> {
    sizes: &'a Sizes,
    pass: &'a ConvSweep,
    /// Number of lanes of a group's channels; channels multiplied by one instruction share a lane.
    lanes: usize,
    /// Lanes of a block.
    block: usize,
    /// Number of results of a group that one part computes.
    slice: usize,
    /// True if the filters of a tile's rows are interleaved.
    is_packed: bool,
    pool: &'a Pool,
    isa: Isa,
}

impl Job<'_> {
    /// Returns the number of packed elements of `filters` filters.
    fn weights(&self, filters: usize) -> usize {
        filters * self.lanes * self.pass.taps.len()
    }

    /// Packs filters slice by slice: the filters of a tile's rows are interleaved.
    unsafe fn pack<F: Format>(&self, filters: Shared, packed: Shared) {
        let slices = self.sizes.results.div_ceil(self.slice);
        in_numbers(self.pool, self.sizes.groups * slices, self.sizes.work, |number| {
            let (group, first) = (number / slices, number % slices * self.slice);
            let task =
                Pack::<F> { job: self, group, first, filters: filters.at(0).cast(), packed: packed.at(0).cast() };
            // SAFETY: the caller's promise; parts are disjoint.
            unsafe { F::run(self.isa, task) };
        });
    }

    unsafe fn sum<F: Format>(&self, source: Shared, weights: Shared, result: Shared) {
        let sizes = self.sizes;
        let (items, slices) = (sizes.batch * sizes.groups, sizes.results.div_ceil(self.slice));
        let parts = items * self.pass.bands() * slices;
        // Small parts are computed several at a time.
        let together = match sizes.work < PARALLEL_FLOPS {
            true => parts,
            false => (PARALLEL_FLOPS / (sizes.work / parts).max(1)).clamp(1, parts.div_ceil(4 * self.pool.threads())),
        };
        in_numbers(self.pool, parts.div_ceil(together), sizes.work, |number| {
            let parts = number * together..parts.min((number + 1) * together);
            let task = ConvTileJob::<F> {
                job: self,
                slices,
                parts,
                source: source.at(0).cast(),
                weights: weights.at(0).cast(),
                result: result.at(0).cast(),
            };
            // SAFETY: the caller's promise; parts write disjoint results.
            unsafe { F::run(self.isa, task) };
        });
    }
}

/// Packs the filters of a slice.
struct Pack<'a, F: Format> {
    job: &'a Job<'a>,
    group: usize,
    first: usize,
    filters: *const F::Elem,
    packed: *mut F::Sum,
}

impl<F: Format> Task for Pack<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Job { sizes, pass, slice, .. } = self.job;
        let [by_result, by_channel] = sizes.steps;
        let deep = self.job.weights(1);
        let filters = self.filters.wrapping_add(self.group * sizes.results * sizes.channels * sizes.filter);
        let packed = self.packed.wrapping_add((self.group * sizes.results + self.first) * deep);
        let count = (sizes.results - self.first).min(*slice);
        let block = |start: usize, rows: usize, lane: usize| {
            let channel = lane * F::DEPTH;
            let from = filters.wrapping_add((self.first + start) * by_result + channel * by_channel);
            let mut to = packed.wrapping_add(start * deep + lane * pass.taps.len() * rows);
            let next = (F::DEPTH > 1 && channel + 1 < sizes.channels).then_some(by_channel);
            for tap in &pass.taps {
                for row in 0..rows {
                    let at = row * by_result + tap;
                    // SAFETY: the caller's promise.
                    unsafe {
                        let second = next.map_or(F::Elem::default(), |next| *from.add(at + next));
                        *to.add(row) = F::lane(*from.add(at), second);
                    }
                }
                to = to.wrapping_add(rows);
            }
        };
        // Filters are read in memory order.
        let blocks = || row_blocks(count, most_rows::<F::Vector<M>>());
        if by_channel > by_result {
            (0..self.job.lanes).for_each(|lane| blocks().for_each(|(start, rows)| block(start, rows, lane)));
        } else {
            blocks().for_each(|(start, rows)| (0..self.job.lanes).for_each(|lane| block(start, rows, lane)));
        }
    }
}

/// Some parts of a convolution. A part is some results of one group of one batch item in one band; consecutive parts differ in the batch item
/// and the group, then in the results, then in the band.
struct ConvTileJob<'a, F: Format> {
    job: &'a Job<'a>,
    /// Number of parts that the results of a group are divided into.
    slices: usize,
    parts: Range<usize>,
    source: *const F::Elem,
    /// The filters of all groups.
    weights: *const F::Sum,
    result: *mut F::Result,
}

impl<F: Format> Task for ConvTileJob<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Job { sizes, pass, block, slice, pool, .. } = self.job;
        let width = <F::Vector<M> as Vector>::LANES;
        let positions = |band: usize| pass.positions(band).next_multiple_of(width);
        let (channel, deep) = (pass.channel(), self.job.weights(1));
        let mut scratch = pool.scratch().take::<F::Sum>(block * channel + slice * positions(0));
        let planes = scratch.start();
        let sums = planes.wrapping_add(block * channel);
        let items = sizes.batch * sizes.groups;
        let (mut last_band, mut source_rows, mut result_rows) = (None, Vec::new(), Vec::new());
        for part in self.parts.clone() {
            let (item, slice_number, band) = (part % items, part / items % self.slices, part / items / self.slices);
            // The planes of all parts of a band have their zeros at the same places.
            let is_first = last_band.replace(band) != Some(band);
            if is_first {
                (source_rows, result_rows) = (pass.source_rows(band), pass.result_rows(band));
            }
            let positions = positions(band);
            let results = slice_number * slice..sizes.results.min((slice_number + 1) * slice);
            let source = self.source.wrapping_add(item * sizes.channels * sizes.source);
            let weights = self.weights.wrapping_add(deep * (item % sizes.groups * sizes.results + results.start));
            for first in (0..self.job.lanes).step_by(*block) {
                let count = (self.job.lanes - first).min(*block);
                for at in 0..count {
                    let (to, clears) = (planes.wrapping_add(at * channel), is_first && first == 0);
                    // SAFETY: the caller's promise; the scratch memory has room for a block's planes.
                    unsafe { self.pack(&source_rows, source, first + at, to, clears) };
                }
                let tiles = BlockTiles::<F::Packed> {
                    results: results.len(),
                    positions,
                    weights,
                    result_weights: deep,
                    is_packed: self.job.is_packed,
                    first: first * pass.taps.len(),
                    source: planes,
                    sums,
                    taps: Taps { channels: count, channel, offsets: &pass.offsets },
                };
                // SAFETY: planes and sums have room for whole vectors; the filters were packed for these tiles.
                unsafe { M::run(&tiles) };
            }
            for (number, result) in results.enumerate() {
                let sums = sums.wrapping_add(number * positions);
                let to = self.result.wrapping_add((item * sizes.results + result) * sizes.result);
                // SAFETY: the caller's promise.
                unsafe { self.write(&result_rows, sums, to) };
            }
        }
    }
}

impl<F: Format> ConvTileJob<'_, F> {
    /// Packs the channels of a lane into planes; see [`ConvSweep::pack`].
    #[inline(always)]
    unsafe fn pack(&self, rows: &[Row], source: *const F::Elem, lane: usize, to: *mut F::Sum, clears: bool) {
        let Job { sizes, pass, .. } = self.job;
        let channel = lane * F::DEPTH;
        let first = source.wrapping_add(channel * sizes.source);
        // SAFETY: the caller's promise.
        unsafe {
            match F::DEPTH > 1 && channel + 1 < sizes.channels {
                true => {
                    let both = [first, first.add(sizes.source)];
                    pass.pack(rows, both, to, clears, |[first, second]| F::lane(first, second));
                }
                false => pass.pack(rows, [first], to, clears, |[only]| F::lane(only, F::Elem::default())),
            }
        }
    }

    /// Writes the sums of one result to their positions, given by [`ConvSweep::result_rows`].
    #[inline(always)]
    unsafe fn write(&self, rows: &[Row], sums: *const F::Sum, to: *mut F::Result) {
        for row in rows {
            let (from, to) = (sums.wrapping_add(row.plane), to.wrapping_add(row.channel));
            // SAFETY: the caller's promise.
            let write = |step: usize| unsafe {
                grid::in_chunks(row.count, |i| F::narrow(*from.add(i)), |i, elem| *to.add(i * step) = elem);
            };
            match self.job.pass.step() {
                1 => write(1),
                step => write(step),
            }
        }
    }
}

/// The tiles of a block of channels. They are a function of their own, which formats that are packed alike share.
struct BlockTiles<'a, F: Format> {
    results: usize,
    /// Number of positions in whole vectors.
    positions: usize,
    weights: *const F::Sum,
    /// Number of weights of a result.
    result_weights: usize,
    is_packed: bool,
    /// Number of weights of a result before the block.
    first: usize,
    source: *const F::Sum,
    sums: *mut F::Sum,
    taps: Taps<'a>,
}

impl<F: Format> Task for &BlockTiles<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let width = <F::Vector<M> as Vector>::LANES;
        let block = |vector: usize, start: usize, rows: usize| {
            let first = if self.is_packed { self.first * rows } else { self.first };
            let (row_weights, step) = if self.is_packed { (1, rows) } else { (self.result_weights, 1) };
            Block::<F> {
                weights: self.weights.wrapping_add(start * self.result_weights + first),
                row_weights,
                step,
                source: self.source.wrapping_add(vector * width),
                sums: self.sums.wrapping_add(start * self.positions + vector * width),
                row: self.positions,
                fresh: self.first == 0,
                taps: self.taps,
            }
        };
        let count = self.positions / width;
        // The sums of one row in a narrow tile would wait for each other.
        let in_wide = if self.results == 1 { count / SINGLE_VECTORS * SINGLE_VECTORS } else { 0 };
        for vector in (0..in_wide).step_by(SINGLE_VECTORS) {
            // SAFETY: the caller's promise, here and below.
            unsafe { block(vector, 0, 1).run::<M, 1, SINGLE_VECTORS>() };
        }
        for (vector, vectors) in vector_parts(count - in_wide, most_vectors::<F::Vector<M>>()) {
            for (start, rows) in row_blocks(self.results, most_rows::<F::Vector<M>>()) {
                // SAFETY: as above.
                unsafe {
                    tile::with_extents::<M, F::Vector<M>, _>(rows, vectors, &block(in_wide + vector, start, rows))
                };
            }
        }
    }
}

/// The sums of a block of channels for one tile.
struct Block<'a, F: Format> {
    weights: *const F::Sum,
    /// Elements from the weights of one row to those of the next, and from those of one tap to those of the next.
    row_weights: usize,
    step: usize,
    source: *const F::Sum,
    sums: *mut F::Sum,
    row: usize,
    /// True if there are no previous sums.
    fresh: bool,
    taps: Taps<'a>,
}

impl<F: Format> Tile for Block<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self) {
        let weights: [*const F::Sum; R] = tile::each_row(|row| self.weights.wrapping_add(row * self.row_weights));
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.fresh {
                true => tile::zeros::<F::Vector<M>, R, C>(),
                false => tile::load::<F::Vector<M>, R, C>(self.sums, self.row),
            };
            tile::taps(&mut sums, weights, self.step, self.source, self.taps);
            tile::store(sums, self.sums, self.row);
        }
    }
}
