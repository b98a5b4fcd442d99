//! The device contract for one OpenCL device.
//!
//! A context costs milliseconds and, on a GPU, memory, so it is created at the first use, not at discovery. A failure to create it is
//! returned to the caller, and the next call tries again.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use cl3::context::{CL_CONTEXT_PLATFORM, create_context};
use panoply_device::{
    AllocId, DeviceCommand, DeviceInfo, Error, MemoryInfo, Program as DeviceProgram, ProgramForm, ProgramId, QueueId,
    RawDevice, Region, Result, Routine, Target, Ticket,
};

use super::discovery::DiscoveredDevice;
use super::errors::ErrorPhase;
use super::handles::{Context, Live, Shared};
use super::info::{self, Limits};
use super::memory::{Allocation, MemoryBudget};
use super::program::{self, Builder};
use super::queue::Queue;
use super::submit::{self, Encoder, Tables};
use crate::lock::{exclusive, locked, shared};

/// An OpenCL device.
pub struct OpenClDevice {
    place: DiscoveredDevice,
    info: DeviceInfo,
    target: Target,
    limits: Limits,
    shared: Arc<Shared>,
    room: MemoryBudget,
    opening: Mutex<()>,
    compiling: Mutex<()>,
    open: OnceLock<Open>,
}

// SAFETY: `place` holds a platform and a device, which live as long as the process and are not bound to a thread; all other fields are
// thread-safe by their types.
unsafe impl Send for OpenClDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenClDevice {}

/// The state that is created at first use.
struct Open {
    tables: RwLock<Tables>,
    context: Arc<Context>,
}

impl OpenClDevice {
    /// Creates the device for a discovered one, to be opened at first use; with `spirv` it compiles SPIR-V if the device supports it.
    pub(super) fn new(place: DiscoveredDevice, spirv: bool) -> OpenClDevice {
        let info = info::info(&place);
        let limits = info::limits(&place);
        let shared = Shared::new(info.device_string());
        OpenClDevice {
            target: info::target(&place, &info, &limits, spirv),
            room: MemoryBudget::new(info::memory(&place, &limits).total, limits.max_alloc),
            place,
            info,
            limits,
            shared,
            opening: Mutex::new(()),
            compiling: Mutex::new(()),
            open: OnceLock::new(),
        }
    }

    /// Returns a guard to hold while compiling with a compiler that is not thread-safe, such as oclgrind's.
    fn compiles_alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.info.name.contains("Oclgrind").then(|| locked(&self.compiling))
    }

    /// Returns the device with a changed target, for tests of code that is generated for other devices.
    pub fn with_target(mut self, change: impl FnOnce(&mut Target)) -> OpenClDevice {
        change(&mut self.target);
        self
    }

    /// Returns a function that counts the OpenCL objects held for this device, even after it was dropped.
    pub fn live(&self) -> impl Fn() -> Live + use<> {
        let shared = self.shared.clone();
        move || shared.live()
    }

    fn open(&self) -> Result<&Open> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let _one_at_a_time = locked(&self.opening);
        if self.open.get().is_none() {
            let open = self.create()?;
            let _ = self.open.set(open);
        }
        Ok(self.open.get().expect("the device was opened above or by another thread"))
    }

    fn create(&self) -> Result<Open> {
        let properties = [CL_CONTEXT_PLATFORM, self.place.platform as isize, 0];
        let context = create_context(&[self.place.device], properties.as_ptr(), None, ptr::null_mut());
        let context = context.map_err(|code| self.shared.failed("opening the device", code, ErrorPhase::Asking))?;
        // SAFETY: the context was just created, and its reference is owned here.
        let context = Arc::new(unsafe { Context::own(context, &self.shared) });
        let queues = vec![Arc::new(Queue::new(&context, self.place.device)?)];
        Ok(Open { tables: RwLock::new(Tables { queues, ..Tables::default() }), context })
    }

    fn queue_and_memory(&self, queue: QueueId, region: Region) -> Result<(Arc<Queue>, Arc<Allocation>)> {
        let tables = shared(&self.open()?.tables);
        let freed = || Error::mistake(format!("{}: {:?} was freed", self.shared.label, region.alloc));
        let allocation = tables.memory.get(region.alloc.0).ok_or_else(freed)?;
        Ok((self.queue_of(&tables, queue)?.clone(), allocation.clone()))
    }

    fn queue_of<'a>(&self, tables: &'a Tables, queue: QueueId) -> Result<&'a Arc<Queue>> {
        tables.queues.get(queue.0 as usize).ok_or_else(|| {
            let (label, last) = (&self.shared.label, tables.queues.len() - 1);
            Error::mistake(format!("{label}: no queue {}; the last one is {last}", queue.0))
        })
    }
}

