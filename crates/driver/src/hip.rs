//! ROCm: AMD GPUs through `libamdhip64` and its runtime compiler, both found at run time. Kernels are HIP C++ without includes.
//!
//! [`crate::stream`] implements the driver. This module holds what differs from CUDA: the library (`api`), its compiler (`compiler`),
//! matrix products (`hipblaslt`, `rocblas`, and the search for their `kernels`), device discovery (`discovery`), device properties (`info`)
//! and error codes (`errors`). A missing, outdated, forbidden or broken installation is reported with its remedy. A device is made current
//! on the calling thread for the duration of a call; afterwards the previous one is restored.

mod api;
mod compiler;
mod discovery;
mod errors;
mod hipblaslt;
mod info;
mod kernels;
mod rocblas;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use panoply_device::{Backend, Driver, Error, RawDevice, Result, SourceText};

use crate::stream::blas::GemmRequest;
pub use crate::stream::device::StreamDevice as HipDevice;
use crate::stream::discovery::Found;

/// Finds the ROCm devices of this machine.
#[derive(Clone, Debug, Default)]
pub struct HipDriver {
    /// Path of the HIP runtime's library; `None` for the one that the system finds.
    pub library: Option<PathBuf>,
    /// Path of hipBLASLt; `None` for the one that the system finds. If `library` is given, the system is not searched.
    pub hipblaslt: Option<PathBuf>,
    /// Path of rocBLAS, with the same default.
    pub rocblas: Option<PathBuf>,
}

impl HipDriver {
    /// Returns all usable devices in the driver's order. [`Driver::rejected`] returns the others.
    ///
    /// # Errors
    ///
    /// The HIP runtime is missing, outdated or fails, or no device can be used.
    ///
    /// # Safety
    ///
    /// The contract of [`Driver::probe`] applies.
    pub unsafe fn devices(&self) -> Result<Vec<Arc<HipDevice>>> {
        self.found()?.devices(Backend::Rocm, info::device)
    }

    fn found(&self) -> Result<Found> {
        let library = self.library.as_deref();
        let hipblaslt = GemmRequest::beside(library, self.hipblaslt.as_deref());
        let rocblas = GemmRequest::beside(library, self.rocblas.as_deref());
        discovery::enumerate(library, api::WantedProducts { hipblaslt, rocblas })
    }
}

/// Compiles a text to machine code for an architecture such as `gfx90a`; no such GPU has to be present. Uses the runtime compiler of the
/// library at a path, or of the one that the system finds.
///
/// # Errors
///
/// The compiler is missing, does not support the architecture, or rejects the text.
pub fn compile(library: Option<&Path>, architecture: &str, text: &SourceText) -> Result<Vec<u8>> {
    let (compiler, driver) = api::compiler(library)?;
    match discovery::objection(architecture, driver) {
        Some(why) => Err(Error::unavailable(format!("rocm: the GPU {why}"))),
        None => compiler::compile(&compiler, "rocm", architecture, text),
    }
}

impl Driver for HipDriver {
    fn kind(&self) -> Backend {
        Backend::Rocm
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: as for this function.
        Ok(unsafe { self.devices() }?.into_iter().map(|device| device as Arc<dyn RawDevice>).collect())
    }

    fn rejected(&self) -> Vec<Error> {
        self.found().map(|found| found.refused).unwrap_or_default()
    }
}
