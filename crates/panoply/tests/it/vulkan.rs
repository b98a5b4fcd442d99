//! Vulkan on all devices present, usually Mesa's lavapipe and Chromium's SwiftShader: the built-in kernels, and a
//! network that trains as on the CPU.

use crate::f16_conversion;
use crate::training_steps;

use std::sync::Arc;

use panoply::internal::conformance::{Row, rows};
use panoply::kernels::{self, Size};
use panoply::runtime::DeviceOptions;
use panoply::{Backend, DType, Device, SortOrder, Tensor};
use panoply_driver::WgpuDriver;
use panoply_ir::Target;

const SEED: u64 = 0x5eed;

fn vulkan() -> Vec<Device> {
    if let Err(error) = Device::get("vulkan:0") {
        eprintln!("SKIPPED: execution on Vulkan: {}", error.message());
    }
    let devices = Device::list().expect("devices can be listed").into_iter();
    devices.filter(|device| device.info().kind == Backend::Vulkan).collect()
}

#[test]
fn builtin_kernels_agree() {
    for device in vulkan() {
        for builtin in kernels::ALL {
            let verdict = builtin.check(&device, Size::Tiny, SEED);
            let verdict = verdict.unwrap_or_else(|error| panic!("{} on {device}: {error}", builtin.name));
            assert!(verdict.passed(), "{} on {device}: {verdict}", builtin.name);
        }
    }
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    for device in vulkan() {
        if device.info().name.contains("SwiftShader") {
            eprintln!("SKIPPED: training with norms on {device}: SwiftShader compiles its kernels for minutes");
            training_steps::learn_digits(&device);
        } else {
            training_steps::agree(&device);
        }
    }
}

/// Vulkan limits the error of a quotient only for divisors up to 2^126: larger ones are scaled.
#[test]
fn quotients_by_large_divisors_are_those_of_the_cpu() {
    let numbers =
        [3.4e38f32, -1.7e38, 2f32.powi(126), 1.5 * 2f32.powi(126), 2f32.powi(127), 1e38, 7.0, 0.3, 1e20, f32::INFINITY];
    let pairs = || numbers.iter().flat_map(|x| numbers.iter().map(move |y| (*x, *y)));
    let (x, y): (Vec<f32>, Vec<f32>) = pairs().unzip();
    for device in vulkan() {
        let quotients = device.scope(|| {
            let [x, y] = [&x, &y].map(|numbers| Tensor::from_slice(numbers, [numbers.len()]));
            (x / y).to_vec::<f32>().unwrap()
        });
        for ((x, y), found) in pairs().zip(quotients) {
            let expected = x / y;
            let is_close = (found - expected).abs() <= 4.0 * f32::EPSILON * expected.abs() + f32::MIN_POSITIVE;
            assert!(
                is_close || found == expected || (found.is_nan() && expected.is_nan()),
                "{device}: {x} / {y} = {found}"
            );
        }
    }
}

/// With native f16 where the device has it, and stored as parts of words.
#[test]
fn every_f16_is_converted_exactly() {
    vulkan().iter().chain(&without_f16()).for_each(f16_conversion::convert);
}

/// Returns the same devices without native f16 support.
fn without_f16() -> Vec<Device> {
    poorer(|target| target.f16 = false)
}

fn poorer(change: fn(&mut Target)) -> Vec<Device> {
    // SAFETY: only `runtime` uses the devices, and it validates what it passes on.
    let devices = unsafe { WgpuDriver::new(Backend::Vulkan).devices() }.unwrap_or_default().into_iter();
    let poorer = devices.filter_map(Arc::into_inner).map(|raw| raw.with_target(change));
    poorer.map(|raw| Device::new(Arc::new(raw), DeviceOptions::default())).collect()
}

/// A training step needs temporary memory larger than the largest buffer; none of its tensors is that large.
#[test]
fn temporaries_larger_than_a_buffer_are_split() {
    for device in poorer(|target| target.max_buffer_bytes = 1024) {
        if !device.info().name.contains("SwiftShader") {
            training_steps::norms_agree(&device);
            device.trim();
            let error = device.allocate(1025).unwrap_err();
            assert!(error.message().contains("exceeds the maximum buffer size on vulkan:"), "{error}");
        }
    }
}

