//! Counter of copies between the memories of devices.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counter for [`crate::mesh::Moves`].
#[derive(Debug, Default)]
pub(crate) struct MoveCounter {
    pub count: AtomicU64,
    pub bytes: AtomicU64,
}

impl MoveCounter {
    pub fn count(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
