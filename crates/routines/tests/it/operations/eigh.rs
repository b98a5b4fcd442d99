//! Eigenvectors against their defining equations, and known eigenvalues.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Eigh, Routine};

use super::{Float, Numbers, outputs};

/// Returns the machine epsilon of a type, in units of which limits are given.
fn rounding<T: Float>() -> f64 {
    if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON.into() }
}

/// Returns the eigenvectors and eigenvalues that the routine computes.
fn decompose<T: Float>(pool: &Pool, isa: Isa, batch: usize, size: usize, a: &[f64]) -> [Vec<f64>; 2] {
    let routine = Routine::Eigh(Eigh { dtype: T::DTYPE, batch, size });
    outputs::<T>(pool, isa, &routine, &[a]).try_into().expect("it has two results")
}

/// Checks that a matrix times its eigenvectors equals the eigenvectors times the eigenvalues, that the values are
/// sorted, and that the vectors are orthonormal.
#[track_caller]
fn holds<T: Float>(what: &str, size: usize, a: &[f64], vectors: &[f64], values: &[f64]) {
    let a: Vec<f64> = a.iter().map(|value| T::of(*value).wide()).collect();
    let largest = a.iter().fold(f64::MIN_POSITIVE, |most, value| value.abs().max(most));
    // At worst one rounding error per reflection: with equal numbers they all have the same sign.
    let limit = rounding::<T>() * (8.0 + size as f64 / 2.0);
    assert!(values.is_sorted(), "{what}: {values:?}");
    let norm = values.iter().fold(largest, |most, value| value.abs().max(most));
    for i in 0..size {
        for j in 0..size {
            let product: f64 = (0..size).map(|row| vectors[row * size + i] * vectors[row * size + j]).sum();
            let off = product - f64::from(u8::from(i == j));
            assert!(off.abs() <= limit, "{what}: {off:e} of vectors {i} and {j}, limit {limit:e}");
            let moved: f64 = (0..size).map(|k| a[i * size + k] / norm * vectors[k * size + j]).sum();
            let off = moved - vectors[i * size + j] * (values[j] / norm);
            assert!(off.abs() <= limit, "{what}: {off:e} in row {i} of vector {j}, limit {limit:e}");
        }
    }
}

fn symmetric(size: usize, mut of: impl FnMut(usize, usize) -> f64) -> Vec<f64> {
    let mut a = vec![0.0; size * size];
    for row in 0..size {
        for column in 0..=row {
            let value = of(row, column);
            (a[row * size + column], a[column * size + row]) = (value, value);
        }
    }
    a
}

/// Returns matrices that are difficult for different parts of the algorithm.
fn kinds(size: usize) -> Vec<(&'static str, Vec<f64>)> {
    let mut numbers = Numbers(9);
    let random = numbers.many(size * size);
    let few = numbers.many(size * 3);
    let beside = |row: usize, column: usize| row == column + 1;
    // A matrix with given eigenvalues and the eigenvectors of a reflection.
    let reflector = numbers.many(size);
    let square: f64 = reflector.iter().map(|x| x * x).sum::<f64>().max(0.1);
    let with_eigenvalues = |value: &dyn Fn(usize) -> f64| {
        let of = |i: usize, k: usize| f64::from(u8::from(i == k)) - 2.0 * reflector[i] * reflector[k] / square;
        symmetric(size, |i, j| (0..size).map(|k| of(i, k) * value(k) * of(j, k)).sum())
    };
    vec![
        ("random", symmetric(size, |i, j| random[i * size + j])),
        ("zero", vec![0.0; size * size]),
        ("identity", symmetric(size, |i, j| f64::from(u8::from(i == j)))),
        ("diagonal", symmetric(size, |i, j| if i == j { (i * 7 % 11) as f64 - 5.0 } else { 0.0 })),
        ("ones", vec![1.0; size * size]),
        ("of rank 3", symmetric(size, |i, j| (0..3).map(|k| few[i * 3 + k] * few[j * 3 + k]).sum())),
        ("two values", with_eigenvalues(&|k| if k % 2 == 0 { 1.0 } else { -1.0 })),
        ("clusters", with_eigenvalues(&|k| (k % 4) as f64 + 1e-9 * k as f64)),
        ("graded", with_eigenvalues(&|k| 10f64.powf(-10.0 * k as f64 / size as f64))),
        (
            "graded rows",
            symmetric(size, |i, j| random[i * size + j] * 10f64.powf(-10.0 * (i + j) as f64 / size as f64)),
        ),
        ("gaussian", symmetric(size, |i, j| (-((i as f64 - j as f64) / 15.0).powi(2)).exp())),
        (
            "second differences",
            symmetric(size, |i, j| {
                if i == j {
                    2.0
                } else if beside(i, j) {
                    -1.0
                } else {
                    0.0
                }
            }),
        ),
        // Wilkinson's matrix: pairs of eigenvalues that agree in all digits.
        (
            "wilkinson",
            symmetric(size, |i, j| {
                if i == j { (i as f64 - (size - 1) as f64 / 2.0).abs() } else { f64::from(u8::from(beside(i, j))) }
            }),
        ),
        // Glued Wilkinson matrices: weakly coupled, so that the rank-one updates are negligible.
        (
            "glued",
            symmetric(size, |i, j| {
                let joint = if i % 21 == 0 { 1e-9 } else { 1.0 };
                if i == j {
                    (i as f64 % 21.0 - 10.0).abs()
                } else if beside(i, j) {
                    joint
                } else {
                    0.0
                }
            }),
        ),
        ("blocks", symmetric(size, |i, j| if i / 5 == j / 5 { random[i * size + j] } else { 0.0 })),
        // Nonzero only next to the diagonal.
        ("path", symmetric(size, |i, j| f64::from(u8::from(beside(i, j))))),
    ]
}

