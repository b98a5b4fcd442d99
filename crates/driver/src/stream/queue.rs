//! A stream, and the pinned memory that pending copies still read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use panoply_device::{Region, Result, Ticket};

use super::functions::Functions;
use super::handles::{Block, Context, Event, Memory, Session, Stream};
use super::ticket::{Data, Submitted};
use crate::library::{DevicePtr, Handle};
use crate::lock::locked;

/// Largest write in bytes that is staged in pinned memory; larger ones are copied by the driver or waited for.
const STAGE_LIMIT: usize = 1 << 20;
/// Number of pending staged writes at which the oldest is waited for.
const MAX_STAGED: usize = 16;
/// Largest read in bytes that is asynchronous, through pinned memory.
const PINNED_LIMIT: u64 = 64 << 20;

/// A queue of the device.
pub struct Queue {
    pub stream: Stream,
    staged: Mutex<StagedWrites>,
    workspace: OnceLock<Memory>,
    session: OnceLock<Session>,
}

/// Blocks that pending writes still read, the oldest first.
type StagedWrites = VecDeque<(Event, Block)>;

impl Queue {
    pub fn new(context: &Arc<Context>) -> Result<Queue> {
        let stream = Stream::new(context)?;
        Ok(Queue { stream, staged: Mutex::default(), workspace: OnceLock::new(), session: OnceLock::new() })
    }

    /// Excludes work of other threads between that of the holder.
    pub fn order(&self) -> MutexGuard<'_, StagedWrites> {
        locked(&self.staged)
    }

    /// Returns the address of the queue's workspace, for work in its order. `bytes` is the same in every call.
    pub fn workspace(&self, bytes: usize) -> Result<DevicePtr> {
        if let Some(memory) = self.workspace.get() {
            return Ok(memory.address);
        }
        let (context, mut address) = (&self.stream.context, 0);
        // SAFETY: the pointer is valid.
        let allocate = |functions: &Functions| unsafe { (functions.allocate)(&mut address, bytes) };
        context.ask(format_args!("allocating a workspace of {bytes} bytes"), allocate)?;
        let memory = Memory { address, context: context.clone() };
        Ok(self.workspace.get_or_init(|| memory).address)
    }

    /// Returns a library's handle for this queue, created by `make` at the first call.
    pub fn session(&self, make: impl FnOnce() -> Result<Session, i32>) -> Result<Handle, i32> {
        if let Some(session) = self.session.get() {
            return Ok(session.raw);
        }
        let made = make()?;
        Ok(self.session.get_or_init(|| made).raw)
    }

    /// Copies host bytes to an address; the slice can be reused after the call.
    pub fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        let mut staged = self.order();
        while let Some((event, _)) = staged.front() {
            if staged.len() >= MAX_STAGED {
                event.wait()?;
            } else if !event.is_done()? {
                break;
            }
            staged.pop_front();
        }
        if bytes.len() > STAGE_LIMIT {
            self.upload(to, bytes.as_ptr().cast(), bytes.len())?;
            let taken = self.stream.context.api.brand().copies_pageable;
            return if taken { Ok(()) } else { self.stream.synchronize() };
        }
        let mut block = Block::new(&self.stream.context, bytes.len())?;
        block.fill(bytes);
        self.upload(to, block.start(), bytes.len())?;
        let event = self.stream.mark()?;
        staged.push_back((event, block));
        Ok(())
    }

    fn upload(&self, to: u64, from: *const std::ffi::c_void, bytes: usize) -> Result<()> {
        // SAFETY: the range is inside the allocation (guaranteed by the caller) and the host's bytes outlive the copy: pageable ones are
        // copied by the call or waited for, pinned ones are kept until the event behind the copy.
        self.stream.ask(format_args!("writing {bytes} bytes"), |functions, stream| unsafe {
            (functions.upload)(to, from, bytes, stream)
        })
    }

    /// Starts a copy from an address to the host.
    pub fn read(self: &Arc<Queue>, from: u64, region: Region) -> Result<Ticket> {
        let bytes = region.bytes as usize;
        if region.bytes > PINNED_LIMIT {
            let mut data = vec![0; bytes];
            self.read_into(from, &mut data)?;
            let event = self.stream.mark()?;
            return Ok(Submitted::ticket(self, event, None, Some(Data::Here(data))));
        }
        let order = self.order();
        let block = Block::new(&self.stream.context, bytes)?;
        // SAFETY: the range is inside the allocation, and the ticket keeps the block until the copy is complete.
        self.stream.ask(format_args!("reading {bytes} bytes"), |functions, stream| unsafe {
            (functions.download)(block.start(), from, bytes, stream)
        })?;
        let event = self.stream.mark()?;
        drop(order);
        Ok(Submitted::ticket(self, event, None, Some(Data::Pinned(block, bytes))))
    }

    /// Copies from an address into host memory and waits for completion.
    pub fn read_into(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let count = bytes.len();
        let start = bytes.as_mut_ptr().cast();
        // SAFETY: the range is inside the allocation; the slice is borrowed until the stream was waited for.
        let asked = self.stream.ask(format_args!("reading {count} bytes"), |functions, stream| unsafe {
            (functions.download)(start, from, count, stream)
        });
        // Also after an error, because nothing must write into the slice after this returns.
        let waited = self.stream.synchronize();
        asked.and(waited)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.stream.synchronize().is_err() {
            // It is unknown whether the device still reads these blocks, so they are leaked.
            locked(&self.staged).drain(..).for_each(std::mem::forget);
        }
    }
}
