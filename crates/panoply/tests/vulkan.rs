//! Vulkan on whatever is here, mostly Mesa's lavapipe: the kernels that ship, and a network that learns as on the CPU.

mod steps;

use panoply::Device;
use panoply::kernels::{self, Size};

const SEED: u64 = 0x5eed;

fn vulkan() -> Option<Device> {
    let found = Device::get("vulkan:0");
    found.inspect_err(|error| eprintln!("SKIPPED: nothing ran on Vulkan: {}", error.message())).ok()
}

#[test]
fn the_kernels_that_ship_agree() {
    let Some(device) = vulkan() else { return };
    for shipped in kernels::ALL {
        let verdict =
            shipped.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", shipped.name));
        assert!(verdict.passed(), "{}: {verdict}", shipped.name);
    }
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    let Some(device) = vulkan() else { return };
    steps::agree(&device);
}
