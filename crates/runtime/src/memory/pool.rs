//! The one pool of a device: what is freed is kept for the next request, up to a cap, with counts.
//!
//! Kept memory carries the uses its last holder left pending, so that its next holder waits for them if it works on another
//! queue, and need not if it works on the same. The lock is never held while the driver works.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use panoply_device::{AllocId, Device as RawDevice};
use panoply_ir::{Error, ErrorKind, Result};

use super::live::{Live, LiveId};
use super::size_class::{self, CLASSES, LARGE};
use super::stats::{Holder, Stats};
use super::tag;
use crate::bytes::human;
use crate::env::PoolSetting;
use crate::log;
use crate::queue::hazard::Uses;

pub(crate) struct Pool {
    raw: Arc<dyn RawDevice>,
    state: Mutex<State>,
}

/// Memory that a buffer holds.
pub(crate) struct Grant {
    pub alloc: AllocId,
    pub uses: Uses,
    capacity: u64,
    requested: u64,
    live: LiveId,
}

/// Memory that nobody holds.
struct Kept {
    alloc: AllocId,
    capacity: u64,
    uses: Uses,
}

struct State {
    keeps: bool,
    small: [Vec<Kept>; CLASSES],
    large: BTreeMap<u64, Vec<Kept>>,
    live: Live,
    stats: Stats,
    warned: bool,
}

