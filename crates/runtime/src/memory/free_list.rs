//! Freed blocks kept for reuse, by size.

use std::collections::BTreeMap;

use panoply_device::AllocId;

use super::size_class::{self, CLASSES, LARGE};
use crate::queue::hazard::Uses;

/// A free block of memory.
pub(crate) struct FreeBlock {
    pub alloc: AllocId,
    pub capacity: u64,
    pub uses: Uses,
    /// Sequence number of the free operation in the pool.
    pub since: u64,
}

/// The free blocks, by size.
pub(crate) struct FreeList {
    small: [Vec<FreeBlock>; CLASSES],
    large: BTreeMap<u64, Vec<FreeBlock>>,
}

impl Default for FreeList {
    fn default() -> FreeList {
        FreeList { small: [const { Vec::new() }; CLASSES], large: BTreeMap::new() }
    }
}

impl FreeList {
    /// Takes a block that fits a request, if there is one.
    pub fn take(&mut self, requested: u64) -> Option<FreeBlock> {
        if requested <= LARGE {
            return self.small[size_class::small_class(requested)].pop();
        }
        let range = requested..=size_class::largest_fit(requested);
        let (&capacity, kept) = self.large.range_mut(range).next()?;
        let found = kept.pop();
        if kept.is_empty() {
            self.large.remove(&capacity);
        }
        found
    }

    /// Adds a block.
    pub fn keep(&mut self, kept: FreeBlock) {
        if kept.capacity <= LARGE {
            // The capacity is below its class's size only at the device's maximum buffer size, which bounds requests too.
            self.small[size_class::small_class(kept.capacity)].push(kept);
        } else {
            self.large.entry(kept.capacity).or_default().push(kept);
        }
    }

    /// Takes the oldest blocks that together have at least `bytes` bytes.
    pub fn take_oldest(&mut self, bytes: u64) -> Vec<FreeBlock> {
        let all = self.small.iter().flatten().chain(self.large.values().flatten());
        let mut ages: Vec<(u64, u64)> = all.map(|kept| (kept.since, kept.capacity)).collect();
        ages.sort_unstable();
        let mut left = bytes;
        let last = ages.into_iter().find(|(_, capacity)| {
            left = left.saturating_sub(*capacity);
            left == 0
        });
        let last = last.map_or(u64::MAX, |(since, _)| since);
        let mut taken = Vec::new();
        let mut drain = |all: &mut Vec<FreeBlock>| {
            taken.extend(all.extract_if(.., |kept| kept.since <= last));
        };
        self.small.iter_mut().for_each(&mut drain);
        self.large.values_mut().for_each(&mut drain);
        self.large.retain(|_, all| !all.is_empty());
        taken
    }

    /// Takes all blocks.
    pub fn take_all(&mut self) -> impl Iterator<Item = FreeBlock> {
        let FreeList { small, large } = std::mem::take(self);
        small.into_iter().flatten().chain(large.into_values().flatten())
    }

    /// Returns a copy with the same sizes, for estimates. Its memory must not be used.
    pub fn outline(&self) -> FreeList {
        let mut outline = FreeList::default();
        let all = self.small.iter().flatten().chain(self.large.values().flatten());
        all.for_each(|kept| outline.keep(FreeBlock { uses: Uses::default(), ..*kept }));
        outline
    }
}
