//! What follows a product that the libraries which pretend to be cuBLASLt and hipBLASLt do: a bias goes with it, everything else is a kernel.

use panoply::{DType, Device, Tensor};
use panoply_driver_sim::{Control, library};

use crate::{CUBLASLT, cuda, numbers};

/// A device, and who does what there.
pub struct Subject {
    pub device: Device,
    /// The functions that do products, the first of them those with a bias.
    pub products: &'static [&'static str],
    /// That which launches kernels.
    pub launches: &'static str,
    /// Types in which a bias goes with its product.
    pub wide: &'static [DType],
    /// The code with which a product fails.
    pub code: i32,
}

/// cuBLASLt on the pretended card.
pub fn cublaslt() -> Subject {
    let (products, launches) = (&[CUBLASLT], "cuLaunchKernel");
    Subject { device: cuda(library()), products, launches, wide: &[DType::F32, DType::F64], code: 14 }
}

/// What follows a product, and whether that goes with it where there is a bias.
type Follower = (&'static str, fn(&Tensor, &Tensor) -> Tensor, bool);

const FOLLOWERS: [Follower; 7] = [
    ("a bias", |product, bias| product + bias, true),
    ("a bias in front", |product, bias| bias + product, true),
    ("a bias and an activation", |product, bias| (product + bias).relu(), false),
    ("a bias, and the product is wanted", |product, bias| Tensor::concat([product + bias, product * 2.0], -1), false),
    ("two biases", |product, bias| product + bias + &(bias * 2.0), false),
    ("one number", |product, bias| product + &bias.slice((0,)), false),
    ("itself", |product, _| product + product, false),
];

/// The bits are those of the product and then a kernel, which is what there is without a bias.
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
            ("a divided sum", &many, &deep, true),
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
    // It fails once, and is a product and a kernel from then on.
    let (left, right, bias) =
        (tensor(&[5, 40], 1, DType::F32), tensor(&[40, 6], 2, DType::F32), tensor(&[6], 3, DType::F32));
    control.fail(products[0], subject.code, 0, 1);
    let before = counts();
    (left.matmul(&right) + &bias).eval().unwrap();
    assert_eq!(counts().0 - before.0, 2);
    assert!(counts().1 > before.1);
}
