//! Memory of a device: allocations at addresses of their own.

use std::collections::BTreeMap;

/// Where the first allocation begins: no address of the host.
const FIRST: u64 = 0x7_0000_0000_0000;
/// What every allocation is aligned to.
const ALIGN: u64 = 512;
/// What new memory holds, up to so many bytes.
const GARBAGE: u8 = 0xA5;
const GARBAGE_BYTES: u64 = 1 << 20;

/// Allocations by their addresses, which are never used twice.
#[derive(Default)]
pub struct Memory {
    allocations: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Bytes held.
    pub used: u64,
}

impl Memory {
    /// The address of new memory; the caller has seen to it that there is room.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let address = self.next.max(FIRST);
        // Something unmapped lies between any two.
        self.next = (address + bytes).next_multiple_of(ALIGN) + ALIGN;
        let mut storage = vec![0; bytes as usize];
        storage[..bytes.min(GARBAGE_BYTES) as usize].fill(GARBAGE);
        self.allocations.insert(address, storage);
        self.used += bytes;
        address
    }

    /// Whether memory began at this address; it is gone now.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(storage) = self.allocations.remove(&address) else { return false };
        self.used -= storage.len() as u64;
        true
    }

    /// How many allocations there are.
    pub fn count(&self) -> usize {
        self.allocations.len()
    }

    /// The bytes at an address, if they all belong to one allocation.
    pub fn at(&mut self, address: u64, bytes: u64) -> Option<&mut [u8]> {
        let (start, storage) = self.allocations.range_mut(..=address).next_back()?;
        let offset = (address - start) as usize;
        storage.get_mut(offset..offset.checked_add(bytes as usize)?)
    }
}