impl Pool {
    pub fn new(raw: Arc<dyn RawDevice>, setting: PoolSetting) -> Pool {
        let cap = if let PoolSetting::Cap(bytes) = setting { Some(bytes) } else { None };
        let state = State {
            keeps: setting != PoolSetting::Off,
            small: [const { Vec::new() }; CLASSES],
            large: BTreeMap::new(),
            live: Live::default(),
            stats: Stats { cap, ..Stats::default() },
            warned: false,
        };
        Pool { raw, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Memory of at least so many bytes.
    pub fn allocate(&self, requested: u64) -> Result<Grant> {
        let most = self.raw.target().max_buffer_bytes;
        let too_large = || {
            Error::mistake(format!(
                "a buffer of {} exceeds the largest on {}, {}; split it",
                human(requested),
                self.raw.info().spelling(),
                human(most)
            ))
        };
        if requested > most {
            return Err(too_large());
        }
        let capacity = size_class::rounded(requested).ok_or_else(too_large)?.min(most);
        let mut state = self.lock();
        if let Some(kept) = state.take(requested) {
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
        // Reserved before the driver is asked, so that two threads cannot both take the last of the cap.
        state.reserve(capacity);
        drop(state);
        let answer = self.ask(capacity);
        let mut state = self.lock();
        match answer {
            Ok(alloc) => {
                state.warn_when_nearly_full(&self.raw);
                Ok(state.grant(Kept { alloc, capacity, uses: Uses::default() }, requested))
            }
            Err(error) => {
                state.stats.reserved -= capacity;
                Err(if error.is_out_of_memory() { self.driver_error(&state, requested, error) } else { error })
            }
        }
    }

    /// Asks the driver, and once more after giving back all that is kept.
    fn ask(&self, bytes: u64) -> Result<AllocId> {
        let first = self.raw.allocate(bytes);
        match &first {
            Err(error) if error.is_out_of_memory() && self.trim() > 0 => self.raw.allocate(bytes),
            _ => first,
        }
    }

    /// Takes memory back from a buffer.
    pub fn release(&self, mut grant: Grant) {
        grant.uses.disown();
        let mut state = self.lock();
        let Grant { alloc, uses, capacity, requested, live } = grant;
        state.live.remove(live);
        state.stats.buffers -= 1;
        state.stats.allocated -= requested;
        if state.keeps {
            state.keep(Kept { alloc, capacity, uses });
        } else {
            state.stats.reserved -= capacity;
            drop(state);
            self.raw.free(alloc);
        }
    }

    /// Gives everything kept back to the driver; returns how many bytes that were.
    pub fn trim(&self) -> u64 {
        let mut state = self.lock();
        let kept = state.take_all();
        let bytes = kept.iter().map(|kept| kept.capacity).sum();
        state.stats.reserved -= bytes;
        drop(state);
        kept.into_iter().for_each(|kept| self.raw.free(kept.alloc));
        if bytes > 0 {
            log::debug(|| format!("{}: gave {} back to the driver", self.raw.info().spelling(), human(bytes)));
        }
        bytes
    }

    pub fn stats(&self) -> Stats {
        self.lock().stats.clone()
    }

    pub fn set_cap(&self, cap: Option<u64>) {
        self.lock().stats.cap = cap;
    }

    /// Starts the peaks from what is held now.
    pub fn reset_peaks(&self) {
        let mut state = self.lock();
        state.stats.peak_allocated = state.stats.allocated;
        state.stats.peak_reserved = state.stats.reserved;
    }

    /// Who holds memory, the largest first.
    pub fn holders(&self) -> Vec<Holder> {
        self.lock().live.holders()
    }

    fn cap_error(&self, state: &State, requested: u64) -> Error {
        let cap = state.stats.cap.unwrap_or(u64::MAX);
        let free = cap.saturating_sub(state.stats.reserved);
        let sentence = format!(
            "out of memory on {}: needs {}, {} free under the pool's cap of {}",
            self.raw.info().spelling(),
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
        let sentence = format!("out of memory on {}: needs {}{free}", self.raw.info().spelling(), human(requested))
            + &largest(state);
        Error::new(ErrorKind::OutOfMemory, sentence + "; drop buffers or use smaller ones").caused_by(cause)
    }
}

/// `; largest: weights 40.0 MiB, untagged 2.0 MiB`.
fn largest(state: &State) -> String {
    let names: Vec<String> = state.live.holders().iter().take(3).map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!("; largest: {}", names.join(", ")) }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

impl State {
    fn take(&mut self, requested: u64) -> Option<Kept> {
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

    fn keep(&mut self, kept: Kept) {
        if kept.capacity <= LARGE {
            // It may be shorter than its class where the device's largest buffer is, and then so is every request.
            self.small[size_class::small_class(kept.capacity)].push(kept);
        } else {
            self.large.entry(kept.capacity).or_default().push(kept);
        }
    }

    fn take_all(&mut self) -> Vec<Kept> {
        let small = self.small.iter_mut().flat_map(std::mem::take);
        let large = std::mem::take(&mut self.large).into_values().flatten();
        small.chain(large).collect()
    }

    fn fits(&self, capacity: u64) -> bool {
        let room = self.stats.cap.map_or(u64::MAX, |cap| cap.saturating_sub(self.stats.reserved));
        capacity <= room
    }

    fn reserve(&mut self, capacity: u64) {
        self.stats.reserved += capacity;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
    }

    fn grant(&mut self, kept: Kept, requested: u64) -> Grant {
        self.stats.buffers += 1;
        self.stats.allocations += 1;
        self.stats.allocated += requested;
        self.stats.peak_allocated = self.stats.peak_allocated.max(self.stats.allocated);
        let live = self.live.insert(requested, tag::current());
        Grant { alloc: kept.alloc, uses: kept.uses, capacity: kept.capacity, requested, live }
    }

    /// Says once that more than 90 % of the cap, or of the device's memory, is taken.
    fn warn_when_nearly_full(&mut self, raw: &Arc<dyn RawDevice>) {
        let total = self.stats.cap.unwrap_or_else(|| raw.memory().total);
        if !self.warned && total > 0 && self.stats.reserved > total / 10 * 9 {
            self.warned = true;
            log::warn(|| {
                let (taken, holders) = (human(self.stats.reserved), largest(self));
                format!("{}: {taken} of {} are taken{holders}", raw.info().spelling(), human(total))
            });
        }
    }
}
