//! OpenCL 1.2 and later, through whatever driver the installed loader finds.
//!
//! It stands on `cl3`, the layer below `opencl3`: the same dynamic loading and the same functions, without wrappers whose
//! `Drop` panics when a lost device refuses a release. What cl3 leaves open is decided here: who owns an object
//! (`handles`), what a code means (`errors`), which thread may touch a kernel's arguments (`kernel`).
//!
//! Programs are OpenCL C, or SPIR-V where the device takes it and its user asked for that.
//!
//! In the order of a program's life: `discovery` (which devices are here) → `info` (what they can do) → `device` (the
//! contract) → `program` (text to kernel) → `submit` (steps to commands) → `queue` and `ticket` (who waits for what).
//!
//! Invariants: an id is looked up before it is used, so a stale one is an error and never a dangling pointer; objects are
//! released by their reference counts, which OpenCL itself holds for commands under way; host memory that a command reads or
//! writes outlives the command. Locks are taken in the order tables, queue, kernel.

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
    /// Gives devices that take SPIR-V that instead of OpenCL C, which the others are given all the same.
    pub spirv: bool,
}

impl OpenClDriver {
    /// Every device of every platform, in the loader's order, but for those [`Driver::rejected`] names.
    ///
    /// # Safety
    ///
    /// As for [`Driver::probe`].
    pub unsafe fn devices(&self) -> Result<Vec<Arc<OpenClDevice>>> {
        let found = discovery::enumerate()?;
        if found.devices.is_empty() {
            let none = Error::unavailable("opencl: the drivers here have no device that can be used; see the notes");
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
