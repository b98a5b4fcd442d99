//! CUDA, through the library that comes with NVIDIA's driver: no toolkit is needed, kernels are PTX.
//!
//! [`crate::stream`] implements the driver. This module holds what differs from HIP: the library and its linker (`api`), the CUDA C++
//! compiler (`compiler`), matrix products (`cublaslt`), device discovery (`discovery`), device properties (`info`) and error codes
//! (`errors`). A missing, outdated, forbidden or broken installation is reported with its remedy. The device's primary context is shared
//! with other users in the process, so it is pushed at the start of a call, popped at its end, and released at the end.

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
    /// Path of the driver's library; `None` for the one that the system finds.
    pub library: Option<PathBuf>,
    /// Path of cuBLASLt; `None` for the one that the system finds. If `library` is given, the system is not searched.
    pub products: Option<PathBuf>,
}

impl CudaDriver {
    /// Returns all usable devices in the driver's order. [`Driver::rejected`] returns the others.
    ///
    /// # Errors
    ///
    /// The driver's library is missing, outdated or fails, or no device can be used.
    ///
    /// # Safety
    ///
    /// The contract of [`Driver::probe`] applies.
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
