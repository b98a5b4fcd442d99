//! The eigendecomposition of general matrices: A · V = V · Λ, known eigenvalues, matrices without enough eigenvectors.

use panoply_tensor::{DType, Eig, Tensor};

use super::{largest, on_cpu, random};

/// Returns A · V - V · Λ, `[…, n, n, 2]`.
fn residual(a: &Tensor, Eig { values, vectors }: &Eig) -> Tensor {
    let [real, imag] = [vectors.real(), vectors.imag()].map(|part| a.matmul(&part));
    Tensor::complex(&real, &imag) - vectors.complex_mul(&values.unsqueeze(-3))
}

/// Returns the eigenvalues of one matrix, sorted by real, then imaginary part, up to 1e-6.
fn sorted(a: &Tensor) -> Vec<[f64; 2]> {
    let values = a.eig().values.cast(DType::F64).to_vec::<f64>().unwrap();
    let mut pairs: Vec<[f64; 2]> = values.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    let key = |x: f64| (x * 1e6).round() as i64;
    pairs.sort_by_key(|[real, imaginary]| (key(*real), key(*imaginary)));
    pairs
}

fn assert_near(have: &[[f64; 2]], want: &[[f64; 2]], limit: f64, name: &str) {
    let apart =
        have.iter().zip(want).flat_map(|(x, y)| [x[0] - y[0], x[1] - y[1]]).fold(0.0, |most, x| x.abs().max(most));
    assert!(have.len() == want.len() && apart <= limit, "{name}: {have:?}, expected {want:?}");
}

#[test]
fn eigenvectors_of_general_matrices_are_scaled_by_their_eigenvalues() {
    on_cpu(|| {
        for (dtype, limit) in [(DType::F32, 2e-6), (DType::F64, 4e-15)] {
            for n in [1, 2, 3, 8, 31, 33, 100] {
                let a = random(&[2, n, n]).cast(dtype);
                let eig = a.eig();
                let apart = largest(&residual(&a, &eig)) / (largest(&a) * (n as f64).sqrt());
                assert!(apart <= limit, "order {n} in {dtype}: {apart}");
                let lengths = eig.vectors.complex_abs().square().sum(-2);
                assert!(largest(&(lengths - 1.0)) <= limit * 10.0, "lengths of order {n} in {dtype}");
                // The sum of the eigenvalues is the trace.
                let sum = eig.values.sum(1);
                let apart = largest(&(sum.real() - a.trace())).max(largest(&sum.imag()));
                assert!(apart <= limit * (n * n) as f64, "trace of order {n} in {dtype}: {apart}");
            }
        }
    });
}

