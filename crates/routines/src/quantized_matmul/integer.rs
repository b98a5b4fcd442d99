//! Products of packed integers with activations rounded to bytes.
//!
//! A lane is a row of the matrix. Each output adds its blocks in order of k, for one column and for many alike, so its bits depend neither
//! on the number of columns nor on that of threads. Blocks are transposed and unpacked as they come from memory: for 1, 4 or 8 columns in
//! registers, for other numbers once for all of them, into memory that the first-level cache holds.

use std::marker::PhantomData;

use panoply_host::pool::Pool;
use panoply_host::scratch::Block;
use panoply_ir::DType;

use super::activations::{BLOCK, Bytes, write};
use super::format::{Format, Part};
use super::lanes::{self, LINE, Lanes, LanesTask, PREFETCH, STRIDE};

/// Elements of k that are unpacked at once for several columns.
const CHUNK: usize = 256;
/// Words of a lane that an unpacked part takes: its bytes, scales and minimums.
const PART_WORDS: usize = 12;
/// Words of a lane that a transposed block takes, its f16 included.
const BLOCK_WORDS: usize = 56;
/// Most rows that are multiplied between two passes over the columns.
pub const ROWS: usize = 64;

/// Does something for each part of a block, written out: shifts by numbers that are known are one instruction.
macro_rules! each_part {
    ($format:ident, $j:ident, $body:block) => {
        each_part!($format, $j, $body, 0);
        if $format::ELEMS > BLOCK {
            each_part!($format, $j, $body, 1 2 3 4 5 6 7);
        }
    };
    ($format:ident, $j:ident, $body:block, $($number:literal)+) => {
        $({
            let $j: usize = $number;
            $body
        })+
    };
}

/// A product.
#[derive(Clone, Copy)]
pub struct IntegerProduct {
    /// The matrix.
    pub weight: *const u8,
    /// Bytes of a row of it.
    pub stride: usize,
    /// Rows of the matrix.
    pub n: usize,
    /// Columns: rows of the activations.
    pub m: usize,
    /// The activations.
    pub x: Bytes,
    /// `[m, n]`.
    pub out: *mut u8,
    /// Its elements.
    pub dtype: DType,
    /// True if groups of [`STRIDE`] rows are interleaved.
    pub interleaved: bool,
    /// True if interleaved rows are prefetched.
    pub prefetch: bool,
}

// SAFETY: they are only addresses; whoever writes through them answers for the parts being disjoint.
unsafe impl Send for IntegerProduct {}
// SAFETY: as above.
unsafe impl Sync for IntegerProduct {}

impl IntegerProduct {
    /// Computes rows `first .. end` of the outputs, at most [`ROWS`] of them.
    ///
    /// # Safety
    /// All buffers are as long as the fields say; no other thread uses these rows of the output.
    #[inline(always)]
    pub unsafe fn rows<L: Lanes, F: Format>(&self, pool: &Pool, first: usize, end: usize) {
        // SAFETY: the caller's promise; the copy has as many rows as lanes.
        unsafe {
            let mut copy = (self.n < L::COUNT).then(|| self.padded_rows(pool, L::COUNT));
            let weight = copy.as_mut().map_or(self.weight, |copy| copy.start().cast());
            self.any_rows::<L, F>(weight, pool, first, end)
        }
    }

