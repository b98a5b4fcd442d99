//! The memory pool of a device: freed blocks are kept for the next request, up to a cap.
//!
//! Without a bound, a loop with growing sizes would keep every size that it ever requested. So before a new request to the driver,
//! the blocks freed longest ago are returned to the driver until the reserved memory is at most [`KEPT_FACTOR`] times the peak held
//! by buffers plus [`KEPT_BYTES`]. A training loop requests the same sizes in each step and stays far below this bound.
//!
//! A free block carries the pending uses of its last owner. The next owner waits for them only if it works on another queue. The
//! pool's lock is never held during driver calls.

use std::sync::{Arc, Mutex, MutexGuard};

use panoply_device::{AllocId, RawDevice};
use panoply_ir::kernel::MAX_LAUNCH_SIZE;
use panoply_ir::{Error, ErrorKind, Result};

use super::free_list::{FreeBlock, FreeList};
use super::size_class;
use super::stats::{MemoryEstimate, MemoryStats, TaggedMemory};
use super::tag;
use super::tags::{Live, LiveId};
use crate::byte_size::human;
use crate::env::PoolSetting;
use crate::log;
use crate::queue::hazard::Uses;

/// The reserved memory is at most this multiple of the peak held by buffers,
const KEPT_FACTOR: u64 = 4;
/// plus this many bytes, so that programs with small memory never return any.
const KEPT_BYTES: u64 = 64 << 20;

pub(crate) struct Pool {
    raw: Arc<dyn RawDevice>,
    state: Mutex<State>,
}

/// Memory held by a buffer.
pub(crate) struct PoolAllocation {
    pub alloc: AllocId,
    pub uses: Uses,
    capacity: u64,
    requested: u64,
    live: LiveId,
}

struct State {
    keeps: bool,
    shelf: FreeList,
    live: Live,
    stats: MemoryStats,
    extent: Extent,
    /// Number of free operations.
    freed: u64,
    warned: bool,
}

/// Bytes held by buffers, rounded as reserved, and their peak.
#[derive(Clone, Copy, Default)]
struct Extent {
    held: u64,
    most: u64,
}

impl Extent {
    fn grow(&mut self, capacity: u64) {
        self.held = self.held.saturating_add(capacity);
        self.most = self.most.max(self.held);
    }

    /// Returns the bytes to free before a block of this capacity is allocated while `reserved` bytes are reserved. Frees to a quarter
    /// below the bound, so that the following allocations fit.
    fn excess(self, capacity: u64, reserved: u64) -> Option<u64> {
        let most = self.most.max(self.held.saturating_add(capacity));
        let bound = most.saturating_mul(KEPT_FACTOR).saturating_add(KEPT_BYTES);
        let reserved = reserved.saturating_add(capacity);
        (reserved > bound).then(|| reserved - bound + bound / 4)
    }
}

