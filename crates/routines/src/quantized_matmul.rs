//! Products of activations with packed weights, which stay as the file stores them.
//!
//! Integer weights are multiplied with activations that are rounded to bytes, with a scale for every 32. Float weights are multiplied with
//! f32 activations; so are weights in encodings without an integer product, whose rows are decoded to f32 first. Threads divide the rows of
//! the matrix, never k. A result depends neither on the other columns nor on the number of threads.
//!
//! Rows of integers are interleaved in groups of 16, or transposed as they come from memory (figures:
//! `docs/measured/quantized-matmul-cpu.md`).

mod activations;
pub mod experts;
mod float;
mod format;
mod integer;
mod lanes;

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::QuantizedMatmul;
use panoply_ir::{DType, Encoding};

use self::activations::{Bytes, read};
use self::float::FloatFormat;
use self::format::Format;
use self::lanes::{Lanes, LanesTask};
use super::in_numbers;

/// True if the CPU takes a product.
pub fn offers(of: &QuantizedMatmul) -> bool {
    let float = matches!(of.dtype, DType::F32 | DType::F16 | DType::BF16);
    float && of.row_bytes().is_some() && scratch_words(of).is_some()
}

/// Words of scratch memory for the activations; none if they pass what an address holds.
fn scratch_words(of: &QuantizedMatmul) -> Option<usize> {
    of.m.checked_mul(of.k.checked_next_multiple_of(16)?)?.checked_mul(16).map(|bytes| bytes / 4)
}

/// Computes a product.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn run(pool: &Pool, isa: Isa, of: &QuantizedMatmul, buffers: &[*mut u8]) {
    let buffers = [buffers[0], buffers[1], buffers[2]];
    // SAFETY: the caller's promise, for all of them.
    unsafe {
        match of.encoding {
            Encoding::F32 => floats::<float::F32>(pool, isa, of, buffers),
            Encoding::F16 => floats::<float::F16>(pool, isa, of, buffers),
            Encoding::BF16 => floats::<float::BF16>(pool, isa, of, buffers),
            Encoding::Q4_0 => integers::<format::Q4_0>(pool, isa, of, buffers),
            Encoding::Q4_1 => integers::<format::Q4_1>(pool, isa, of, buffers),
            Encoding::Q5_0 => integers::<format::Q5_0>(pool, isa, of, buffers),
            Encoding::Q5_1 => integers::<format::Q5_1>(pool, isa, of, buffers),
            Encoding::Q8_0 => integers::<format::Q8_0>(pool, isa, of, buffers),
            Encoding::Q2K => integers::<format::Q2K>(pool, isa, of, buffers),
            Encoding::Q3K => integers::<format::Q3K>(pool, isa, of, buffers),
            Encoding::Q4K => integers::<format::Q4K>(pool, isa, of, buffers),
            Encoding::Q5K => integers::<format::Q5K>(pool, isa, of, buffers),
            Encoding::Q6K => integers::<format::Q6K>(pool, isa, of, buffers),
            Encoding::IQ2Xxs
            | Encoding::IQ2Xs
            | Encoding::IQ2S
            | Encoding::IQ3Xxs
            | Encoding::IQ3S
            | Encoding::IQ1S
            | Encoding::IQ1M
            | Encoding::IQ4Nl
            | Encoding::IQ4Xs
            | Encoding::TQ1_0
            | Encoding::TQ2_0
            | Encoding::MXFP4
            | Encoding::NVFP4 => decoded(pool, isa, of, buffers),
        }
    }
}

/// Rows of a part: few enough that every thread has several, in whole registers on every machine.
fn part_rows(pool: &Pool, n: usize, most: usize) -> usize {
    (n / (4 * pool.threads()) / 16 * 16).clamp(16, most)
}

/// Work of as many rows, as [`in_numbers`] counts it.
fn work(of: &QuantizedMatmul) -> usize {
    of.n.saturating_mul(of.k).saturating_mul(of.m)
}

/// Activations of a routine.
#[derive(Clone, Copy)]
struct Source {
    x: *const u8,
    dtype: DType,
    k: usize,
}

// SAFETY: it is only an address, and no thread writes through it.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    fn row(&self, row: usize) -> *const u8 {
        self.x.wrapping_add(row * self.k * self.dtype.bytes())
    }
}

unsafe fn integers<F: Format>(pool: &Pool, isa: Isa, of: &QuantizedMatmul, [x, weight, out]: [*mut u8; 3]) {
    let QuantizedMatmul { dtype, m, n, k, interleaved, .. } = *of;
    let mut scratch = pool.scratch().take::<i32>(Bytes::words(m, k, F::SUB));
    let bytes = Bytes::new(scratch.start().cast(), m, k);
    let source = Source { x, dtype, k };
    in_numbers(pool, m, m * k * 8, |row| {
        let task = Round { source, bytes, row, sub: F::SUB, offset: (!F::MIN).then_some(F::OFFSET) };
        // SAFETY: the caller's promise; each row is rounded once.
        unsafe { lanes::run(isa, task) };
    });
    let stride = k / F::ELEMS * F::BYTES;
    let prefetch = lanes::prefetches();
    let product = integer::IntegerProduct { weight, stride, n, m, x: bytes, out, dtype, interleaved, prefetch };
    let rows = part_rows(pool, n, integer::ROWS);
    in_numbers(pool, n.div_ceil(rows), work(of), |number| {
        let task = Rows {
            product,
            format: std::marker::PhantomData::<F>,
            pool,
            rows: [number * rows, n.min((number + 1) * rows)],
        };
        // SAFETY: the caller's promise; parts write rows of their own.
        unsafe { lanes::run(isa, task) };
    });
}

