//! CUDA, through the library that comes with NVIDIA's driver and nothing else: no toolkit is needed, kernels are PTX.
//!
//! The library is opened at run time and its functions are found one by one ([`api`]), because bindings that know all of them
//! refuse an old driver for a function nobody calls. What is missing, too old, forbidden or broken is an answer with its remedy.
//!
//! In the order of a program's life: `discovery` (which devices are here) → `info` (what they can do) → `device` (the contract) →
//! `program` (PTX to a module) → `submit` (steps to work on a stream) → `queue` and `ticket` (who waits for what).
//!
//! Invariants: the device's primary context is shared with whoever else uses it, so it is pushed for the length of a call and
//! popped after it, and given back at the end ([`handles::Context`]); an id is looked up before it is used; pinned memory that a
//! copy touches is kept until the event behind the copy. Locks are taken in the order tables, queue, pools.

mod api;
mod device;
mod discovery;
mod errors;
mod handles;
mod info;
mod memory;
mod program;
mod queue;
mod submit;
mod ticket;

use std::path::PathBuf;
use std::sync::Arc;

use panoply_device::{Device, Driver, Error, Kind, Result};

pub use device::CudaDevice;

/// Finds the CUDA devices of this machine.
#[derive(Clone, Debug, Default)]
pub struct CudaDriver {
    /// The driver's library, if not the one the system finds.
    pub library: Option<PathBuf>,
}

impl CudaDriver {
    /// Every device in the driver's order, but for those [`Driver::refused`] names.
    pub fn devices(&self) -> Result<Vec<Arc<CudaDevice>>> {
        let found = discovery::enumerate(self.library.as_deref())?;
        if found.devices.is_empty() {
            let none = Error::unavailable("cuda: no device here can be used; see the notes");
            return Err(found.refused.iter().fold(none, |error, refused| error.note(refused.message())));
        }
        Ok(found.devices.into_iter().map(|place| Arc::new(CudaDevice::new(place))).collect())
    }
}

impl Driver for CudaDriver {
    fn kind(&self) -> Kind {
        Kind::Cuda
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Device>>> {
        Ok(self.devices()?.into_iter().map(|device| device as Arc<dyn Device>).collect())
    }

    fn refused(&self) -> Vec<Error> {
        discovery::enumerate(self.library.as_deref()).map(|found| found.refused).unwrap_or_default()
    }
}
