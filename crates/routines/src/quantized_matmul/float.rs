//! Products of packed floats with activations of f32.
//!
//! Lanes are elements of k: an output is as many sums as there are lanes, each in order of k, added at the end in a fixed order. So no row
//! has to be transposed, and the bits are the same for one column and for many: what several columns share is only converted once.

use panoply_host::pool::Pool;
use panoply_ir::DType;

use super::activations::write;
use super::lanes::{self, LINE, Lanes, LanesTask, PREFETCH};

/// Elements of k that are converted at once for several columns: with [`Lanes::FLOAT_TILE`] rows they fit the first-level cache.
const CHUNK: usize = 512;
/// Columns between two conversions of the same elements: their sums and activations fit the second-level cache.
const COLUMNS: usize = 192;
/// Most rows that are multiplied in one part.
pub const ROWS: usize = 32;

/// Conversion of weights to f32.
pub trait FloatFormat: Copy + Send + Sync + 'static {
    /// Bytes of an element.
    const BYTES: usize;

    /// As many elements as there are lanes.
    ///
    /// # Safety
    /// The machine has the instructions; the elements are valid for reads.
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Float;
}

/// IEEE's half.
#[derive(Clone, Copy)]
pub struct F16;

impl FloatFormat for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Float {
        // SAFETY: the caller's promise.
        unsafe { L::halves(from.cast()) }
    }
}

/// The upper half of an f32.
#[derive(Clone, Copy)]
pub struct BF16;

impl FloatFormat for BF16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Float {
        // SAFETY: the caller's promise.
        unsafe { L::widened(from.cast()).shl(16).as_float() }
    }
}

/// f32 itself.
#[derive(Clone, Copy)]
pub struct F32;

impl FloatFormat for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Float {
        // SAFETY: the caller's promise.
        unsafe { L::load_float(from.cast()) }
    }
}

/// A product.
#[derive(Clone, Copy)]
pub struct Product {
    /// The matrix, from row `weight_row` on.
    pub weight: *const u8,
    /// First row that `weight` holds.
    pub weight_row: usize,
    /// Rows of the matrix.
    pub n: usize,
    /// Columns: rows of the activations.
    pub m: usize,
    /// Elements of a row.
    pub k: usize,
    /// Activations, `[m, x_stride]`, with zeros behind the k-th element up to a multiple of 16.
    pub x: *const f32,
    /// Elements from one row of activations to the next.
    pub x_stride: usize,
    /// `[m, n]`.
    pub out: *mut u8,
    /// Its elements.
    pub dtype: DType,
    /// True if rows that are multiplied with one column are prefetched.
    pub prefetch: bool,
}

// SAFETY: they are only addresses; whoever writes through them answers for the parts being disjoint.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

