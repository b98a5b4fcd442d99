//! A command queue: order, flushing and staged writes.
//!
//! **Flushing** tells the driver to start enqueued commands. It costs half as much as a launch, so it happens only when needed: immediately
//! if the host has seen the queue idle, after every few commands otherwise, and always before a wait or a poll.
//!
//! **Staging**: the bytes of a small write are copied and sent asynchronously; large writes block, without a copy.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_read_buffer, enqueue_write_buffer, finish, flush,
};
use cl3::event::{CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, get_event_info, wait_for_events};
use cl3::info_type::InfoType;
use cl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_device_id};
use panoply_device::Result;

use super::errors::ErrorPhase;
use super::handles::{Buffer, CommandQueue, Context, Event, Shared};
use crate::lock::locked;

/// Largest write in bytes that is staged.
const STAGE_LIMIT: usize = 1 << 20;

/// Number of staged bytes above which a write waits for the oldest ones.
const STAGED_LIMIT: usize = 16 << 20;

/// Number of commands after which the queue is flushed.
const FLUSH_EVERY: u32 = 16;

/// An in-order command queue of the device.
pub struct Queue {
    plain: CommandQueue,
    /// The queue that replaces `plain` after times were requested.
    profiled: OnceLock<CommandQueue>,
    context: Arc<Context>,
    device: Device,
    staged: Mutex<StagedWrites>,
    unflushed: AtomicU32,
    /// True if the host has seen the queue idle, and nothing was flushed since.
    idle: AtomicBool,
}

/// Host memory that running commands still read.
#[derive(Default)]
pub struct StagedWrites {
    writes: VecDeque<(Event, Box<[u8]>)>,
    bytes: usize,
}

/// A root device, which lives as long as the process.
#[derive(Clone, Copy)]
struct Device(cl_device_id);

// SAFETY: devices are not bound to a thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Queue {
    /// Creates an empty queue on the device of a context.
    pub fn new(context: &Arc<Context>, device: cl_device_id) -> Result<Queue> {
        let device = Device(device);
        Ok(Queue {
            plain: create(context, device, 0)?,
            profiled: OnceLock::new(),
            context: context.clone(),
            device,
            staged: Mutex::default(),
            unflushed: AtomicU32::new(0),
            idle: AtomicBool::new(true),
        })
    }

    /// Returns the OpenCL queue that currently takes commands.
    pub fn handle(&self) -> &CommandQueue {
        self.profiled.get().unwrap_or(&self.plain)
    }

    /// Returns the shared state of the device.
    pub fn shared(&self) -> &Arc<Shared> {
        self.plain.shared()
    }

    /// Enables profiling for all further commands. Measured on two drivers it costs each command 4 %, so it is enabled at the first
    /// request, after earlier commands are complete. The caller holds [`Queue::order`].
    pub fn profile(&self) -> Result<()> {
        if self.profiled.get().is_none() {
            let queue = create(&self.context, self.device, CL_QUEUE_PROFILING_ENABLE)?;
            finish(self.plain.raw()).map_err(|code| self.shared().failed("waiting", code, ErrorPhase::Waiting))?;
            let _ = self.profiled.set(queue);
        }
        Ok(())
    }

    /// Excludes commands of other threads between those of the holder.
    pub fn order(&self) -> MutexGuard<'_, StagedWrites> {
        locked(&self.staged)
    }

    /// Counts enqueued commands, and flushes the queue if it is due.
    pub fn enqueued(&self, commands: u32) -> Result<()> {
        let unflushed = self.unflushed.fetch_add(commands, Relaxed) + commands;
        if unflushed >= FLUSH_EVERY || self.idle.load(Relaxed) { self.flush() } else { Ok(()) }
    }

    /// Starts all enqueued commands.
    pub fn flush(&self) -> Result<()> {
        if self.unflushed.load(Relaxed) == 0 || self.unflushed.swap(0, Relaxed) == 0 {
            return Ok(());
        }
        self.idle.store(false, Relaxed);
        flush(self.handle().raw()).map_err(|code| self.shared().failed("starting commands", code, ErrorPhase::Asking))
    }

    /// Waits for all enqueued commands.
    pub fn finish(&self) -> Result<()> {
        self.unflushed.store(0, Relaxed);
        finish(self.handle().raw()).map_err(|code| self.shared().failed("waiting", code, ErrorPhase::Waiting))?;
        self.idle.store(true, Relaxed);
        self.order().retire(self.shared(), false)
    }

    /// Waits for a command of this queue.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // Waiting implies a flush.
        if let Err(code) = wait_for_events(&[event.raw()]) {
            // The code of the wait says only that a command failed; the status of the command says why.
            let code = status(event).err().unwrap_or(code);
            return Err(self.shared().failed("running commands", code, ErrorPhase::Waiting));
        }
        self.idle.store(true, Relaxed);
        Ok(())
    }

    /// Copies host bytes to a buffer; the slice can be reused after the call.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let failed =
            |code| self.shared().failed(format_args!("writing {} bytes", bytes.len()), code, ErrorPhase::Asking);
        let offset = offset as usize;
        if bytes.len() > STAGE_LIMIT {
            // SAFETY: the slice outlives the call, which returns only after it was read; the range is inside the buffer.
            let written = unsafe {
                let (queue, start) = (self.handle().raw(), bytes.as_ptr().cast());
                enqueue_write_buffer(queue, buffer.raw(), CL_BLOCKING, offset, bytes.len(), start, 0, ptr::null())
            };
            // SAFETY: the enqueue created the event, and its reference is owned here.
            drop(unsafe { Event::own(written.map_err(failed)?) });
            self.idle.store(true, Relaxed);
            return Ok(());
        }
        let mut staged = self.order();
        let full = staged.bytes + bytes.len() > STAGED_LIMIT;
        staged.retire(self.shared(), full)?;
        let copy: Box<[u8]> = bytes.into();
        // SAFETY: the copy is kept beside the event and dropped only after it completed; the range is inside the buffer.
        let written = unsafe {
            let (queue, start) = (self.handle().raw(), copy.as_ptr().cast());
            enqueue_write_buffer(queue, buffer.raw(), CL_NON_BLOCKING, offset, copy.len(), start, 0, ptr::null())
        };
        // SAFETY: the enqueue created the event, and its reference is owned here.
        let event = unsafe { Event::own(written.map_err(failed)?) };
        staged.bytes += copy.len();
        staged.writes.push_back((event, copy));
        self.enqueued(1)
    }

    /// Copies from a buffer into host memory and waits for completion.
    pub fn read_into(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let (length, offset) = (bytes.len(), offset as usize);
        // SAFETY: the slice is exclusively borrowed until the call returns, and the copy is complete then; the range is inside the buffer.
        let read = unsafe {
            let (queue, start) = (self.handle().raw(), bytes.as_mut_ptr().cast());
            enqueue_read_buffer(queue, buffer.raw(), CL_BLOCKING, offset, length, start, 0, ptr::null())
        };
        let read = read
            .map_err(|code| self.shared().failed(format_args!("reading {length} bytes"), code, ErrorPhase::Waiting))?;
        // SAFETY: the enqueue created the event, and its reference is owned here.
        drop(unsafe { Event::own(read) });
        self.idle.store(true, Relaxed);
        Ok(())
    }
}

