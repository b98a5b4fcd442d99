//! In-memory program cache of a device: each kernel is compiled once.
//!
//! Two keys lead to a program. The address of a build function finds it with one lookup, without building the kernel again. The
//! kernel's hash finds it for a given kernel, and unifies functions that build equal kernels. Failures are not cached: a retry can
//! succeed.
//!
//! The number of programs held only by this cache is bounded, because a scalar or shape that changes in each step produces a new
//! program each time. Above [`UNUSED`] such programs, the least recently used are dropped.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use panoply_device::RawDevice;
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify;
use panoply_ir::{Result, Verified};

use super::compiled_kernel::CompiledKernel;
use super::compiler::{Compiler, ProgramCacheStats};
use super::disk::CacheLookup;
use super::external_kernel::ExternalKernel;
use super::limits;

pub(crate) struct Programs {
    compiler: Arc<Compiler>,
    built: RwLock<HashMap<usize, Arc<CompiledKernel>, BuildHasherDefault<AddressHasher>>>,
    kernels: Mutex<Kernels>,
    /// Hash of the fastest kernel, by description of the measurement. At [`MEASURED`] entries the map is cleared; choices are then read
    /// from disk or measured again.
    fastest: Mutex<HashMap<String, u128>>,
}

/// Maximum number of unused programs in the cache.
const UNUSED: usize = 1024;
/// Maximum number of autotuning choices in memory.
const MEASURED: usize = 4096;

/// Programs by the hash of their kernels.
#[derive(Default)]
struct Kernels {
    slots: HashMap<u128, (Arc<Slot>, u64)>,
    /// Number of lookups so far, used as the LRU clock.
    asked: u64,
    /// Number of programs at which the next sweep for unused ones runs.
    next_sweep: usize,
}

impl Kernels {
    /// Returns the slot of a key, and the evicted slots.
    fn slot(&mut self, key: u128) -> (Arc<Slot>, Vec<Arc<Slot>>) {
        self.asked += 1;
        let asked = self.asked;
        if let Some((slot, last)) = self.slots.get_mut(&key) {
            *last = asked;
            return (slot.clone(), Vec::new());
        }
        let gone = if self.slots.len() >= self.next_sweep { self.sweep() } else { Vec::new() };
        let slot = Arc::<Slot>::default();
        self.slots.insert(key, (slot.clone(), asked));
        (slot, gone)
    }

    /// Evicts the least recently used half if [`UNUSED`] or more programs are unused, and sets the size at which the next sweep runs.
    fn sweep(&mut self) -> Vec<Arc<Slot>> {
        let mut unused: Vec<(u64, u128)> =
            self.slots.iter().filter(|(_, (slot, _))| is_unused(slot)).map(|(key, (_, last))| (*last, *key)).collect();
        unused.sort_unstable();
        let most = if unused.len() < UNUSED { unused.len() } else { UNUSED / 2 };
        let gone = &unused[..unused.len() - most];
        let gone = gone.iter().filter_map(|(_, key)| self.slots.remove(key)).map(|(slot, _)| slot).collect();
        self.next_sweep = self.slots.len() + UNUSED - most;
        gone
    }
}

/// Returns true if the cache holds the only reference to a program, or if its compilation failed.
fn is_unused(slot: &Arc<Slot>) -> bool {
    let alone =
        |slot: &Option<Arc<CompiledKernel>>| slot.as_ref().is_none_or(|prepared| Arc::strong_count(prepared) == 1);
    Arc::strong_count(slot) == 1 && slot.try_lock().is_ok_and(|slot| alone(&slot))
}

/// Locked while its program is compiled: requests for the same program wait, others do not.
type Slot = Mutex<Option<Arc<CompiledKernel>>>;

impl Programs {
    pub fn new(raw: Arc<dyn RawDevice>, cache_dir: Option<PathBuf>) -> Programs {
        let compiler = Arc::new(Compiler::new(raw, cache_dir));
        Programs { compiler, built: RwLock::default(), kernels: Mutex::default(), fastest: Mutex::default() }
    }

    pub fn prepare_built(&self, build: fn() -> Result<Kernel>) -> Result<Arc<CompiledKernel>> {
        let address = build as usize;
        if let Some(prepared) = self.built.read().unwrap_or_else(PoisonError::into_inner).get(&address) {
            self.compiler.count_reuse();
            return Ok(prepared.clone());
        }
        let prepared = self.prepare(&Arc::new(verify(build()?)?))?;
        self.built.write().unwrap_or_else(PoisonError::into_inner).insert(address, prepared.clone());
        Ok(prepared)
    }

    pub fn prepare(&self, kernel: &Arc<Verified<Kernel>>) -> Result<Arc<CompiledKernel>> {
        self.once(panoply_ir::hash(kernel), |compiler| {
            limits::check(kernel, compiler.raw.target(), compiler.raw.info())?;
            CompiledKernel::new(compiler.clone(), kernel)
        })
    }

    pub fn load_external(&self, kernel: &ExternalKernel) -> Result<Arc<CompiledKernel>> {
        self.once(kernel.key(), |compiler| {
            limits::check_external(kernel, compiler.raw.target(), compiler.raw.info())?;
            CompiledKernel::external(compiler.clone(), kernel)
        })
    }

    fn once(
        &self,
        key: u128,
        make: impl FnOnce(&Arc<Compiler>) -> Result<CompiledKernel>,
    ) -> Result<Arc<CompiledKernel>> {
        let (slot, gone) = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).slot(key);
        // Releases the evicted programs after the lock.
        drop(gone);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = &*slot {
            self.compiler.count_reuse();
            return Ok(prepared.clone());
        }
        let prepared = Arc::new(make(&self.compiler)?);
        *slot = Some(prepared.clone());
        Ok(prepared)
    }

    /// Returns the hash of the fastest kernel for this description, as measured by this or an earlier process.
    pub fn fastest(&self, described: &str) -> Option<u128> {
        let known = self.fastest.lock().unwrap_or_else(PoisonError::into_inner).get(described).copied();
        known.or_else(|| match self.compiler.disk.entry_for(described)?.load() {
            CacheLookup::Binary(bytes) => bytes.try_into().ok().map(u128::from_le_bytes),
            CacheLookup::Damaged | CacheLookup::Nothing => None,
        })
    }

    /// Saves the hash of the fastest kernel for this description.
    pub fn keep_fastest(&self, described: String, hash: u128) {
        self.compiler.count_measurement();
        if let Some(entry) = self.compiler.disk.entry_for(&described) {
            entry.store(&hash.to_le_bytes());
        }
        let mut fastest = self.fastest.lock().unwrap_or_else(PoisonError::into_inner);
        if fastest.len() >= MEASURED {
            fastest.clear();
        }
        fastest.insert(described, hash);
    }

    pub fn counts(&self) -> ProgramCacheStats {
        self.compiler.counts()
    }

    /// Drops the programs that only the cache holds.
    pub fn trim(&self) {
        self.built.write().unwrap_or_else(PoisonError::into_inner).clear();
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = kernels.slots.extract_if(|_, (slot, _)| is_unused(slot)).collect();
        kernels.next_sweep = 0;
        drop(kernels);
        drop(gone);
    }
}

/// Hasher for unique addresses: one multiplication (Fibonacci hashing).
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(*byte as usize));
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
