//! What a profile calls a piece of work.

use std::fmt;
use std::sync::Arc;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
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

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            What::Kernel => "kernel",
            What::Routine => "routine",
            What::Copy => "copy",
            What::Fill => "fill",
            What::Upload => "upload",
            What::Download => "download",
        })
    }
}

/// One step, before it has run.
#[derive(Clone)]
pub(crate) struct Entry {
    pub what: What,
    pub name: Arc<str>,
    /// Bytes it reads and writes, each buffer counted once for either.
    pub bytes: u64,
    /// Floating-point operations, where they can be told.
    pub flops: Option<u64>,
}

impl Entry {
    /// Work without arithmetic.
    pub fn new(what: What, name: impl Into<Arc<str>>, bytes: u64) -> Entry {
        Entry { what, name: name.into(), bytes, flops: Some(0) }
    }
}
