//! Factorizations: products of the factors, matrices without a factorization, extreme magnitudes, batches. Second derivatives are compared
//! with finite differences.

mod eig;

use panoply_tensor::{DType, Device, Eig, Eigh, Lu, Qr, Rng, Slogdet, Svd, Tensor, Triangle};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

fn random(shape: &[usize]) -> Tensor {
    let x = Rng::seed_from_u64(3).normal(shape);
    x.eval().unwrap();
    x.detach()
}

fn largest(x: &Tensor) -> f64 {
    x.abs().max(..).item::<f64>().unwrap()
}

fn identity(size: usize, dtype: DType) -> Tensor {
    Tensor::eye(size, dtype)
}

#[test]
fn products_of_factors_equal_the_matrix() {
    on_cpu(|| {
        for (dtype, limit) in [(DType::F32, 2e-6), (DType::F64, 3e-15)] {
            for n in [1, 2, 31, 32, 33, 64, 100, 200] {
                let x = random(&[3, n, n]).cast(dtype);
                let a = x.matmul(&x.t()) / n as f64 + identity(n, dtype);
                let l = a.cholesky();
                let size = largest(&a);
                assert!(largest(&(l.matmul(&l.t()) - &a)) <= limit * size, "cholesky of {n} in {dtype}");
                assert_eq!(largest(&l.triu(1)), 0.0, "cholesky of {n} in {dtype}");
                let b = random(&[3, n, 5]).cast(dtype);
                let solved = a.solve(&b);
                assert!(largest(&(a.matmul(&solved) - &b)) <= 20.0 * limit * size, "solve of {n} in {dtype}");
            }
            for (m, n) in [(1, 1), (5, 3), (40, 33), (70, 70), (300, 65), (20, 50), (64, 1)] {
                let a = random(&[2, m, n]).cast(dtype);
                let Qr { q, r } = a.qr();
                let k = m.min(n);
                let apart = largest(&(q.t().matmul(&q) - identity(k, dtype)));
                assert!(apart <= limit, "q of {m} × {n} in {dtype}: {apart}");
                let apart = largest(&(q.matmul(&r) - &a)) / largest(&a);
                assert!(apart <= 2.0 * limit, "qr of {m} × {n} in {dtype}: {apart}");
                assert_eq!(largest(&r.tril(-1)), 0.0);
            }
        }
    });
}

#[test]
fn permuted_rows_equal_the_product_of_l_and_u() {
    on_cpu(|| {
        for (dtype, limit) in [(DType::F32, 2e-6), (DType::F64, 3e-15)] {
            for n in [1, 2, 31, 32, 33, 64, 100, 200] {
                let a = random(&[3, n, n]).cast(dtype);
                let Lu { perm: order, l, u } = a.lu();
                let rows = a.take_along_dim(&order.unsqueeze(-1).broadcast_to(a.shape().unwrap()), 1);
                let apart = largest(&(l.matmul(&u) - rows));
                assert!(apart <= limit * largest(&a) * (n as f64).sqrt(), "lu of {n} in {dtype}: {apart}");
                assert_eq!((largest(&l.triu(1)), largest(&u.tril(-1))), (0.0, 0.0), "lu of {n} in {dtype}");
                assert_eq!(largest(&l), 1.0, "the pivot is not the largest element of its column, {n} in {dtype}");
                let mut each = order.to_vec::<i32>().unwrap();
                each.chunks_mut(n).for_each(<[i32]>::sort_unstable);
                assert!(each.chunks(n).all(|each| each.iter().copied().eq(0..n as i32)), "{n} in {dtype}");
            }
        }
        // Of a singular matrix, rounding errors decide on the pivots; the product is still the matrix.
        let column = random(&[2, 45, 1]);
        let singular = &column + Tensor::zeros([45], DType::F32);
        let Lu { perm: order, l, u } = singular.lu();
        let rows = singular.take_along_dim(&order.unsqueeze(-1).broadcast_to(singular.shape().unwrap()), 1);
        assert!(largest(&(l.matmul(&u) - rows)) <= 2e-6 * largest(&column));
        // A column of zeros is unchanged, and NaN keeps its position.
        let Lu { l, u, .. } = Tensor::from_slice(&[0f32, 1.0, 0.0, 2.0], [2, 2]).lu();
        assert_eq!(
            (l.to_vec::<f32>().unwrap(), u.to_vec::<f32>().unwrap()),
            (vec![1.0, 0.0, 0.0, 1.0], vec![0.0, 1.0, 0.0, 2.0])
        );
        let Lu { perm: order, u, .. } = Tensor::from_slice(&[f32::NAN; 4], [2, 2]).lu();
        assert!(order.to_vec::<i32>().unwrap() == [0, 1] && u.to_vec::<f32>().unwrap()[0].is_nan());
    });
}

