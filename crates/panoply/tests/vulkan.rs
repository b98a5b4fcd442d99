//! Vulkan on whatever is here, mostly Mesa's lavapipe and Chromium's SwiftShader: the kernels that ship, and a network that learns as on
//! the CPU.

mod halves;
mod steps;

use std::sync::Arc;

use panoply::kernels::{self, Size};
use panoply::runtime::DeviceOptions;
use panoply::{Device, Kind};
use panoply_driver::WgpuDriver;
use panoply_ir::Target;

const SEED: u64 = 0x5eed;

fn vulkan() -> Vec<Device> {
    if let Err(error) = Device::get("vulkan:0") {
        eprintln!("SKIPPED: nothing ran on Vulkan: {}", error.message());
    }
    let devices = Device::all().expect("devices can be listed").into_iter();
    devices.filter(|device| device.info().kind == Kind::Vulkan).collect()
}

#[test]
fn the_kernels_that_ship_agree() {
    for device in vulkan() {
        for shipped in kernels::ALL {
            let verdict = shipped.check(&device, Size::Tiny, SEED);
            let verdict = verdict.unwrap_or_else(|error| panic!("{} on {device}: {error}", shipped.name));
            assert!(verdict.passed(), "{} on {device}: {verdict}", shipped.name);
        }
    }
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    for device in vulkan() {
        if device.info().name.contains("SwiftShader") {
            // With its 24 logarithms and cosines.
            eprintln!(
                "SKIPPED: training on {device}: SwiftShader compiles the kernel that draws the parameters for minutes"
            );
            continue;
        }
        steps::agree(&device);
    }
}

/// In the device's own f16 where it has them, and as parts of words.
#[test]
fn every_half_is_converted_exactly() {
    vulkan().iter().chain(&without_f16()).for_each(halves::convert);
}

/// The same devices as they would be without f16 of their own.
fn without_f16() -> Vec<Device> {
    poorer(|target| target.f16 = false)
}

fn poorer(change: fn(&mut Target)) -> Vec<Device> {
    let devices = WgpuDriver::new(Kind::Vulkan).devices().unwrap_or_default().into_iter();
    let poorer = devices.filter_map(Arc::into_inner).map(|raw| raw.with_target(change));
    poorer.map(|raw| Device::new(Arc::new(raw), DeviceOptions::default())).collect()
}

/// What a training step needs in between is larger than a buffer may be; none of its tensors is.
#[test]
fn temporaries_beyond_the_largest_buffer_lie_in_several() {
    for device in poorer(|target| target.max_buffer_bytes = 1024) {
        if !device.info().name.contains("SwiftShader") {
            steps::agree(&device);
            device.trim();
            let error = device.allocate(1025).unwrap_err();
            assert!(error.message().contains("exceeds the largest on vulkan:"), "{error}");
        }
    }
}