impl Product {
    /// Computes rows `first .. end` of the outputs, at most [`ROWS`] of them.
    ///
    /// # Safety
    /// All buffers are as long as the fields say; no other thread uses these rows of the output.
    #[inline(always)]
    pub unsafe fn rows<L: Lanes, F: FloatFormat>(&self, pool: &Pool, first: usize, end: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.m == 1 {
                self.vector::<L, F>(first, end);
            } else if const { L::FLOAT_TILE[0] == 8 } {
                self.matrix::<L, F, 8, 3>(pool, first, end);
            } else if const { L::FLOAT_TILE[0] == 4 } {
                self.matrix::<L, F, 4, 3>(pool, first, end);
            } else {
                self.matrix::<L, F, 2, 2>(pool, first, end);
            }
        }
    }

    /// Elements `at ..` of a row, zeros behind its end.
    #[inline(always)]
    unsafe fn load<L: Lanes, F: FloatFormat>(&self, row: usize, at: usize) -> L::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let from = self.weight.add(((row - self.weight_row) * self.k + at) * F::BYTES);
            if at + L::COUNT <= self.k {
                return F::load::<L>(from);
            }
            let mut rest = [0u8; 16 * 4];
            std::ptr::copy_nonoverlapping(from, rest.as_mut_ptr(), (self.k - at) * F::BYTES);
            F::load::<L>(rest.as_ptr())
        }
    }

    /// One column.
    #[inline(always)]
    unsafe fn vector<L: Lanes, F: FloatFormat>(&self, first: usize, end: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut row = first;
            while row < end {
                row += match end - row {
                    // One row after another is read at the rate of the memory, which four rows at once do not reach. Narrower registers
                    // would wait for the sum of a single row.
                    4.. if const { L::COUNT < 16 } => self.dots::<L, F, 4>(row),
                    _ => self.dots::<L, F, 1>(row),
                };
            }
        }
    }

    /// Some rows with the only column; returns their number.
    #[inline(always)]
    unsafe fn dots<L: Lanes, F: FloatFormat, const R: usize>(&self, row: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [L::splat_float(0.0); R];
            let whole = self.k / L::COUNT * L::COUNT;
            for at in (0..whole).step_by(L::COUNT) {
                let x = L::load_float(self.x.add(at));
                if R == 1 && self.prefetch && (at * F::BYTES).is_multiple_of(LINE) {
                    let start = ((row - self.weight_row) * self.k + at) * F::BYTES;
                    L::prefetch(self.weight.wrapping_add(start + PREFETCH));
                }
                for (r, sum) in sums.iter_mut().enumerate() {
                    let from = self.weight.add(((row - self.weight_row + r) * self.k + at) * F::BYTES);
                    *sum = L::mul_add(F::load::<L>(from), x, *sum);
                }
            }
            if whole < self.k {
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = L::mul_add(self.load::<L, F>(row + r, whole), L::load_float(self.x.add(whole)), *sum);
                }
            }
            for (r, sum) in sums.iter().enumerate() {
                write(&[L::sum(*sum)], self.out, self.dtype, row + r);
            }
        }
        R
    }

    /// Several columns, `R` rows and `C` columns at a time.
    #[inline(always)]
    unsafe fn matrix<L: Lanes, F: FloatFormat, const R: usize, const C: usize>(
        &self,
        pool: &Pool,
        first: usize,
        end: usize,
    ) {
        let groups = (end - first).div_ceil(R);
        let block = COLUMNS.min(self.m);
        let mut scratch = pool.scratch().take::<f32>(R * CHUNK + groups * block * R * L::COUNT);
        // SAFETY: the caller's promise; the scratch is as long as both.
        unsafe {
            let panel = scratch.start();
            let sums = panel.add(R * CHUNK);
            for from in (0..self.m).step_by(block) {
                let columns = block.min(self.m - from);
                for at in 0..groups * block * R {
                    L::store_float(L::splat_float(0.0), sums.add(at * L::COUNT));
                }
                for chunk in (0..self.k).step_by(CHUNK) {
                    let elems = CHUNK.min(self.k - chunk).next_multiple_of(L::COUNT);
                    for group in 0..groups {
                        for r in 0..R {
                            let row = (first + group * R + r).min(end - 1);
                            for at in (0..elems).step_by(L::COUNT) {
                                L::store_float(self.load::<L, F>(row, chunk + at), panel.add(r * CHUNK + at));
                            }
                        }
                        let x = self.x.add(from * self.x_stride + chunk);
                        let sums = sums.add(group * block * R * L::COUNT);
                        let task = PanelSums::<R, C> { product: *self, panel, elems, x, columns, sums };
                        lanes::run_alone::<L, _>(&task);
                    }
                }
                for (group, column) in (0..groups).flat_map(|group| (0..columns).map(move |column| (group, column))) {
                    let sums = sums.add((group * block + column) * R * L::COUNT);
                    let mut outputs = [0.0; R];
                    for (row, output) in outputs.iter_mut().enumerate() {
                        *output = L::sum(L::load_float(sums.add(row * L::COUNT)));
                    }
                    let outputs = &outputs[..R.min(end - first - group * R)];
                    write(outputs, self.out, self.dtype, (from + column) * self.n + first + group * R);
                }
            }
        }
    }

    /// Adds the products of converted elements with those of some columns to their sums; returns the number of columns.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const C: usize>(
        &self,
        panel: *const f32,
        elems: usize,
        x: *const f32,
        to: *mut f32,
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[L::splat_float(0.0); R]; C];
            for (c, sums) in sums.iter_mut().enumerate() {
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load_float(to.add((c * R + r) * L::COUNT));
                }
            }
            for at in (0..elems).step_by(L::COUNT) {
                let mut factors = [L::splat_float(0.0); C];
                for (c, factor) in factors.iter_mut().enumerate() {
                    *factor = L::load_float(x.add(c * self.x_stride + at));
                }
                for r in 0..R {
                    let weight = L::load_float(panel.add(r * CHUNK + at));
                    for (sums, factor) in sums.iter_mut().zip(factors) {
                        sums[r] = L::mul_add(weight, factor, sums[r]);
                    }
                }
            }
            for (c, sums) in sums.iter().enumerate() {
                for (r, sum) in sums.iter().enumerate() {
                    L::store_float(*sum, to.add((c * R + r) * L::COUNT));
                }
            }
        }
        C
    }
}

/// Adds a chunk of k of converted rows to their sums with some columns. It is compiled once for all formats.
struct PanelSums<const R: usize, const C: usize> {
    product: Product,
    panel: *const f32,
    elems: usize,
    x: *const f32,
    columns: usize,
    sums: *mut f32,
}

impl<const R: usize, const C: usize> LanesTask for &PanelSums<R, C> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let PanelSums { product, panel, elems, x, columns, sums } = *self;
        let mut column = 0;
        while column < columns {
            let (x, to) = (x.wrapping_add(column * product.x_stride), sums.wrapping_add(column * R * L::COUNT));
            // SAFETY: the caller's promise.
            column += unsafe {
                match columns - column {
                    rest if rest >= C => product.tile::<L, R, C>(panel, elems, x, to),
                    _ => product.tile::<L, R, 1>(panel, elems, x, to),
                }
            };
        }
    }
}
