//! Owning handles of a device's context and of the objects in it, each destroyed once.
//!
//! A destruction fails only on a lost device, and that failure is ignored.

use std::ffi::c_void;
use std::fmt::Display;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use panoply_device::{Error, Peer, Result};

use super::discovery::{Api, DiscoveredDevice, Traits};
use super::functions::Functions;
use super::ticket::Tickets;
use super::vendor::{NOT_READY, OUT_OF_MEMORY};
use crate::library::{DevicePtr, Handle, check};
use crate::lock::locked;

/// CU_EVENT_DISABLE_TIMING and hipEventDisableTiming.
const NO_TIMING: u32 = 2;
/// CU_STREAM_NON_BLOCKING and hipStreamNonBlocking: not synchronized with the default stream, which all users of the device share.
const NON_BLOCKING: u32 = 1;
/// Smallest block of pinned memory in bytes; block sizes are powers of two.
const MIN_BLOCK_BYTES: usize = 64 << 10;
/// Maximum number of bytes of free pinned memory that are cached.
const KEPT_BYTES: usize = 64 << 20;

/// The context of a device; for CUDA its primary context, which other code in the process can use too.
pub struct Context {
    pub api: Arc<Api>,
    shared: Handle,
    device: i32,
    /// Traits that the vendor's code determined.
    pub traits: Traits,
    /// The prefix of every message, such as `cuda:0`.
    pub label: String,
    /// Submissions that streams can wait for.
    pub tickets: Tickets,
    idle_events: Mutex<Vec<Handle>>,
    idle_blocks: Mutex<Vec<RawBlock>>,
}

/// A guard; the device is current on the thread while it lives.
pub struct CurrentContext<'c> {
    context: &'c Context,
    before: Handle,
}

impl Context {
    /// Retains the context of a device.
    pub fn retain(place: &DiscoveredDevice, label: String) -> Result<Arc<Context>> {
        let (api, device) = (place.api.clone(), place.device);
        let codes = &api.brand().codes;
        let shared = api.vendor.retain(device);
        let shared = shared.map_err(|code| codes.failed(format_args!("{label}: opening the device"), code))?;
        Ok(Arc::new(Context {
            api,
            shared,
            device,
            traits: place.traits.clone(),
            label,
            tickets: Tickets::default(),
            idle_events: Mutex::default(),
            idle_blocks: Mutex::default(),
        }))
    }

    /// Makes the device current on the thread until the guard is dropped.
    pub fn enter(&self) -> Result<CurrentContext<'_>> {
        let before = self.api.vendor.enter(self.device, self.shared);
        let before = before.map_err(|code| self.failed("entering the context", code))?;
        Ok(CurrentContext { context: self, before })
    }

    /// Returns an address in the form that other devices of the driver take.
    pub fn peer(&self, address: DevicePtr) -> Peer {
        Peer { driver: Arc::as_ptr(&self.api).addr(), device: self.device, context: self.shared, address }
    }

    /// Returns the error for a code; `doing` names the attempted operation.
    pub fn failed(&self, doing: impl Display, code: i32) -> Error {
        self.api.brand().codes.failed(format_args!("{}: {doing}", self.label), code)
    }

    /// Calls a function of the driver with the context current.
    pub fn ask(&self, doing: impl Display, call: impl FnOnce(&Functions) -> i32) -> Result<()> {
        let _current = self.enter()?;
        check(call(&self.api.functions)).map_err(|code| self.failed(doing, code))
    }

    /// Creates an object.
    fn make(&self, doing: &str, call: impl FnOnce(&Functions, *mut Handle) -> i32) -> Result<Handle> {
        let mut raw = 0;
        self.ask(doing, |functions| call(functions, &mut raw))?;
        Ok(raw)
    }

    /// Destroys an object.
    fn discard(&self, call: impl FnOnce(&Functions) -> i32) {
        let _ = self.ask("destroying", call);
    }
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        self.context.api.vendor.leave(self.context.device, self.before);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let events = std::mem::take(&mut *locked(&self.idle_events));
        let blocks = std::mem::take(&mut *locked(&self.idle_blocks));
        for event in events {
            // SAFETY: this is the only reference to an idle event.
            self.discard(|functions| unsafe { (functions.event_destroy)(event) });
        }
        for block in blocks {
            // SAFETY: this is the only reference to an idle block, and no copy accesses it.
            self.discard(|functions| unsafe { (functions.unpin)(block.start.as_ptr()) });
        }
        self.api.vendor.give_back(self.device);
    }
}

