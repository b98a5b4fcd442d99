//! Vulkan on whatever is here, mostly Mesa's lavapipe and Chromium's SwiftShader: the kernels that ship, and a network that learns as on
//! the CPU.

mod halves;
mod steps;

use std::sync::Arc;

use panoply::kernels::{self, Size};
use panoply::runtime::DeviceOptions;
use panoply::{Device, Kind};
use panoply_driver::WgpuDriver;

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
    let devices = WgpuDriver::new(Kind::Vulkan).devices().unwrap_or_default().into_iter();
    let poorer = devices.filter_map(Arc::into_inner).map(|raw| raw.with_target(|target| target.f16 = false));
    poorer.map(|raw| Device::new(Arc::new(raw), DeviceOptions::default())).collect()
}
