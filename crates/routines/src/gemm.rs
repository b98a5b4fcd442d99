//! Matrix products.
//!
//! A product is divided into [`GemmBlock`]s of the result, each of which runs on one thread. The [`Format`] describes
//! the elements in memory. Sums are f32 or f64 and are rounded once; those of i8 products are i32.

mod block;
mod dot_kernel;
mod pack;

use std::cell::RefCell;

use block::{EpilogueSink, GemmBlock};
use pack::Matrix;
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::DType;
use panoply_ir::routine::{Gemm, Layout};

use super::element_format::{Bf16, Bytes, F16, Format, Plain};
#[cfg(target_arch = "x86_64")]
use super::element_format::{Bf16Pairs, has_bf16_dot, has_i16_dot};
use super::{Epilogue, PARALLEL_FLOPS, Shared, with_pieces};

/// Minimum length of the longer side of a part.
const TILE: usize = 48;
/// Multiple of the sides of a part, to fill vectors.
const FULL: usize = 16;
/// Number of columns below which vectors along rows are better.
const FEW: usize = 16;
/// Number of rows up to which a product is treated as matrix-vector products, which read the matrix from memory only once.
const VECTORS: usize = 4;

/// Number of elements along `k` up to which memory traffic takes about as long as the multiplications.
const SHALLOW: usize = 256;

/// Returns true if the product is bound by memory.
pub fn is_shallow(gemm: &Gemm) -> bool {
    gemm.k <= SHALLOW
}

/// Returns true if the result's rows are produced as whole vectors and are contiguous, as an epilogue requires.
pub fn supports_epilogue(gemm: &Gemm) -> bool {
    let Gemm { m, n, batch, c, .. } = *gemm;
    m.min(n) >= FEW
        && c == Layout { offset: 0, batch: if batch > 1 { m.saturating_mul(n) } else { c.batch }, row: n, column: 1 }
}

/// Runs a product.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn run(pool: &Pool, isa: Isa, gemm: &Gemm, buffers: [*mut u8; 3], epilogue: Option<Epilogue<'_>>) {
    if gemm.batch == 0 || gemm.m == 0 || gemm.n == 0 {
        // The other lengths can have any value here.
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match gemm.dtype {
            DType::F64 => product::<Plain<f64>>(pool, isa, gemm, buffers, epilogue),
            DType::F16 => product::<F16>(pool, isa, gemm, buffers, epilogue),
            #[cfg(target_arch = "x86_64")]
            DType::BF16 if has_bf16_dot(isa) => product::<Bf16Pairs>(pool, isa, gemm, buffers, epilogue),
            DType::BF16 => product::<Bf16>(pool, isa, gemm, buffers, epilogue),
            #[cfg(target_arch = "x86_64")]
            DType::I8 if has_i16_dot(isa) => product::<Bytes<true>>(pool, isa, gemm, buffers, epilogue),
            DType::I8 => product::<Bytes<false>>(pool, isa, gemm, buffers, epilogue),
            _ => product::<Plain<f32>>(pool, isa, gemm, buffers, epilogue),
        }
    }
}

