//! The device contract's own suite, on a device of the runtime with the runtime's way from kernel to program.

use panoply_device::conformance::{CaseOutcome, run_all};

use super::program_form;
use crate::device::Device;

impl Device {
    /// Asks the device to do everything the contract promises; [`panoply_device::conformance::report`] puts the outcomes into
    /// words. It uses the driver beside the pool, so nothing else should run meanwhile.
    pub fn conformance(&self) -> Vec<CaseOutcome> {
        let info = self.info();
        run_all(&**self.raw(), &|kernel, target| program_form::program(kernel, target, info), &|_| None)
    }
}
