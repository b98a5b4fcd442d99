//! The contract's suite on every device that is here, and on the device that other tests of this crate rely on.

use crate::lab;
use crate::present;

use panoply_device::conformance::report;
use panoply_runtime::Device;

fn conforms(device: &Device, raw: &dyn panoply_device::RawDevice) {
    match report(raw, &device.conformance()) {
        Ok(words) => eprintln!("{words}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_device_conforms() {
    for (device, raw) in present::devices().iter().zip(present::raw_devices()) {
        conforms(device, &**raw);
        let info = device.info();
        if info.variant.is_none() {
            eprintln!("TESTED {} | {} ({})", info.kind, info.name.trim(), info.driver);
        }
    }
}

#[test]
fn the_lab_conforms() {
    for defer in [None, Some(1), Some(2)] {
        let (device, lab) = lab::lab(lab::Plan { defer, ..lab::Plan::default() });
        conforms(&device, &*lab);
    }
}
