//! Vulkan, Metal, DirectX 12 and a browser's WebGPU, through `wgpu`: four kinds of devices, one driver for all.
//!
//! `wgpu` finds the interface's library at run time and hides the differences; kernels are WGSL. What it does for graphics and for
//! programs it does not trust is switched off: bounds are proven before, and where the interface is Vulkan the program is
//! translated here ([`spirv`]), because only so a product and a sum can be kept apart.
//!
//! In the order of a program's life: `discovery` (which adapters are here) → `info` (what they can do) → `open` (the interface's own
//! device, and its errors) → `device` (the contract) → `program` (text to pipelines; a user's own through `foreign`) → `encode` (steps to commands) → `submit` →
//! `ticket` (who waits for what). [`arithmetic`] asks a device which of its float functions are exact, [`subgroups`] whether its subgroups are of consecutive work-items.
//!
//! Invariants: the interface has one queue, so all queues of the contract are that one, in the order of submission; every call
//! that can fail stands in error scopes, which belong to the calling thread, and nothing panics on an error; an id is looked up
//! before it is used. In a browser nothing may wait: adapter and device are there before the driver is (`browser`), what would
//! wait is an error, tickets are told by callbacks, and errors come to the next who asks.

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

/// Finds the devices of one interface: [`Backend::Vulkan`], [`Backend::Metal`] or [`Backend::Dx12`].
#[derive(Clone, Copy, Debug)]
pub struct WgpuDriver {
    /// Which.
    pub kind: Backend,
    /// Which of a device's own functions kernels may use.
    pub trust: Trust,
}

impl WgpuDriver {
    /// The kinds there can be on this system.
    pub const KINDS: [Backend; 3] = [Backend::Metal, Backend::Vulkan, Backend::Dx12];

    /// The driver of an interface.
    pub fn new(kind: Backend) -> WgpuDriver {
        WgpuDriver { kind, trust: Trust::Measured }
    }

    /// Every adapter in the interface's order, software ones included.
    ///
    /// # Safety
    ///
    /// As for [`Driver::probe`].
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
