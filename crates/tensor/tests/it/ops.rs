//! The op table on every device, compared with the f64 graph interpreter; gradients compared with finite differences; random expressions,
//! fused and step by step.
//!
//! The rows are those of [`panoply_tensor::conformance`]; this file selects the devices.

mod operands;

use std::sync::{Arc, Once};

use panoply_driver::{CudaDriver, HipDriver, OneApiDriver};
use panoply_ir::DType;
use panoply_runtime::{Backend, Registry};
use panoply_tensor::conformance::oracle::values;
use panoply_tensor::conformance::row::{Input, weighted};
use panoply_tensor::conformance::{Outcome, functions, rows};
use panoply_tensor::{Device, Tensor, eval};

/// Registers simulated devices beside those of this machine: a CUDA device that interprets PTX, a ROCm device whose HIP C++ clang compiles
/// for the host, and a oneAPI device on Intel's OpenCL runtime for CPUs.
fn register_simulated_devices() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registry = Registry::global().expect("the environment variables are valid");
        registry
            .register(Arc::new(CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() }));
        registry.register(Arc::new(OneApiDriver { software: true, ..OneApiDriver::default() }));
        if panoply_driver_sim::Control::open().execute() {
            registry
                .register(Arc::new(HipDriver { library: Some(panoply_driver_sim::library()), ..HipDriver::default() }));
        }
    });
}

fn set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

/// Returns the devices that the table runs on. Device compilers take a tenth of a second for each of several hundred kernels, and the
/// checked device takes three times as long as the CPU, so a quick run omits them. The slowest devices are for the full run.
/// `PANOPLY_TEST_DEVICE` selects a single device.
fn devices() -> Vec<Device> {
    register_simulated_devices();
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
    // SwiftShader compiles for minutes, and some programs crash it.
    found.filter(|device| set("PANOPLY_TEST_FULL") || !is_slow(device)).collect()
}

#[track_caller]
fn check(device: &Device, outcome: &Outcome) {
    assert!(outcome.passed(), "{} on {device}: {outcome}", outcome.name);
}

/// Reports the passed rows of the table for the list of operations that `cargo xtask devices` writes.
fn report(device: &Device, what: &str, all: &[&str], passed: &[&str]) {
    let left: Vec<&str> = all.iter().filter(|name| !passed.contains(name)).copied().collect();
    let info = device.info();
    let words = match (passed.len(), left.len()) {
        (_, 0) => format!("all {}", all.len()),
        (some, few) if few < some => format!("{some} of {}, not {}", all.len(), left.join(", ")),
        (few, _) => format!("{few} of {}: {}", all.len(), passed.join(", ")),
    };
    let variant = info.variant.as_ref().map_or(String::new(), |variant| format!(":{variant}"));
    eprintln!("TESTED {what} | {}{variant} | {} ({}) | {words}", info.kind, info.name.trim(), info.driver);
}

/// Returns true for SwiftShader, the least capable device, whose compiler takes seconds for many kernels and minutes for some.
fn is_slow(device: &Device) -> bool {
    device.info().name.contains("SwiftShader")
}

/// Rows that SwiftShader compiles for four seconds or more, some for minutes; they are for the full run.
const LONG: [&str; 40] = [
    "binary_cross_entropy_with_logits",
    "a network",
    "conv2d of many channels",
    "matmul of many rows",
    "logcumsumexp",
    "logcumsumexp of columns",
    "attention",
    "attention, causal, heads in groups",
    "attention with a mask",
    "attention with a bias",
    "attention, some tiles",
    "attention, some tiles of groups",
    "cross_entropy of probabilities",
    "binary_cross_entropy",
    "kl_div",
    "fft of two factors",
    "fft of a prime",
    "ifft",
    "rfft",
    "irfft",
    "rfft_with_options and back",
    "cholesky of blocks",
    "qr of blocks",
    "lu of blocks",
    "softmax of columns",
    "logsumexp without its axis",
    "lgamma",
    "lgamma below 0",
    "cdist of another power",
    "softmin",
    "mish",
    "rope rotate_half",
    "rope interleaved",
    "cross_entropy, smoothed",
    "cross_entropy, weighted and ignoring",
    "qr",
    "qr of wide",
    "lu",
    "eigh",
    "slogdet",
];

