//! The programs of a device: each kernel is compiled once.
//!
//! Two keys lead to a program. The function that builds a kernel leads there by one lookup, without building it again. The
//! kernel's hash leads there for whoever holds a kernel, and joins functions that build equal ones. A failure is not
//! remembered: trying again may work.
//!
//! Programs that nobody but this cache holds are bounded: a number of the program or a shape that differs in each step makes a program for
//! each. When there are [`UNUSED`] of them, those not asked for longest go.

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
    /// By what was measured, the hash of the kernel that was the fastest; at [`MEASURED`] all are forgotten, and read from the disk or
    /// measured again.
    fastest: Mutex<HashMap<String, u128>>,
}

/// Programs that are kept though nobody uses them.
const UNUSED: usize = 1024;
/// Choices among kernels that are kept.
const MEASURED: usize = 4096;

/// Programs by the hash of their kernels.
#[derive(Default)]
struct Kernels {
    slots: HashMap<u128, (Arc<Slot>, u64)>,
    /// Counts what was asked for.
    asked: u64,
    /// At how many programs those without a user are looked for.
    next_sweep: usize,
}

impl Kernels {
    /// The slot of a key, and those that are kept no more.
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

    /// Half of the bound of what nobody uses stays, the latest, if there is more. The next sweep is when there may be too many again.
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

/// Whether only the cache holds a program, or what is left of one that could not be made.
fn is_unused(slot: &Arc<Slot>) -> bool {
    let alone =
        |slot: &Option<Arc<CompiledKernel>>| slot.as_ref().is_none_or(|prepared| Arc::strong_count(prepared) == 1);
    Arc::strong_count(slot) == 1 && slot.try_lock().is_ok_and(|slot| alone(&slot))
}

/// Held while its program is compiled, so that who asks for the same waits and who asks for another does not.
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

    pub fn prepare_package(&self, package: &ExternalKernel) -> Result<Arc<CompiledKernel>> {
        self.once(package.key(), |compiler| {
            limits::check_package(package, compiler.raw.target(), compiler.raw.info())?;
            CompiledKernel::packaged(compiler.clone(), package)
        })
    }

    fn once(
        &self,
        key: u128,
        make: impl FnOnce(&Arc<Compiler>) -> Result<CompiledKernel>,
    ) -> Result<Arc<CompiledKernel>> {
        let (slot, gone) = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).slot(key);
        // The device forgets them without the lock.
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

    /// The hash of the kernel that was found the fastest in what is described, here or by an earlier process.
    pub fn fastest(&self, described: &str) -> Option<u128> {
        let known = self.fastest.lock().unwrap_or_else(PoisonError::into_inner).get(described).copied();
        known.or_else(|| match self.compiler.disk.entry_for(described)?.load() {
            CacheLookup::Binary(bytes) => bytes.try_into().ok().map(u128::from_le_bytes),
            CacheLookup::Damaged | CacheLookup::Nothing => None,
        })
    }

    /// Keeps the hash of the kernel that was found the fastest.
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

    /// Forgets the programs that nobody else holds.
    pub fn trim(&self) {
        self.built.write().unwrap_or_else(PoisonError::into_inner).clear();
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = kernels.slots.extract_if(|_, (slot, _)| is_unused(slot)).collect();
        kernels.next_sweep = 0;
        drop(kernels);
        drop(gone);
    }
}

/// Addresses are unique already: one multiplication spreads them (Fibonacci hashing).
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