    /// Copies a matrix with fewer than `count` rows, followed by copies of its first row, whose products are not written.
    unsafe fn padded_rows<'a>(&self, pool: &'a Pool, count: usize) -> Block<'a, i32> {
        let mut copy = pool.scratch().take::<i32>((count * self.stride).div_ceil(4));
        let start = copy.start().cast::<u8>();
        for row in 0..count {
            let from = if row < self.n { row } else { 0 };
            // SAFETY: the caller's promise; the copy has room for `count` rows.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.weight.add(from * self.stride),
                    start.add(row * self.stride),
                    self.stride,
                );
            }
        }
        copy
    }

    /// Multiplies rows with all columns: the sums of few columns stay in registers while the rows are read.
    #[inline(always)]
    unsafe fn any_rows<L: Lanes, F: Format>(&self, weight: *const u8, pool: &Pool, first: usize, end: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.m {
                1 => self.few_columns::<L, F, 1>(weight, first, end),
                4 if const { L::COLUMNS >= 4 } => self.few_columns::<L, F, 4>(weight, first, end),
                8 if const { L::COLUMNS >= 8 } => self.few_columns::<L, F, 8>(weight, first, end),
                _ => self.matrix::<L, F>(weight, pool, first, end),
            }
        }
    }

    /// The first row of the lanes that hold row `at`: the last lanes hold rows of their neighbors as well.
    #[inline(always)]
    fn lane_start<L: Lanes>(&self, at: usize) -> usize {
        at.min(self.n.max(L::COUNT) - L::COUNT)
    }

    /// Words and f16 of a block of as many rows as lanes, the first of which is `start`: where they are if rows are interleaved, otherwise
    /// transposed into `scratch`.
    #[inline(always)]
    unsafe fn block<L: Lanes, F: Format>(
        &self,
        weight: *const u8,
        start: usize,
        block: usize,
        scratch: *mut u32,
    ) -> (*const u32, *const u16) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.interleaved {
                let (group, row) = (start / STRIDE * STRIDE, start % STRIDE);
                let halves = weight.add(group * self.stride + block * F::BYTES * STRIDE).cast::<u16>();
                let words = halves.add(if F::HALF.is_some() { STRIDE } else { 0 }).cast::<u32>();
                return (words.add(row), halves.add(row));
            }
            transpose::<L, F>(weight.add(start * self.stride + block * F::BYTES), self.stride, scratch);
            (scratch, scratch.add(F::WORDS * STRIDE).cast())
        }
    }

    /// `C` columns, all there are.
    #[inline(always)]
    unsafe fn few_columns<L: Lanes, F: Format, const C: usize>(&self, weight: *const u8, first: usize, end: usize) {
        let mut words = [0u32; BLOCK_WORDS * 16];
        let words = words.as_mut_ptr();
        let parts = F::ELEMS / BLOCK;
        // SAFETY: the caller's promise.
        unsafe {
            for at in (first..end).step_by(L::COUNT) {
                let start = self.lane_start::<L>(at);
                let prefetch = self.interleaved && self.prefetch && start.is_multiple_of(STRIDE);
                let mut sums = [L::splat_float(0.0); C];
                for block in 0..self.x.k / F::ELEMS {
                    let (words, halves) = self.block::<L, F>(weight, start, block, words);
                    let head = F::head::<L>(words, halves);
                    each_part!(F, j, {
                        if prefetch {
                            prefetch_part::<L, F>(halves.cast(), j);
                        }
                        let part = F::part(&head, words, j);
                        self.add::<L, F, C>(&part, 0, block * parts + j, &mut sums);
                    });
                }
                for (column, sum) in sums.into_iter().enumerate() {
                    self.write::<L>(sum, column, start, at, end);
                }
            }
        }
    }

    /// Several columns.
    #[inline(always)]
    unsafe fn matrix<L: Lanes, F: Format>(&self, weight: *const u8, pool: &Pool, first: usize, end: usize) {
        let mut words = [0u32; BLOCK_WORDS * 16];
        let words = words.as_mut_ptr();
        let groups = (end - first).div_ceil(L::COUNT);
        let unpacked_words = groups * (CHUNK / BLOCK) * PART_WORDS * L::COUNT;
        let mut scratch = pool.scratch().take::<i32>(unpacked_words + self.m * groups * L::COUNT);
        let unpacked = scratch.start().cast::<u32>();
        // SAFETY: the caller's promise; the scratch is as long as both.
        unsafe {
            let sums = unpacked.add(unpacked_words).cast::<f32>();
            for at in 0..self.m * groups {
                L::store_float(L::splat_float(0.0), sums.add(at * L::COUNT));
            }
            for chunk in (0..self.x.k).step_by(CHUNK) {
                let elems = CHUNK.min(self.x.k - chunk);
                for group in 0..groups {
                    let start = self.lane_start::<L>(first + group * L::COUNT);
                    let to = unpacked.add(group * (CHUNK / BLOCK) * PART_WORDS * L::COUNT);
                    for at in (0..elems).step_by(F::ELEMS) {
                        let block = (chunk + at) / F::ELEMS;
                        let (words, halves) = self.block::<L, F>(weight, start, block, words);
                        let head = F::head::<L>(words, halves);
                        each_part!(F, j, {
                            let part = F::part(&head, words, j);
                            store::<L, F>(&part, to.add((at / BLOCK + j) * PART_WORDS * L::COUNT));
                        });
                    }
                }
                const { assert!(multiplied_alike::<F, F::Sums>()) };
                let unpacked = unpacked.cast_const();
                let task =
                    ChunkSums::<F::Sums> { product: *self, unpacked, groups, chunk, elems, sums, format: PhantomData };
                lanes::run_alone::<L, _>(&task);
            }
            for column in 0..self.m {
                for group in 0..groups {
                    let at = first + group * L::COUNT;
                    let sum = L::load_float(sums.add((column * groups + group) * L::COUNT));
                    self.write::<L>(sum, column, self.lane_start::<L>(at), at, end);
                }
            }
        }
    }

    /// Adds a chunk of k to the sums of some columns, which it returns the number of.
    #[inline(always)]
    unsafe fn columns<L: Lanes, F: Format, const C: usize>(
        &self,
        unpacked: *const u32,
        groups: usize,
        [chunk, elems]: [usize; 2],
        column: usize,
        to: *mut f32,
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            for group in 0..groups {
                let from = unpacked.add(group * (CHUNK / BLOCK) * PART_WORDS * L::COUNT);
                let at = |c: usize| to.wrapping_add((c * groups + group) * L::COUNT);
                let mut sums = [L::splat_float(0.0); C];
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load_float(at(c));
                }
                for j in 0..elems / BLOCK {
                    let part = load::<L, F>(from.add(j * PART_WORDS * L::COUNT));
                    self.add::<L, F, C>(&part, column, chunk / BLOCK + j, &mut sums);
                }
                for (c, sum) in sums.iter().enumerate() {
                    L::store_float(*sum, at(c));
                }
            }
        }
        C
    }

    /// Adds the products of 32 elements, block `j` of k, with some columns.
    #[inline(always)]
    unsafe fn add<L: Lanes, F: Format, const C: usize>(
        &self,
        part: &Part<L>,
        column: usize,
        j: usize,
        to: &mut [L::Float; C],
    ) {
        let at = j * self.x.m + column;
        let (bytes, scales) = (self.x.bytes.wrapping_add(at * BLOCK), self.x.scales.wrapping_add(at));
        let sums = self.x.sums.wrapping_add(at * (BLOCK / F::SUB));
        let halves = BLOCK / F::SUB;
        let words = 8 / halves;
        // SAFETY: the caller's promise.
        unsafe {
            for h in 0..halves {
                let known = |c: usize| sums.wrapping_add(c * halves + h);
                let mut products = [L::splat(0); C];
                if F::OFFSET != 0 {
                    for (c, product) in products.iter_mut().enumerate() {
                        *product = L::splat(known(c).read());
                    }
                }
                for i in h * words..(h + 1) * words {
                    for (c, product) in products.iter_mut().enumerate() {
                        let x = bytes.wrapping_add(c * BLOCK + 4 * i);
                        *product = part.q[i].dot(x, *product, F::WIDE);
                    }
                }
                for (c, (to, product)) in to.iter_mut().zip(&products).enumerate() {
                    let scale = L::splat_float(scales.wrapping_add(c).read());
                    *to = L::mul_add(product.to_float(), L::mul_float(part.scale[h], scale), *to);
                    if F::MIN {
                        *to = L::mul_add(part.min[h], L::splat_float(f32::from_bits(known(c).read())), *to);
                    }
                }
            }
        }
    }

    /// Writes the lanes from row `at` on, of which the first is `start`.
    #[inline(always)]
    unsafe fn write<L: Lanes>(&self, sum: L::Float, column: usize, start: usize, at: usize, end: usize) {
        let mut lanes = [0.0f32; 16];
        // SAFETY: the caller's promise.
        unsafe {
            L::store_float(sum, lanes.as_mut_ptr());
            let lanes = &lanes[at - start..(end - start).min(L::COUNT)];
            write(lanes, self.out, self.dtype, column * self.n + at);
        }
    }
}

