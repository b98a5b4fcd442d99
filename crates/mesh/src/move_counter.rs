//! Counter of copies between the memories of devices.

use std::sync::atomic::{AtomicU64, Ordering};

use panoply_runtime::Backend;
use panoply_tensor::Device;

/// Counter for [`crate::mesh::Moves`].
#[derive(Debug, Default)]
pub(crate) struct MoveCounter {
    pub count: AtomicU64,
    pub bytes: AtomicU64,
    pub direct: AtomicU64,
}

impl MoveCounter {
    pub fn count(&self, bytes: u64, from: &Device, to: &Device) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let (from, to) = (from.info().kind, to.info().kind);
        if from == to && matches!(from, Backend::Cuda | Backend::Rocm) {
            self.direct.fetch_add(1, Ordering::Relaxed);
        }
    }
}