#[test]
fn eigenvectors_and_eigenvalues_reconstruct_the_matrix() {
    on_cpu(|| {
        for (dtype, limit) in [(DType::F32, 1e-6), (DType::F64, 4e-15)] {
            for n in [1, 2, 3, 8, 31, 33, 50] {
                // The rounding errors of n rotations of a vector.
                let limit = limit * (n as f64).sqrt();
                let x = random(&[2, n, n]).cast(dtype);
                let a = &x + x.t();
                let Eigh { values, vectors } = a.eigh();
                let apart = largest(&(vectors.t().matmul(&vectors) - identity(n, dtype)));
                assert!(apart <= limit, "vectors of {n} in {dtype}: {apart}");
                let apart = largest(&(a.matmul(&vectors) - &vectors * values.unsqueeze(-2))) / largest(&values);
                assert!(apart <= limit, "values of {n} in {dtype}: {apart}");
                let values = values.cast(DType::F64).to_vec::<f64>().unwrap();
                assert!(values.chunks(n).all(|values| values.is_sorted()), "{n} in {dtype}: {values:?}");
            }
        }
        // Clustered eigenvalues: of a Gaussian kernel, and of a product of few columns.
        for (dtype, limit) in [(DType::F32, 3e-6), (DType::F64, 1e-14)] {
            let places = Tensor::arange(96).cast(dtype) * (1.0 / 15.0);
            let few = random(&[96, 30]).cast(dtype);
            for a in [(-(places.unsqueeze(1) - places).square()).exp(), few.matmul(&few.t())] {
                let Eigh { values, vectors } = a.eigh();
                let apart = largest(&(a.matmul(&vectors) - &vectors * values.unsqueeze(-2))) / largest(&values);
                assert!(apart <= limit, "in {dtype}: {apart}");
            }
        }
        // Equal eigenvalues, extreme ones, and an empty batch.
        let Eigh { values, vectors } = identity(4, DType::F32).eigh();
        assert_eq!(values.to_vec::<f32>().unwrap(), [1.0; 4]);
        assert_eq!(largest(&(vectors.t().matmul(&vectors) - identity(4, DType::F32))), 0.0);
        for scale in [1e-30, 1e30] {
            let a = Tensor::from_slice(&[2f32, 1.0, 1.0, 2.0], [2, 2]) * scale;
            let values = (a.eigvalsh() / scale).to_vec::<f32>().unwrap();
            assert!((values[0] - 1.0).abs() < 1e-6 && (values[1] - 3.0).abs() < 1e-6, "{values:?}");
        }
        let none = Tensor::zeros([0, 3, 3], DType::F32).eigh().values;
        assert_eq!(none.shape().unwrap().dims(), [0, 3]);
    });
}

