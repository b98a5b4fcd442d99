//! Compiles programs through the disk cache and counts them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use panoply_device::{Program, ProgramId, RawDevice, SourceText};
use panoply_ir::Result;
use web_time::Instant;

use super::disk::{CacheLookup, Disk};
use crate::log;

/// Counts of compilations and cache hits of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCacheStats {
    /// Programs compiled by the device.
    pub compiled: u64,
    /// Programs loaded from disk in the device's binary format.
    pub disk_hits: u64,
    /// Requests served by this process's in-memory cache.
    pub memory_hits: u64,
    /// Kernel choices made by measurement (autotuning).
    pub autotuned: u64,
    /// Damaged or foreign files in the disk cache that were replaced.
    pub rejected_files: u64,
}

pub(super) struct Compiler {
    pub raw: Arc<dyn RawDevice>,
    pub disk: Disk,
    compiled: AtomicU64,
    loaded: AtomicU64,
    reused: AtomicU64,
    measured: AtomicU64,
    refused_files: AtomicU64,
}

impl Compiler {
    pub fn new(raw: Arc<dyn RawDevice>, cache_dir: Option<PathBuf>) -> Compiler {
        let [compiled, loaded, reused, measured, refused_files] = [const { AtomicU64::new(0) }; 5];
        Compiler { raw, disk: Disk::new(cache_dir), compiled, loaded, reused, measured, refused_files }
    }

    pub fn compile(&self, program: Program) -> Result<ProgramId> {
        let started = Instant::now();
        let name = match &program {
            Program::Text(text) | Program::Binary { text, .. } => text.entry.clone(),
            Program::Ir(kernel) => kernel.name.clone(),
            Program::Image(image) => image.entry.clone(),
            Program::Host(_) => "a function".to_string(),
        };
        let done = match program {
            Program::Text(text) => self.compile_text(text),
            Program::Ir(_) | Program::Binary { .. } | Program::Image(_) | Program::Host(_) => {
                self.compiled.fetch_add(1, Ordering::Relaxed);
                self.raw.compile(&program)
            }
        };
        log::debug(|| format!("{}: {name} took {:.1?}", self.raw.info().device_string(), started.elapsed()));
        done
    }

    /// Compiles source text, or loads its binary from the disk cache.
    fn compile_text(&self, text: SourceText) -> Result<ProgramId> {
        let entry = self.disk.entry(&text, &self.raw.target().name);
        match entry.as_ref().map_or(CacheLookup::Nothing, |entry| entry.load()) {
            CacheLookup::Binary(bytes) => {
                self.loaded.fetch_add(1, Ordering::Relaxed);
                return self.raw.compile(&Program::Binary { bytes, text });
            }
            CacheLookup::Damaged => {
                self.refused_files.fetch_add(1, Ordering::Relaxed);
            }
            CacheLookup::Nothing => {}
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

    pub fn count_reuse(&self) {
        self.reused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_measurement(&self) {
        self.measured.fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> ProgramCacheStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProgramCacheStats {
            compiled: read(&self.compiled),
            disk_hits: read(&self.loaded),
            memory_hits: read(&self.reused),
            autotuned: read(&self.measured),
            rejected_files: read(&self.refused_files),
        }
    }
}
