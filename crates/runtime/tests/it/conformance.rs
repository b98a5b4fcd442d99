//! The device contract's conformance suite on every available device, and on the simulated device of these tests.

use crate::lab;
use crate::present;

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
    for (device, raw) in present::devices().iter().zip(present::raw_devices()) {
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
        let (device, lab) = lab::lab(lab::Plan { defer, ..lab::Plan::default() });
        conforms(&device, &*lab);
    }
}
