//! What a pool counts.

use std::fmt;

use crate::byte_size::human;

/// A device's memory as this process uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes that buffers asked for and still hold.
    pub allocated: u64,
    /// Bytes taken from the driver, whether a buffer holds them or the pool keeps them.
    pub reserved: u64,
    /// The most `allocated` has been.
    pub peak_allocated: u64,
    /// The most `reserved` has been.
    pub peak_reserved: u64,
    /// The most `reserved` may be; none leaves it to the driver.
    pub limit: Option<u64>,
    /// Buffers held now.
    pub buffers: u64,
    /// Buffers made so far.
    pub allocations: u64,
    /// How many of them the pool had at hand.
    pub reused: u64,
    /// Bytes copied from the host so far.
    pub uploaded: u64,
    /// Bytes copied to the host so far.
    pub downloaded: u64,
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryStats { allocated, reserved, peak_allocated, buffers, allocations, reused, .. } = self;
        write!(
            f,
            "{} in {buffers} buffers (peak {}), {} reserved, {reused} of {allocations} allocations reused",
            human(*allocated),
            human(*peak_allocated),
            human(*reserved)
        )
    }
}

/// What allocations that nobody made yet would need; see [`crate::Device::estimate_memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// How many they are.
    pub buffers: u64,
    /// Bytes they ask for.
    pub requested: u64,
    /// What [`MemoryStats::reserved`] would be with them: sizes are rounded up, and what the pool keeps is used first.
    pub reserved: u64,
    /// The most it can be: the cap, or what is reserved now with what the driver has free, whichever is less. Of drivers that do not tell, all
    /// of the device's memory.
    pub limit: u64,
    /// Whether each of them finds room.
    pub fits: bool,
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryEstimate { buffers, requested, reserved, limit: most, fits } = self;
        let verdict = if *fits { "fits" } else { "does not fit" };
        let [requested, reserved, most] = [requested, reserved, most].map(|bytes| human(*bytes));
        write!(f, "{requested} in {buffers} buffers {verdict}: {reserved} reserved of {most} that can be")
    }
}

/// Memory held by buffers of one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedMemory {
    /// What [`crate::Device::with_memory_tag`] was given; none for buffers made outside of it.
    pub tag: Option<std::sync::Arc<str>>,
    /// Bytes they asked for.
    pub bytes: u64,
    /// How many they are.
    pub buffers: u64,
}

impl fmt::Display for TaggedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.tag.as_deref().unwrap_or("untagged"), human(self.bytes))
    }
}
