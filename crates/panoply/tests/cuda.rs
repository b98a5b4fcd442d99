//! The whole way to an NVIDIA GPU without one: kernels become PTX, and a library that only pretends to be NVIDIA's runs it on an
//! interpreter that shares nothing with the renderer.

use std::sync::Arc;

use panoply::kernels::{self, Size};
use panoply::nn::{Layer, Mlp, Module, Pass, Sgd};
use panoply::prelude::*;
use panoply::runtime::{DeviceOptions, Registry};
use panoply::{Device, Kind, Rng, Tensor};
use panoply_driver::CudaDriver;

const SEED: u64 = 0x5eed;

fn cuda() -> Device {
    let driver = CudaDriver { library: Some(panoply_fake::library()) };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    registry.devices(Kind::Cuda).expect("the pretended driver has a device").swap_remove(0)
}

#[test]
fn the_kernels_that_ship_agree() {
    let device = cuda();
    for shipped in kernels::ALL {
        let verdict =
            shipped.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", shipped.name));
        assert!(verdict.passed(), "{}: {verdict}", shipped.name);
    }
    assert_eq!(device.stats().buffers, 0, "every buffer came back");
}

/// Three steps of training: the losses and what was learned.
fn train(device: &Device) -> (Vec<f64>, Vec<Vec<f32>>) {
    device.scope(|| {
        let mut rng = Rng::seed(3);
        let mut model = Mlp::new(&[12, 9, 4], 0.0, &mut rng);
        let x = rng.normal([10, 12]);
        let labels: Vec<i32> = (0..10).map(|i| i % 4).collect();
        let y = Tensor::from_slice(&labels, [10]);
        let mut optimiser = Sgd::new(0.1);
        let step = |_| {
            let mut pass = Pass::train(&mut rng);
            let loss = model.forward(&x, &mut pass).cross_entropy(&y);
            optimiser.step(&mut model, &loss, pass).unwrap()
        };
        let losses = (0..3).map(step).collect();
        let params = model.named_params().iter().map(|(_, param)| param.tensor().to_vec().unwrap()).collect();
        (losses, params)
    })
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    let (losses, params) = train(&cuda());
    let (cpu_losses, cpu_params) = train(&Device::get("cpu").unwrap());
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    assert!(losses.iter().zip(&cpu_losses).all(|(a, b)| near(*a, *b)), "{losses:?}, not {cpu_losses:?}");
    assert!(losses[2] < losses[0], "it learns: {losses:?}");
    for (found, expected) in params.iter().zip(&cpu_params) {
        assert_eq!(found.len(), expected.len());
        let agree = found.iter().zip(expected).all(|(a, b)| near(f64::from(*a), f64::from(*b)));
        assert!(agree, "{found:?}, not {expected:?}");
    }
}

/// `out[y] = y` over more rows than a grid has: the launch becomes several.
#[kernel(group = (1, 2))]
fn rows(out: &mut [u32]) {
    let y = group_id(1) * 2 + local_id(1);
    if y < out.len() {
        out[y] = (y + group_count(1)) as u32;
    }
}

#[test]
fn a_grid_may_have_more_rows_than_the_hardware() {
    let device = cuda();
    let count = 140_001;
    let mut out = device.zeros::<u32>(count).unwrap();
    rows(&mut out).launch((1, count, 1)).unwrap();
    let groups = count.div_ceil(2) as u32;
    let expected: Vec<u32> = (0..count as u32).map(|y| y + groups).collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}