#[test]
fn known_eigenvalues_are_found() {
    on_cpu(|| {
        let f64s = |values: &[f64]| Tensor::from_slice(values, [values.len().isqrt(); 2]);
        assert_near(&sorted(&f64s(&[2.0, 1.0, 0.0, 3.0])), &[[2.0, 0.0], [3.0, 0.0]], 1e-15, "triangle");
        assert_near(&sorted(&f64s(&[0.0; 9])), &[[0.0; 2]; 3], 0.0, "zeros");
        assert_near(&sorted(&(f64s(&[0.0, -2e200, 2e200, 0.0]) / 1e200)), &[[0.0, -2.0], [0.0, 2.0]], 1e-15, "turn");
        // A cycle has the roots of unity; its steps repeat without exceptional shifts.
        for n in [3usize, 7, 16] {
            let cycle = Tensor::eye(n, DType::F64).roll(1, 0);
            let mut want: Vec<[f64; 2]> = (0..n)
                .map(|k| (k as f64 * std::f64::consts::TAU / n as f64).sin_cos())
                .map(|(sine, cosine)| [cosine, sine])
                .collect();
            want.sort_by_key(|[real, imaginary]| ((real * 1e6).round() as i64, (imaginary * 1e6).round() as i64));
            assert_near(&sorted(&cycle), &want, 1e-14, "cycle");
        }
        // The companion matrix of (x - 1)(x - 2) … (x - 6).
        let coefficients = [720.0, -1764.0, 1624.0, -735.0, 175.0, -21.0];
        let mut companion = vec![0.0; 36];
        (0..6).for_each(|row| companion[row * 6 + 5] = -coefficients[row]);
        (1..6).for_each(|row| companion[row * 6 + row - 1] = 1.0);
        let want: Vec<[f64; 2]> = (1..=6).map(|root| [root as f64, 0.0]).collect();
        assert_near(&sorted(&f64s(&companion)), &want, 1e-8, "companion matrix");
        // Elements whose squares vanish. The eigenvalues are those of the upper triangle: 1 and (5 ± √33) / 2.
        for (dtype, tiny, limit) in [(DType::F32, 1e-22, 1e-5), (DType::F64, 1.2e-161, 1e-13)] {
            let block = f64s(&[1.0, 1.0, 1.0, tiny, 1.0, 2.0, tiny, 3.0, 4.0]).cast(dtype);
            let root = 33f64.sqrt();
            let want = [[(5.0 - root) / 2.0, 0.0], [1.0, 0.0], [(5.0 + root) / 2.0, 0.0]];
            assert_near(&sorted(&block), &want, limit, "tiny elements");
        }
        // Close eigenvalues that are small relative to the matrix.
        let graded = f64s(&[1.0, 0.0, 0.0, 0.0, 1e-10, 1e-10, 0.0, 0.0, 2e-10]).cast(DType::F32);
        let apart = largest(&(residual(&graded, &graded.eig()) * 1e10).cast(DType::F64));
        assert!(apart < 1e-5, "graded: {apart}");
        // A Jordan block has one eigenvector; its eigenvalues are wrong by a root of the rounding error.
        let block = Tensor::eye(3, DType::F64) * 2.0 + Tensor::eye(3, DType::F64).roll(1, 1).triu(1);
        assert_near(&sorted(&block), &[[2.0, 0.0]; 3], 1e-15, "Jordan block");
        assert!(largest(&residual(&block, &block.eig())) < 1e-15);
        assert_near(&sorted(&block.t()), &[[2.0, 0.0]; 3], 2e-5, "transposed Jordan block");
        assert!(largest(&residual(&block.t(), &block.t().eig())) < 1e-14);
    });
}

#[test]
fn symmetric_matrices_have_the_eigenvalues_of_eigh() {
    on_cpu(|| {
        let x = random(&[20, 20]).cast(DType::F64);
        let symmetric = &x + x.t();
        let want = symmetric.eigh().values.to_vec::<f64>().unwrap();
        let have = sorted(&symmetric);
        let want: Vec<[f64; 2]> = want.into_iter().map(|value| [value, 0.0]).collect();
        assert_near(&have, &want, 1e-13, "symmetric");
    });
}

#[test]
fn nan_empty_batches_and_wrong_shapes() {
    on_cpu(|| {
        for (n, place) in (1..4usize).flat_map(|n| (0..n * n).map(move |place| (n, place))) {
            let mut elems = vec![1.0f32; 2 * n * n];
            elems[place] = [f32::NAN, f32::INFINITY][place % 2];
            let Eig { values, vectors } = Tensor::from_slice(&elems, [2, n, n]).eig();
            let (values, vectors) = (values.to_vec::<f32>().unwrap(), vectors.to_vec::<f32>().unwrap());
            assert!(values[..2 * n].iter().chain(&vectors[..2 * n * n]).all(|x| x.is_nan()), "{values:?}, {vectors:?}");
            let finite: f32 = values[2 * n..].iter().sum();
            assert!((finite - n as f32).abs() < 1e-5, "{values:?}");
        }
        let Eig { values, vectors } = Tensor::zeros([0, 3, 3], DType::F32).eig();
        assert_eq!(values.shape().unwrap().dims(), [0, 3, 2]);
        assert_eq!(vectors.shape().unwrap().dims(), [0, 3, 3, 2]);
        let error = Tensor::ones([2, 3], DType::F32).eig().values.eval().unwrap_err();
        assert!(error.message().contains("eig: needs square matrices"), "{error}");
    });
}
