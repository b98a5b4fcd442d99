//! The programs of a device: each kernel is compiled once.
//!
//! Two keys lead to a program. The function that builds a kernel leads there by one lookup, without building it again. The
//! kernel's hash leads there for whoever holds a kernel, and joins functions that build equal ones. A failure is not
//! remembered: trying again may work.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use panoply_device::{Device as RawDevice, Program};
use panoply_ir::kernel::Kernel;
use panoply_ir::verify::verify;
use panoply_ir::{Result, Verified};

use super::disk::{Disk, Found};
use super::prepared::Prepared;
use super::{limits, translate};
use crate::log;

/// How the programs of a device were come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Compiled by the device.
    pub compiled: u64,
    /// Found on disk in the device's own format.
    pub loaded: u64,
    /// Asked for again in this process.
    pub reused: u64,
    /// Files of the disk cache that were damaged or not ours, and were replaced.
    pub refused_files: u64,
}

pub(crate) struct Programs {
    raw: Arc<dyn RawDevice>,
    disk: Disk,
    built: RwLock<HashMap<usize, Arc<Prepared>, BuildHasherDefault<AddressHasher>>>,
    kernels: Mutex<HashMap<u128, Arc<Slot>>>,
    compiled: AtomicU64,
    loaded: AtomicU64,
    reused: AtomicU64,
    refused_files: AtomicU64,
}

/// Held while its program is compiled, so that who asks for the same waits and who asks for another does not.
type Slot = Mutex<Option<Arc<Prepared>>>;

impl Programs {
    pub fn new(raw: Arc<dyn RawDevice>, cache_dir: Option<PathBuf>) -> Programs {
        Programs {
            raw,
            disk: Disk::new(cache_dir),
            built: RwLock::default(),
            kernels: Mutex::default(),
            compiled: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            refused_files: AtomicU64::new(0),
        }
    }

    pub fn prepare_built(&self, build: fn() -> Result<Kernel>) -> Result<Arc<Prepared>> {
        let address = build as usize;
        if let Some(prepared) = self.built.read().unwrap_or_else(PoisonError::into_inner).get(&address) {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared.clone());
        }
        let prepared = self.prepare(&Arc::new(verify(build()?)?))?;
        self.built.write().unwrap_or_else(PoisonError::into_inner).insert(address, prepared.clone());
        Ok(prepared)
    }

    pub fn prepare(&self, kernel: &Arc<Verified<Kernel>>) -> Result<Arc<Prepared>> {
        let hash = panoply_ir::hash(kernel);
        let slot = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).entry(hash).or_default().clone();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = &*slot {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(prepared.clone());
        }
        let prepared = Arc::new(self.make(kernel)?);
        *slot = Some(prepared.clone());
        Ok(prepared)
    }

    fn make(&self, kernel: &Arc<Verified<Kernel>>) -> Result<Prepared> {
        limits::check(kernel, self.raw.target(), self.raw.info())?;
        let started = std::time::Instant::now();
        let (program, index_bits) = match translate::translate(kernel, &self.raw)? {
            Program::Text(text) => {
                let index_bits = text.signature.index_bits;
                (self.compile_text(text)?, index_bits)
            }
            other => {
                self.compiled.fetch_add(1, Ordering::Relaxed);
                (self.raw.compile(&other)?, u64::BITS)
            }
        };
        log::debug(|| {
            format!("{}: kernel {} ready in {:.1?}", self.raw.info().spelling(), kernel.name, started.elapsed())
        });
        Ok(Prepared::new(self.raw.clone(), kernel, program, index_bits))
    }

    /// Compiles text, unless its binary lies on disk.
    fn compile_text(&self, text: panoply_device::SourceText) -> Result<panoply_device::ProgramId> {
        let entry = self.disk.entry(&text, &self.raw.target().name);
        match entry.as_ref().map_or(Found::Nothing, |entry| entry.load()) {
            Found::Binary(bytes) => {
                self.loaded.fetch_add(1, Ordering::Relaxed);
                return self.raw.compile(&Program::Binary { bytes, text });
            }
            Found::Damaged => {
                self.refused_files.fetch_add(1, Ordering::Relaxed);
            }
            Found::Nothing => {}
        }
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let program = self.raw.compile(&Program::Text(text))?;
        if let Some(entry) = entry
            && let Some(binary) = self.raw.binary(program)
        {
            entry.store(&binary);
        }
        Ok(program)
    }

    pub fn counts(&self) -> ProgramCounts {
        ProgramCounts {
            compiled: self.compiled.load(Ordering::Relaxed),
            loaded: self.loaded.load(Ordering::Relaxed),
            reused: self.reused.load(Ordering::Relaxed),
            refused_files: self.refused_files.load(Ordering::Relaxed),
        }
    }

    /// Forgets the programs that nobody else holds.
    pub fn trim(&self) {
        self.built.write().unwrap_or_else(PoisonError::into_inner).clear();
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        kernels.retain(|_, slot| {
            Arc::strong_count(slot) > 1
                || slot.lock().is_ok_and(|slot| slot.as_ref().is_some_and(|prepared| Arc::strong_count(prepared) > 1))
        });
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