#[test]
fn matrices_without_a_factorization_give_nan() {
    on_cpu(|| {
        let mut numbers = vec![0f32; 64 * 64];
        (0..64).for_each(|i| numbers[i * 65] = if i == 40 { -1.0 } else { 4.0 });
        let l = Tensor::from_slice(&numbers, [64, 64]).cholesky().to_vec::<f32>().unwrap();
        assert!((0..40).all(|i| l[i * 65] == 2.0), "the columns before the failure are right");
        assert!(l[40 * 65].is_nan() && l[64 * 64 - 1].is_nan(), "the last element indicates the failure");
        for (numbers, n) in [(&[1f32, 1.0, 1.0, 1.0][..], 2), (&[1.0, 0.0, 0.0, 0.0], 2), (&[0.0], 1)] {
            for dtype in [DType::F32, DType::F64] {
                let l = Tensor::from_slice(numbers, [n, n]).cast(dtype).cholesky();
                let l = l.cast(DType::F64).to_vec::<f64>().unwrap();
                assert!(l[n * n - 1].is_nan(), "{numbers:?} in {dtype}: {l:?}");
            }
        }
        let singular = Tensor::from_slice(&[1f32, 2.0, 2.0, 4.0], [2, 2]);
        let solved = singular.solve(&Tensor::from_slice(&[1f32, 1.0], [2])).to_vec::<f32>().unwrap();
        assert!(solved.iter().any(|x| !x.is_finite() || x.abs() > 1e6), "{solved:?}");
        assert!(singular.det().item::<f64>().unwrap().abs() < 1e-6);
    });
}

