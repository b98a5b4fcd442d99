//! Where the time went: named spans, time on the device for each kernel, bytes and launches, as a table and as a trace that
//! Perfetto and `chrome://tracing` open.

pub(crate) mod entry;
pub(crate) mod recording;
pub mod report;
mod trace;

use std::sync::Arc;

use panoply_ir::{Error, Result};

use crate::device::Device;
use recording::Recording;
use report::ProfileReport;

/// A profile of a device under way. Dropped unfinished, it ends without a report.
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
    /// Starts recording all work that is submitted to a device. One profile of a device runs at a time.
    pub fn start(device: &Device) -> Result<Profiler> {
        device.synchronize()?;
        device.reset_peak_memory_stats();
        let recording = device.profiler().start();
        let recording = recording
            .ok_or_else(|| Error::mistake(format!("{device} is being profiled already; finish that one first")))?;
        Ok(Profiler { device: device.clone(), recording })
    }

    /// Runs work within a named span; spans may nest.
    pub fn span<R>(&self, name: &str, work: impl FnOnce() -> R) -> R {
        self.recording.span(name, work)
    }

    /// Waits for all work, and adds up.
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