#[test]
fn eigenvectors_of_difficult_matrices() {
    every_kind::<f32>(&[1, 2, 3, 5, 16, 31, 33, 64, 65, 100, 150], &Isa::available());
    every_kind::<f64>(&[1, 2, 3, 5, 16, 31, 33, 64, 65, 100, 150], &Isa::available());
}

#[test]
fn eigenvectors_of_larger_matrices() {
    every_kind::<f32>(&[300], &[Isa::best()]);
    every_kind::<f64>(&[257], &[Isa::best()]);
}

fn every_kind<T: Float>(sizes: &[usize], sets: &[Isa]) {
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3)];
    for size in sizes.iter().copied() {
        let kinds = kinds(size);
        let all: Vec<f64> = kinds.iter().flat_map(|(_, a)| a.iter().copied()).collect();
        for isa in sets.iter().copied() {
            // All matrices as one batch, and each separately.
            let [vectors, values] = decompose::<T>(&pools[1], isa, kinds.len(), size, &all);
            for (at, (name, a)) in kinds.iter().enumerate() {
                let (vectors, values) = (&vectors[at * size * size..][..size * size], &values[at * size..][..size]);
                holds::<T>(&format!("{name} of {size} in {} with {isa}", T::DTYPE), size, a, vectors, values);
                for pool in [&pools[0], &pools[2]] {
                    let [again, and] = decompose::<T>(pool, isa, 1, size, a);
                    assert!(
                        again == vectors && and == values,
                        "{name} of {size}: different with {} threads",
                        pool.threads()
                    );
                }
            }
        }
    }
}

#[test]
fn known_eigenvalues() {
    known::<f32>();
    known::<f64>();
}

fn known<T: Float>() {
    for size in [2, 20, 64, 130, 400] {
        let a = symmetric(size, |i, j| {
            if i == j {
                2.0
            } else if i == j + 1 {
                -1.0
            } else {
                0.0
            }
        });
        let [_, values] = decompose::<T>(&Pool::new(2), Isa::best(), 1, size, &a);
        for (at, value) in values.iter().enumerate() {
            let want = 2.0 - 2.0 * (std::f64::consts::PI * (at + 1) as f64 / (size + 1) as f64).cos();
            assert!((value - want).abs() <= 20.0 * rounding::<T>(), "{value} for {want}, {at} of {size}");
        }
        // A reflection, which has repeated eigenvalues.
        let v: Vec<f64> = (0..size).map(|i| (i as f64 * 0.7).sin() + 0.1).collect();
        let square: f64 = v.iter().map(|x| x * x).sum();
        let a = symmetric(size, |i, j| f64::from(u8::from(i == j)) - 2.0 * v[i] * v[j] / square);
        let [_, values] = decompose::<T>(&Pool::new(2), Isa::best(), 1, size, &a);
        for (at, value) in values.iter().enumerate() {
            let want = if at == 0 { -1.0 } else { 1.0 };
            assert!((value - want).abs() <= 20.0 * rounding::<T>(), "{value} for {want}, {at} of {size}");
        }
    }
}

#[test]
fn extreme_scales_and_non_finite_elements() {
    let pool = Pool::new(2);
    for size in [2, 40, 70] {
        let plain = kinds(size).swap_remove(0).1;
        let scaled = |by: f64| plain.iter().map(|x| x * by).collect::<Vec<f64>>();
        for by in [1e-30, 1e30, 1e-37] {
            let a = scaled(by);
            let [vectors, values] = decompose::<f32>(&pool, Isa::best(), 1, size, &a);
            if by > 1e-37 {
                holds::<f32>(&format!("{size} times {by:e}"), size, &a, &vectors, &values);
            }
        }
        for by in [1e-300, 1e300, 1e-150] {
            let a = scaled(by);
            let [vectors, values] = decompose::<f64>(&pool, Isa::best(), 1, size, &a);
            holds::<f64>(&format!("{size} times {by:e}"), size, &a, &vectors, &values);
        }
        // One matrix of three has an element that is not finite; the results of the others do not change.
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut a = plain.repeat(3);
            a[size * size + size + 1] = wrong;
            let [vectors, values] = decompose::<f32>(&pool, Isa::best(), 3, size, &a);
            assert!(vectors[size * size..2 * size * size].iter().all(|x| x.is_nan()), "{wrong}");
            assert!(values[size..2 * size].iter().all(|x| x.is_nan()), "{wrong}");
            for at in [0, 2] {
                let (vectors, values) = (&vectors[at * size * size..][..size * size], &values[at * size..][..size]);
                holds::<f32>("next to a non-finite matrix", size, &plain, vectors, values);
            }
        }
    }
}
