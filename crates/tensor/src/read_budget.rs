//! Limit on the memory of a single read, counted before allocation. All readers of files use it: those of data, models and properties.
//!
//! A few bytes of a compressed or dictionary-encoded file can expand to gigabytes, and a header can claim any length. Every reader counts
//! the bytes here before it allocates them: decompressed bytes, table cells, numbers, decoded images. The default limit of a read is
//! [`MIN_LIMIT`] or, if larger, [`BYTES_PER_BYTE`] times the size of its files on disk, which no uncompressed file reaches.
//! `PANOPLY_READ_LIMIT` sets another limit.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};

#[cfg(unix)]
use panoply_runtime::{parallel_map, prefer_huge_pages};

use crate::{Error, Result};

/// Minimum default limit in bytes: 4 GiB.
const MIN_LIMIT: u64 = 1 << 32;

/// Default limit for each byte on disk. A table of text with one character per cell takes about twenty.
const BYTES_PER_BYTE: u64 = 32;

/// Maximum size of a chunk when reading a file of unknown length.
const MAX_AT_ONCE: u64 = 1 << 26;

/// Minimum size of a file that several threads read, in bytes: the first use of memory takes longer than the copy, and is done in parallel.
const PARALLEL: u64 = 1 << 24;

/// Bytes that a thread reads at a time.
#[cfg(unix)]
const PART: usize = 1 << 22;

/// Reads a file of this length with several threads. `None` if that fails, or the file has another length: a thread alone reads it, or gives
/// the error. All read the same open file, which another process can replace by a new one of the same name.
#[cfg(unix)]
fn read_in_parts(file: &File, length: u64) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;

    let length = usize::try_from(length).ok()?;
    // Zeroed memory has no pages yet. Its allocation would not return an error.
    Vec::<u8>::new().try_reserve_exact(length).ok()?;
    let mut bytes = vec![0; length];
    prefer_huge_pages(&mut bytes);
    let parts: Vec<(u64, Mutex<&mut [u8]>)> =
        bytes.chunks_mut(PART).enumerate().map(|(at, part)| ((at * PART) as u64, Mutex::new(part))).collect();
    let read = |(start, part): &(u64, Mutex<&mut [u8]>)| {
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.read_exact_at(&mut part, *start).is_ok())
    };
    let read = parallel_map(&parts, read).ok()?;
    drop(parts);
    let is_whole = read.iter().all(|read| *read) && file.metadata().ok()?.len() == length as u64;
    is_whole.then_some(bytes)
}

/// Other systems read with one thread.
#[cfg(not(unix))]
fn read_in_parts(_: &File, _: u64) -> Option<Vec<u8>> {
    None
}

/// Remaining memory budget of a read, whose threads share it.
#[derive(Debug)]
pub struct ReadBudget {
    limit: u64,
    used: AtomicU64,
    is_exceeded: AtomicBool,
}

impl ReadBudget {
    /// Creates a budget of this many bytes.
    pub fn new(limit: u64) -> ReadBudget {
        ReadBudget { limit, used: AtomicU64::new(0), is_exceeded: AtomicBool::new(false) }
    }

    /// Returns the budget for files of this size on disk: `PANOPLY_READ_LIMIT`, or the default.
    ///
    /// # Errors
    /// If `PANOPLY_READ_LIMIT` is invalid.
    pub fn for_size(bytes: u64) -> Result<ReadBudget> {
        let asked = panoply_runtime::env::read_limit()?;
        Ok(ReadBudget::new(asked.unwrap_or(MIN_LIMIT.max(bytes.saturating_mul(BYTES_PER_BYTE)))))
    }

    /// Returns the budget for this file; a folder counts as empty until its files are known.
    ///
    /// # Errors
    /// If the file does not exist, or `PANOPLY_READ_LIMIT` is invalid.
    pub fn for_file(path: &Path) -> Result<ReadBudget> {
        let file = std::fs::metadata(path);
        let file = file.map_err(|error| Error::io(format!("cannot read {}", path.display()), error))?;
        ReadBudget::for_size(if file.is_file() { file.len() } else { 0 })
    }

