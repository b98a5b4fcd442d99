//! Immutable bytes in host memory that devices may use in place.

use std::fmt;

use memmap2::Mmap;

use crate::aligned_buffer::AlignedBuffer;

/// Immutable bytes in host memory: those of a mapped file, of a vector or of an aligned buffer.
///
/// The bytes of a mapped file are those of the file. If another process overwrites it, they change; if it truncates it, an access to
/// bytes beyond the new end terminates this process.
pub struct HostBytes(Holder);

enum Holder {
    Map(Mmap),
    Vec(Vec<u8>),
    Aligned(AlignedBuffer),
}

impl HostBytes {
    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Holder::Map(map) => map,
            Holder::Vec(bytes) => bytes,
            Holder::Aligned(values) => bytemuck::cast_slice(values),
        }
    }

    /// Returns the aligned buffer from which the bytes were created, `None` if they were not.
    pub fn into_aligned_buffer(self) -> Option<AlignedBuffer> {
        match self.0 {
            Holder::Aligned(values) => Some(values),
            Holder::Map(_) | Holder::Vec(_) => None,
        }
    }

    /// Releases the memory of the whole pages of a mapped file in a range; the next access reads them from the file again. Other
    /// memory is kept.
    #[cfg_attr(unix, allow(unsafe_code, reason = "advice whose effect on other mappings would be undefined"))]
    pub fn release(&self, range: std::ops::Range<usize>) {
        #[cfg(unix)]
        if let Holder::Map(map) = &self.0 {
            const PAGE: usize = 1 << 16;
            let (start, end) = (range.start.next_multiple_of(PAGE), range.end.min(map.len()) / PAGE * PAGE);
            if start < end {
                // SAFETY: the map is of a file and only read, so that pages which are dropped come back with the same bytes.
                // It is only advice: if it is rejected, the pages stay.
                let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Returns true if the bytes are those of a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Holder::Map(_))
    }
}

impl From<Mmap> for HostBytes {
    fn from(map: Mmap) -> HostBytes {
        HostBytes(Holder::Map(map))
    }
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> HostBytes {
        HostBytes(Holder::Vec(bytes))
    }
}

impl From<AlignedBuffer> for HostBytes {
    fn from(values: AlignedBuffer) -> HostBytes {
        HostBytes(Holder::Aligned(values))
    }
}

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_mapped() { "mapped" } else { "in memory" };
        write!(f, "HostBytes({} bytes, {kind})", self.as_slice().len())
    }
}
