//! Matrix products of random numbers, some of which are not finite, against sums in f64, with every instruction set of
//! the machine and on one thread and several.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Gemm, Layout, Routine};
use panoply_ir::{Element, Scalar, bf16, f16};
use panoply_routines::{offers, run};

fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

fn wide(value: impl Element) -> f64 {
    let scalar: Scalar = value.into();
    scalar.to_f64()
}

/// Checks products with error bounds: the unit roundoff of elements, that of sums, and half the smallest positive element.
fn check<T: Element>(of: fn(f64) -> T, [element, sum, least]: [f64; 3]) {
    let mut below = numbers(7);
    let layout = |rows: usize, columns: usize, transposed: usize| {
        let (row, column) = if transposed == 1 { (1, rows) } else { (columns, 1) };
        Layout { offset: 0, batch: rows * columns, row, column }
    };
    for round in 0..40 {
        let [m, n] = [0, 1].map(|_| [1, 2, 3, 5, 8, 17, 48, 63, 64, 65, 130, 257][below(12)]);
        let k = [1, 2, 15, 16, 31, 33, 64, 100, 513, 1025][below(10)];
        let batch = 1 + below(2);
        let [a, b, c] = [(m, k), (k, n), (m, n)].map(|(rows, columns)| layout(rows, columns, below(2)));
        let gemm = Gemm { dtype: T::DTYPE, tf32: false, bias: false, batch, m, n, k, a, b, c };
        assert!(offers(&Routine::Gemm(gemm)));
        let mut many = |count: usize| -> Vec<T> {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            let value =
                |below: &mut dyn FnMut(usize) -> usize| match below(if round % 4 == 0 { 5000 } else { usize::MAX }) {
                    at @ 0..3 => special[at],
                    at => (at % 4001) as f64 / 2000.0 - 1.0,
                };
            (0..count).map(|_| of(value(&mut below))).collect()
        };
        let (mut x, mut y, mut z) = (many(batch * m * k), many(batch * k * n), Vec::new());
        let [wide_x, wide_y] = [&x, &y].map(|all| all.iter().map(|value| wide(*value)).collect::<Vec<f64>>());
        for isa in Isa::available() {
            z.clear();
            z.resize(batch * m * n, of(7.0));
            let buffers = [x.as_mut_ptr().cast(), y.as_mut_ptr().cast(), z.as_mut_ptr().cast()];
            // SAFETY: the vectors have the lengths of the layouts; the set is available.
            unsafe { run(&Pool::new(1 + round % 3), isa, &Routine::Gemm(gemm), &buffers) };
            for at in 0..batch * m * n {
                let (i, row, column) = (at / (m * n), at / n % m, at % n);
                let x = |k: usize| wide_x[i * a.batch + row * a.row + k * a.column];
                let y = |k: usize| wide_y[i * b.batch + k * b.row + column * b.column];
                let products = (0..k).map(|k| x(k) * y(k));
                let (want, size) = products.fold((0.0, 0.0), |(sum, size), one| (sum + one, size + one.abs()));
                let have = wide(z[i * c.batch + row * c.row + column * c.column]);
                let near = (have - want).abs() <= element * want.abs() + sum * k as f64 * size + least;
                assert!(
                    near || have == want || have.is_nan() && want.is_nan(),
                    "{gemm:?} with {isa}: {have} for {want}"
                );
            }
        }
    }
}

#[test]
fn random_products_equal_f64_sums() {
    let unit = |bits: i32| 2f64.powi(-bits);
    check::<f32>(|value| value as f32, [unit(24), unit(24), 0.0]);
    check::<f64>(|value| value, [unit(53), unit(53), 0.0]);
    check::<f16>(f16::from_f64, [unit(11), unit(24), unit(25)]);
    check::<bf16>(bf16::from_f64, [unit(8), unit(24), 0.0]);
}
