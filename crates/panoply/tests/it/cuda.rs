//! The complete path to an NVIDIA GPU without one: kernels become PTX, and a simulated CUDA library runs it on an
//! interpreter that shares no code with the renderer.

use crate::training_steps;

use std::sync::Arc;

use panoply::kernels::{self, Size};
use panoply::nn::{AdamW, ForwardContext, Lambda, Layer, Linear, Sequential};
use panoply::prelude::*;
use panoply::runtime::{DeviceOptions, Registry};
use panoply::verify::{InputBox, prove};
use panoply::{Backend, ConvOptions, DType, Device, MathMode, Rng, Tensor};
use panoply_driver::CudaDriver;

const SEED: u64 = 0x5eed;

fn cuda() -> Device {
    let driver = CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    registry.devices(Backend::Cuda).expect("the simulated driver has a device").swap_remove(0)
}

#[test]
fn builtin_kernels_agree() {
    let device = cuda();
    for builtin in kernels::ALL {
        let verdict =
            builtin.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", builtin.name));
        assert!(verdict.passed(), "{}: {verdict}", builtin.name);
    }
    assert_eq!(device.memory_stats().buffers, 0, "every buffer is freed");
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    training_steps::agree(&cuda());
}

/// A device whose products may be computed in TF32 proves nothing about f32.
#[test]
fn tf32_is_not_proven() {
    let device = cuda();
    device.scope(|| {
        let proof = || prove!(|x in InputBox::new([2], 0.0, 1.0)| x * 2.0 <= 3.0);
        proof().unwrap();
        device.set_allow_tf32(true);
        let error = proof().unwrap_err();
        assert!(error.message().contains("undecided: cuda:0 can compute matrix products in TF32"), "{error}");
        device.set_math_mode(MathMode::Exact);
        proof().unwrap();
    });
}

/// The shapes of two operands, and a product of them.
type Case = (&'static [usize], &'static [usize], fn(&Tensor, &Tensor) -> Tensor);

/// Products that use MMA fragments: ragged, transposed, batched, and large enough for larger tiles. The expected values
/// are summed in f64.
#[test]
fn half_precision_products_agree() {
    let device = cuda();
    let cpu = Device::get("cpu").unwrap();
    assert!(device.target().mma);
    let cases: [Case; 5] = [
        (&[64, 64], &[64, 64], |a, b| a.matmul(b)),
        (&[70, 51], &[51, 90], |a, b| a.matmul(b)),
        (&[40, 35], &[50, 40], |a, b| a.t().matmul(&b.t())),
        (&[3, 20, 33], &[3, 33, 18], |a, b| a.matmul(b).relu()),
        (&[512, 40], &[40, 512], |a, b| a.matmul(b)),
    ];
    let mut rng = Rng::seed_from_u64(SEED);
    for (left, right, product) in cases {
        for (dtype, ulp) in [(DType::F16, 2f64.powi(-10)), (DType::BF16, 2f64.powi(-7))] {
            let [a, b] = [left, right].map(|dims| rng.normal(dims).to(&cpu).cast(dtype));
            let found: Vec<f64> = product(&a.to(&device), &b.to(&device)).to(&cpu).cast(DType::F64).to_vec().unwrap();
            let expected: Vec<f64> = product(&a.cast(DType::F64), &b.cast(DType::F64)).to_vec().unwrap();
            assert_eq!(found.len(), expected.len());
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                // Allows one rounding of the sum, one of the following operation, and cancellation in f32.
                let near = (found - expected).abs() <= 1.5 * ulp * expected.abs() + 1e-4;
                assert!(near, "{left:?} x {right:?} of {dtype}, element {at}: {found}, expected {expected}");
            }
        }
    }
}

/// Convolutions in half precision agree as well: of padded windows, whose elements are computed from indices.
#[test]
fn half_precision_convolutions_agree() {
    let (device, cpu) = (cuda(), Device::get("cpu").unwrap());
    let mut rng = Rng::seed_from_u64(SEED);
    let [x, filters] = [&[2, 16, 9, 11][..], &[24, 16, 3, 3]].map(|dims| rng.normal(dims).to(&cpu).cast(DType::F16));
    let conv = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
    let found = x.to(&device).conv(&filters.to(&device), &conv).to(&cpu).cast(DType::F64);
    let expected = x.cast(DType::F64).conv(&filters.cast(DType::F64), &conv);
    for (found, expected) in found.to_vec::<f64>().unwrap().iter().zip(expected.to_vec::<f64>().unwrap()) {
        assert!((found - expected).abs() <= 2f64.powi(-10) * expected.abs() + 1e-4, "{found}, expected {expected}");
    }
}

/// `out[y] = y` over more rows than a grid can have: the launch is split.
#[kernel(group_size = (1, 2))]
fn rows(out: &mut [u32]) {
    let y = group_id(1) * 2 + local_id(1);
    if y < out.len() {
        out[y] = (y + num_groups(1)) as u32;
    }
}

#[test]
fn grids_larger_than_the_hardware_limit_are_split() {
    let device = cuda();
    let count = 140_001;
    let mut out = device.zeros::<u32>(count).unwrap();
    rows(&mut out).launch((1, count, 1)).unwrap();
    let groups = count.div_ceil(2) as u32;
    let expected: Vec<u32> = (0..count as u32).map(|y| y + groups).collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}

/// A network whose products and their gradients are in bf16, including transposed ones.
#[test]
fn a_bf16_network_trains_as_on_the_cpu() {
    let losses = |device: &Device| -> Vec<f32> {
        device.scope(|| {
            let mut rng = Rng::seed_from_u64(SEED);
            let hidden = Linear::new(40, 33, &mut rng);
            let mut model = Sequential::new().add(hidden).add(Lambda(Tensor::relu)).add(Linear::new(33, 17, &mut rng));
            let x = rng.normal([50, 40]);
            let labels: Vec<i32> = (0..50).map(|i| i % 17).collect();
            let y = Tensor::from_slice(&labels, [50]);
            let mut optimizer = AdamW::new(1e-2);
            let step = |_| {
                let mut pass = ForwardContext::train(&mut rng).autocast(DType::BF16);
                let loss = model.forward(&x, &mut pass).cast(DType::F32).cross_entropy(&y);
                optimizer.step(&mut model, loss, pass).unwrap() as f32
            };
            (0..10).map(step).collect()
        })
    };
    let (found, expected) = (losses(&cuda()), losses(&Device::get("cpu").unwrap()));
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() <= 2e-2 * expected, "step {step}: {found}, expected {expected}");
    }
    assert!(found[9] < 0.8 * found[0], "the loss does not decrease: {found:?}");
}