/// Row that computes in f64, which few GPUs support.
const DOUBLE: &str = "cast and back";

#[test]
fn every_op_agrees_with_the_oracle_on_every_device() {
    for device in devices() {
        let in_time = |name: &str| !is_slow(&device) || set("PANOPLY_TEST_FULL") || !LONG.contains(&name);
        let chosen = |name: &str| in_time(name) && (name != DOUBLE || device.target().f64);
        let all: Vec<&str> = rows().map(|row| row.name).collect();
        let asked: Vec<_> = rows().filter(|row| chosen(row.name)).collect();
        let known = |name: &&str| all.contains(name);
        assert!(LONG.iter().all(known) && known(&DOUBLE), "the table lacks some of {LONG:?}");
        let left = all.len() - asked.len();
        if left > 0 {
            eprintln!("SKIPPED: {left} tensor ops on {device}: they take too long to compile, or it has no f64");
        }
        asked.iter().for_each(|row| check(&device, &row.value(&device)));
        report(&device, "results", &all, &asked.iter().map(|row| row.name).collect::<Vec<&str>>());
    }
}

#[test]
fn every_gradient_agrees_with_the_oracle_on_every_device() {
    for device in devices() {
        if is_slow(&device) {
            eprintln!("SKIPPED: gradients on {device}: SwiftShader is too slow");
            continue;
        }
        let all: Vec<&str> = rows().filter(|row| row.differentiable).map(|row| row.name).collect();
        rows().filter_map(|row| row.gradient(&device)).for_each(|outcome| check(&device, &outcome));
        report(&device, "gradients", &all, &all);
    }
}

#[test]
fn every_function_keeps_the_numeric_contract_on_every_device() {
    for device in devices() {
        let mut errors = 0.0;
        for outcome in functions(&device) {
            println!("{} on {device}: {outcome}", outcome.name);
            check(&device, &outcome);
            errors += outcome.worst.unwrap().error;
        }
        // No device rounds twelve functions correctly everywhere: without any error nothing was compared.
        assert!(errors > 1.0, "{device}: {errors} ulp in total");
    }
}

#[test]
fn every_gradient_agrees_with_finite_differences() {
    // All in the oracle's f64: this checks the formulas; the other tests check the compiler.
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
        let grad = (above - below) / (2.0 * step);
        let inputs = row.tensors(DType::F64);
        let floats: Vec<usize> = (0..inputs.len()).filter(|i| inputs[*i].dtype().is_float()).collect();
        let loss = weighted(&(row.op)(&inputs)).unwrap();
        let wanted: Vec<&Tensor> = floats.iter().map(|i| &inputs[*i]).collect();
        let gradients = loss.gradients(&wanted).unwrap();
        let found = values(&gradients.iter().collect::<Vec<&Tensor>>()).unwrap();
        let along: f64 =
            floats.iter().zip(&found).map(|(i, g)| g.iter().zip(&direction[*i]).map(|(g, d)| g * d).sum::<f64>()).sum();
        let scale = grad.abs().max(1.0);
        assert!(
            (along - grad).abs() <= 1e-5 * scale,
            "gradient of {}: {along} along a direction, {grad} by differences",
            row.name
        );
    }
}