fn create(context: &Context, device: Device, properties: u64) -> Result<CommandQueue> {
    // SAFETY: context and device are live and belong together.
    let queue = unsafe { create_command_queue(context.raw(), device.0, properties) };
    let queue = queue.map_err(|code| context.shared().failed("creating a queue", code, ErrorPhase::Asking))?;
    // SAFETY: the queue was just created, and its reference is owned here.
    Ok(unsafe { CommandQueue::own(queue, context.shared()) })
}

impl StagedWrites {
    /// Removes completed writes; with `make_room`, waits for the oldest ones until at most half of the limit is staged. Returns the error
    /// of a failed write.
    fn retire(&mut self, shared: &Shared, make_room: bool) -> Result<()> {
        let failed = |code| shared.failed("an earlier write", code, ErrorPhase::Waiting);
        while let Some((event, bytes)) = self.writes.front() {
            let mut done = status(event);
            if done == Ok(false) && make_room && self.bytes > STAGED_LIMIT / 2 {
                done = wait_for_events(&[event.raw()]).map(|()| true);
            }
            if done == Ok(false) {
                break;
            }
            if status(event) != Ok(false) {
                self.bytes -= bytes.len();
                self.writes.pop_front();
            }
            done.map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let queue = self.handle().raw();
        let staged = self.staged.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !staged.writes.is_empty() && finish(queue).is_err() {
            // It is unknown whether the driver still reads these bytes, so they are leaked.
            staged.writes.drain(..).for_each(|(_, bytes)| std::mem::forget(bytes));
        }
    }
}

/// Returns true if a command is complete; returns its error code if it failed.
pub fn status(event: &Event) -> Result<bool, i32> {
    match get_event_info(event.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS) {
        Ok(InfoType::Int(status)) if status < 0 => Err(status),
        Ok(InfoType::Int(status)) => Ok(status == CL_COMPLETE),
        Ok(_) => Ok(false),
        Err(code) => Err(code),
    }
}
