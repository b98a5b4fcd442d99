//! Profiler: named spans, device time per kernel, bytes and launches, as a table and as a trace for Perfetto and
//! `chrome://tracing`.

pub(crate) mod entry;
pub(crate) mod recording;
pub mod report;
mod trace;

use std::sync::Arc;

use panoply_ir::{Error, Result};

use crate::device::Device;
use recording::Recording;
use report::ProfileReport;

/// A running profile of a device. Dropping it without [`Profiler::finish`] discards the profile.
///
/// ```
/// use panoply_runtime::{Device, Profiler};
///
/// let device = Device::get("cpu")?;
/// let profile = Profiler::start(&device)?;
/// let x = profile.span("make", || device.buffer(&[1.0f32; 1000]))?;
/// x.to_vec()?;
/// let report = profile.finish()?;
/// assert_eq!(report.spans[0].name, "make");
/// println!("{report}");
/// # Ok::<(), panoply_runtime::Error>(())
/// ```
pub struct Profiler {
    device: Device,
    recording: Arc<Recording>,
}

impl Profiler {
    /// Starts recording all work submitted to a device. A device has at most one running profile.
    ///
    /// # Errors
    /// The device is already being profiled, or pending work failed.
    pub fn start(device: &Device) -> Result<Profiler> {
        device.synchronize()?;
        device.reset_peak_memory_stats();
        let recording = device.profiler().start();
        let recording = recording
            .ok_or_else(|| Error::mistake(format!("{device} is already being profiled; finish that one first")))?;
        Ok(Profiler { device: device.clone(), recording })
    }

    /// Runs `work` within a named span. Spans can nest.
    pub fn span<R>(&self, name: &str, work: impl FnOnce() -> R) -> R {
        self.recording.span(name, work)
    }

    /// Waits for all work and returns the report.
    ///
    /// # Errors
    /// Work on the device failed.
    pub fn finish(self) -> Result<ProfileReport> {
        self.device.synchronize()?;
        let wall = self.recording.now();
        self.device.profiler().stop(&self.recording);
        ProfileReport::of(&self.device, &self.recording, wall)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.device.profiler().stop(&self.recording);
    }
}
