//! Bias epilogues of products in the simulated cuBLASLt and hipBLASLt: a bias is fused into the product, everything
//! else is a separate kernel.

use panoply::{DType, Device, Tensor};
use panoply_driver_sim::{Control, library};

use crate::products::{CUBLASLT, cuda, numbers};

/// A device, and the functions that run products and kernels on it.
pub struct Subject {
    pub device: Device,
    /// Library functions that compute products; the first one supports a bias.
    pub products: &'static [&'static str],
    /// Function that launches kernels.
    pub launches: &'static str,
    /// Types for which the library fuses a bias.
    pub wide: &'static [DType],
    /// Error code with which a product fails.
    pub code: i32,
}

/// cuBLASLt on the simulated NVIDIA GPU.
pub fn cublaslt() -> Subject {
    let (products, launches) = (&[CUBLASLT], "cuLaunchKernel");
    Subject { device: cuda(library()), products, launches, wide: &[DType::F32, DType::F64], code: 14 }
}

/// An operation that follows a product, and whether it is fused if the library supports a bias.
type Follower = (&'static str, fn(&Tensor, &Tensor) -> Tensor, bool);

const FOLLOWERS: [Follower; 7] = [
    ("a bias", |product, bias| product + bias, true),
    ("a bias in front", |product, bias| bias + product, true),
    ("a bias and an activation", |product, bias| (product + bias).relu(), false),
    (
        "a bias, with the product used as well",
        |product, bias| Tensor::concat([product + bias, product * 2.0], -1),
        false,
    ),
    ("two biases", |product, bias| product + bias + &(bias * 2.0), false),
    ("one number", |product, bias| product + &bias.slice((0,)), false),
    ("itself", |product, _| product + product, false),
];

/// The result has the same bits as the product followed by a kernel, which is what runs without a fused bias.
pub fn added(subject: &Subject) {
    let (Subject { device, products, launches, .. }, control) = (subject, Control::open());
    let counts = || (products.iter().map(|function| control.calls(function)).sum::<u64>(), control.calls(launches));
    let tensor = |dims: &[usize], seed, dtype| {
        let tensor = Tensor::from_slice(&numbers(dims.iter().product(), seed), dims).to(device).cast(dtype);
        tensor.eval().unwrap();
        tensor
    };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let [plain, few, many, batch] =
            [&[9, 40][..], &[1, 40], &[9, 300], &[4, 3, 40]].map(|dims| tensor(dims, 1, dtype));
        let [right, deep, turned] = [[40, 6], [300, 6], [6, 40]].map(|dims| tensor(&dims, 2, dtype));
        let batches = tensor(&[4, 40, 6], 3, dtype);
        let bias = tensor(&[6], 4, dtype);
        let wide = subject.wide.contains(&dtype);
        for (what, left, right, can) in [
            ("plain", &plain, &right, true),
            ("transposed", &plain, &turned.t(), true),
            ("one row", &few, &right, true),
            ("a long inner dimension", &many, &deep, true),
            ("a batch that shares its right factor", &batch, &right, true),
            ("a batch", &batch, &batches, false),
        ] {
            for (then, follower, goes) in FOLLOWERS {
                let product = left.matmul(right);
                product.eval().unwrap();
                let expected = follower(&product, &bias);
                expected.eval().unwrap();
                let before = counts();
                let found = follower(&left.matmul(right), &bias);
                found.eval().unwrap();
                let (products, kernels) = (counts().0 - before.0, counts().1 - before.1);
                let what = format!("{what} of {dtype}, then {then}");
                assert_eq!(products, 1, "{what}");
                assert_eq!(kernels == 0, goes && can && wide, "{what}: {kernels} kernels");
                let [found, expected] = [found, expected].map(|of| of.cast(DType::F64).to_vec::<f64>().unwrap());
                assert_eq!(found, expected, "{what}");
            }
        }
    }
    // The fused call fails once; from then on it is a product and a kernel.
    let (left, right, bias) =
        (tensor(&[5, 40], 1, DType::F32), tensor(&[40, 6], 2, DType::F32), tensor(&[6], 3, DType::F32));
    control.fail(products[0], subject.code, 0, 1);
    let before = counts();
    (left.matmul(&right) + &bias).eval().unwrap();
    assert_eq!(counts().0 - before.0, 2);
    assert!(counts().1 > before.1);
}
