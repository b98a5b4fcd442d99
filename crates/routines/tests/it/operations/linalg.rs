//! Matrix factorizations and triangular solves, against their definitions.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Cholesky, Lu, Qr, Routine, Triangular};
use panoply_routines::run;

use super::{Float, Numbers, close, outputs};

#[test]
fn triangular_solves_cholesky_and_lu() {
    factors::<f32>();
    factors::<f64>();
}

#[test]
fn qr_columns_are_orthonormal() {
    orthonormal::<f32>();
    orthonormal::<f64>();
}

/// Checks that Qᵀ·Q is the identity, that Qᵀ·A is upper triangular, and that Q times it is A, also for rank-deficient matrices.
fn orthonormal<T: Float>() {
    let mut numbers = Numbers(6);
    for (batch, rows, columns) in [(1, 1, 1), (2, 7, 3), (3, 32, 32), (1, 33, 33), (2, 100, 65), (1, 130, 130)] {
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
            let mut a = numbers.many(batch * rows * columns);
            // In the last matrix one column is zero, one is a multiple of another, and some are far larger than others.
            let last = a.len() - rows * columns;
            for row in (0..rows).filter(|_| columns > 6) {
                let row = &mut a[last + row * columns..][..columns];
                (row[2], row[5], row[6]) = (0.0, row[4] * 2.0, row[6] * 1e18);
            }
            let routine = Routine::Qr(Qr { dtype: T::DTYPE, batch, rows, columns });
            let q = outputs::<T>(&Pool::new(threads), isa, &routine, &[&a]).remove(0);
            for (q, a) in q.chunks_exact(rows * columns).zip(a.chunks_exact(rows * columns)) {
                let dot = |x: &[f64], i: usize, y: &[f64], j: usize| -> f64 {
                    (0..rows).map(|row| x[row * columns + i] * y[row * columns + j]).sum()
                };
                for j in 0..columns {
                    let size = (0..rows).map(|row| a[row * columns + j].abs()).fold(1.0, f64::max);
                    for i in 0..columns {
                        let product = dot(q, i, q, j) - f64::from(u8::from(i == j));
                        assert!(product.abs() <= 4.0 * T::TOLERANCE, "{routine}: columns {i} and {j}: {product}");
                        let below = dot(q, i, a, j) / size;
                        assert!(i <= j || below.abs() <= 20.0 * T::TOLERANCE, "{routine}: {below} at {i}, {j}");
                    }
                    for row in 0..rows {
                        let again: f64 = (0..=j).map(|k| q[row * columns + k] * dot(q, k, a, j)).sum();
                        let off = (again - a[row * columns + j]) / size;
                        assert!(off.abs() <= 20.0 * T::TOLERANCE, "{routine}: {off} at {row}, {j}");
                    }
                }
            }
        }
    }
}

/// Returns the packed factors of matrices, and the permutations of their rows.
fn eliminated<T: Float>(pool: &Pool, isa: Isa, routine: &Routine, a: &[f64]) -> (Vec<f64>, Vec<i32>) {
    let a: Vec<T> = a.iter().map(|value| T::of(*value)).collect();
    let rows = routine.operands().nth(2).and_then(|order| order.elems).expect("it has an order") as usize;
    let (mut packed, mut order) = (vec![T::of(f64::NAN); a.len()], vec![-1i32; rows]);
    let buffers = [a.as_ptr().cast_mut().cast(), packed.as_mut_ptr().cast(), order.as_mut_ptr().cast()];
    // SAFETY: the buffers have the lengths of the routine and do not overlap; the set is available.
    unsafe { run(pool, isa, routine, &buffers) };
    (packed.into_iter().map(Float::wide).collect(), order)
}

