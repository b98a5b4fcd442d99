//! Matrix products, by the `gemm` crates on our own threads.
//!
//! A product is divided into parts of the result; each part runs on one thread, so the sum over `k` is taken in the order
//! that the library takes it. 16-bit floats are widened to f32 first and rounded once at the end.

use panoply_device::Result;
use panoply_ir::DType;
use panoply_ir::routine::{Gemm, Layout};

use super::{PARALLEL_FLOPS, Shared};
use crate::pool::Pool;
use crate::vm::ops::half;

/// Rows and columns of a part are a multiple of this, to fit the library's tiles.
const TILE: usize = 48;

/// Runs a product.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn run(pool: &Pool, gemm: &Gemm, buffers: &[*mut u8]) -> Result<()> {
    let [a, b, c] = [0, 1, 2].map(|position| Shared(buffers[position]));
    match gemm.dtype {
        // SAFETY: the caller's promise.
        DType::F64 => unsafe { multiply::<f64>(pool, gemm, [a, b, c]) },
        // SAFETY: the caller's promise.
        DType::F16 => unsafe { multiply_halves(pool, gemm, [a, b, c], half::f16_to_f32, half::f32_to_f16) },
        // SAFETY: the caller's promise.
        DType::BF16 => unsafe { multiply_halves(pool, gemm, [a, b, c], half::bf16_to_f32, half::f32_to_bf16) },
        // SAFETY: the caller's promise.
        _ => unsafe { multiply::<f32>(pool, gemm, [a, b, c]) },
    }
    Ok(())
}

/// A type the library multiplies.
pub trait Element: Copy + 'static {
    /// `c = a × b` on one thread.
    ///
    /// # Safety
    /// As [`super::run`].
    unsafe fn product(part: &Part, a: *const Self, b: *const Self, c: *mut Self);
}

/// A part of a product: `m × k` times `k × n`, with strides in elements.
pub struct Part {
    m: usize,
    n: usize,
    k: usize,
    a: [isize; 2],
    b: [isize; 2],
    c: [isize; 2],
}

macro_rules! element {
    ($ty:ident, $library:path) => {
        impl Element for $ty {
            unsafe fn product(part: &Part, a: *const $ty, b: *const $ty, c: *mut $ty) {
                use $library as library;
                let Part { m, n, k, a: [a_row, a_column], b: [b_row, b_column], c: [c_row, c_column] } = *part;
                let product = library::get_gemm_fn();
                // SAFETY: the caller's promise; the function was chosen for this machine.
                unsafe {
                    product(
                        m,
                        n,
                        k,
                        c,
                        c_column,
                        c_row,
                        false,
                        a,
                        a_column,
                        a_row,
                        b,
                        b_column,
                        b_row,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        gemm_common::Parallelism::None,
                    );
                }
            }
        }
    };
}

element!(f32, gemm_f32::gemm::f32);
element!(f64, gemm_f64::gemm::f64);

/// Runs a product of elements that are summed as they are.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn multiply<T: Element>(pool: &Pool, gemm: &Gemm, [a, b, c]: [Shared; 3]) {
    let tiles = Tiles::new(gemm, pool.threads());
    pool.run(tiles.count(), &|number| {
        let (batch, row, column, m, n) = tiles.part(gemm, number);
        let mut part = Part { m, n, k: gemm.k, a: strides(gemm.a), b: strides(gemm.b), c: strides(gemm.c) };
        let element = |buffer: Shared, layout: Layout, row: usize, column: usize| {
            let at = layout.offset + batch * layout.batch + row * layout.row + column * layout.column;
            buffer.at(at * size_of::<T>()).cast::<T>()
        };
        let (a, b) = (element(a, gemm.a, row, 0), element(b, gemm.b, 0, column));
        let c = element(c, gemm.c, row, column);
        // The library wants the result's columns together: a product with rows together is the transposed one.
        let (a, b) = if part.c[1].unsigned_abs() < part.c[0].unsigned_abs() {
            let transposed = |[row, column]: [isize; 2]| [column, row];
            part = Part {
                m: part.n,
                n: part.m,
                k: part.k,
                a: transposed(part.b),
                b: transposed(part.a),
                c: transposed(part.c),
            };
            (b, a)
        } else {
            (a, b)
        };
        // SAFETY: the caller's promise; parts of the result are disjoint.
        unsafe { T::product(&part, a, b, c) };
    });
}

