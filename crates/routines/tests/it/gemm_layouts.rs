//! Matrix products of every layout, type and instruction set against sums in f64.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Gemm, Layout};
use panoply_ir::{DType, Scalar};
use panoply_routines::element_format::Bytes;
use panoply_routines::gemm::{joined, product, run};

/// Returns the layout of a matrix with gaps, in row- or column-major order, and its length in elements; a repeated
/// matrix has batch stride 0.
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
        [0, 5, 3, 2],
        [5, 0, 3, 1],
        [2, 3, 4, 0],
        [1030, 20, 3, 1],
        [2, 1200, 35, 1],
        [32, 70, 530, 1],
        [13, 600, 20, 2],
    ]
    .into_iter()
    .enumerate()
    {
        for variant in 0..8 {
            let (a, a_len) = layout(m, k, batch, variant & 1 != 0, false);
            let (b, b_len) = layout(k, n, batch, variant & 2 != 0, number % 3 == 1);
            let (c, c_len) = layout(m, n, batch, variant & 4 != 0, false);
            let gemm = Gemm { dtype, tf32: false, bias: false, batch, m, n, k, a, b, c };
            let fill = |len: usize, by: usize| -> Vec<T> { (0..len).map(|i| T::from((i * by % 7) as u8)).collect() };
            let (mut x, mut y, mut z) = (fill(a_len, 3), fill(b_len, 5), fill(c_len, 1));
            let before = z.clone();
            for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
                z.clone_from(&before);
                let buffers: [*mut u8; 3] = [x.as_mut_ptr().cast(), y.as_mut_ptr().cast(), z.as_mut_ptr().cast()];
                // SAFETY: the vectors have the lengths of the layouts; the set is available.
                unsafe { run(&Pool::new(threads), isa, &gemm, buffers, None) };
                compare(&gemm, &x, &y, &z, &before, tolerance);
            }
        }
    }
}

fn value<T: panoply_ir::Element>(value: T) -> f64 {
    let scalar: Scalar = value.into();
    scalar.to_f64()
}

fn compare<T: panoply_ir::Element, R: panoply_ir::Element>(
    gemm: &Gemm,
    a: &[T],
    b: &[T],
    c: &[R],
    before: &[R],
    tolerance: f64,
) {
    let at = |layout: Layout, batch: usize, row: usize, column: usize| {
        layout.offset + batch * layout.batch + row * layout.row + column * layout.column
    };
    let mut written = vec![false; c.len()];
    for batch in 0..gemm.batch {
        for row in 0..gemm.m {
            for column in 0..gemm.n {
                let products =
                    (0..gemm.k).map(|i| value(a[at(gemm.a, batch, row, i)]) * value(b[at(gemm.b, batch, i, column)]));
                let (want, place) = (products.sum::<f64>(), at(gemm.c, batch, row, column));
                let have = value(c[place]);
                assert!((have - want).abs() <= tolerance * want.abs(), "{gemm:?}: {have} for {want}");
                written[place] = true;
            }
        }
    }
    for (place, written) in written.into_iter().enumerate() {
        assert!(written || c[place] == before[place], "{gemm:?}: wrote between elements of the result");
    }
    assert_eq!(T::DTYPE, gemm.dtype);
}

#[test]
fn batches_with_a_shared_matrix_are_joined() {
    let dense = |rows: usize, columns: usize| Layout { offset: 0, batch: rows * columns, row: columns, column: 1 };
    let shared = |layout: Layout| Layout { batch: 0, ..layout };
    let of = |a, b, c| Gemm { dtype: DType::F32, tf32: false, bias: false, batch: 3, m: 4, n: 5, k: 6, a, b, c };
    let rows = joined(of(dense(4, 6), shared(dense(6, 5)), dense(4, 5)));
    assert_eq!((rows.batch, rows.m, rows.n), (1, 12, 5));
    let transposed = |layout: Layout| Layout { row: layout.column, column: layout.row, ..layout };
    let columns = joined(of(shared(dense(4, 6)), transposed(dense(5, 6)), transposed(dense(5, 4))));
    assert_eq!((columns.batch, columns.m, columns.n), (1, 4, 15));
    assert_eq!(joined(of(dense(4, 6), dense(6, 5), dense(4, 5))).batch, 3);
    sums(&of(dense(4, 6), shared(dense(6, 5)), dense(4, 5)));
    sums(&of(shared(dense(4, 6)), transposed(dense(5, 6)), transposed(dense(5, 4))));
}

