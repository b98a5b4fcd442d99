//! Statistics of the memory pool.

use std::fmt;

use crate::byte_size::human;

/// Memory statistics of a device for this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes requested by buffers that still exist.
    pub allocated: u64,
    /// Bytes allocated from the driver, in use or free in the pool.
    pub reserved: u64,
    /// Peak of `allocated`.
    pub peak_allocated: u64,
    /// Peak of `reserved`.
    pub peak_reserved: u64,
    /// Maximum of `reserved`; `None` if unlimited.
    pub limit: Option<u64>,
    /// Number of buffers that exist now.
    pub buffers: u64,
    /// Number of allocations so far.
    pub allocations: u64,
    /// Number of allocations served from the pool.
    pub reused: u64,
    /// Bytes copied from the host so far.
    pub uploaded: u64,
    /// Bytes copied to the host so far.
    pub downloaded: u64,
    /// Bytes of host memory that storages use in place; not counted in the other fields.
    pub in_place: u64,
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryStats { allocated, reserved, peak_allocated, buffers, allocations, reused, in_place, .. } = self;
        write!(
            f,
            "{} in {buffers} buffers (peak {}), {} reserved, {reused} of {allocations} allocations reused",
            human(*allocated),
            human(*peak_allocated),
            human(*reserved)
        )?;
        if *in_place > 0 { write!(f, ", {} of the host in place", human(*in_place)) } else { Ok(()) }
    }
}

/// Estimated memory of planned allocations; see [`crate::Device::estimate_memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Number of allocations.
    pub buffers: u64,
    /// Bytes requested.
    pub requested: u64,
    /// Value of [`MemoryStats::reserved`] with them: sizes are rounded up, and free blocks of the pool are used first.
    pub reserved: u64,
    /// Maximum of `reserved`: the cap, or the bytes reserved now plus the driver's free memory, whichever is less. If the driver does
    /// not report free memory, the device's total memory is used.
    pub limit: u64,
    /// True if every allocation fits.
    pub fits: bool,
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryEstimate { buffers, requested, reserved, limit: most, fits } = self;
        let verdict = if *fits { "fits" } else { "does not fit" };
        let [requested, reserved, most] = [requested, reserved, most].map(|bytes| human(*bytes));
        write!(f, "{requested} in {buffers} buffers {verdict}: {reserved} reserved of {most} available")
    }
}

/// Memory held by buffers of one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedMemory {
    /// Tag of [`crate::Device::with_memory_tag`]; `None` for buffers allocated outside of it.
    pub tag: Option<std::sync::Arc<str>>,
    /// Bytes requested by the buffers.
    pub bytes: u64,
    /// Number of buffers.
    pub buffers: u64,
}

impl fmt::Display for TaggedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.tag.as_deref().unwrap_or("untagged"), human(self.bytes))
    }
}
