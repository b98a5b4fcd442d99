//! Vulkan on whatever is here, mostly Mesa's lavapipe and Chromium's SwiftShader: the kernels that ship, and a network that learns as on
//! the CPU.

mod steps;

use panoply::kernels::{self, Size};
use panoply::{Device, Kind};

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
