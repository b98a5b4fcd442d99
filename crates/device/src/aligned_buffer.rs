//! Numbers in host memory at an address that allows devices to use them in place.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Alignment of the first value in bytes; see [`crate::RawDevice::adopt`].
const ALIGN: usize = 64;
/// Largest number of values before the first aligned one.
const MAX_SKIPPED: usize = ALIGN / size_of::<f32>() - 1;

/// f32 values in host memory that begin at a multiple of 64 bytes, as [`crate::RawDevice::adopt`] requires. A [`crate::HostBytes`] is
/// created from it without a copy.
#[derive(Default)]
pub struct AlignedBuffer {
    /// The values, after the `skipped` first ones. Memory of a vector does not move unless it grows.
    memory: Vec<f32>,
    skipped: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Changes the number of values, all of which are unspecified afterwards. Memory is allocated only if the buffer never was as long.
    pub fn resize(&mut self, len: usize) {
        if self.memory.len() < len + MAX_SKIPPED {
            // The old memory is released first.
            self.memory = Vec::new();
            self.memory = vec![0.0; len + MAX_SKIPPED];
            // A distance that is not known gives values that no device uses in place.
            self.skipped = Some(self.memory.as_ptr().align_offset(ALIGN)).filter(|at| *at <= MAX_SKIPPED).unwrap_or(0);
        }
        self.len = len;
    }
}

impl Deref for AlignedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.skipped..self.skipped + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.skipped..self.skipped + self.len]
    }
}

impl From<&[f32]> for AlignedBuffer {
    fn from(values: &[f32]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::default();
        buffer.resize(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} values)", self.len)
    }
}