/// Multiplies the solutions and factors again; the half of the matrix that must not be read is NaN.
fn factors<T: Float>() {
    let mut numbers = Numbers(5);
    for (batch, size, columns) in
        [(1, 1, 1), (2, 7, 3), (1, 8, 16), (3, 17, 40), (1, 65, 200), (1, 130, 33), (1, 40, 700)]
    {
        // Diagonally dominant, so that errors do not grow.
        let of = |numbers: &mut Numbers, row: usize, column: usize| {
            if row == column {
                4.0 + numbers.below(100) as f64 / 100.0
            } else {
                (numbers.below(201) as f64 - 100.0) / 100.0 / size as f64
            }
        };
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
            let pool = Pool::new(threads);
            for lower in [true, false] {
                let mut a = Vec::new();
                for at in 0..batch * size * size {
                    let (row, column) = (at / size % size, at % size);
                    let counts = if lower { column <= row } else { column >= row };
                    a.push(if counts { of(&mut numbers, row, column) } else { f64::NAN });
                }
                let b = numbers.many(batch * size * columns);
                let routine = Routine::SolveTriangular(Triangular { dtype: T::DTYPE, batch, size, columns, lower });
                let x = outputs::<T>(&pool, isa, &routine, &[&a, &b]).remove(0);
                let mut again = vec![0.0; b.len()];
                for (at, sum) in again.iter_mut().enumerate() {
                    let (matrix, row, column) = (at / (size * columns), at / columns % size, at % columns);
                    let counted = if lower { 0..row + 1 } else { row..size };
                    *sum = counted
                        .map(|k| a[(matrix * size + row) * size + k] * x[(matrix * size + k) * columns + column])
                        .sum();
                }
                close(&routine, &again, &b, 4.0 * T::TOLERANCE);
            }
            let mut a: Vec<f64> =
                (0..batch * size * size).map(|at| of(&mut numbers, at / size % size, at % size)).collect();
            let lower = a.clone();
            a.iter_mut().enumerate().filter(|(at, _)| at % size > at / size % size).for_each(|(_, x)| *x = f64::NAN);
            let routine = Routine::Cholesky(Cholesky { dtype: T::DTYPE, batch, size });
            let l = outputs::<T>(&pool, isa, &routine, &[&a]).remove(0);
            for (at, want) in lower.iter().enumerate().filter(|(at, _)| at % size <= at / size % size) {
                let (matrix, row, column) = (at / (size * size), at / size % size, at % size);
                let of = |row: usize, k: usize| l[(matrix * size + row) * size + k];
                let have: f64 = (0..size).map(|k| of(row, k) * of(column, k)).sum();
                assert!((have - want).abs() <= 20.0 * T::TOLERANCE, "{routine}: {have} for {want}");
            }
        }
    }
    for (batch, size) in [(1, 1), (2, 5), (1, 32), (1, 33), (3, 40), (1, 100), (1, 129)] {
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 2)]) {
            let mut a = numbers.many(batch * size * size);
            // One column of the last matrix is zero, so that its pivot is zero.
            let last = a.len() - size * size;
            (size > 4).then(|| (0..size).for_each(|row| a[last + row * size + 3] = 0.0));
            let routine = Routine::Lu(Lu { dtype: T::DTYPE, batch, size });
            let (packed, order) = eliminated::<T>(&Pool::new(threads), isa, &routine, &a);
            for (at, packed) in packed.chunks_exact(size * size).enumerate() {
                let order = &order[at * size..][..size];
                let mut places: Vec<i32> = order.to_vec();
                places.sort_unstable();
                assert!(places.into_iter().eq(0..size as i32), "{routine}: {order:?}");
                for row in 0..size {
                    assert!(
                        (0..row).all(|c| packed[row * size + c].abs() <= 1.0),
                        "{routine}: a pivot was not the largest element"
                    );
                    for column in 0..size {
                        let l = |k: usize| if k == row { 1.0 } else { packed[row * size + k] };
                        let have: f64 = (0..=row.min(column)).map(|k| l(k) * packed[k * size + column]).sum();
                        let want = a[(at * size + order[row] as usize) * size + column];
                        assert!((have - want).abs() <= 50.0 * T::TOLERANCE, "{routine}: {have} for {want}");
                    }
                }
            }
        }
    }
    // A matrix that is not positive definite gives NaN from the column on where that is detected, and zeros above the diagonal.
    let a = [4.0, 9.0, 9.0, 2.0, 1.0, 9.0, 0.0, 0.0, 1.0];
    let l = outputs::<T>(
        &Pool::new(1),
        Isa::best(),
        &Routine::Cholesky(Cholesky { dtype: T::DTYPE, batch: 1, size: 3 }),
        &[&a],
    );
    assert_eq!(l[0][..3], [2.0, 0.0, 0.0]);
    assert!(l[0][3] == 1.0 && l[0][4].is_nan() && l[0][5] == 0.0 && l[0][6] == 0.0 && l[0][8].is_nan(), "{l:?}");
}