#[test]
fn qr_neither_overflows_nor_underflows() {
    on_cpu(|| {
        for scale in [1e-30, 1e30] {
            let a = random(&[6, 4]) * scale;
            let Qr { q, r } = a.qr();
            assert!(largest(&(q.t().matmul(&q) - identity(4, DType::F32))) < 2e-6);
            assert!(largest(&((q.matmul(&r) - &a) / scale)) < 2e-6);
        }
        // A column that is small relative to another; the expected determinant is -2 times it.
        for (dtype, limit, sizes) in
            [(DType::F32, 1e-6, &[1e-24, 1e-20, 1e-36][..]), (DType::F64, 1e-15, &[1e-24, 1e-160, 1e-200])]
        {
            for small in sizes {
                let a = Tensor::from_slice(&[*small, 1.0, *small, -1.0], [2, 2]).cast(dtype);
                let q = a.qr().q;
                assert!(largest(&(q.t().matmul(&q) - identity(2, dtype))) < limit, "{small} in {dtype}");
                let ratio = a.det().cast(DType::F64).item::<f64>().unwrap() / -2.0 / small;
                assert!((ratio - 1.0).abs() < limit, "{small} in {dtype}: {ratio}");
            }
        }
        // Nearly dependent columns, whose remainder has a square below the smallest number.
        let q = Tensor::from_slice(&[1f32, 1.0, 0.0, 1e-20, 0.0, 1e-21], [3, 2]).qr().q;
        assert!(largest(&(q.t().matmul(&q) - identity(2, DType::F32))) < 1e-6);
        // Nothing to reflect: LAPACK leaves such columns unchanged.
        let Qr { q, r } = identity(3, DType::F32).qr();
        assert_eq!(q.to_vec::<f32>().unwrap(), identity(3, DType::F32).to_vec::<f32>().unwrap());
        assert_eq!(r.to_vec::<f32>().unwrap(), q.to_vec::<f32>().unwrap());
        let q = Tensor::zeros([3, 2], DType::F32).qr().q;
        assert_eq!(q.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        let Slogdet { sign, logabsdet: logarithm } = (identity(40, DType::F32) * -1e3).slogdet();
        assert_eq!(sign.item::<f64>().unwrap(), 1.0);
        assert!((logarithm.item::<f64>().unwrap() - 40.0 * 1e3f64.ln()).abs() < 1e-4);
        assert_eq!(Tensor::zeros([0, 3, 3], DType::F32).det().to_vec::<f32>().unwrap(), [0f32; 0]);
    });
}

/// The expected values are computed by expansion in minors.
#[test]
fn determinants_have_the_sign_of_the_row_permutation() {
    fn expanded(a: &[f64], n: usize) -> f64 {
        if n == 0 {
            return 1.0;
        }
        let minor = |c: usize| (n..n * n).filter(|at| at % n != c).map(|at| a[at]).collect::<Vec<f64>>();
        (0..n).map(|c| if c % 2 == 0 { a[c] } else { -a[c] } * expanded(&minor(c), n - 1)).sum()
    }
    on_cpu(|| {
        for n in [1, 2, 3, 4, 6] {
            let a = random(&[5, n, n]).cast(DType::F64);
            let want: Vec<f64> = a.to_vec::<f64>().unwrap().chunks_exact(n * n).map(|a| expanded(a, n)).collect();
            let Slogdet { sign, logabsdet: logarithm } = a.slogdet();
            let (sign, logarithm) = (sign.to_vec::<f64>().unwrap(), logarithm.to_vec::<f64>().unwrap());
            for (at, have) in a.det().to_vec::<f64>().unwrap().into_iter().enumerate() {
                let want = want[at];
                assert!((have - want).abs() <= 1e-12 * want.abs().max(1.0), "{n}: {have}, expected {want}");
                let again = sign[at] * logarithm[at].exp();
                assert!((again - want).abs() <= 1e-12 * want.abs().max(1.0), "{n}: {again}, expected {want}");
            }
        }
        // Every row moves down by one, which is n - 1 transpositions.
        for n in [2, 33, 100] {
            let rows = Tensor::eye(n, DType::F32);
            let moved = Tensor::concat([rows.narrow(0, 1, n - 1), rows.narrow(0, 0, 1)], 0);
            assert_eq!(moved.det().item::<f64>().unwrap(), if n % 2 == 0 { -1.0 } else { 1.0 }, "{n}");
        }
        assert_eq!(Tensor::zeros([3, 3], DType::F32).det().item::<f64>().unwrap(), 0.0);
    });
}

#[test]
fn singular_values_and_vectors_reconstruct_the_matrix() {
    on_cpu(|| {
        for (dtype, limit) in [(DType::F32, 2e-6), (DType::F64, 4e-15)] {
            for (m, n) in [(1, 1), (3, 2), (2, 3), (8, 8), (40, 33), (20, 50), (64, 1)] {
                let limit = limit * (m.max(n) as f64).sqrt();
                let a = random(&[2, m, n]).cast(dtype);
                let Svd { u, s, vh } = a.svd();
                let (k, largest_value) = (m.min(n), largest(&s));
                assert_eq!((u.dims().unwrap(), s.dims().unwrap(), vh.dims().unwrap()), ([2, m, k], [2, k], [2, k, n]));
                let apart = largest(&(u.t().matmul(&u) - identity(k, dtype)));
                assert!(apart <= limit, "u of {m} × {n} in {dtype}: {apart}");
                let apart = largest(&(vh.matmul(&vh.t()) - identity(k, dtype)));
                assert!(apart <= limit, "v of {m} × {n} in {dtype}: {apart}");
                let apart = largest(&((u * s.unsqueeze(-2)).matmul(&vh) - a)) / largest_value;
                assert!(apart <= limit, "svd of {m} × {n} in {dtype}: {apart}");
                let values = s.cast(DType::F64).to_vec::<f64>().unwrap();
                assert!(values.chunks(k).all(|values| values.is_sorted_by(|x, y| x >= y)), "{values:?}");
            }
        }
        // numpy.linalg.svd of the Hilbert matrix: small singular values are as accurate as large ones.
        let places = Tensor::arange(4).cast(DType::F64);
        let hilbert = (places.unsqueeze(1) + &places + 1.0).reciprocal();
        let expected = [1.5002142800592426, 0.16914122022144986, 0.006738273605760748, 9.670230402260845e-05];
        let found = hilbert.svdvals().to_vec::<f64>().unwrap();
        assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= 1e-13 * y), "{found:?}");
        // A matrix of rank 1, of zeros, of extreme magnitude, and an empty batch.
        let one = Tensor::from_slice(&[3f64, 4.0, 0.0], [3, 1]).matmul(&Tensor::from_slice(&[0f64, 2.0], [1, 2]));
        let Svd { u, s, vh } = one.svd();
        let s = s.to_vec::<f64>().unwrap();
        assert!((s[0] - 10.0).abs() < 1e-13 && s[1].abs() < 1e-14, "{s:?}");
        assert!(largest(&(u.t().matmul(&u) - identity(2, DType::F64))) < 1e-14, "{u}");
        assert!(largest(&(vh.matmul(&vh.t()) - identity(2, DType::F64))) < 1e-14, "{vh}");
        assert_eq!(largest(&Tensor::zeros([3, 2], DType::F32).svd().s), 0.0);
        for scale in [1e-30f32, 1e30] {
            let s = (Tensor::from_slice(&[3f32, 0.0, 4.0, 5.0], [2, 2]) * scale).svd().s / scale;
            let s = s.to_vec::<f32>().unwrap();
            assert!((s[0] - 45f32.sqrt()).abs() < 1e-5 && (s[1] - 5f32.sqrt()).abs() < 1e-5, "{s:?}");
        }
        assert_eq!(Tensor::zeros([0, 3, 2], DType::F32).svd().vh.dims().unwrap(), [0, 2, 2]);
    });
}