/// Returns a generator of numbers below a bound, the same for a seed.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// Returns one more matrix, computed from one or two of the previous ones: views of views, sums of them, products. All functions are
/// continuous, so small errors stay small.
fn next_of(of: &[Tensor], number: &mut impl FnMut(usize) -> usize) -> Tensor {
    let (x, y) = (&of[number(of.len())], &of[number(of.len())]);
    let [rows, columns] = x.dims().unwrap();
    let (same, axis) = (x.shape().unwrap() == y.shape().unwrap(), number(2));
    let (along, length) = (axis as isize, [rows, columns][axis]);
    match number(18) {
        0 => x.tanh(),
        1 => (x.square() + 0.5).log(),
        2 => x.sigmoid() * -0.7,
        3 if same => x * 0.5 + y,
        3 => x + y.mean(..),
        4 => x.narrow(1, columns - 1, 1) * y.narrow(0, 0, 1).tanh(),
        5 if columns == y.dims::<2>().unwrap()[1] => x.matmul(&y.t()) * (1.0 / columns as f64),
        5 => x.t().matmul(x) * (1.0 / rows as f64),
        6 => x.t(),
        7 => x.reshape([columns as isize, rows as isize]),
        8 => x.flip(along),
        9 => x.narrow(along, length / 2, length - length / 2),
        10 => x.pad(&[(number(2), number(3)), (1, 0)]).narrow(0, 0, rows).narrow(1, 0, columns),
        11 => Tensor::concat([x.narrow(along, 0, 1), x * 0.5], along).narrow(along, 0, length),
        12 => x.softmax(along),
        13 => x.cumsum(along) * (1.0 / length as f64),
        14 => x.mean(along).unsqueeze(along),
        15 => x.max(along).unsqueeze(along) - x,
        16 => x.index_select(along, &(Tensor::arange(1 + number(6)) * 5.0 % Tensor::scalar(length as i32))),
        _ => x.where_self(&Tensor::arange(columns).lt(&Tensor::scalar(number(6) as i32)), &x.roll(1, along)),
    }
}

/// Returns a random expression of fourteen steps; `see` is applied to each step.
fn expression(seed: u64, see: fn(Tensor) -> Tensor) -> Vec<Tensor> {
    let mut number = numbers(seed);
    let mut made = Vec::new();
    for _ in 0..2 {
        let [rows, columns] = [0; 2].map(|_| 1 + number(6));
        let data: Vec<f32> = (0..rows * columns).map(|_| number(4001) as f32 / 1000.0 - 2.0).collect();
        made.push(Tensor::from_slice(&data, [rows, columns]));
    }
    for _ in 0..14 {
        let next = see(next_of(&made, &mut number));
        made.push(next);
    }
    made.split_off(2)
}

#[test]
fn random_expressions_agree_fused_and_step_by_step_on_every_device() {
    for device in devices().iter().filter(|device| !is_slow(device)) {
        // Device compilers take most of a second for some expressions.
        let count = match (device.info().kind, set("PANOPLY_TEST_FULL")) {
            (Backend::Cpu, _) => 100,
            (_, true) => 20,
            (_, false) => 3,
        };
        device.scope(|| {
            for seed in 0..count {
                let whole = expression(seed, |step| step);
                let roots: Vec<&Tensor> = whole.iter().collect();
                // The oracle first: evaluated tensors are memory from then on.
                let want = values(&roots).unwrap();
                eval(&roots).unwrap();
                let apart = expression(seed, |step| {
                    step.eval().unwrap();
                    step.detach()
                });
                for (step, want) in want.iter().enumerate() {
                    let most = want.iter().fold(1.0f64, |most, value| most.max(value.abs()));
                    for (how, made) in [("fused", &whole), ("apart", &apart)] {
                        let have = made[step].to_vec::<f32>().unwrap();
                        assert_eq!(have.len(), want.len(), "seed {seed}, step {step}, {how}, on {device}");
                        for (have, want) in have.iter().zip(want) {
                            let off = (f64::from(*have) - want).abs() / most;
                            assert!(
                                off <= 2e-5,
                                "seed {seed}, step {step}, {how}, on {device}: {have}, expected {want}"
                            );
                        }
                    }
                }
            }
        });
    }
}
