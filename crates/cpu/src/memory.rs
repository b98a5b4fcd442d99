//! Host memory as device memory, and the tables that handles refer to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use panoply_device::{Error, ErrorKind, HostBytes, Region, Result};
use panoply_host::host_info;
use panoply_host::huge_pages::Pages;

/// Alignment of allocations in bytes: a cache line, which is also the widest vector.
const ALIGN: usize = 64;
/// Size in bytes from which an allocation is checked against the available memory. The operating system overcommits
/// memory and ends the process when it runs out on first access.
const LARGE: u64 = 64 << 20;

/// A block of host memory.
#[derive(Debug)]
pub struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
    holder: Holder,
}

/// Owner of the memory of an allocation.
#[derive(Debug)]
enum Holder {
    Allocator,
    /// Held for its drop.
    #[expect(dead_code, reason = "it is held, not read")]
    Pages(Pages),
    /// Read-only.
    #[expect(dead_code, reason = "it is held, not read")]
    Host(Arc<HostBytes>),
}

// SAFETY: it is plain memory; code that makes a pointer into it is responsible for data races.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if there is not enough memory.
    pub fn new(bytes: u64) -> Result<Allocation> {
        if bytes >= LARGE
            && let Some(available) = host_info::Memory::now().available
            && bytes > available
        {
            return Err(out_of_memory(bytes, Some(available)));
        }
        let layout = usize::try_from(bytes.max(1)).ok().and_then(|bytes| Layout::from_size_align(bytes, ALIGN).ok());
        let layout = layout.ok_or_else(|| out_of_memory(bytes, None))?;
        if let Some(pages) = Pages::huge(layout.size()) {
            return Ok(Allocation { start: pages.start, layout, holder: Holder::Pages(pages) });
        }
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or_else(|| out_of_memory(bytes, host_info::Memory::now().available))?;
        Ok(Allocation { start, layout, holder: Holder::Allocator })
    }

    /// Takes host bytes as memory that is only read; `None` if they are empty or not aligned to 64 bytes.
    pub fn adopt(bytes: &Arc<HostBytes>) -> Option<Allocation> {
        let slice = bytes.as_slice();
        let start = NonNull::new(slice.as_ptr().cast_mut())?;
        let layout = Layout::from_size_align(slice.len(), ALIGN).ok()?;
        let is_usable = !slice.is_empty() && start.as_ptr().addr().is_multiple_of(ALIGN);
        is_usable.then(|| Allocation { start, layout, holder: Holder::Host(bytes.clone()) })
    }

    /// Allocates zeroed memory between two inaccessible guard pages. The second one follows the last page of the memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the size overflows, and an unsupported-feature error if guard pages are not available.
    pub fn guarded(bytes: u64) -> Result<Allocation> {
        let layout = usize::try_from(bytes.max(1)).ok().and_then(|bytes| Layout::from_size_align(bytes, ALIGN).ok());
        let layout = layout.ok_or_else(|| out_of_memory(bytes, None))?;
        match Pages::guarded(layout.size()) {
            Some(pages) => Ok(Allocation { start: pages.start, layout, holder: Holder::Pages(pages) }),
            None => Err(Error::unsupported("guard pages are not available: they need Linux and enough free memory")),
        }
    }

    /// Returns the address of a region's first byte.
    pub fn address(&self, region: Region) -> *mut u8 {
        debug_assert!(region.offset + region.bytes <= self.layout.size() as u64, "the caller validated the region");
        self.start.as_ptr().wrapping_add(region.offset as usize)
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if matches!(self.holder, Holder::Allocator) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

fn out_of_memory(bytes: u64, available: Option<u64>) -> Error {
    let free = available.map(|available| format!(", {} MiB free", available >> 20)).unwrap_or_default();
    let message = format!("out of memory on cpu: needs {} MiB{free}; use smaller buffers", bytes.div_ceil(1 << 20));
    Error::new(ErrorKind::OutOfMemory, message)
}

/// A table that assigns ids to objects. Ids are never reused, so a stale handle finds nothing.
#[derive(Debug)]
pub struct Table<T> {
    entries: RwLock<Entries<T>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Entries<T>(std::collections::HashMap<u64, Arc<T>, Numbers>);

/// Hasher for consecutive ids: a multiplication is enough to spread them.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers;

#[derive(Clone, Copy, Debug, Default)]
struct NumberHash(u64);

impl std::hash::BuildHasher for Numbers {
    type Hasher = NumberHash;

    fn build_hasher(&self) -> NumberHash {
        NumberHash(0)
    }
}

impl std::hash::Hasher for NumberHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table::new()
    }
}

impl<T> Table<T> {
    /// Creates an empty table.
    pub fn new() -> Table<T> {
        Table { entries: RwLock::new(Entries(std::collections::HashMap::default())), next: AtomicU64::new(1) }
    }

    /// Adds an object and returns its id.
    pub fn insert(&self, thing: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.0.insert(number, Arc::new(thing));
        number
    }

    /// Returns the object with an id.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).0.get(&number).cloned()
    }

    /// Removes and returns the object with an id. Other references keep it alive.
    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).0.remove(&number)
    }

    /// Returns the sum of `f` over all objects.
    pub fn sum(&self, f: impl Fn(&T) -> u64) -> u64 {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).0.values().map(|thing| f(thing)).sum()
    }
}
