//! Counter of copies between the memories of devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use panoply_runtime::Backend;
use panoply_tensor::Device;

use crate::events::{EventKind, TimelineSwitch};

/// Counter for [`crate::mesh::Moves`].
#[derive(Debug, Default)]
pub(crate) struct MoveCounter {
    pub count: AtomicU64,
    pub bytes: AtomicU64,
    pub direct: AtomicU64,
    /// The timeline that shows the copies.
    pub timeline: Arc<TimelineSwitch>,
}

impl MoveCounter {
    /// Counts a copy of this many bytes, which `copy` does.
    pub fn count<R>(&self, bytes: u64, from: &Device, to: &Device, copy: impl FnOnce() -> R) -> R {
        let event = self.timeline.begin();
        let copied = copy();
        if let Some(event) = event {
            let (from, to) = (from.device_string(), to.device_string());
            event.end(format!("{to} transfers"), EventKind::Transfer, format!("{from} to {to}"), bytes);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let (from, to) = (from.info().kind, to.info().kind);
        if from == to && matches!(from, Backend::Cuda | Backend::Rocm) {
            self.direct.fetch_add(1, Ordering::Relaxed);
        }
        copied
    }
}
