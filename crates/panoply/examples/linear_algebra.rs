//! Linear algebra: a polynomial fit by QR, principal components by SVD and by eigenvectors, and ridge regression.
//!
//! `cargo run --release --example linear_algebra`

use panoply::nn::data::digits;
use panoply::prelude::*;
use panoply::{DType, Qr, Rng, Tensor, Triangle};

/// Computes all three and checks them.
pub fn main() -> Result<()> {
    // A cubic polynomial from noisy values: the least-squares solution of R x = Qᵀ y.
    let x = Tensor::linspace(-1.0, 1.0, 200, DType::F64);
    let powers = Tensor::stack([x.ones_like(), x.clone(), x.square(), x.pow(3)], 1);
    let truth = Tensor::from_slice(&[1.0, -2.0, 0.5, 3.0], [4]);
    let noise = Rng::seed_from_u64(0).normal([200]).cast(DType::F64);
    let values = powers.matmul(&truth) + noise * 0.01;
    let Qr { q, r } = powers.qr();
    let fitted = r.solve_triangular(&q.t().matmul(&values), Triangle::Upper);
    println!("coefficients {fitted}");
    assert!((&fitted - &truth).abs().max(..).item::<f64>()? < 0.01, "the fit is wrong");

    // Principal components of the digits: singular values, and eigenvalues of the covariance.
    let digits = digits::load()?.full_batch();
    let centered = &digits.inputs - digits.inputs.mean(0);
    let degrees_of_freedom = digits.len()? - 1;
    let variances = centered.svd().s.square() / degrees_of_freedom;
    let covariance = centered.t().matmul(&centered) / degrees_of_freedom;
    let difference = (covariance.eigh().values.flip(0) - &variances).abs().max(..).item::<f64>()?;
    let explained = (variances.slice(..10).sum(..) / variances.sum(..)).item::<f64>()?;
    println!(
        "ten components explain {:.1} % of the variance; SVD and eigh differ by {difference:.0e}",
        explained * 100.0
    );
    assert!((explained - 0.738).abs() < 1e-3 && difference < 1e-4, "the components are wrong");

    // Ridge regression of the class: (XᵀX + λI) W = XᵀY.
    let classes = digits.targets.one_hot(10, DType::F32);
    let gram = digits.inputs.t().matmul(&digits.inputs) + Tensor::eye(64, DType::F32) * 0.1;
    let weights = gram.solve(&digits.inputs.t().matmul(&classes));
    let correct = digits.inputs.matmul(&weights).argmax(-1).eq(&digits.targets).cast(DType::F32);
    let accuracy = correct.mean(..).item::<f64>()?;
    println!("ridge regression: {:.1} % of the digits correct", accuracy * 100.0);
    assert!(accuracy > 0.9, "the regression is wrong");
    Ok(())
}
