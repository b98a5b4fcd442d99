//! CUDA, through the library that comes with NVIDIA's driver and nothing else: no toolkit is needed, kernels are PTX.
//!
//! The driver itself is [`crate::stream`]; here is what HIP has otherwise: the library and its linker (`api`), the compiler of CUDA C++ (`compiler`), matrix products
//! (`cublaslt`), which devices can be used (`discovery`), what they can do (`info`) and what codes mean (`errors`). What is missing, too old, forbidden or broken is an
//! answer with its remedy. The device's primary context is shared with whoever else uses it, so it is pushed for the length of a call
//! and popped after it, and given back at the end.

mod api;
mod compiler;
mod cublaslt;
mod discovery;
mod errors;
mod info;

use std::path::PathBuf;
use std::sync::Arc;

use panoply_device::{Backend, Driver, Error, RawDevice, Result};

use crate::stream::blas::GemmRequest;
pub use crate::stream::device::StreamDevice as CudaDevice;
use crate::stream::discovery::Found;

/// Finds the CUDA devices of this machine.
#[derive(Clone, Debug, Default)]
pub struct CudaDriver {
    /// The driver's library, if not the one the system finds.
    pub library: Option<PathBuf>,
    /// cuBLASLt, if not the one the system finds; beside a chosen driver's library the system is not asked.
    pub products: Option<PathBuf>,
}

impl CudaDriver {
    /// Every device in the driver's order, but for those [`Driver::rejected`] names.
    ///
    /// # Safety
    ///
    /// As for [`Driver::probe`].
    pub unsafe fn devices(&self) -> Result<Vec<Arc<CudaDevice>>> {
        self.found()?.devices(Backend::Cuda, info::device)
    }

    fn found(&self) -> Result<Found> {
        let (library, products) = (self.library.as_deref(), self.products.as_deref());
        discovery::enumerate(library, GemmRequest::beside(library, products))
    }
}

impl Driver for CudaDriver {
    fn kind(&self) -> Backend {
        Backend::Cuda
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: as for this function.
        Ok(unsafe { self.devices() }?.into_iter().map(|device| device as Arc<dyn RawDevice>).collect())
    }

    fn rejected(&self) -> Vec<Error> {
        self.found().map(|found| found.refused).unwrap_or_default()
    }
}
