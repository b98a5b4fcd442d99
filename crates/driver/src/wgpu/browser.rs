//! A browser's GPU. It is requested, opened and tested before the driver exists, because all of that is asynchronous.

use std::sync::Arc;

use panoply_device::{Backend, Driver, RawDevice, Result};

use super::{Trust, WgpuDevice, discovery};

/// The GPU that a browser grants to this page.
pub struct BrowserDriver(Arc<WgpuDevice>);

impl BrowserDriver {
    /// Requests the GPU from the browser.
    ///
    /// # Errors
    ///
    /// The browser grants no GPU, or opening it fails.
    pub async fn ask() -> Result<BrowserDriver> {
        let place = discovery::enumerate(Backend::WebGpu).await?.swap_remove(0);
        let device = WgpuDevice::new(place, Trust::Measured);
        device.open().await?;
        Ok(BrowserDriver(Arc::new(device)))
    }
}

impl Driver for BrowserDriver {
    fn kind(&self) -> Backend {
        Backend::WebGpu
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        Ok(vec![self.0.clone()])
    }
}
