//! The device contract for one GPU.
//!
//! A context is created at the first use, not at discovery. A failure to create it is returned to the caller, and the next call tries
//! again.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Instant;

use panoply_device::{
    AllocId, DeviceCommand, DeviceInfo, Error, ErrorKind, MemoryInfo, Program as DeviceProgram, ProgramForm, ProgramId,
    QueueId, RawDevice, Region, Result, Routine, Target, Ticket,
};

use super::api::{ContextDescription, Functions, MemoryDescription, QueueDescription};
use super::discovery::DiscoveredDevice;
use super::errors::{CODES, OUT_OF_MEMORY};
use super::program::{Program, TAKES};
use super::submit::{Done, Encoder};
use crate::library::{DevicePtr, Handle, check};
use crate::lock::{exclusive, locked, shared};
use crate::table::Table;

/// Alignment of allocations in bytes.
const ALIGNMENT: usize = 64;
/// `ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS`
const WAITS: u32 = 1;

/// A GPU of Level Zero.
pub struct LevelZeroDevice {
    place: DiscoveredDevice,
    opening: Mutex<()>,
    open: OnceLock<Open>,
}

struct Open {
    tables: RwLock<Tables>,
    context: Arc<Context>,
}

/// The objects behind a device's ids.
#[derive(Default)]
pub struct Tables {
    pub programs: Table<Arc<Program>>,
    pub memory: Table<Memory>,
    pub queues: Vec<Arc<Queue>>,
}

/// A context of a device.
pub struct Context {
    pub functions: Arc<Functions>,
    pub raw: Handle,
    pub device: Handle,
    /// The prefix of every message, such as `oneapi:0`.
    pub label: String,
    /// Everything that a binary depends on besides its source text.
    pub made_for: String,
    pub max_groups: [u32; 3],
    pub rounds: bool,
    pub opened: Instant,
}

/// An allocation of device memory.
pub struct Memory {
    address: DevicePtr,
    context: Arc<Context>,
}

/// A synchronous immediate command list, used only while holding its lock.
pub struct Queue {
    pub list: Mutex<Handle>,
    context: Arc<Context>,
}

impl Context {
    fn open(place: &DiscoveredDevice) -> Result<Arc<Context>> {
        let label = place.info.device_string();
        let mut raw = 0;
        // SAFETY: the driver was enumerated, and the pointers are valid.
        let code = unsafe { (place.functions.context_create)(place.driver, &ContextDescription::new(), &mut raw) };
        check(code).map_err(|code| CODES.failed(format_args!("{label}: opening the device"), code))?;
        Ok(Arc::new(Context {
            functions: place.functions.clone(),
            raw,
            device: place.device,
            label,
            made_for: place.target.name.clone(),
            max_groups: place.max_groups,
            rounds: place.rounds,
            opened: Instant::now(),
        }))
    }

    /// Returns the error for a code; `doing` names the attempted operation.
    pub fn failed(&self, doing: impl fmt::Display, code: i32) -> Error {
        CODES.failed(format_args!("{}: {doing}", self.label), code)
    }
}

impl Queue {
    fn new(context: &Arc<Context>) -> Result<Queue> {
        let description = QueueDescription { mode: WAITS, ..QueueDescription::new() };
        let mut list = 0;
        // SAFETY: context and device are live, and the pointers are valid.
        let code = unsafe { (context.functions.list_create)(context.raw, context.device, &description, &mut list) };
        check(code).map_err(|code| context.failed("creating a queue", code))?;
        Ok(Queue { list: Mutex::new(list), context: context.clone() })
    }
}

impl Tables {
    /// Returns the device address of a region.
    pub fn address(&self, region: &Region, label: &str) -> Result<DevicePtr> {
        let found = self.memory.get(region.alloc.0);
        let memory = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was freed", region.alloc)))?;
        Ok(memory.address + region.offset)
    }

    fn queue(&self, queue: QueueId, label: &str) -> Result<&Arc<Queue>> {
        self.queues.get(queue.0 as usize).ok_or_else(|| {
            Error::mistake(format!("{label}: no queue {}; the last one is {}", queue.0, self.queues.len() - 1))
        })
    }
}

impl LevelZeroDevice {
    /// Creates the device for a discovered one; it is opened at first use.
    pub(super) fn new(place: DiscoveredDevice) -> LevelZeroDevice {
        LevelZeroDevice { place, opening: Mutex::new(()), open: OnceLock::new() }
    }

