//! Memory of a device: allocations at simulated addresses.

use std::collections::BTreeMap;

/// The address of the first allocation, which is not a host address.
const FIRST: u64 = 0x7_0000_0000_0000;
/// The alignment of allocations.
const ALIGN: u64 = 512;
/// The initial contents of new memory, up to this number of bytes.
const GARBAGE: u8 = 0xA5;
const GARBAGE_BYTES: u64 = 1 << 20;

/// Allocations by address; addresses are never reused.
#[derive(Default)]
pub struct Memory {
    allocations: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Total size of the allocations in bytes.
    pub used: u64,
}

impl Memory {
    /// Allocates memory and returns its address; the caller has checked the limit.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let address = self.next.max(FIRST);
        // Allocations are separated by unmapped addresses.
        self.next = (address + bytes).next_multiple_of(ALIGN) + ALIGN;
        let mut storage = vec![0; bytes as usize];
        storage[..bytes.min(GARBAGE_BYTES) as usize].fill(GARBAGE);
        self.allocations.insert(address, storage);
        self.used += bytes;
        address
    }

    /// Frees the allocation at an address; returns false if there is none.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(storage) = self.allocations.remove(&address) else { return false };
        self.used -= storage.len() as u64;
        true
    }

    /// Returns the number of allocations.
    pub fn count(&self) -> usize {
        self.allocations.len()
    }

    /// Returns the bytes at an address, if they are inside one allocation.
    pub fn at(&mut self, address: u64, bytes: u64) -> Option<&mut [u8]> {
        let (start, storage) = self.allocations.range_mut(..=address).next_back()?;
        let offset = (address - start) as usize;
        storage.get_mut(offset..offset.checked_add(bytes as usize)?)
    }
}