impl Pool {
    pub fn new(raw: Arc<dyn RawDevice>, setting: PoolSetting) -> Pool {
        let cap = if let PoolSetting::Cap(bytes) = setting { Some(bytes) } else { None };
        let state = State {
            keeps: setting != PoolSetting::Off,
            shelf: FreeList::default(),
            live: Live::default(),
            stats: MemoryStats { limit: cap, ..MemoryStats::default() },
            extent: Extent::default(),
            freed: 0,
            warned: false,
        };
        Pool { raw, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Allocates at least `requested` bytes.
    pub fn allocate(&self, requested: u64) -> Result<PoolAllocation> {
        let capacity = self.capacity(requested)?;
        let mut state = self.lock();
        if let Some(kept) = state.shelf.take(requested) {
            state.stats.reused += 1;
            return Ok(state.grant(kept, requested));
        }
        if !state.fits(capacity) {
            drop(state);
            self.trim();
            state = self.lock();
            if !state.fits(capacity) {
                return Err(self.cap_error(&state, requested));
            }
        }
        // Reserved before the driver call, so that two threads cannot both use the last bytes under the cap.
        let excess = state.take_excess(capacity);
        state.reserve(capacity);
        drop(state);
        self.give_back(excess);
        let answer = self.ask(capacity);
        let mut state = self.lock();
        match answer {
            Ok(alloc) => {
                state.warn_when_nearly_full(&self.raw);
                Ok(state.grant(FreeBlock { alloc, capacity, uses: Uses::default(), since: 0 }, requested))
            }
            Err(error) => {
                state.stats.reserved -= capacity;
                Err(if error.is_out_of_memory() { self.driver_error(&state, requested, error) } else { error })
            }
        }
    }

    /// Estimates the memory that these requests, made in order, need in addition to the memory now held.
    pub fn estimate(&self, requests: impl IntoIterator<Item = u64>) -> Result<MemoryEstimate> {
        // Queried before locking: the lock is never held during driver calls.
        let memory = self.raw.memory();
        let (mut shelf, MemoryStats { mut reserved, limit: cap, .. }, mut extent) = {
            let state = self.lock();
            (state.shelf.outline(), state.stats.clone(), state.extent)
        };
        let all = memory.free.map_or(memory.total.max(reserved), |free| reserved.saturating_add(free));
        let mut estimate =
            MemoryEstimate { limit: cap.map_or(all, |cap| cap.min(all)), fits: true, ..MemoryEstimate::default() };
        for requested in requests {
            let capacity = self.capacity(requested)?;
            estimate.buffers += 1;
            estimate.requested = estimate.requested.saturating_add(requested);
            if let Some(kept) = shelf.take(requested) {
                extent.grow(kept.capacity);
                continue;
            }
            if reserved.saturating_add(capacity) > estimate.limit {
                reserved -= shelf.take_all().map(|kept| kept.capacity).sum::<u64>();
            }
            if let Some(excess) = extent.excess(capacity, reserved) {
                reserved -= bytes_of(&shelf.take_oldest(excess));
            }
            reserved = reserved.saturating_add(capacity);
            extent.grow(capacity);
            estimate.fits &= reserved <= estimate.limit;
        }
        Ok(MemoryEstimate { reserved, ..estimate })
    }

    /// Returns the bytes to request from the driver if no free block fits.
    fn capacity(&self, requested: u64) -> Result<u64> {
        let most = self.raw.target().max_buffer_bytes.min(MAX_LAUNCH_SIZE);
        let rounded = size_class::rounded(requested).filter(|_| requested <= most);
        rounded.map(|capacity| capacity.min(most)).ok_or_else(|| {
            Error::mistake(format!(
                "a buffer of {} exceeds the maximum buffer size on {}, {}; split it",
                human(requested),
                self.raw.info().device_string(),
                human(most)
            ))
        })
    }

    /// Allocates from the driver; if it is out of memory, trims the pool and retries once.
    fn ask(&self, bytes: u64) -> Result<AllocId> {
        let first = self.raw.allocate(bytes);
        match &first {
            Err(error) if error.is_out_of_memory() && self.trim() > 0 => self.raw.allocate(bytes),
            _ => first,
        }
    }

    /// Takes back a buffer's memory.
    pub fn release(&self, mut grant: PoolAllocation) {
        grant.uses.detach_owner();
        let mut state = self.lock();
        let PoolAllocation { alloc, uses, capacity, requested, live } = grant;
        state.live.remove(live);
        state.stats.buffers -= 1;
        state.stats.allocated -= requested;
        state.extent.held -= capacity;
        if state.keeps {
            state.freed += 1;
            let since = state.freed;
            state.shelf.keep(FreeBlock { alloc, capacity, uses, since });
        } else {
            state.stats.reserved -= capacity;
            drop(state);
            self.raw.free(alloc);
        }
    }

    /// Returns all free blocks to the driver; returns the number of bytes.
    pub fn trim(&self) -> u64 {
        let mut state = self.lock();
        let kept: Vec<FreeBlock> = state.shelf.take_all().collect();
        state.stats.reserved -= bytes_of(&kept);
        drop(state);
        self.give_back(kept)
    }

    /// Returns these blocks to the driver; returns the number of bytes.
    fn give_back(&self, kept: Vec<FreeBlock>) -> u64 {
        let bytes = bytes_of(&kept);
        kept.into_iter().for_each(|kept| self.raw.free(kept.alloc));
        if bytes > 0 {
            log::debug(|| format!("{}: returned {} to the driver", self.raw.info().device_string(), human(bytes)));
        }
        bytes
    }

    pub fn stats(&self) -> MemoryStats {
        self.lock().stats.clone()
    }

    pub fn set_cap(&self, cap: Option<u64>) {
        self.lock().stats.limit = cap;
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&self) {
        let mut state = self.lock();
        state.stats.peak_allocated = state.stats.allocated;
        state.stats.peak_reserved = state.stats.reserved;
    }

    /// Returns the memory held, by tag, largest first.
    pub fn memory_by_tag(&self) -> Vec<TaggedMemory> {
        self.lock().live.by_tag()
    }

    fn cap_error(&self, state: &State, requested: u64) -> Error {
        let cap = state.stats.limit.unwrap_or(u64::MAX);
        let free = cap.saturating_sub(state.stats.reserved);
        let sentence = format!(
            "out of memory on {}: needs {}, {} free under the pool's cap of {}",
            self.raw.info().device_string(),
            human(requested),
            human(free),
            human(cap)
        );
        Error::new(ErrorKind::OutOfMemory, sentence + &largest(state) + "; drop buffers or raise the cap")
    }

    fn driver_error(&self, state: &State, requested: u64, cause: Error) -> Error {
        let memory = self.raw.memory();
        let free =
            memory.free.map_or(String::new(), |free| format!(", {} free of {}", human(free), human(memory.total)));
        let sentence =
            format!("out of memory on {}: needs {}{free}", self.raw.info().device_string(), human(requested))
                + &largest(state);
        Error::new(ErrorKind::OutOfMemory, sentence + "; drop buffers or use smaller ones").with_source(cause)
    }
}

fn bytes_of(kept: &[FreeBlock]) -> u64 {
    kept.iter().map(|kept| kept.capacity).sum()
}

/// `; largest: weights 40.0 MiB, untagged 2.0 MiB`.
fn largest(state: &State) -> String {
    let names: Vec<String> = state.live.by_tag().iter().take(3).map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!("; largest: {}", names.join(", ")) }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

impl State {
    fn fits(&self, capacity: u64) -> bool {
        let room = self.stats.limit.map_or(u64::MAX, |cap| cap.saturating_sub(self.stats.reserved));
        capacity <= room
    }

    fn reserve(&mut self, capacity: u64) {
        self.stats.reserved += capacity;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
    }

    /// Takes the free blocks beyond the bound, before a block of this capacity is allocated.
    fn take_excess(&mut self, capacity: u64) -> Vec<FreeBlock> {
        let Some(excess) = self.extent.excess(capacity, self.stats.reserved) else { return Vec::new() };
        let kept = self.shelf.take_oldest(excess);
        self.stats.reserved -= bytes_of(&kept);
        kept
    }

    fn grant(&mut self, kept: FreeBlock, requested: u64) -> PoolAllocation {
        self.extent.grow(kept.capacity);
        self.stats.buffers += 1;
        self.stats.allocations += 1;
        self.stats.allocated += requested;
        self.stats.peak_allocated = self.stats.peak_allocated.max(self.stats.allocated);
        let live = self.live.insert(requested, tag::current());
        PoolAllocation { alloc: kept.alloc, uses: kept.uses, capacity: kept.capacity, requested, live }
    }

    /// Warns once when more than 90 % of the cap, or of the device's memory, is reserved.
    fn warn_when_nearly_full(&mut self, raw: &Arc<dyn RawDevice>) {
        let total = self.stats.limit.unwrap_or_else(|| raw.memory().total);
        if !self.warned && total > 0 && self.stats.reserved > total / 10 * 9 {
            self.warned = true;
            log::warn(|| {
                let (taken, holders) = (human(self.stats.reserved), largest(self));
                format!("{}: {taken} of {} are in use{holders}", raw.info().device_string(), human(total))
            });
        }
    }
}
