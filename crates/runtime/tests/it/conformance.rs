//! The device contract's conformance suite on every available device, and on the simulated device of these tests.

use crate::support::all_devices;
use crate::support::test_device;

use panoply_device::conformance::report;
use panoply_runtime::Device;

fn conforms(device: &Device, raw: &dyn panoply_device::RawDevice) {
    let mut outcomes = Vec::new();
    device.conformance(|outcome| outcomes.push(outcome));
    match report(raw, &outcomes) {
        Ok(words) => eprintln!("{words}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_device_passes_the_conformance_suite() {
    for (device, raw) in all_devices::devices().iter().zip(all_devices::raw_devices()) {
        conforms(device, &**raw);
        let info = device.info();
        if info.variant.is_none() {
            eprintln!("TESTED {} | {} ({})", info.kind, info.name.trim(), info.driver);
        }
    }
}

#[test]
fn simulated_device_passes_the_conformance_suite() {
    for defer in [None, Some(1), Some(2)] {
        let (device, test_device) =
            test_device::test_device(test_device::Options { defer, ..test_device::Options::default() });
        conforms(&device, &*test_device);
    }
}
