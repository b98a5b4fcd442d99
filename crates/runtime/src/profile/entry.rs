//! What a profile calls a piece of work.

use std::fmt;
use std::sync::Arc;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivityKind {
    /// A launch.
    Kernel,
    /// A routine of the device.
    Routine,
    /// A copy on the device.
    Copy,
    /// A repeated pattern.
    Fill,
    /// Bytes from the host.
    Upload,
    /// Bytes to the host.
    Download,
}

impl fmt::Display for ActivityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ActivityKind::Kernel => "kernel",
            ActivityKind::Routine => "routine",
            ActivityKind::Copy => "copy",
            ActivityKind::Fill => "fill",
            ActivityKind::Upload => "upload",
            ActivityKind::Download => "download",
        })
    }
}

/// One step, before it has run.
#[derive(Clone)]
pub(crate) struct Entry {
    pub what: ActivityKind,
    pub name: Arc<str>,
    /// Bytes it reads and writes, each buffer counted once for either.
    pub bytes: u64,
    /// Floating-point operations, where they can be told.
    pub flops: Option<u64>,
}

impl Entry {
    /// Work without arithmetic.
    pub fn new(what: ActivityKind, name: impl Into<Arc<str>>, bytes: u64) -> Entry {
        Entry { what, name: name.into(), bytes, flops: Some(0) }
    }
}