#[test]
fn pseudo_inverses_satisfy_the_conditions_of_penrose() {
    on_cpu(|| {
        for (m, n, rank) in [(5, 3, 3), (3, 5, 3), (6, 6, 2), (4, 4, 4)] {
            let a = random(&[m, rank]).cast(DType::F64).matmul(&random(&[rank, n]).cast(DType::F64));
            let p = a.pinv(Some(1e-6));
            let (ap, pa) = (a.matmul(&p), p.matmul(&a));
            for (name, apart) in
                [("apa", ap.matmul(&a) - &a), ("pap", pa.matmul(&p) - &p), ("ap", &ap - ap.t()), ("pa", &pa - pa.t())]
            {
                assert!(largest(&apart) < 1e-11 * largest(&p).max(1.0), "{name} of {m} × {n} of rank {rank}");
            }
        }
        // numpy.linalg.pinv([[1, 2], [3, 4], [5, 6]])
        let p = Tensor::from_slice(&[1f64, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]).pinv(None).to_vec::<f64>().unwrap();
        let expected = [-4.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0, 13.0 / 12.0, 1.0 / 3.0, -5.0 / 12.0];
        assert!(p.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-13), "{p:?}");
        assert_eq!(Tensor::zeros([2, 3], DType::F32).pinv(None).to_vec::<f32>().unwrap(), [0f32; 6]);
    });
}