#[test]
fn batches_of_one_row_or_column_are_joined() {
    // The compiler passes such layouts: an axis of one element has stride 0.
    let layout = |batch, row, column| Layout { offset: 0, batch, row, column };
    let of = |m, n, a, b, c| Gemm { dtype: DType::F32, tf32: false, bias: false, batch: 3, m, n, k: 6, a, b, c };
    let rows = of(1, 5, layout(6, 0, 1), layout(0, 5, 1), layout(5, 5, 1));
    let columns = of(4, 1, layout(0, 6, 1), layout(6, 1, 0), layout(4, 1, 1));
    for (gemm, sides) in [(rows, (1, 3, 5)), (columns, (1, 4, 3))] {
        let joined = joined(gemm);
        assert_eq!((joined.batch, joined.m, joined.n), sides);
        sums(&gemm);
    }
}

/// Runs and checks a product of small numbers.
fn sums(gemm: &Gemm) {
    let number = |i: usize| (i * 5 % 11) as f32;
    let (mut a, mut b, mut c) = (vec![0f32; 72], vec![0f32; 90], vec![0f32; 60]);
    a.iter_mut().chain(&mut b).enumerate().for_each(|(i, value)| *value = number(i));
    let before = c.clone();
    let buffers = [a.as_mut_ptr().cast(), b.as_mut_ptr().cast(), c.as_mut_ptr().cast()];
    // SAFETY: the vectors have the lengths of the layouts.
    unsafe { run(&Pool::new(2), Isa::best(), gemm, buffers, None) };
    compare(gemm, &a, &b, &c, &before, 0.0);
}

#[test]
fn all_layouts_are_multiplied_correctly() {
    // Small integers are exact in f32 and f64; f16 and bf16 round the result once.
    check::<f32>(DType::F32, 0.0);
    check::<f64>(DType::F64, 0.0);
    check::<panoply_ir::f16>(DType::F16, 1.0 / 2048.0);
    check::<panoply_ir::bf16>(DType::BF16, 1.0 / 256.0);
}

/// All i8 products and sums are exact: with extreme values, on every instruction set, and on AVX-512 also without
/// i16 dot products.
#[test]
fn i8_products_are_exact() {
    for (number, [m, n, k, batch]) in [
        [1, 1, 1, 1],
        [3, 5, 7, 2],
        [64, 65, 66, 1],
        [40, 20, 1100, 1],
        [1, 200, 100, 1],
        [200, 2, 33, 2],
        [8, 8, 0, 1],
    ]
    .into_iter()
    .enumerate()
    {
        for variant in 0..8 {
            let (a, a_len) = layout(m, k, batch, variant & 1 != 0, false);
            let (b, b_len) = layout(k, n, batch, variant & 2 != 0, number % 3 == 1);
            let (c, c_len) = layout(m, n, batch, variant & 4 != 0, false);
            let gemm = Gemm { dtype: DType::I8, tf32: false, bias: false, batch, m, n, k, a, b, c };
            let fill = |len: usize, by: usize| -> Vec<i8> {
                (0..len).map(|i| if i % 5 == 0 { -128 } else { (i * by % 256) as u8 as i8 }).collect()
            };
            let (mut x, mut y) = (fill(a_len, 37), fill(b_len, 91));
            for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
                for best in [true, false] {
                    let mut z = vec![7i32; c_len];
                    let buffers: [*mut u8; 3] = [x.as_mut_ptr().cast(), y.as_mut_ptr().cast(), z.as_mut_ptr().cast()];
                    let pool = Pool::new(threads);
                    // SAFETY: the vectors have the lengths of the layouts; the set is available.
                    unsafe {
                        match best {
                            true => run(&pool, isa, &gemm, buffers, None),
                            false => product::<Bytes<false>>(&pool, isa, &gemm, buffers, None),
                        }
                    }
                    compare(&gemm, &x, &y, &z, &vec![7; c_len], 0.0);
                }
            }
        }
    }
}