fn strides(layout: Layout) -> [isize; 2] {
    [layout.row as isize, layout.column as isize]
}

/// How a product is divided.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    batches: usize,
    rows: usize,
    columns: usize,
    /// Rows and columns of all but the last tile.
    m: usize,
    n: usize,
}

impl Tiles {
    fn new(gemm: &Gemm, threads: usize) -> Tiles {
        let work = gemm.batch.saturating_mul(gemm.m).saturating_mul(gemm.n).saturating_mul(gemm.k);
        let wanted = if work < PARALLEL_FLOPS { 1 } else { threads.div_ceil(gemm.batch.max(1)) };
        // Each cut goes through the longer side, so that tiles stay as square as can be.
        let (mut rows, mut columns) = (1, 1);
        while rows * columns < wanted {
            let (height, width) = (gemm.m / (rows + 1), gemm.n / (columns + 1));
            if height.max(width) < TILE {
                break;
            }
            if gemm.m / rows >= gemm.n / columns { rows += 1 } else { columns += 1 }
        }
        let m = gemm.m.div_ceil(rows).next_multiple_of(TILE).min(gemm.m.max(1));
        let n = gemm.n.div_ceil(columns).next_multiple_of(TILE).min(gemm.n.max(1));
        Tiles { batches: gemm.batch, rows: gemm.m.div_ceil(m), columns: gemm.n.div_ceil(n), m, n }
    }

    fn count(&self) -> usize {
        self.batches * self.rows * self.columns
    }

    /// Batch, first row, first column, rows and columns of a tile.
    fn part(&self, gemm: &Gemm, number: usize) -> (usize, usize, usize, usize, usize) {
        let (tile, batch) = (number % (self.rows * self.columns), number / (self.rows * self.columns));
        let (row, column) = (tile / self.columns * self.m, tile % self.columns * self.n);
        (batch, row, column, self.m.min(gemm.m - row), self.n.min(gemm.n - column))
    }
}

