//! Math modes on all devices present: in `exact` mode, every device gives the bits of sequential loops.

use std::sync::Arc;

use panoply::runtime::{DeviceOptions, Registry};
use panoply::{Backend, ConvOptions, DType, Device, MathMode, Rng, SortOrder, Tensor, jit};
use panoply_cpu::CpuDriver;
use panoply_driver::{CudaDriver, OpenClDriver, WgpuDriver};

/// Opens devices for this test alone, because the math mode is a setting of the device.
fn devices(math_mode: MathMode) -> Vec<Device> {
    let options = DeviceOptions { math_mode, ..DeviceOptions::default() };
    let registry = Registry::new(
        vec![
            Arc::new(CpuDriver::default()),
            Arc::new(CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() }),
            Arc::new(OpenClDriver::default()),
            Arc::new(WgpuDriver::new(Backend::Vulkan)),
        ],
        options,
    );
    let mut devices = Vec::new();
    for kind in [Backend::Cpu, Backend::Cuda, Backend::OpenCl, Backend::Vulkan] {
        match registry.devices(kind) {
            Ok(found) => devices.extend(found),
            Err(error) => eprintln!("SKIPPED: {kind:?}: {}", error.message()),
        }
    }
    // SwiftShader takes minutes to compile some kernels, and the interpreter as long to run them.
    devices.retain(|device| !device.info().name.contains("SwiftShader") && device.info().variant.is_none());
    devices
}

/// Returns true for Intel's OpenCL for CPUs, whose compiler reorders the sum of a loop regardless of its options.
fn reorders(device: &Device) -> bool {
    let info = device.info();
    info.kind == Backend::OpenCl && info.is_software && info.vendor.contains("Intel")
}

/// Returns numbers whose products and sums are inexact.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) * 29 % 61) as f32 / 30.7 - 0.97).collect()
}

/// Computes a layer with its norm and gradients, a convolution, and long, cumulative and scattered sums: everything but
/// transcendental functions.
fn work() -> Vec<Vec<f32>> {
    let tensor = |shape: &[usize], seed| Tensor::from_slice(&numbers(shape.iter().product(), seed), shape);
    let (x, w, b) = (tensor(&[40, 50], 1), tensor(&[50, 33], 2), tensor(&[33], 3));
    let y = (x.matmul(&w) + &b).relu().layer_norm(1e-5);
    let grads = y.square().mean(..).gradients(&[&w, &b]).unwrap();
    let image = tensor(&[2, 5, 12, 12], 4);
    let conv = image.conv(&tensor(&[7, 5, 3, 3], 5), &ConvOptions { padding: [1, 1], ..ConvOptions::default() });
    let many = tensor(&[30_000], 6);
    let long = many.sum(..);
    let places: Vec<i32> = (0..60).map(|i| i * 7 % 40).collect();
    let rows = x.index(&[&Tensor::from_slice(&places, [60])]);
    let scattered = rows.square().sum(..).gradients(&[&x]).unwrap();
    let (running, far) = (x.cumsum(0), many.cumsum(0));
    // Enough indices for `index_add` to run as a single scatter operation.
    let heaps: Vec<i32> = (0..3000).map(|i| i * 37 % 200).collect();
    let heaps = Tensor::from_slice(&heaps, [3000]);
    let heaped = many.narrow(0, 0, 200).index_add(0, &heaps, &many.narrow(0, 200, 3000));
    [&y, &grads[0], &grads[1], &conv, &long, &scattered[0], &running, &far, &heaped]
        .map(|tensor| tensor.to_vec::<f32>().unwrap())
        .to_vec()
}

#[test]
fn exact_math_gives_the_same_bits_on_every_device() {
    let (refused, devices): (Vec<Device>, Vec<Device>) = devices(MathMode::Exact).into_iter().partition(reorders);
    refused.iter().for_each(|device| eprintln!("SKIPPED: {device}: its compiler reorders sums"));
    let all: Vec<(String, Vec<Vec<f32>>)> =
        devices.iter().map(|device| (device.to_string(), device.scope(work))).collect();
    let [(first, want), others @ ..] = &all[..] else { panic!("the CPU is always present") };
    assert!(!others.is_empty(), "the simulated GPU is present");
    for (other, have) in others {
        for (at, (have, want)) in have.iter().zip(want).enumerate() {
            let differs = have.iter().zip(want).filter(|(have, want)| have.to_bits() != want.to_bits()).count();
            assert_eq!(differs, 0, "value {at} on {other} and {first}: differing elements of {}", want.len());
        }
    }
}

#[test]
fn the_math_mode_takes_effect_immediately() {
    let device = devices(MathMode::Standard).swap_remove(0);
    device.scope(|| {
        let (x, w) = (numbers(20 * 300, 1), numbers(300 * 10, 2));
        let (left, right) = (Tensor::from_slice(&x, [20, 300]), Tensor::from_slice(&w, [300, 10]));
        let sum = |at: usize| (0..300).fold(0.0_f32, |sum, k| sum + x[at / 10 * 300 + k] * w[k * 10 + at % 10]);
        let want: Vec<f32> = (0..200).map(sum).collect();
        let product = jit(|[x, w]: [&Tensor; 2]| [x.matmul(w)]);
        let value = || {
            let [captured] = product.call([&left, &right]).unwrap();
            let plain = left.matmul(&right).to_vec::<f32>().unwrap();
            assert_eq!(captured.to_vec::<f32>().unwrap(), plain);
            plain
        };
        let usual = value();
        assert_ne!(usual, want, "the routine sums in another order");
        device.set_math_mode(MathMode::Exact);
        assert_eq!(value(), want);
        device.set_math_mode(MathMode::Standard);
        assert_eq!(value(), usual);
    });
}

#[test]
fn random_numbers_and_sorting_do_not_depend_on_the_math_mode() {
    let of = |math_mode| {
        let device = devices(math_mode).swap_remove(0);
        device.scope(|| {
            let x = Rng::seed_from_u64(3).uniform([1000]);
            let whole = (&x * 1000.0).cast(DType::I32);
            let order = x.argsort(-1, SortOrder::Ascending);
            (x.to_vec::<f32>().unwrap(), order.to_vec::<i32>().unwrap(), whole.cumsum(0).to_vec::<i32>().unwrap())
        })
    };
    let [exact, standard, fast] = MathMode::ALL.map(of);
    assert_eq!(exact, standard);
    assert_eq!(standard, fast);
}
