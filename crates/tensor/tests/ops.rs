//! The op table on every device, against the f64 graph interpreter; gradients against finite differences.
//!
//! The rows are [`panoply_tensor::conformance`]'s; this file says which devices they are asked of.

use std::sync::{Arc, Once};

use panoply_driver::{CudaDriver, HipDriver, OneApiDriver};
use panoply_ir::DType;
use panoply_runtime::Registry;
use panoply_tensor::conformance::oracle::values;
use panoply_tensor::conformance::row::{Input, weighted};
use panoply_tensor::conformance::{Outcome, functions, rows};
use panoply_tensor::{Device, Tensor};

/// Puts a CUDA device beside those of this machine that runs its PTX on an interpreter, and a ROCm device for whose HIP C++ clang makes
/// code for the host, and a oneAPI device that is Intel's CPU runtime for OpenCL.
fn pretend() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registry = Registry::global().expect("the environment makes sense");
        registry.register(Arc::new(CudaDriver { library: Some(panoply_fake::library()), ..CudaDriver::default() }));
        registry.register(Arc::new(OneApiDriver { software: true, ..OneApiDriver::default() }));
        if panoply_fake::Control::open().execute() {
            registry.register(Arc::new(HipDriver { library: Some(panoply_fake::library()), ..HipDriver::default() }));
        }
    });
}

fn set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

/// The devices of this machine that the table runs on. Device compilers take a tenth of a second for each of some hundred
/// kernels and the checked device takes three times the CPU's time, so a quick run leaves them out, and the slowest are for the full run. `PANOPLY_TEST_DEVICE` names the only one.
fn devices() -> Vec<Device> {
    pretend();
    let mut names = vec!["cpu", "cuda:0"];
    if !set("PANOPLY_TEST_QUICK") {
        names.extend(["cpu:checked", "opencl:0", "vulkan:0", "vulkan:1"]);
    }
    if set("PANOPLY_TEST_FULL") {
        names.extend(["opencl:1", "oneapi:0", "rocm:0"]);
    }
    if let Ok(only) = std::env::var("PANOPLY_TEST_DEVICE") {
        names.retain(|name| *name == only);
    }
    let found = names.into_iter().filter_map(|name| match Device::get(name) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("SKIPPED: tensor ops on {name}: {}", error.message());
            None
        }
    });
    found.collect()
}

/// A row holds, or goes by way of f64 on a device that has none.
#[track_caller]
fn passed(device: &Device, outcome: &Outcome) {
    if let Err(error) = &outcome.worst
        && error.is_unsupported()
        && !device.target().f64
    {
        eprintln!("SKIPPED: {} on {device} ({}): it has no f64", outcome.name, device.info().name);
        return;
    }
    assert!(outcome.passed(), "{} on {device}: {outcome}", outcome.name);
}

/// Whether the device is SwiftShader, the poorest, whose compiler takes seconds for many a kernel and minutes for some.
fn is_slow(device: &Device) -> bool {
    device.info().name.contains("SwiftShader")
}

/// What is asked of it: operations that are a small kernel.
const SMALL: [&str; 8] = ["tril", "triu", "diagonal", "eye", "roll", "outer product", "kron", "dot"];

#[test]
fn every_op_agrees_with_the_oracle_on_every_device() {
    for device in devices() {
        let chosen = |name: &str| !is_slow(&device) || SMALL.contains(&name);
        let asked: Vec<_> = rows().filter(|row| chosen(row.name)).collect();
        assert!(asked.len() >= SMALL.len(), "the table lost some of {SMALL:?}");
        let left = rows().count() - asked.len();
        if left > 0 {
            eprintln!("SKIPPED: {left} tensor ops on {device}: SwiftShader is too slow");
        }
        asked.iter().for_each(|row| passed(&device, &row.value(&device)));
    }
}

#[test]
fn every_gradient_agrees_with_the_oracle_on_every_device() {
    for device in devices() {
        if is_slow(&device) {
            eprintln!("SKIPPED: gradients on {device}: SwiftShader is too slow");
            continue;
        }
        rows().filter_map(|row| row.gradient(&device)).for_each(|outcome| passed(&device, &outcome));
    }
}

#[test]
fn every_function_keeps_the_numeric_contract_on_every_device() {
    for device in devices() {
        let mut errors = 0.0;
        for outcome in functions(&device) {
            println!("{} on {device}: {outcome}", outcome.name);
            passed(&device, &outcome);
            errors += outcome.worst.unwrap().error;
        }
        // No device rounds twelve functions right everywhere: without any error nothing was compared.
        assert!(errors > 1.0, "{device}: {errors} ulp together");
    }
}

#[test]
fn every_gradient_agrees_with_finite_differences() {
    // All in the oracle's f64: this checks the formulas, the other tests check the compiler.
    for row in rows().filter(|row| row.differentiable) {
        let numbers: Vec<Vec<f64>> = row.inputs.iter().enumerate().map(|(i, input)| input.numbers(i as u64)).collect();
        let direction: Vec<Vec<f64>> = row
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| Input { low: -1.0, high: 1.0, whole: false, ..*input }.numbers(1000 + i as u64))
            .collect();
        let loss_at = |step: f64| {
            let moved = row.inputs.iter().zip(&numbers).zip(&direction).map(|((input, numbers), direction)| {
                let moved: Vec<f64> =
                    numbers.iter().zip(direction).map(|(x, d)| if input.whole { *x } else { x + step * d }).collect();
                input.tensor(&moved, DType::F64)
            });
            weighted(&(row.op)(&moved.collect::<Vec<Tensor>>())).unwrap()
        };
        let step = 1e-6;
        let (above, below) = (values(&[&loss_at(step)]).unwrap()[0][0], values(&[&loss_at(-step)]).unwrap()[0][0]);
        let slope = (above - below) / (2.0 * step);
        let inputs = row.tensors(DType::F64);
        let floats: Vec<usize> = (0..inputs.len()).filter(|i| inputs[*i].dtype().is_float()).collect();
        let loss = weighted(&(row.op)(&inputs)).unwrap();
        let wanted: Vec<&Tensor> = floats.iter().map(|i| &inputs[*i]).collect();
        let gradients = loss.gradients(&wanted).unwrap();
        let found = values(&gradients.iter().collect::<Vec<&Tensor>>()).unwrap();
        let along: f64 =
            floats.iter().zip(&found).map(|(i, g)| g.iter().zip(&direction[*i]).map(|(g, d)| g * d).sum::<f64>()).sum();
        let scale = slope.abs().max(1.0);
        assert!(
            (along - slope).abs() <= 1e-5 * scale,
            "gradient of {}: {along} along a direction, {slope} by differences",
            row.name
        );
    }
}