unsafe fn floats<F: FloatFormat>(pool: &Pool, isa: Isa, of: &QuantizedMatmul, buffers: [*mut u8; 3]) {
    let part = |product: float::Product, rows| {
        let task = FloatRows { product, format: std::marker::PhantomData::<F>, pool, rows };
        // SAFETY: the caller's promise; parts write rows of their own.
        unsafe { lanes::run(isa, task) };
    };
    // SAFETY: the caller's promise.
    unsafe { parts(pool, isa, of, buffers, part) }
}

/// Products with rows that are decoded to f32 first, a part at a time.
unsafe fn decoded(pool: &Pool, isa: Isa, of: &QuantizedMatmul, buffers: [*mut u8; 3]) {
    let row_bytes = of.row_bytes().expect("offered products have whole blocks");
    let part = |product: float::Product, [first, end]: [usize; 2]| {
        let numel = (end - first) * of.k;
        let mut scratch = pool.scratch().take::<f32>(numel);
        // SAFETY: the caller's promise about the matrix; the scratch has that many elements, and no other thread uses it.
        let (packed, values) = unsafe {
            let packed = std::slice::from_raw_parts(product.weight.add(first * row_bytes), (end - first) * row_bytes);
            (packed, std::slice::from_raw_parts_mut(scratch.start(), numel))
        };
        of.encoding.decode(packed, values);
        let product = float::Product { weight: values.as_ptr().cast(), weight_row: first, prefetch: false, ..product };
        let task = FloatRows { product, format: std::marker::PhantomData::<float::F32>, pool, rows: [first, end] };
        // SAFETY: the caller's promise; parts write rows of their own.
        unsafe { lanes::run(isa, task) };
    };
    // SAFETY: the caller's promise.
    unsafe { parts(pool, isa, of, buffers, part) }
}

/// Passes parts of the rows to `part`, with the activations as f32.
unsafe fn parts(
    pool: &Pool,
    isa: Isa,
    of: &QuantizedMatmul,
    [x, weight, out]: [*mut u8; 3],
    part: impl Fn(float::Product, [usize; 2]) + Sync,
) {
    let QuantizedMatmul { dtype, m, n, k, .. } = *of;
    let x_stride = k.next_multiple_of(16);
    // Rows that are f32 of whole registers are read where they are.
    let in_place = dtype == DType::F32 && x_stride == k;
    let mut scratch = pool.scratch().take::<f32>(if in_place { 0 } else { m * x_stride });
    let wide = scratch.start();
    if !in_place {
        let (source, to) = (Source { x, dtype, k }, super::Shared(wide.cast()));
        in_numbers(pool, m, m * k, |row| {
            // SAFETY: the caller's promise; each row is converted once.
            unsafe { lanes::run(isa, Widen { source, to: to.at(row * x_stride * 4).cast(), stride: x_stride, row }) };
        });
    }
    let x = if in_place { x.cast() } else { wide };
    let product =
        float::Product { weight, weight_row: 0, n, m, k, x, x_stride, out, dtype, prefetch: lanes::prefetches() };
    let rows = part_rows(pool, n, float::ROWS);
    in_numbers(pool, n.div_ceil(rows), work(of), |number| {
        part(product, [number * rows, n.min((number + 1) * rows)]);
    });
}

/// One row of activations to bytes.
struct Round {
    source: Source,
    bytes: Bytes,
    row: usize,
    sub: usize,
    offset: Option<i32>,
}

impl LanesTask for Round {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Round { source, bytes, row, sub, offset } = self;
        // SAFETY: the caller's promise.
        unsafe { bytes.round::<L>(row, source.row(row), source.dtype, sub, offset) }
    }
}

/// One row of activations to f32.
struct Widen {
    source: Source,
    to: *mut f32,
    stride: usize,
    row: usize,
}

impl LanesTask for Widen {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Widen { source, to, stride, row } = self;
        // SAFETY: the caller's promise: the row is valid, and no other thread uses it.
        unsafe {
            let to = std::slice::from_raw_parts_mut(to, stride);
            let (values, rest) = to.split_at_mut(source.k);
            read::<L>(source.row(row), source.dtype, 0, values);
            rest.fill(0.0);
        }
    }
}

/// Some rows of a product with integers.
struct Rows<'a, F> {
    product: integer::IntegerProduct,
    format: std::marker::PhantomData<F>,
    pool: &'a Pool,
    rows: [usize; 2],
}

impl<F: Format> LanesTask for Rows<'_, F> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.product.rows::<L, F>(self.pool, self.rows[0], self.rows[1]) }
    }
}

/// Some rows of a product with floats.
struct FloatRows<'a, F> {
    product: float::Product,
    format: std::marker::PhantomData<F>,
    pool: &'a Pool,
    rows: [usize; 2],
}

impl<F: FloatFormat> LanesTask for FloatRows<'_, F> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.product.rows::<L, F>(self.pool, self.rows[0], self.rows[1]) }
    }
}