/// A stream, whose work runs in order.
pub struct Stream {
    pub raw: Handle,
    pub context: Arc<Context>,
}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Stream> {
        // SAFETY: the pointer is valid and the context current.
        let raw =
            context.make("creating a queue", |functions, to| unsafe { (functions.stream_create)(to, NON_BLOCKING) })?;
        Ok(Stream { raw, context: context.clone() })
    }

    /// Calls a function of the driver that takes this stream.
    pub fn ask(&self, doing: impl Display, call: impl FnOnce(&Functions, Handle) -> i32) -> Result<()> {
        self.context.ask(doing, |functions| call(functions, self.raw))
    }

    /// Records an event after all work enqueued so far.
    pub fn mark(&self) -> Result<Event> {
        Event::idle(&self.context)?.record(self)
    }

    /// Makes all further work of the stream wait for an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: stream and event are live.
        self.ask("waiting for another queue", |functions, raw| unsafe { (functions.stream_wait)(raw, event.raw, 0) })
    }

    /// Waits until all work enqueued so far is complete.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        self.ask("waiting", |functions, raw| unsafe { (functions.stream_synchronize)(raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the stream; the driver completes the enqueued work.
        self.context.discard(|functions| unsafe { (functions.stream_destroy)(self.raw) });
    }
}

/// An event recorded in a stream. Events without timing are reused.
pub struct Event {
    raw: Handle,
    timed: bool,
    context: Arc<Context>,
}

impl Event {
    fn idle(context: &Arc<Context>) -> Result<Event> {
        let idle = locked(&context.idle_events).pop();
        let raw = match idle {
            Some(raw) => raw,
            None => context.make("creating an event", |functions, to| {
                // SAFETY: the pointer is valid and the context current.
                unsafe { (functions.event_create)(to, NO_TIMING) }
            })?,
        };
        Ok(Event { raw, timed: false, context: context.clone() })
    }

    /// Records an event with timing.
    pub fn timed(stream: &Stream) -> Result<Event> {
        let context = &stream.context;
        // SAFETY: the pointer is valid and the context current.
        let raw = context.make("creating an event", |functions, to| unsafe { (functions.event_create)(to, 0) })?;
        Event { raw, timed: true, context: context.clone() }.record(stream)
    }

    fn record(self, stream: &Stream) -> Result<Event> {
        // SAFETY: event and stream are live and of one context.
        stream.ask("marking a queue", |functions, raw| unsafe { (functions.event_record)(self.raw, raw) })?;
        Ok(self)
    }

    /// Returns true if the event is complete; returns an error if the work before it failed.
    pub fn is_done(&self) -> Result<bool> {
        let _current = self.context.enter()?;
        // SAFETY: the event is live.
        match unsafe { (self.context.api.functions.event_query)(self.raw) } {
            NOT_READY => Ok(false),
            code => check(code).map(|()| true).map_err(|code| self.context.failed("running work", code)),
        }
    }