/// An operation on a tensor that exceeds the largest binding, and on one that fits.
type Expression = (&'static str, fn(&Tensor, &Tensor) -> Tensor);

const IN_PARTS: [Expression; 14] = [
    ("sum with another", |x, _| x + &(x * 0.5)),
    ("exp", |x, _| x.exp()),
    ("sum of rows", |x, _| x.sum(1)),
    ("sum of columns", |x, _| x.sum(0)),
    ("running sum", |x, _| x.cumsum(1)),
    ("sum of all", |x, _| x.sum(..)),
    ("softmax", |x, _| x.softmax(1)),
    ("layer norm", |x, _| x.layer_norm(1e-5)),
    ("product of matrices", |x, w| x.matmul(w).relu()),
    ("transposed", |x, _| &x.t() * 2.0),
    ("part", |x, _| x.slice((3..500, ..)) * 2.0),
    ("concat", |x, _| Tensor::concat([x.clone(), x * 2.0], 0)),
    ("half", |x, _| x.cast(DType::F16)),
    ("mask", |x, _| x.gt(&(x * x))),
];

/// Operations that can read any element of the tensor.
const WHOLE: [Expression; 2] = [
    ("rows by number", |x, w| x.index_select(0, &w.argmax(0))),
    ("sort", |x, _| x.reshape([512 * 256]).sort(0, SortOrder::Ascending)),
];

fn computed(device: &Device, round: usize, (_, of): Expression) -> panoply::Result<Vec<f32>> {
    let number = |i: usize| ((i * i + (3 + round) * i) % 1009) as f32 / 509.0 - 1.0;
    let numbers = |count: usize| (0..count).map(number).collect::<Vec<f32>>();
    device.scope(|| {
        let x = Tensor::from_slice(&numbers(512 * 256), [512, 256]);
        let w = Tensor::from_slice(&numbers(256 * 40), [256, 40]);
        of(&x, &w).cast(DType::F32).to_vec()
    })
}

/// The results have the same bits, also when the plan is replayed.
#[test]
fn tensors_larger_than_a_binding_are_processed_in_parts() {
    for device in poorer(|target| target.max_binding_bytes = 64 << 10) {
        let whole = Device::get(&device.to_string()).unwrap();
        let slow = device.info().name.contains("SwiftShader");
        if slow {
            eprintln!(
                "SKIPPED: a product in parts on {device}: SwiftShader needs minutes and gigabytes to compile its tiles"
            );
        }
        let left_out = |name: &str| slow && name == "product of matrices";
        for expression in IN_PARTS.iter().filter(|expression| !left_out(expression.0)) {
            for round in 0..3 {
                let (found, expected) = (computed(&device, round, *expression), computed(&whole, round, *expression));
                assert!(found.unwrap() == expected.unwrap(), "{} on {device}, round {round}", expression.0);
            }
        }
        for expression in &WHOLE[..if slow { 0 } else { WHOLE.len() }] {
            let error = computed(&device, 0, *expression).unwrap_err();
            let (what, limit) = (" of 512.0 KiB exceeds the maximum binding size on vulkan:", ", 64.0 KiB, ");
            assert!(error.message().contains(what) && error.message().contains(limit), "{}: {error}", expression.0);
            assert!(
                error.message().ends_with("can depend on data; compute on slices, for example with `narrow`"),
                "{error}"
            );
        }
    }
}

/// Each of three launches splits into thousands of parts. Their parameters exceed what is buffered at once, even within
/// one launch.
#[test]
fn a_launch_can_have_thousands_of_parts() {
    for device in poorer(|target| target.max_binding_bytes = 256) {
        let sums = device.scope(|| {
            let numbers = |count: usize| (0..count).map(|i| i as f32).collect::<Vec<f32>>();
            let all = [120_000, 130_000, 140_000].map(|count| Tensor::from_slice(&numbers(count), [count]) + 1.0);
            panoply::eval(&all.each_ref())?;
            all.iter().map(|sum| sum.to_vec::<f32>()).collect::<panoply::Result<Vec<Vec<f32>>>>()
        });
        for sums in sums.unwrap() {
            assert!(sums.iter().enumerate().all(|(i, sum)| *sum == i as f32 + 1.0), "{} on {device}", sums.len());
        }
    }
}

/// Every row of the op table on a device with tiny bindings: operations that can be split agree, the others are
/// rejected.
#[test]
fn every_operation_agrees_in_parts_or_is_rejected() {
    for device in poorer(|target| target.max_binding_bytes = 256) {
        if device.info().name.contains("SwiftShader") {
            eprintln!("SKIPPED: the op table in parts on {device}: SwiftShader is too slow");
            continue;
        }
        let refused = |row: &&Row| {
            let outcome = row.value(&device);
            let refused =
                matches!(&outcome.worst, Err(error) if error.message().contains("exceeds the maximum binding size"));
            assert!(refused || outcome.passed(), "{} on {device}: {outcome}", row.name);
            refused
        };
        let (all, refused) = (rows().count(), rows().filter(refused).count());
        assert!(3 * refused < all, "{refused} of {all} were rejected");
    }
}

/// Uses the driver's own limit instead of a reduced one.
#[test]
fn a_tensor_larger_than_the_driver_limit_is_processed_in_parts() {
    const COUNT: usize = 35 << 20;
    for device in vulkan() {
        let target = device.target();
        if target.max_binding_bytes >= 4 * COUNT as u64 || target.max_buffer_bytes < 4 * COUNT as u64 {
            continue;
        }
        let numbers: Vec<f32> = (0..COUNT).map(|i| (i % 4093) as f32).collect();
        let found = device.scope(|| (Tensor::from_slice(&numbers, [COUNT]) * 2.0 + 1.0).to_vec::<f32>()).unwrap();
        device.trim();
        let wrong = numbers.iter().zip(&found).position(|(x, y)| *y != 2.0 * x + 1.0);
        assert_eq!((wrong, found.len()), (None, COUNT), "{device}");
    }
}
