//! Buffers, accounting of device memory, and buffers for reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use panoply_device::{Error, ErrorKind, Result};
use wgpu::{Buffer, BufferDescriptor, BufferUsages};

use super::open::Open;

/// A buffer and its share of the memory accounting.
pub struct Allocation {
    /// The buffer; its size is a multiple of 4, so that the last bytes can be copied.
    pub buffer: Buffer,
    _place: Reservation,
}

/// Accounting of allocated device memory.
pub struct MemoryBudget {
    pub total: u64,
    pub largest: u64,
    taken: Arc<AtomicU64>,
}

/// Accounted bytes, which are returned on drop.
struct Reservation {
    bytes: u64,
    from: Arc<AtomicU64>,
}

impl MemoryBudget {
    /// Creates the accounting for `total` bytes, in buffers of at most `largest` bytes.
    pub fn new(total: u64, largest: u64) -> MemoryBudget {
        MemoryBudget { total, largest, taken: Arc::default() }
    }

    /// Returns a function that counts the allocated bytes.
    pub fn taken(&self) -> impl Fn() -> u64 + use<> {
        let taken = self.taken.clone();
        move || taken.load(Relaxed)
    }

    /// Allocates a buffer.
    pub fn allocate(&self, bytes: u64, open: &Open) -> Result<Allocation> {
        let place = self.take(bytes, &open.status.label)?;
        let descriptor = BufferDescriptor {
            label: None,
            size: bytes.next_multiple_of(4),
            usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        let doing = format_args!("allocating {bytes} bytes");
        let buffer = open.checked(doing, || open.device.create_buffer(&descriptor))?;
        Ok(Allocation { buffer, _place: place })
    }

    fn take(&self, bytes: u64, label: &str) -> Result<Reservation> {
        let refused = |why: String| Error::new(ErrorKind::OutOfMemory, format!("out of memory on {label}: {why}"));
        if bytes > self.largest {
            let largest = self.largest;
            return Err(refused(format!("needs {bytes} bytes, the largest buffer has {largest}; use smaller ones")));
        }
        let before = self.taken.fetch_add(bytes, Relaxed);
        let place = Reservation { bytes, from: self.taken.clone() };
        if before.saturating_add(bytes) > self.total {
            let (free, total) = (self.total.saturating_sub(before), self.total);
            return Err(refused(format!(
                "needs {bytes} bytes, {free} free of {total}; free buffers or use smaller ones"
            )));
        }
        Ok(place)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.from.fetch_sub(self.bytes, Relaxed);
    }
}

/// Creates a buffer in host memory that the device copies into.
pub fn landing(open: &Open, bytes: u64) -> Result<Buffer> {
    let descriptor = BufferDescriptor {
        label: None,
        size: bytes.next_multiple_of(4),
        usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    open.checked(format_args!("reading {bytes} bytes"), || open.device.create_buffer(&descriptor))
}
