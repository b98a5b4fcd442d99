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

use grid::ConvSweep;
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
        pass.divide(PLANE_BYTES / size_of::<F::Sum>() / block, bands);
        let parts = wanted.div_ceil(pass.bands());
        // A part of the results of a group, in whole tiles of a machine with 32 registers.
        let slice = sizes.results.div_ceil(parts).next_multiple_of(8).min(sizes.results);
        let job = Job { sizes: &sizes, pass: &pass, lanes, block, slice, pool, isa };
        // Filters whose elements are summed in memory order are read in place.
        let is_packed = to_input || !F::IN_PLACE || F::DEPTH > 1;
        let packed_numel = if is_packed { job.weights(sizes.groups * sizes.results) } else { 0 };
        let mut packed = pool.scratch().take::<F::Sum>(packed_numel);
        let packed = Shared(packed.start().cast());
        // SAFETY: the caller's promise; the scratch memory has room for the used taps of every filter.
        unsafe {
            if is_packed {
                job.pack::<F>(filters, packed);
            }
            job.sum::<F>(source, if is_packed { packed } else { filters }, is_packed, result);
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

    unsafe fn sum<F: Format>(&self, source: Shared, weights: Shared, is_packed: bool, result: Shared) {
        let (bands, slices) = (self.pass.bands(), self.sizes.results.div_ceil(self.slice));
        in_numbers(self.pool, self.sizes.batch * self.sizes.groups * bands * slices, self.sizes.work, |number| {
            let (item, band, slice) = (number / (bands * slices), number / slices % bands, number % slices);
            let part = ConvTileJob::<F> {
                job: self,
                group: item % self.sizes.groups,
                band,
                results: slice * self.slice..self.sizes.results.min((slice + 1) * self.slice),
                source: source.at(0).cast::<F::Elem>().wrapping_add(item * self.sizes.channels * self.sizes.source),
                weights: weights.at(0).cast(),
                is_packed,
                result: result.at(0).cast::<F::Result>().wrapping_add(item * self.sizes.results * self.sizes.result),
            };
            // SAFETY: the caller's promise; parts write disjoint results.
            unsafe { F::run(self.isa, part) };
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

/// Some results of one group of one batch item, in one band.
struct ConvTileJob<'a, F: Format> {
    job: &'a Job<'a>,
    group: usize,
    band: usize,
    results: std::ops::Range<usize>,
    source: *const F::Elem,
    /// The filters of all groups.
    weights: *const F::Sum,
    /// True if the filters of a tile's rows are interleaved.
    is_packed: bool,
    result: *mut F::Result,
}

impl<F: Format> Task for ConvTileJob<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Job { sizes, pass, block, pool, .. } = self.job;
        let width = <F::Vector<M> as Vector>::LANES;
        let positions = pass.positions(self.band).next_multiple_of(width);
        let (channel, deep) = (pass.channel(), self.job.weights(1));
        let mut scratch = pool.scratch().take::<F::Sum>(block * channel + self.results.len() * positions);
        let planes = scratch.start();
        let sums = planes.wrapping_add(block * channel);
        let weights = self.weights.wrapping_add(self.job.weights(self.group * sizes.results + self.results.start));
        for first in (0..self.job.lanes).step_by(*block) {
            let count = (self.job.lanes - first).min(*block);
            for at in 0..count {
                // SAFETY: the caller's promise; the scratch memory has room for a block's planes.
                unsafe { self.pack(first + at, planes.add(at * channel)) };
            }
            let tiles = BlockTiles::<F::Packed> {
                results: self.results.len(),
                positions,
                weights,
                result_weights: deep,
                is_packed: self.is_packed,
                first: first * pass.taps.len(),
                source: planes,
                sums,
                taps: Taps { channels: count, channel, offsets: &pass.offsets },
            };
            // SAFETY: planes and sums have room for whole vectors; the filters were packed for these tiles.
            unsafe { M::run(&tiles) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.write(sums, positions) };
    }
}

impl<F: Format> ConvTileJob<'_, F> {
    /// Packs the channels of a lane into planes.
    #[inline(always)]
    unsafe fn pack(&self, lane: usize, to: *mut F::Sum) {
        let Job { sizes, pass, .. } = self.job;
        let channel = lane * F::DEPTH;
        let first = self.source.wrapping_add(channel * sizes.source);
        // SAFETY: the caller's promise.
        unsafe {
            match F::DEPTH > 1 && channel + 1 < sizes.channels {
                true => {
                    let both = [first, first.add(sizes.source)];
                    pass.pack(self.band, both, to, |[first, second]| F::lane(first, second));
                }
                false => pass.pack(self.band, [first], to, |[only]| F::lane(only, F::Elem::default())),
            }
        }
    }

    /// Writes the sums of positions that are results to the result.
    #[inline(always)]
    unsafe fn write(&self, sums: *const F::Sum, positions: usize) {
        let Job { sizes, pass, .. } = self.job;
        for (number, result) in self.results.clone().enumerate() {
            let (from, to) = (sums.wrapping_add(number * positions), self.result.wrapping_add(result * sizes.result));
            for (at, start, count) in pass.runs(self.band) {
                // SAFETY: the caller's promise.
                unsafe {
                    match pass.step() {
                        1 => (0..count).for_each(|i| *to.add(start + i) = F::narrow(*from.add(at + i))),
                        step => (0..count).for_each(|i| *to.add(start + i * step) = F::narrow(*from.add(at + i))),
                    }
                }
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
        for (vector, vectors) in vector_parts(self.positions / width, most_vectors::<F::Vector<M>>()) {
            for (start, rows) in row_blocks(self.results, most_rows::<F::Vector<M>>()) {
                let first = if self.is_packed { self.first * rows } else { self.first };
                let (row_weights, step) = if self.is_packed { (1, rows) } else { (self.result_weights, 1) };
                let block = Block::<F> {
                    weights: self.weights.wrapping_add(start * self.result_weights + first),
                    row_weights,
                    step,
                    source: self.source.wrapping_add(vector * width),
                    sums: self.sums.wrapping_add(start * self.positions + vector * width),
                    row: self.positions,
                    fresh: self.first == 0,
                    taps: self.taps,
                };
                // SAFETY: the caller's promise.
                unsafe { tile::with_extents::<M, F::Vector<M>, _>(rows, vectors, &block) };
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