/// Runs a product of elements of one format.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn product<F: Format>(
    pool: &Pool,
    isa: Isa,
    gemm: &Gemm,
    buffers: [*mut u8; 3],
    epilogue: Option<Epilogue<'_>>,
) {
    let (gemm, transposes) = transposed(joined(*gemm));
    let tiles = Tiles::new(&gemm, pool.threads());
    let [a, b, c] = (if transposes { [1, 0, 2] } else { [0, 1, 2] }).map(|at| Shared(buffers[at]));
    pool.run(tiles.count(), &|number| {
        let (batch, row, column, m, n) = tiles.part(&gemm, number);
        let (a, b) = (matrix(a, gemm.a, batch).from(row, 0), matrix(b, gemm.b, batch).from(0, column));
        let (result, c) = (c.at(0).cast::<F::Result>(), matrix(c, gemm.c, batch).from(row, column));
        let few = gemm.m <= VECTORS;
        // SAFETY: the caller's promise; parts of the result are disjoint.
        unsafe {
            with_pieces(epilogue, |pieces| {
                let end = pieces
                    .zip(epilogue)
                    .map(|(run, of)| EpilogueSink { result, run, keep_output: of.keep_output })
                    .map(RefCell::new);
                F::run(isa, GemmBlock::<'_, F> { pool, few, m, n, k: gemm.k, a, b, c, end });
            });
        }
    });
}

/// Returns a matrix of a batch.
fn matrix<T>(buffer: Shared, layout: Layout, batch: usize) -> Matrix<T> {
    let Layout { offset, batch: next, row, column } = layout;
    Matrix { start: buffer.at(0).cast::<T>().wrapping_add(offset + batch * next), row, column }
}

/// Returns an equivalent product in which the rows or columns of all batch items form one matrix, if the layout allows it.
pub fn joined(gemm: Gemm) -> Gemm {
    let Gemm { batch, m, n, a, b, c, .. } = gemm;
    // Distance between the rows or columns across batch items; if each item has only one, any distance works.
    let next = |layout: Layout, count: usize, distance: usize| match count {
        1 => Some(layout.batch),
        _ => (layout.batch == count * distance).then_some(distance),
    };
    let rows = next(a, m, a.row).zip(next(c, m, c.row)).filter(|_| b.batch == 0);
    let columns = next(b, n, b.column).zip(next(c, n, c.column)).filter(|_| a.batch == 0);
    match (rows, columns) {
        _ if batch <= 1 => gemm,
        (Some((of_a, of_c)), _) => {
            let (a, c) = (Layout { row: of_a, ..a }, Layout { row: of_c, ..c });
            Gemm { batch: 1, m: batch * m, a, c, ..gemm }
        }
        (None, Some((of_b, of_c))) => {
            let (b, c) = (Layout { column: of_b, ..b }, Layout { column: of_c, ..c });
            Gemm { batch: 1, n: batch * n, b, c, ..gemm }
        }
        (None, None) => gemm,
    }
}

/// Returns the product, or the transposed one if vectors along rows are better, with a flag that is true if transposed.
fn transposed(gemm: Gemm) -> (Gemm, bool) {
    let Gemm { m, n, a, b, c, .. } = gemm;
    let transposes = if m.min(n) < FEW { n < m } else { c.row < c.column };
    let transpose = |layout: Layout| Layout { row: layout.column, column: layout.row, ..layout };
    if transposes {
        (Gemm { m: n, n: m, a: transpose(b), b: transpose(a), c: transpose(c), ..gemm }, true)
    } else {
        (gemm, false)
    }
}

/// The division of a product into tiles.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    batches: usize,
    rows: usize,
    columns: usize,
    /// Rows and columns of all tiles but the last.
    m: usize,
    n: usize,
}

impl Tiles {
    fn new(gemm: &Gemm, threads: usize) -> Tiles {
        let work = gemm.batch.saturating_mul(gemm.m).saturating_mul(gemm.n).saturating_mul(gemm.k);
        let wanted = if work < PARALLEL_FLOPS { 1 } else { threads.div_ceil(gemm.batch.max(1)) };
        // Each cut divides the longer side, so that tiles are as square as possible.
        let (mut rows, mut columns) = (1, 1);
        while rows * columns < wanted {
            let (height, width) = (gemm.m / (rows + 1), gemm.n / (columns + 1));
            if height.max(width) < TILE {
                break;
            }
            if gemm.m / rows >= gemm.n / columns { rows += 1 } else { columns += 1 }
        }
        let m = gemm.m.div_ceil(rows).next_multiple_of(FULL).min(gemm.m).max(1);
        let n = gemm.n.div_ceil(columns).next_multiple_of(FULL).min(gemm.n).max(1);
        Tiles { batches: gemm.batch, rows: gemm.m.div_ceil(m), columns: gemm.n.div_ceil(n), m, n }
    }

    fn count(&self) -> usize {
        self.batches * self.rows * self.columns
    }

    /// Returns batch item, first row, first column, rows and columns of a tile.
    fn part(&self, gemm: &Gemm, number: usize) -> (usize, usize, usize, usize, usize) {
        let (tile, batch) = (number % (self.rows * self.columns), number / (self.rows * self.columns));
        let (row, column) = (tile / self.columns * self.m, tile % self.columns * self.n);
        (batch, row, column, self.m.min(gemm.m - row), self.n.min(gemm.n - column))
    }
}
