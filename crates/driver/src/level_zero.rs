//! Level Zero: Intel's GPUs through `libze_loader`, found at run time. Kernels are SPIR-V.
//!
//! A thin driver, for machines whose Intel GPU has no OpenCL and no Vulkan: each step is done when the call that gave it returns, on
//! command lists that work at once and are waited for. So a submission needs no event, memory can be given back at any time, and
//! times are the host's.
//!
//! It is no third column of the table that CUDA and HIP share (`stream`): here every call names its context and device, which CUDA and HIP
//! take from the thread, arguments are set one by one, and there is no stream that an event is recorded in.
//!
//! In the order of a program's life: `api` (the library's functions and structures) → `discovery` (which GPUs are here and what they
//! can do) → `device` (the contract) → `program` (text to a kernel) → `submit` (steps to commands).
//!
//! Invariants: nothing is called after a failed `zeInit`, which crashes some loaders; an id is looked up before it is used; a command
//! list and a kernel with its arguments belong to whoever holds their lock. Locks are taken in the order tables, queue, kernel.

mod api;
mod device;
mod discovery;
mod errors;
mod program;
mod submit;

use std::path::PathBuf;
use std::sync::Arc;

use panoply_device::{Backend, Driver, Error, RawDevice, Result};

pub use device::LevelZeroDevice;

/// Finds the GPUs that Level Zero reaches.
#[derive(Clone, Debug, Default)]
pub struct LevelZeroDriver {
    /// The loader's library, if not the one the system finds.
    pub library: Option<PathBuf>,
}

impl LevelZeroDriver {
    /// Every GPU in the drivers' order, but for those [`Driver::rejected`] names.
    ///
    /// # Safety
    ///
    /// As for [`Driver::probe`].
    pub unsafe fn devices(&self) -> Result<Vec<Arc<LevelZeroDevice>>> {
        let found = discovery::enumerate(self.library.as_deref())?;
        if found.devices.is_empty() {
            let none = Error::unavailable("oneapi: Level Zero's drivers show no GPU that can be used; update them");
            return Err(found.refused.iter().fold(none, |error, refused| error.note(refused.message())));
        }
        Ok(found.devices.into_iter().map(|place| Arc::new(LevelZeroDevice::new(place))).collect())
    }
}

impl Driver for LevelZeroDriver {
    fn kind(&self) -> Backend {
        Backend::OneApi
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: as for this function.
        Ok(unsafe { self.devices() }?.into_iter().map(|device| device as Arc<dyn RawDevice>).collect())
    }

    fn rejected(&self) -> Vec<Error> {
        discovery::enumerate(self.library.as_deref()).map(|found| found.refused).unwrap_or_default()
    }
}
