//! Buffers, and accounting of device memory.
//!
//! Many drivers allocate memory not in `clCreateBuffer` but at the first use, when it is too late to return an error. Migrating the new
//! buffer to the device, with undefined contents, is such a use and forces the allocation.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cl3::command_queue::enqueue_migrate_mem_object;
use cl3::memory::{CL_MEM_READ_WRITE, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, create_buffer};
use panoply_device::{Error, ErrorKind, Result};

use super::errors::ErrorPhase;
use super::handles::{Buffer, Context, Event};
use super::queue::Queue;

/// A buffer and its share of the memory accounting.
pub struct Allocation {
    /// The buffer.
    pub buffer: Buffer,
    _place: Reservation,
}

/// Accounting of allocated device memory.
pub struct MemoryBudget {
    total: u64,
    largest: u64,
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

    /// Creates a buffer for which the driver has allocated memory.
    pub fn allocate(&self, bytes: u64, context: &Context, queue: &Queue) -> Result<Allocation> {
        let shared = context.shared();
        let place = self.take(bytes, &shared.label)?;
        let failed = |code| {
            let error = shared.failed(format_args!("allocating {bytes} bytes"), code, ErrorPhase::Asking);
            error.note(format!("{} bytes of {} are allocated", self.taken.load(Relaxed) - bytes, self.total))
        };
        // SAFETY: there is no host memory, and the context is live.
        let raw = unsafe { create_buffer(context.raw(), CL_MEM_READ_WRITE, bytes as usize, ptr::null_mut()) };
        // SAFETY: the buffer was just created, and its reference is owned here.
        let buffer = unsafe { Buffer::own(raw.map_err(failed)?, shared) };
        let (list, undefined) = ([buffer.raw()], CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
        // SAFETY: queue and buffer are live and of one context; the list holds one buffer and outlives the call.
        let moved =
            unsafe { enqueue_migrate_mem_object(queue.handle().raw(), 1, list.as_ptr(), undefined, 0, ptr::null()) };
        match moved {
            // SAFETY: the enqueue created the event, and its reference is owned here.
            Ok(event) => drop(unsafe { Event::own(event) }),
            // A driver that cannot migrate buffers allocates the memory later; exhausted memory is reported here.
            Err(code) => match failed(code) {
                error if error.is_out_of_memory() || error.is_device_lost() => return Err(error),
                _ => return Ok(Allocation { buffer, _place: place }),
            },
        }
        queue.enqueued(1)?;
        Ok(Allocation { buffer, _place: place })
    }

    fn take(&self, bytes: u64, label: &str) -> Result<Reservation> {
        let refused = |why: String| Error::new(ErrorKind::OutOfMemory, format!("out of memory on {label}: {why}"));
        if bytes > self.largest {
            let largest = self.largest;
            return Err(refused(format!(
                "needs {bytes} bytes, the driver's largest buffer has {largest}; use smaller ones"
            )));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_returned_on_drop_and_never_exceeded() {
        let room = MemoryBudget::new(100, 60);
        let first = room.take(60, "opencl:0").unwrap();
        let error = room.take(61, "opencl:0").err().unwrap();
        assert!(error.is_out_of_memory() && error.message().contains("largest buffer has 60"), "{error}");
        let error = room.take(50, "opencl:0").err().unwrap();
        assert!(error.is_out_of_memory() && error.message().contains("needs 50 bytes, 40 free of 100"), "{error}");
        let second = room.take(40, "opencl:0").unwrap();
        drop(first);
        assert!(room.take(60, "opencl:0").is_ok());
        drop(second);
        assert_eq!(room.taken.load(Relaxed), 0);
    }
}