/// Prefetches as many lines behind an interleaved block as part `j` of it has: all at once would delay what is read next.
#[inline(always)]
unsafe fn prefetch_part<L: Lanes, F: Format>(block: *const u8, j: usize) {
    let (lines, parts) = ((F::BYTES * STRIDE).div_ceil(LINE), F::ELEMS / BLOCK);
    for line in lines * j / parts..lines * (j + 1) / parts {
        // SAFETY: the caller's promise.
        unsafe { L::prefetch(block.wrapping_add(PREFETCH + line * LINE)) }
    }
}

/// Returns true if [`IntegerProduct::columns`] is the same for both formats.
const fn multiplied_alike<F: Format, G: Format>() -> bool {
    let signs = (F::OFFSET != 0) == (G::OFFSET != 0) && F::MIN == G::MIN;
    signs && F::SUB == G::SUB && F::WIDE == G::WIDE
}

/// Adds a chunk of k, which is unpacked, to the sums of all columns. It is compiled once for the formats that share it.
struct ChunkSums<F> {
    product: IntegerProduct,
    unpacked: *const u32,
    groups: usize,
    chunk: usize,
    elems: usize,
    sums: *mut f32,
    format: PhantomData<F>,
}

impl<F: Format> LanesTask for &ChunkSums<F> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let ChunkSums { product, unpacked, groups, chunk, elems, sums, .. } = *self;
        let mut column = 0;
        while column < product.m {
            let count = L::COLUMNS.min(product.m - column);
            let to = sums.wrapping_add(column * groups * L::COUNT);
            // SAFETY: the caller's promise.
            column += unsafe {
                match count {
                    8.. if const { L::COLUMNS >= 8 } => {
                        product.columns::<L, F, 8>(unpacked, groups, [chunk, elems], column, to)
                    }
                    4.. if const { L::COLUMNS >= 4 } => {
                        product.columns::<L, F, 4>(unpacked, groups, [chunk, elems], column, to)
                    }
                    2.. => product.columns::<L, F, 2>(unpacked, groups, [chunk, elems], column, to),
                    _ => product.columns::<L, F, 1>(unpacked, groups, [chunk, elems], column, to),
                }
            };
        }
    }
}