impl RawDevice for OpenClDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> MemoryInfo {
        info::memory(&self.place, &self.limits)
    }

    fn supports_routine(&self, _routine: &Routine) -> bool {
        false
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let open = self.open()?;
        let queue = self.queue_of(&shared(&open.tables), QueueId::DEFAULT)?.clone();
        let allocation = self.room.allocate(bytes, &open.context, &queue)?;
        Ok(AllocId(exclusive(&open.tables).memory.insert(Arc::new(allocation))))
    }

    fn free(&self, alloc: AllocId) {
        if let Some(open) = self.open.get() {
            let allocation = exclusive(&open.tables).memory.remove(alloc.0);
            // Released here, outside the lock.
            drop(allocation);
        }
    }

    fn accepted_forms(&self) -> Vec<ProgramForm> {
        program::takes(self.target.language)
    }

    fn compile(&self, program: &DeviceProgram) -> Result<ProgramId> {
        let open = self.open()?;
        let (rounds, made_for, takes) = (self.limits.rounds, &self.target.name, &self.accepted_forms());
        let builder = Builder { context: &open.context, device: self.place.device, rounds, made_for, takes };
        let _alone = self.compiles_alone();
        let built = builder.build(program)?;
        Ok(ProgramId(exclusive(&open.tables).programs.insert(Arc::new(built))))
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        let program = shared(&self.open.get()?.tables).programs.get(program.0).cloned();
        let _alone = self.compiles_alone();
        program?.binary(&self.target.name)
    }

    fn release(&self, program: ProgramId) {
        if let Some(open) = self.open.get() {
            let program = exclusive(&open.tables).programs.remove(program.0);
            drop(program);
        }
    }

    fn queue(&self) -> Result<QueueId> {
        let open = self.open()?;
        let queue = Arc::new(Queue::new(&open.context, self.place.device)?);
        let queues = &mut exclusive(&open.tables).queues;
        queues.push(queue);
        Ok(QueueId(queues.len() as u32 - 1))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let open = self.open()?;
        let tables = shared(&open.tables);
        if steps.iter().any(|step| matches!(step, DeviceCommand::Wait(Ticket::Pending(_)))) {
            // A command can wait for an event of another queue only if that queue was flushed.
            tables.queues.iter().try_for_each(|queue| queue.flush())?;
        }
        let queue = self.queue_of(&tables, queue)?;
        let _order = queue.order();
        if timed {
            queue.profile()?;
        }
        let encoder = Encoder {
            queue,
            tables: &tables,
            device: self.place.device,
            base_align: self.limits.base_align,
            waits: Vec::new(),
            last: None,
            commands: 0,
        };
        encoder.run(steps, timed)
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        let (queue, allocation) = self.queue_and_memory(queue, to)?;
        if bytes.is_empty() { Ok(()) } else { queue.write(&allocation.buffer, to.offset, bytes) }
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let (queue, allocation) = self.queue_and_memory(queue, from)?;
        if from.bytes == 0 { Ok(Ticket::Done) } else { submit::read(&queue, &allocation.buffer, from) }
    }

    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        let (queue, allocation) = self.queue_and_memory(queue, from)?;
        if bytes.is_empty() { Ok(()) } else { queue.read_into(&allocation.buffer, from.offset, bytes) }
    }

    fn synchronize(&self) -> Result<()> {
        let queues = shared(&self.open()?.tables).queues.clone();
        queues.iter().try_for_each(|queue| queue.finish())
    }
}

impl fmt::Debug for OpenClDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shared.label, self.info.name)
    }
}