#[test]
fn powers_of_matrices_are_repeated_products() {
    on_cpu(|| {
        // The powers of this matrix are Fibonacci numbers.
        let a = Tensor::from_slice(&[1i64, 1, 1, 0], [2, 2]);
        assert_eq!(a.matrix_power(50).to_vec::<i64>().unwrap(), [20365011074, 12586269025, 12586269025, 7778742049]);
        assert_eq!(a.matrix_power(0).to_vec::<i64>().unwrap(), [1, 0, 0, 1]);
        let x = random(&[3, 4, 4]).cast(DType::F64) + identity(4, DType::F64) * 3.0;
        let apart = x.matrix_power(-3).matmul(&x.matmul(&x).matmul(&x)) - identity(4, DType::F64);
        assert!(largest(&apart) < 1e-12);
        for (wrong, part) in [
            (random(&[2, 3]).matrix_power(2), "matrix_power: needs square matrices, not f32[2, 3]"),
            (a.matrix_power(-1), "inv: needs f32 or f64, not i64[2, 2]"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    });
}

type Loss = fn(&Tensor) -> Tensor;

/// Returns a constant matrix of this size with complex eigenvalues.
fn turned(x: &Tensor) -> Tensor {
    let places = Tensor::arange(x.shape().unwrap().dims()[0]).cast(x.dtype());
    places.unsqueeze(1) - &places
}

/// Compares the second derivative along a direction with differences of the first, in f64.
#[test]
fn factorizations_have_second_derivatives() {
    on_cpu(|| {
        let start = random(&[4, 4]).cast(DType::F64) * 0.4 + identity(4, DType::F64) * 2.0;
        let direction = Rng::seed_from_u64(8).normal([4, 4]).cast(DType::F64);
        let losses: [(&str, Loss); 12] = [
            ("det", |x| x.det().sin().sum(..) + x.slogdet().logabsdet.exp().sum(..)),
            ("eigenvalues", |x| (x + x.t()).eigvalsh().exp().sum(..)),
            ("eigenvectors", |x| {
                let Eigh { values, vectors } = (x + x.t()).eigh();
                (&vectors * values.sin().unsqueeze(-2)).matmul(&vectors.t()).exp().sum(..)
            }),
            ("complex eigenvalues", |x| (x + turned(x)).eig().values.complex_abs().sin().sum(..)),
            ("complex eigenvectors", |x| {
                let Eig { values, vectors } = (x + turned(x)).eig();
                (vectors.complex_abs().square() * values.imag().exp().unsqueeze(-2)).exp().sum(..)
            }),
            ("cholesky", |x| (x.matmul(&x.t()).cholesky() + 1.0).square().sum(..)),
            ("qr", |x| (x.qr().q + 0.3).square().sum(..) + x.qr().r.exp().sum(..)),
            ("singular values", |x| x.svdvals().exp().sum(..)),
            ("singular vectors", |x| {
                let Svd { u, s, vh } = x.narrow(-1, 0, 3).svd();
                (&u * s.sin().unsqueeze(-2)).matmul(&vh).exp().sum(..)
            }),
            ("pinv", |x| x.narrow(-1, 0, 2).pinv(None).exp().sum(..)),
            ("solve", |x| x.solve(&Tensor::ones([4, 2], DType::F64)).exp().sum(..)),
            ("triangle", |x| x.solve_triangular(&Tensor::ones([4], DType::F64), Triangle::Upper).exp().sum(..)),
        ];
        for (name, loss) in losses {
            let grad = |x: &Tensor| (loss(x).gradients(&[x]).unwrap().remove(0) * &direction).sum(..);
            let moved = |step: f64| {
                let x = &start + &direction * step;
                x.eval().unwrap();
                grad(&x.detach()).item::<f64>().unwrap()
            };
            let want = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let bend = grad(&start).gradients(&[&start]).unwrap().remove(0);
            let have = (bend * &direction).sum(..).item::<f64>().unwrap();
            assert!((have - want).abs() <= 1e-6 * want.abs().max(1.0), "{name}: {have}, by differences {want}");
        }
    });
}

#[test]
fn singular_systems_give_nan() {
    on_cpu(|| {
        let mut rng = Rng::seed_from_u64(11);
        let rows: [&[f64]; 5] = [
            &[1.0, 2.0, 2.0, 4.0],
            &[0.0, 0.0, 0.0, 1.0],
            &[0.0; 4],
            &[1e-160, 2e-160, 2e-160, 4e-160],
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        ];
        for (dtype, rows) in [DType::F32, DType::F64].into_iter().flat_map(|dtype| rows.map(|row| (dtype, row))) {
            if dtype == DType::F32 && rows[0] == 1e-160 {
                continue;
            }
            let n = rows.len().isqrt();
            let a = Tensor::from_slice(rows, [n, n]).cast(dtype);
            let b = Tensor::ones([n], dtype);
            b.eval().unwrap();
            let b = b.detach();
            let solved = a.solve(&b);
            let gradients = solved.sum(..).gradients(&[&a, &b]).unwrap();
            let least = a.lstsq(&b.unsqueeze(1));
            for nan in [&solved, &a.inv(), &least, &gradients[0], &gradients[1]] {
                let nan = nan.is_nan().all(..).to_vec::<bool>().unwrap();
                assert_eq!(nan, [true], "{rows:?} in {dtype}");
            }
        }
        // Larger matrices of small integers, so that dependent columns are exactly dependent: a column that is the sum of two others, two
        // equal rows, and a zero column. NumPy's `matrix_rank` is one less than their order.
        for (n, dtype) in [4, 5, 8, 16, 33, 64].into_iter().flat_map(|n| [(n, DType::F32), (n, DType::F64)]) {
            let own = rng.randint(-4, 5, [n, n]).cast(dtype);
            own.eval().unwrap();
            let column = |j: usize| own.narrow(1, j, 1);
            let sum = Tensor::concat([own.narrow(1, 0, n - 1), column(0) + column(1)], 1);
            let rows = Tensor::concat([own.narrow(0, 0, n - 1), own.narrow(0, 1, 1)], 0);
            let zero = Tensor::concat([column(0), Tensor::zeros([n, 1], dtype), own.narrow(1, 2, n - 2)], 1);
            for (name, singular) in [("sum", sum), ("rows", rows), ("zero", zero)] {
                let (solved, inverse) = (singular.solve(&Tensor::ones([n], dtype)), singular.inv());
                for nan in [solved, inverse] {
                    let all = nan.is_nan().all(..).to_vec::<bool>().unwrap();
                    assert_eq!(all, [true], "{name} of order {n} in {dtype}");
                }
            }
            let regular = &own + Tensor::eye(n, dtype) * (4 * n) as f64;
            let product = regular.inv().matmul(&regular);
            let limit = if dtype == DType::F64 { 1e-13 } else { 1e-4 };
            assert!(largest(&(product - identity(n, dtype))) < limit, "order {n} in {dtype}");
        }
        // One singular matrix in a batch, and regular matrices whose determinants are almost zero.
        let both = Tensor::from_slice(&[1.0, 2.0, 2.0, 4.0, 2.0, 0.0, 0.0, 4.0], [2, 2, 2]);
        let inverses = both.inv();
        assert!(inverses.slice((0,)).is_nan().all(..).to_vec::<bool>().unwrap()[0]);
        let regular = Tensor::from_slice(&[0.5, 0.0, 0.0, 0.25], [2, 2]);
        assert!(largest(&(inverses.slice((1,)) - regular)) < 1e-15);
        let tiny = Tensor::from_slice(&[1.0, 0.0, 0.0, 1e-30], [2, 2]).inv().to_vec::<f64>().unwrap();
        assert!((tiny[3] / 1e30 - 1.0).abs() < 1e-14 && (tiny[0] - 1.0).abs() < 1e-15, "{tiny:?}");
        let small = Tensor::from_slice(&[1e-170, 3e-170, 2e-170, 5e-170], [2, 2]).inv();
        let product = small.matmul(&Tensor::from_slice(&[1e-170, 3e-170, 2e-170, 5e-170], [2, 2]));
        assert!(largest(&(product - identity(2, DType::F64))) < 1e-13);
        // The Hilbert matrix of order 8, with condition number 1.5·10¹⁰, has an inverse of integers.
        let hilbert = Tensor::arange(8).unsqueeze(1) + Tensor::arange(8) + Tensor::scalar(1i32);
        let corner = hilbert.cast(DType::F64).reciprocal().inv().slice((0, 0)).item::<f64>().unwrap();
        assert!((corner - 64.0).abs() < 1e-3, "{corner}");
        // A right side without columns has a solution without columns, as in NumPy.
        let none = both.slice((1,)).solve(&Tensor::zeros([2, 0], DType::F64));
        assert_eq!(none.shape().unwrap().dims(), [2, 0]);
    });
}
