//! A browser's GPU. It is asked for, opened and tried before there is a driver, because all of that takes giving way to the browser.

use std::sync::Arc;

use panoply_device::{Backend, Driver, RawDevice, Result};

use super::{Trust, WgpuDevice, discovery};

/// The GPU that a browser gave to this page.
pub struct BrowserDriver(Arc<WgpuDevice>);

impl BrowserDriver {
    /// Asks the browser.
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