    /// Waits until the event is complete.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event is live.
        self.context.ask("running work", |functions| unsafe { (functions.event_synchronize)(self.raw) })
    }

    /// Returns the nanoseconds from another timed event to this one, both complete.
    pub fn ns_after(&self, earlier: &Event) -> Result<f64> {
        let mut milliseconds = 0f32;
        // SAFETY: the pointer is valid and the events are live.
        let call =
            |functions: &Functions| unsafe { (functions.event_elapsed)(&mut milliseconds, earlier.raw, self.raw) };
        self.context.ask("reading times", call)?;
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.timed {
            // Streams that wait for the event refer to its last recording, so it can be recorded again.
            return locked(&self.context.idle_events).push(self.raw);
        }
        // SAFETY: this is the only reference to the event.
        self.context.discard(|functions| unsafe { (functions.event_destroy)(self.raw) });
    }
}

/// A module of compiled code.
pub struct Module {
    pub raw: Handle,
    pub context: Arc<Context>,
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the module; the driver waits for its kernels.
        self.context.discard(|functions| unsafe { (functions.module_unload)(self.raw) });
    }
}

/// A handle that another library created on the device.
pub struct Session {
    pub raw: Handle,
    /// The library's function that destroys it; a library is never closed.
    pub destroy: unsafe extern "system" fn(Handle) -> i32,
    pub context: Arc<Context>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the handle.
        self.context.discard(|_| unsafe { (self.destroy)(self.raw) });
    }
}

/// An allocation of device memory.
pub struct Memory {
    pub address: DevicePtr,
    pub context: Arc<Context>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the memory; the driver waits for work that uses it.
        self.context.discard(|functions| unsafe { (functions.free)(self.address) });
    }
}

struct RawBlock {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: pinned memory is not bound to a thread.
unsafe impl Send for RawBlock {}

/// Pinned host memory, which the device accesses directly.
pub struct Block {
    raw: Option<RawBlock>,
    context: Arc<Context>,
}

// SAFETY: pinned memory is not bound to a thread, and a shared reference only reads it.
unsafe impl Sync for Block {}

impl Block {
    /// Returns a block of at least `bytes` bytes with unspecified contents.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Block> {
        let bytes = bytes.next_power_of_two().max(MIN_BLOCK_BYTES);
        let idle = {
            let mut idle = locked(&context.idle_blocks);
            idle.iter().position(|block| block.bytes == bytes).map(|at| idle.swap_remove(at))
        };
        let raw = match idle {
            Some(raw) => raw,
            None => {
                let mut start = ptr::null_mut();
                // SAFETY: the pointer is valid.
                context.ask("pinning memory", |functions| unsafe { (functions.pin)(&mut start, bytes, 0) })?;
                let start = NonNull::new(start).ok_or_else(|| context.failed("pinning memory", OUT_OF_MEMORY))?;
                // SAFETY: the driver just allocated this memory for us.
                unsafe { start.cast::<u8>().write_bytes(0, bytes) };
                RawBlock { start, bytes }
            }
        };
        Ok(Block { raw: Some(raw), context: context.clone() })
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut c_void {
        self.raw.as_ref().expect("a block has its memory until it is dropped").start.as_ptr()
    }

    /// Returns the first `count` bytes.
    ///
    /// # Safety
    /// No running copy writes the block, and it has at least `count` bytes.
    pub unsafe fn bytes(&self, count: usize) -> &[u8] {
        // SAFETY: guaranteed by the caller; the memory was initialized when it was pinned.
        unsafe { std::slice::from_raw_parts(self.start().cast(), count) }
    }

    /// Copies bytes to the start of the block.
    pub fn fill(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.raw.as_ref().map_or(0, |raw| raw.bytes),
            "the block is smaller than the bytes to copy"
        );
        // SAFETY: the block is exclusively borrowed and large enough.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start().cast(), bytes.len()) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        let mut idle = locked(&self.context.idle_blocks);
        let kept: usize = idle.iter().map(|block| block.bytes).sum();
        if kept + raw.bytes <= KEPT_BYTES {
            return idle.push(raw);
        }
        drop(idle);
        // SAFETY: this is the only reference to the block, and its previous owner waited for the copies.
        self.context.discard(|functions| unsafe { (functions.unpin)(raw.start.as_ptr()) });
    }
}