    /// Reserves bytes that are about to be allocated.
    ///
    /// # Errors
    /// If they exceed the rest of the budget.
    pub fn take(&self, bytes: u64, path: &Path) -> Result<()> {
        let within = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map(drop).map_err(|_| {
            self.is_exceeded.store(true, Ordering::Relaxed);
            self.exceeded(path)
        })
    }

    /// Returns true if more than the budget was requested. Parsers whose own errors are texts report [`ReadBudget::exceeded`] then.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }

    /// Returns the error for a file whose reading takes more than the budget.
    pub fn exceeded(&self, path: &Path) -> Error {
        let message = format!("{}: reading it takes more than {} of memory", path.display(), human(self.limit));
        Error::corrupt(message)
            .note("if its content is trusted, set PANOPLY_READ_LIMIT to more, such as PANOPLY_READ_LIMIT=64GiB")
    }

    /// [`ReadBudget::take`] for `count` values of `bytes` bytes each.
    ///
    /// # Errors
    /// As for [`ReadBudget::take`].
    pub fn take_values(&self, count: usize, bytes: usize, path: &Path) -> Result<()> {
        self.take((count as u64).saturating_mul(bytes as u64), path)
    }

    /// Returns bytes that were freed.
    pub fn give_back(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        // It never fails.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the rest of the budget in bytes.
    pub fn left(&self) -> u64 {
        self.limit - self.used.load(Ordering::Relaxed)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// If the file cannot be read, or as for [`ReadBudget::take`].
    pub fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let is_large = (PARALLEL..self.left()).contains(&length);
        if let Some(bytes) = is_large.then(|| read_in_parts(&file, length)).flatten() {
            self.take(length, path)?;
            return Ok(bytes);
        }
        self.read_chunks(file, length.saturating_add(1), path, failed)
    }

    /// Reads to the end of a stream of unknown length.
    ///
    /// # Errors
    /// `failed` of an error of the stream, or as for [`ReadBudget::take`].
    pub fn read_to_end(
        &self,
        reader: impl Read,
        path: &Path,
        failed: impl Fn(std::io::Error) -> Error,
    ) -> Result<Vec<u8>> {
        self.read_chunks(reader, 1 << 16, path, failed)
    }

    fn read_chunks(
        &self,
        mut reader: impl Read,
        mut wanted: u64,
        path: &Path,
        failed: impl Fn(std::io::Error) -> Error,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            // One byte more than the budget distinguishes a stream that ends there from a longer one.
            let chunk = wanted.min(self.left().saturating_add(1));
            let before = bytes.len();
            if bytes.try_reserve_exact(chunk as usize).is_err() {
                return Err(Error::corrupt(format!("{}: not enough memory for its content", path.display())));
            }
            reader.by_ref().take(chunk).read_to_end(&mut bytes).map_err(&failed)?;
            let read = (bytes.len() - before) as u64;
            self.take(read, path)?;
            if read < chunk {
                return Ok(bytes);
            }
            wanted = wanted.saturating_mul(2).min(MAX_AT_ONCE);
        }
    }
}

/// Formats bytes in binary units, without a fraction for whole numbers.
fn human(bytes: u64) -> String {
    for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            let whole = bytes.is_multiple_of(unit);
            let value = bytes as f64 / unit as f64;
            return if whole { format!("{value} {name}") } else { format!("{value:.1} {name}") };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_those_of_one_open_file() {
        let path = std::env::temp_dir().join(format!("panoply-parts-{}", std::process::id()));
        let content: Vec<u8> =
            (0..2 * PART + 5).map(|at| (at as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        // Another file of the same name and length does not mix with it.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, vec![0; content.len()]).unwrap();
        assert!(read_in_parts(&file, content.len() as u64).unwrap() == content);
        for length in [content.len() - 1, content.len() + 1] {
            assert_eq!(read_in_parts(&file, length as u64), None);
        }
        std::fs::remove_file(path).unwrap();
    }
}
