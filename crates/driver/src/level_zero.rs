//! Level Zero: Intel GPUs through `libze_loader`, found at run time. Kernels are SPIR-V.
//!
//! A thin driver, for machines whose Intel GPU has neither OpenCL nor Vulkan. It uses synchronous immediate command lists, so each command
//! is complete when the call that submits it returns. Therefore a submission needs no event, memory can be freed at any time, and times are
//! measured on the host.
//!
//! It does not share the implementation of CUDA and HIP (`stream`): here every call takes the context and the device, which CUDA and HIP
//! take from the thread, arguments are set individually, and there is no stream in which an event could be recorded.
//!
//! Modules in the order of a program's life: `api` (the library's functions and structures) → `discovery` (GPUs and their properties) →
//! `device` (the device contract) → `program` (source text to a kernel) → `submit` (command submission).
//!
//! Invariants: nothing is called after a failed `zeInit`, because some loaders would crash; an id is looked up before it is used; command
//! lists and kernels with their arguments are used only while holding their lock. Locks are taken in the order tables, queue, kernel.

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

/// Finds the GPUs that Level Zero supports.
#[derive(Clone, Debug, Default)]
pub struct LevelZeroDriver {
    /// Path of the loader's library; `None` for the one that the system finds.
    pub library: Option<PathBuf>,
}

impl LevelZeroDriver {
    /// Returns all usable GPUs in the drivers' order. [`Driver::rejected`] returns the others.
    ///
    /// # Errors
    ///
    /// The loader is missing, outdated or fails, or no GPU can be used.
    ///
    /// # Safety
    ///
    /// The contract of [`Driver::probe`] applies.
    pub unsafe fn devices(&self) -> Result<Vec<Arc<LevelZeroDevice>>> {
        let found = discovery::enumerate(self.library.as_deref())?;
        if found.devices.is_empty() {
            let none = Error::unavailable("oneapi: Level Zero's drivers list no usable GPU; update them");
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
