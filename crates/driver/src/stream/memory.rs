//! Device memory, allocated and freed in the order of the default queue if the driver supports it, otherwise synchronously.
//!
//! Memory allocated in a queue's order can be used only by work that runs after the allocation. So the other queues wait for the default
//! queue after an allocation, and it waits for them before memory is freed. Both are rare: `runtime` caches memory.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use panoply_device::{Error, ErrorKind, Result};

use super::handles::{Context, Memory};
use super::queue::Queue;
use super::vendor::OUT_OF_MEMORY;
use crate::library::check;

/// An allocation of device memory.
pub struct Allocation {
    pub memory: Memory,
    /// True if it was allocated in the default queue's order.
    ordered: bool,
}

/// Properties of the device that allocations depend on.
#[derive(Clone, Copy)]
pub struct MemoryTraits {
    /// Total memory in bytes.
    pub total: u64,
    /// True if the driver supports stream-ordered allocation.
    pub pools: bool,
}

impl MemoryTraits {
    /// Allocates `bytes` bytes with undefined contents.
    pub fn allocate(self, bytes: u64, context: &Arc<Context>, queues: &[Arc<Queue>]) -> Result<Allocation> {
        let wanted = usize::try_from(bytes).ok().filter(|_| bytes <= self.total);
        let Some(wanted) = wanted else { return Err(self.refused(bytes, context)) };
        let mut address = 0;
        let current = context.enter()?;
        let ordered = context.api.functions.allocate_ordered.filter(|_| self.pools);
        // SAFETY: the pointer is valid and the stream live.
        let code = unsafe {
            match ordered {
                Some(allocate) => allocate(&mut address, wanted, queues[0].stream.raw),
                None => (context.api.functions.allocate)(&mut address, wanted),
            }
        };
        drop(current);
        match check(code) {
            Ok(()) => {}
            Err(OUT_OF_MEMORY) => return Err(self.refused(bytes, context)),
            Err(code) => return Err(context.failed(format_args!("allocating {bytes} bytes"), code)),
        }
        let memory = Memory { address, context: context.clone() };
        let allocation = Allocation { memory, ordered: ordered.is_some() };
        if allocation.ordered && queues.len() > 1 {
            let here = queues[0].stream.mark()?;
            queues[1..].iter().try_for_each(|queue| queue.stream.wait(&here))?;
        }
        Ok(allocation)
    }

    fn refused(self, bytes: u64, context: &Context) -> Error {
        let (label, total) = (&context.label, self.total);
        let (mut free, mut all) = (0, 0);
        // SAFETY: the pointers are valid.
        let asked =
            context.ask("querying free memory", |functions| unsafe { (functions.free_memory)(&mut free, &mut all) });
        let free = if asked.is_ok() { format!("{free} free of ") } else { String::new() };
        let message =
            format!("out of memory on {label}: needs {bytes} bytes, {free}{total}; free buffers or use smaller ones");
        Error::new(ErrorKind::OutOfMemory, message)
    }
}

impl Allocation {
    /// Frees the memory after all work enqueued so far.
    pub fn release(self, queues: &[Arc<Queue>]) {
        let Some(free) = self.memory.context.api.functions.free_ordered.filter(|_| self.ordered) else {
            // Dropping the memory waits for the device.
            return;
        };
        let others_first = queues[1..].iter().try_for_each(|queue| queues[0].stream.wait(&queue.stream.mark()?));
        if others_first.is_err() {
            return;
        }
        let memory = ManuallyDrop::new(self.memory);
        // SAFETY: this is the only reference to the memory, and the stream is live.
        let freed = queues[0].stream.ask("freeing", |_, stream| unsafe { free(memory.address, stream) });
        if freed.is_ok() {
            // Only the reference to the context is left to drop.
            // SAFETY: the field is read once, and the memory around it is never dropped.
            drop(unsafe { std::ptr::read(&memory.context) });
        } else {
            drop(ManuallyDrop::into_inner(memory));
        }
    }
}
