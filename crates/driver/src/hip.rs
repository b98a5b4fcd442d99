//! ROCm: AMD's GPUs through `libamdhip64` and its runtime compiler, found at run time. Kernels are HIP C++ that includes nothing.
//!
//! The driver itself is [`crate::stream`]; here is what CUDA has otherwise: the library (`api`), its compiler (`compiler`), matrix products
//! (`hipblaslt`, `rocblas`, and where their `kernels` are), which devices can be used (`discovery`), what they can do (`info`) and what codes mean (`errors`). What is missing, too old, forbidden or broken
//! is an answer with its remedy. A device is the calling thread's for the length of a call; the one that was before is put back.

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
    /// The driver's library, if not the one the system finds.
    pub library: Option<PathBuf>,
    /// hipBLASLt, if not the one the system finds; beside a chosen driver's library the system is not asked.
    pub hipblaslt: Option<PathBuf>,
    /// rocBLAS, likewise.
    pub rocblas: Option<PathBuf>,
}

impl HipDriver {
    /// Every device in the driver's order, but for those [`Driver::rejected`] names.
    ///
    /// # Safety
    ///
    /// As for [`Driver::probe`].
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

/// Machine code of a text for an architecture such as `gfx90a`, of which no GPU need be here, by the runtime compiler of the library
/// at a path or of the one the system finds.
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