/// # Safety
/// As [`super::run`].
unsafe fn multiply_halves(
    pool: &Pool,
    gemm: &Gemm,
    [a, b, c]: [Shared; 3],
    widen: fn(u16) -> f32,
    narrow: fn(f32) -> u16,
) {
    let Gemm { m, n, k, .. } = *gemm;
    let dense = |columns: usize| Layout { offset: 0, batch: 0, row: columns, column: 1 };
    let (mut wide_a, mut wide_b, mut wide_c) = (vec![0_f32; m * k], vec![0_f32; k * n], vec![0_f32; m * n]);
    let single = Gemm { dtype: DType::F32, batch: 1, a: dense(k), b: dense(n), c: dense(n), ..*gemm };
    let at = |buffer: Shared, layout: Layout, batch: usize, row: usize, column: usize| {
        let element = layout.offset + batch * layout.batch + row * layout.row + column * layout.column;
        buffer.at(element * 2).cast::<u16>()
    };
    for batch in 0..gemm.batch {
        for (wide, buffer, layout, columns) in [(&mut wide_a, a, gemm.a, k), (&mut wide_b, b, gemm.b, n)] {
            // One matrix for all batches is widened once.
            if batch == 0 || layout.batch != 0 {
                for (row, values) in wide.chunks_exact_mut(columns.max(1)).enumerate() {
                    for (column, value) in values.iter_mut().enumerate() {
                        // SAFETY: the caller's promise.
                        *value = widen(unsafe { *at(buffer, layout, batch, row, column) });
                    }
                }
            }
        }
        let wide = [&mut wide_a, &mut wide_b, &mut wide_c].map(|wide| Shared(wide.as_mut_ptr().cast()));
        // SAFETY: the vectors are as long as the dense layouts say.
        unsafe { multiply::<f32>(pool, &single, wide) };
        for (row, values) in wide_c.chunks_exact(n.max(1)).enumerate() {
            for (column, value) in values.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *at(c, gemm.c, batch, row, column) = narrow(*value) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::Scalar;

    use super::*;

    /// A matrix in memory, with gaps, in either order, repeated or not.
    fn layout(rows: usize, columns: usize, batch: usize, transposed: bool, repeated: bool) -> (Layout, usize) {
        let (row, column) = if transposed { (1, rows + 2) } else { (columns + 3, 1) };
        let matrix = rows.max(1) * row.max(1) + columns.max(1) * column.max(1) + rows * columns * 4;
        let layout = Layout { offset: 5, batch: if repeated { 0 } else { matrix }, row, column };
        (layout, 5 + matrix * batch.max(1))
    }

    fn check<T: panoply_ir::Element + From<u8>>(dtype: DType, tolerance: f64) {
        for (number, [m, n, k, batch]) in [
            [1, 1, 1, 1],
            [3, 5, 7, 2],
            [64, 64, 64, 1],
            [130, 50, 33, 1],
            [50, 300, 9, 2],
            [1, 200, 100, 1],
            [200, 1, 100, 1],
            [8, 8, 0, 1],
        ]
        .into_iter()
        .enumerate()
        {
            for variant in 0..8 {
                let (a, a_len) = layout(m, k, batch, variant & 1 != 0, false);
                let (b, b_len) = layout(k, n, batch, variant & 2 != 0, number % 2 == 0);
                let (c, c_len) = layout(m, n, batch, variant & 4 != 0, false);
                let gemm = Gemm { dtype, batch, m, n, k, a, b, c };
                let fill =
                    |len: usize, by: usize| -> Vec<T> { (0..len).map(|i| T::from((i * by % 7) as u8)).collect() };
                let (mut x, mut y, mut z) = (fill(a_len, 3), fill(b_len, 5), fill(c_len, 1));
                let before = z.clone();
                for threads in [1, 3] {
                    let buffers: [*mut u8; 3] = [x.as_mut_ptr().cast(), y.as_mut_ptr().cast(), z.as_mut_ptr().cast()];
                    // SAFETY: the vectors are as long as the layouts reach.
                    unsafe { run(&Pool::new(threads), &gemm, &buffers) }.expect("products do not fail");
                    compare(&gemm, &x, &y, &z, &before, tolerance);
                }
            }
        }
    }

    fn value<T: panoply_ir::Element>(value: T) -> f64 {
        let scalar: Scalar = value.into();
        scalar.to_f64()
    }

    fn compare<T: panoply_ir::Element>(gemm: &Gemm, a: &[T], b: &[T], c: &[T], before: &[T], tolerance: f64) {
        let at = |layout: Layout, batch: usize, row: usize, column: usize| {
            layout.offset + batch * layout.batch + row * layout.row + column * layout.column
        };
        let mut written = vec![false; c.len()];
        for batch in 0..gemm.batch {
            for row in 0..gemm.m {
                for column in 0..gemm.n {
                    let products = (0..gemm.k)
                        .map(|i| value(a[at(gemm.a, batch, row, i)]) * value(b[at(gemm.b, batch, i, column)]));
                    let (want, place) = (products.sum::<f64>(), at(gemm.c, batch, row, column));
                    let have = value(c[place]);
                    assert!((have - want).abs() <= tolerance * want.abs(), "{gemm:?}: {have} for {want}");
                    written[place] = true;
                }
            }
        }
        for (place, written) in written.into_iter().enumerate() {
            assert!(written || c[place] == before[place], "{gemm:?}: wrote between the elements of the result");
        }
        assert_eq!(T::DTYPE, gemm.dtype);
    }

    #[test]
    fn products_of_every_layout() {
        // Small integers: exact in f32 and f64; f16 and bf16 round the result once.
        check::<f32>(DType::F32, 0.0);
        check::<f64>(DType::F64, 0.0);
        check::<panoply_ir::f16>(DType::F16, 1.0 / 2048.0);
        check::<panoply_ir::bf16>(DType::BF16, 1.0 / 256.0);
    }
}