    fn open(&self) -> Result<&Open> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let _one_at_a_time = locked(&self.opening);
        if self.open.get().is_none() {
            let context = Context::open(&self.place)?;
            let queues = vec![Arc::new(Queue::new(&context)?)];
            let _ = self.open.set(Open { tables: RwLock::new(Tables { queues, ..Tables::default() }), context });
        }
        Ok(self.open.get().expect("the device was opened above or by another thread"))
    }

    /// Calls `act` with an encoder for a queue, holding the tables' lock for reading.
    fn with<T>(&self, queue: QueueId, act: impl FnOnce(&Encoder<'_>) -> Result<T>) -> Result<T> {
        let open = self.open()?;
        let tables = shared(&open.tables);
        let queue = tables.queue(queue, &open.context.label)?;
        act(&Encoder { context: &open.context, tables: &tables, queue })
    }

    fn refused(&self, bytes: u64) -> Error {
        let (label, largest, total) =
            (self.place.info.device_string(), self.place.target.max_buffer_bytes, self.place.memory);
        let message =
            format!("out of memory on {label}: needs {bytes} bytes of {total}; free buffers or use smaller ones");
        Error::new(ErrorKind::OutOfMemory, message).note(format!("the largest buffer has {largest} bytes"))
    }
}

impl RawDevice for LevelZeroDevice {
    fn info(&self) -> &DeviceInfo {
        &self.place.info
    }

    fn target(&self) -> &Target {
        &self.place.target
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: self.place.memory, free: None }
    }

    fn supports_routine(&self, _routine: &Routine) -> bool {
        false
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let open = self.open()?;
        let wanted = usize::try_from(bytes).ok().filter(|_| bytes <= self.place.target.max_buffer_bytes);
        let Some(wanted) = wanted else { return Err(self.refused(bytes)) };
        let (context, mut address) = (&open.context, 0);
        // SAFETY: context and device are live, and the pointers are valid.
        let code = unsafe {
            let description = MemoryDescription::new();
            let (raw, device) = (context.raw, context.device);
            (context.functions.allocate)(raw, &description, wanted, ALIGNMENT, device, &mut address)
        };
        match check(code) {
            Ok(()) => {}
            Err(code) if OUT_OF_MEMORY.contains(&code) => return Err(self.refused(bytes)),
            Err(code) => return Err(context.failed(format_args!("allocating {bytes} bytes"), code)),
        }
        let memory = Memory { address, context: context.clone() };
        Ok(AllocId(exclusive(&open.tables).memory.insert(memory)))
    }

    fn free(&self, alloc: AllocId) {
        if let Some(open) = self.open.get() {
            let memory = exclusive(&open.tables).memory.remove(alloc.0);
            drop(memory);
        }
    }

    fn accepted_forms(&self) -> Vec<ProgramForm> {
        TAKES.to_vec()
    }

    fn compile(&self, program: &DeviceProgram) -> Result<ProgramId> {
        let open = self.open()?;
        let built = Program::build(&open.context, program)?;
        Ok(ProgramId(exclusive(&open.tables).programs.insert(Arc::new(built))))
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        let program = shared(&self.open.get()?.tables).programs.get(program.0).cloned();
        program?.binary()
    }

    fn release(&self, program: ProgramId) {
        if let Some(open) = self.open.get() {
            let program = exclusive(&open.tables).programs.remove(program.0);
            drop(program);
        }
    }

    fn queue(&self) -> Result<QueueId> {
        let open = self.open()?;
        let queue = Arc::new(Queue::new(&open.context)?);
        let queues = &mut exclusive(&open.tables).queues;
        queues.push(queue);
        Ok(QueueId(queues.len() as u32 - 1))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        self.with(queue, |encoder| encoder.run(steps, timed))
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        self.with(queue, |encoder| {
            let target = encoder.tables.address(&to, &encoder.context.label)?;
            let list = locked(&encoder.queue.list);
            encoder.copy(*list, target as *mut _, bytes.as_ptr().cast(), bytes.len() as u64)
        })
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let mut bytes = vec![0; from.bytes as usize];
        self.read_into(queue, from, &mut bytes)?;
        Ok(Done::ticket(Vec::new(), Some(bytes)))
    }

    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        self.with(queue, |encoder| {
            let source = encoder.tables.address(&from, &encoder.context.label)?;
            let list = locked(&encoder.queue.list);
            encoder.copy(*list, bytes.as_mut_ptr().cast(), source as *const _, bytes.len() as u64)
        })
    }

    fn synchronize(&self) -> Result<()> {
        // A thread that holds a command list is executing commands on it.
        let Some(open) = self.open.get() else { return Ok(()) };
        let queues = shared(&open.tables).queues.clone();
        queues.iter().for_each(|queue| drop(locked(&queue.list)));
        Ok(())
    }
}

impl fmt::Debug for LevelZeroDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.place.info.device_string(), self.place.info.name)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the memory, and no command is using it.
        unsafe { (self.context.functions.free)(self.context.raw, self.address) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the list, and its commands are complete.
        unsafe { (self.context.functions.list_destroy)(*locked(&self.list)) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: this is the only reference to the context, and all objects created in it are destroyed.
        unsafe { (self.functions.context_destroy)(self.raw) };
    }
}
