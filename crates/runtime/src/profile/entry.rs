//! Names and sizes of profiled commands.

use std::fmt;
use std::sync::Arc;

/// Type of a profiled command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivityKind {
    /// A kernel launch.
    Kernel,
    /// A routine (library operation) of the device.
    Routine,
    /// A copy on the device.
    Copy,
    /// A fill with a repeated pattern.
    Fill,
    /// A copy from the host to the device.
    Upload,
    /// A copy from the device to the host.
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

/// Description of a command before it has run.
#[derive(Clone)]
pub(crate) struct Entry {
    pub kind: ActivityKind,
    pub name: Arc<str>,
    /// Bytes read and written; each buffer counts once for reading and once for writing.
    pub bytes: u64,
    /// Floating-point operations; `None` if unknown.
    pub flops: Option<u64>,
}

impl Entry {
    /// Creates an entry for a command without arithmetic.
    pub fn new(kind: ActivityKind, name: impl Into<Arc<str>>, bytes: u64) -> Entry {
        Entry { kind, name: name.into(), bytes, flops: Some(0) }
    }
}
