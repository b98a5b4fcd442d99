//! Immutable bytes in host memory that devices may use in place.

use std::fmt;

use memmap2::Mmap;

/// Immutable bytes in host memory: those of a mapped file, or of a vector.
///
/// The bytes of a mapped file are those of the file. If another process overwrites it, they change; if it truncates it, an access to
/// bytes beyond the new end terminates this process.
pub struct HostBytes(Holder);

enum Holder {
    Map(Mmap),
    Vec(Vec<u8>),
}

impl HostBytes {
    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Holder::Map(map) => map,
            Holder::Vec(bytes) => bytes,
        }
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

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_mapped() { "mapped" } else { "in a vector" };
        write!(f, "HostBytes({} bytes, {kind})", self.as_slice().len())
    }
}
