//! Runs the device contract's conformance suite on a device of the runtime, compiling with the runtime's pipeline.

use panoply_device::conformance::{CaseOutcome, run_all};

use super::program_form;
use crate::device::Device;

impl Device {
    /// Runs the device contract's conformance suite and calls `see` with each outcome; [`panoply_device::conformance::report`] formats
    /// them. It bypasses the memory pool, so the device should be otherwise idle.
    pub fn conformance(&self, see: impl FnMut(CaseOutcome)) {
        let info = self.info();
        run_all(&**self.raw(), &|kernel, target| program_form::program(kernel, target, info), |_| None).for_each(see);
    }
}