/// Words and f16 of one block of as many rows as lanes.
#[inline(always)]
unsafe fn transpose<L: Lanes, F: Format>(block: *const u8, stride: usize, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        for word in (0..F::WORDS).step_by(4) {
            // The last four may be some of those before them once more.
            let word = word.min(F::WORDS - 4);
            L::transpose(block.add(F::BASE + 4 * word), stride, to.add(F::place(word) * STRIDE));
        }
        if let Some(half) = F::HALF {
            // Four bytes that are within the block.
            let word = half.min(F::BYTES - 4);
            let words = L::gather(block.add(word), stride).shr(8 * (half - word) as u32);
            words.store_low_halves(to.add(F::WORDS * STRIDE).cast());
        }
    }
}

/// Writes an unpacked part.
#[inline(always)]
unsafe fn store<L: Lanes, F: Format>(part: &Part<L>, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        for (i, q) in part.q.iter().enumerate() {
            q.store(to.add(i * L::COUNT));
        }
        for h in 0..BLOCK / F::SUB {
            L::store_float(part.scale[h], to.add((8 + h) * L::COUNT).cast());
            if F::MIN {
                L::store_float(part.min[h], to.add((10 + h) * L::COUNT).cast());
            }
        }
    }
}

/// Reads what [`store`] wrote.
#[inline(always)]
unsafe fn load<L: Lanes, F: Format>(from: *const u32) -> Part<L> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut q = [L::splat(0); 8];
        for (i, q) in q.iter_mut().enumerate() {
            *q = L::load(from.add(i * L::COUNT));
        }
        let [mut scale, mut min] = [[L::splat_float(0.0); 2]; 2];
        for h in 0..BLOCK / F::SUB {
            scale[h] = L::load_float(from.add((8 + h) * L::COUNT).cast());
            if F::MIN {
                min[h] = L::load_float(from.add((10 + h) * L::COUNT).cast());
            }
        }
        Part { q, scale, min }
    }
}
