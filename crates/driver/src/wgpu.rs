//! Vulkan, Metal, DirectX 12 and a browser's WebGPU, through `wgpu`: four backends, one driver.
//!
//! `wgpu` finds the API's library at run time and hides the differences; kernels are WGSL. Its features for graphics and for untrusted
//! programs are disabled: bounds are proven in advance, and on Vulkan programs are translated to SPIR-V here ([`spirv`]), because only that
//! prevents the contraction of a product and a sum.
//!
//! Modules in the order of a program's life: `discovery` (adapters) → `info` (their properties) → `open` (the API's device and its errors)
//! → `device` (the device contract) → `program` (source text to pipelines; a user's own through `external_kernel`) → `encode` (command
//! encoding) → `submit` → `ticket` (synchronization). [`arithmetic`] tests which float functions of a device are exact, [`subgroups`]
//! whether its subgroups consist of consecutive work-items.
//!
//! Invariants: the API has one queue, so all queues of the contract map to it, in the order of submission; every fallible call is made
//! inside error scopes, which belong to the calling thread, and nothing panics on an error; an id is looked up before it is used. In a
//! browser nothing can block: adapter and device are created before the driver (`browser`), a blocking call is an error, tickets are
//! completed by callbacks, and errors are returned by a later call.

mod arithmetic;
#[cfg(target_family = "wasm")]
mod browser;
mod bytes;
mod device;
mod discovery;
mod encode;
mod errors;
mod external_kernel;
mod info;
mod memory;
mod open;
mod program;
mod spirv;
mod subgroups;
mod submit;
mod ticket;

use std::sync::Arc;

use panoply_device::{Backend, Driver, RawDevice, Result};

use open::now;

pub use arithmetic::Trust;
#[cfg(target_family = "wasm")]
pub use browser::BrowserDriver;
pub use device::WgpuDevice;

/// Finds the devices of one API: [`Backend::Vulkan`], [`Backend::Metal`] or [`Backend::Dx12`].
#[derive(Clone, Copy, Debug)]
pub struct WgpuDriver {
    /// The API.
    pub kind: Backend,
    /// The device functions that kernels can use.
    pub trust: Trust,
}

impl WgpuDriver {
    /// The backends that can exist on native systems.
    pub const KINDS: [Backend; 3] = [Backend::Metal, Backend::Vulkan, Backend::Dx12];

    /// Creates the driver of an API, with [`Trust::Measured`].
    pub fn new(kind: Backend) -> WgpuDriver {
        WgpuDriver { kind, trust: Trust::Measured }
    }

    /// Returns all adapters in the API's order, including software implementations.
    ///
    /// # Errors
    ///
    /// The API does not exist on this system, its loader is missing, or it lists no adapter.
    ///
    /// # Safety
    ///
    /// The contract of [`Driver::probe`] applies.
    pub unsafe fn devices(&self) -> Result<Vec<Arc<WgpuDevice>>> {
        let places = now(discovery::enumerate(self.kind))?;
        Ok(places.into_iter().map(|place| Arc::new(WgpuDevice::new(place, self.trust))).collect())
    }
}

impl Driver for WgpuDriver {
    fn kind(&self) -> Backend {
        self.kind
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        // SAFETY: as for this function.
        Ok(unsafe { self.devices() }?.into_iter().map(|device| device as Arc<dyn RawDevice>).collect())
    }
}
