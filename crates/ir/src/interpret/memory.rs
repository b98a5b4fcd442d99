//! Memories of the interpreter: elements are zero-extended bit patterns.

use crate::dtype::DType;

/// A memory.
pub(super) enum Store<'a> {
    /// A read-only buffer.
    Read(&'a [u8]),
    /// A buffer.
    Write(&'a mut [u8]),
    /// A shared array, or the concatenated private arrays of all work-items of a work-group.
    Array(Vec<u64>),
}

impl Store<'_> {
    /// Returns the bytes of a buffer; 0 for an array.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Store::Read(bytes) => bytes.len(),
            Store::Write(bytes) => bytes.len(),
            Store::Array(_) => 0,
        }
    }

    /// Returns the bits of an element, which must be in bounds.
    pub(super) fn get(&self, dtype: DType, at: usize) -> u64 {
        let bytes: &[u8] = match self {
            Store::Array(cells) => return cells[at],
            Store::Read(bytes) => bytes,
            Store::Write(bytes) => bytes,
        };
        let bytes = &bytes[at * dtype.bytes()..];
        match dtype.bytes() {
            1 if dtype == DType::Bool => u64::from(bytes[0] != 0),
            1 => bytes[0] as u64,
            2 => u16::from_ne_bytes([bytes[0], bytes[1]]) as u64,
            4 => u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as u64,
            _ => u64::from_ne_bytes(std::array::from_fn(|i| bytes[i])),
        }
    }

    /// Writes an element, which must be in bounds.
    pub(super) fn set(&mut self, dtype: DType, at: usize, bits: u64) {
        let size = dtype.bytes();
        match self {
            Store::Array(cells) => cells[at] = bits,
            Store::Read(_) => unreachable!("the verifier rejects writes to read-only buffers"),
            Store::Write(bytes) => {
                let bytes = &mut bytes[at * size..][..size];
                match size {
                    1 => bytes[0] = bits as u8,
                    2 => bytes.copy_from_slice(&(bits as u16).to_ne_bytes()),
                    4 => bytes.copy_from_slice(&(bits as u32).to_ne_bytes()),
                    _ => bytes.copy_from_slice(&bits.to_ne_bytes()),
                }
            }
        }
    }

    /// Fills an array with garbage.
    pub(super) fn scramble(&mut self, dtype: DType) {
        if let Store::Array(cells) = self {
            cells.fill(0xa5a5_a5a5_a5a5_a5a5 >> (64 - dtype.bits()));
        }
    }
}
