//! OpenCL 1.2 and later, through the drivers that the installed loader finds.
//!
//! Built on `cl3`, the layer below `opencl3`: the same dynamic loading and the same functions, without wrappers whose `Drop` panics when a
//! lost device fails a release. This module defines what cl3 leaves open: ownership of objects (`handles`), the meaning of error codes
//! (`errors`), and thread safety of kernel arguments (`kernel`).
//!
//! Programs are OpenCL C, or SPIR-V if the device supports it and the user requested it.
//!
//! Modules in the order of a program's life: `discovery` (usable devices) → `info` (their properties) → `device` (the device contract) →
//! `program` (source text to a kernel) → `submit` (command submission) → `queue` and `ticket` (synchronization).
//!
//! Invariants: an id is looked up before it is used, so a stale one is an error and never a dangling pointer; objects are released by their
//! reference counts, which OpenCL itself holds for running commands; host memory that a command reads or writes outlives the command. Locks
//! are taken in the order tables, queue, kernel.

mod device;
mod discovery;
mod errors;
mod handles;
mod info;
mod kernel;
mod memory;
mod program;
mod query;
mod queue;
mod stack;
mod submit;
mod ticket;

use std::sync::Arc;

use panoply_device::{Backend, Driver, Error, RawDevice, Result};

pub use device::OpenClDevice;
pub use handles::Live;

/// Finds the OpenCL devices of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenClDriver {
    /// True to compile SPIR-V instead of OpenCL C on devices that support it; the other devices get OpenCL C in either case.
    pub spirv: bool,
}

impl OpenClDriver {
    /// Returns all usable devices of all platforms in the loader's order. [`Driver::rejected`] returns the others.
    ///
    /// # Errors
    ///
    /// The loader is missing or finds no platform, or no device can be used.
    ///
    /// # Safety
    ///
    /// The contract of [`Driver::probe`] applies.
    pub unsafe fn devices(&self) -> Result<Vec<Arc<OpenClDevice>>> {
        let found = discovery::enumerate()?;
        if found.devices.is_empty() {
            let none = Error::unavailable("opencl: the installed drivers have no usable device; see the notes");
            return Err(found.refused.iter().fold(none, |error, refused| error.note(refused.message())));
        }
        Ok(found.devices.into_iter().map(|place| Arc::new(OpenClDevice::new(place, self.spirv))).collect())
    }
}

impl Driver for OpenClDriver {
    fn kind(&self) -> Backend {
        Backend::OpenCl
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: as for this function.
        Ok(unsafe { self.devices() }?.into_iter().map(|device| device as Arc<dyn RawDevice>).collect())
    }

    fn rejected(&self) -> Vec<Error> {
        let mut refused = discovery::enumerate().map(|found| found.refused).unwrap_or_default();
        refused.extend(discovery::broken_drivers());
        refused
    }
}
