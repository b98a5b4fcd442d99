//! The traits.
//!
//! Everything slow answers with a [`Ticket`] that can be polled; waiting is a convenience. A device runs a queue's steps in
//! order and may overlap queues. Handles are plain numbers; a device owns what is behind them.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use panoply_ir::routine::Routine;
use panoply_ir::target::Language;
use panoply_ir::{Error, Result, Scalar, Target};

use crate::command::{AllocId, DeviceCommand, Peer, ProgramId, QueueId, Region};
use crate::command_buffer::{BindingSlot, RawCommandBuffer};
use crate::info::{Backend, DeviceInfo, MemoryInfo};
use crate::program::{Program, ProgramForm};

/// A back end: a way to find devices of one kind.
#[allow(unsafe_code, reason = "a declaration: a device validates nothing, so who receives one must")]
pub trait Driver: Send + Sync {
    /// The kind of device it finds.
    fn kind(&self) -> Backend;

    /// The devices here, in the interface's order. No device, no library, an old driver: an `Unavailable` error that says
    /// which and what would fix it. Never panics, whatever the library does short of crashing.
    ///
    /// # Safety
    ///
    /// A device validates nothing. The caller answers for every call of a method of the devices it receives, also for those by code it
    /// passes them to: programs are ones that an unchecked caller may run, and every argument is valid as [`RawDevice`] says. `panoply_runtime`
    /// does this for safe code: its devices validate everything, and never give the device of a driver away.
    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>>;

    /// What is here but cannot be used, each as an `Unavailable` error with its reason: a driver that does not load, a
    /// device too old. Indices of [`Driver::probe`] skip the devices named here.
    fn rejected(&self) -> Vec<Error> {
        Vec::new()
    }
}

/// Memory, programs and queues of one device.
///
/// The caller has validated every argument: ids are live, regions lie inside their allocations, groups and shared memory
/// respect the target's limits, argument types match; no other thread writes what a call reads or writes meanwhile. A device may do
/// anything if they do not, which is why [`Driver::probe`] is unsafe.
pub trait RawDevice: Send + Sync + fmt::Debug {
    /// Which device this is.
    fn info(&self) -> &DeviceInfo;

    /// What code for it must know.
    fn target(&self) -> &Target;

    /// Its memory now.
    fn memory(&self) -> MemoryInfo;

    /// Whether it takes this routine.
    fn supports_routine(&self, routine: &Routine) -> bool;

    /// Who does matrix products, where that is a matter of what is installed: a vendor's library and its place, or its own kernels and
    /// why. Looking may take a tenth of a second.
    fn blas_library(&self) -> Option<String> {
        None
    }

    /// Reserves bytes, at least 1, aligned to 64 or more; contents are undefined. `OutOfMemory` when there are none.
    fn allocate(&self, bytes: u64) -> Result<AllocId>;

    /// Gives memory back once the steps submitted so far no longer need it.
    fn free(&self, alloc: AllocId);

    /// The forms in which it takes programs from outside, those that need no compiler of their own first.
    fn accepted_forms(&self) -> Vec<ProgramForm> {
        match self.target().language {
            Language::Ir => vec![ProgramForm::Host],
            language => vec![ProgramForm::Text(language)],
        }
    }

    /// Makes a program ready to run. `Build` with the compiler's log in the notes when it is refused.
    fn compile(&self, program: &Program) -> Result<ProgramId>;

    /// The program in the device's own format, for a disk cache; none if it has no such format.
    fn binary(&self, program: ProgramId) -> Option<Vec<u8>>;

    /// Forgets a program once the steps submitted so far no longer need it.
    fn release(&self, program: ProgramId);

    /// A further queue.
    fn queue(&self) -> Result<QueueId>;

    /// Starts steps on a queue, after everything submitted to it before. With `timed`, the ticket knows each step's times.
    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket>;

    /// Takes steps that will be submitted many times, each time with other operands at these places. What they run must not be
    /// released before the command buffer is forgotten; the memory they name need not be there at a replay.
    fn record(&self, steps: Vec<DeviceCommand>, places: Vec<BindingSlot>) -> Result<RawCommandBuffer> {
        Ok(RawCommandBuffer::new(steps, places))
    }

    /// Submits a command buffer's steps over these bindings, of which each is as large as the one recorded, and with these slots.
    fn replay(
        &self,
        queue: QueueId,
        command_buffer: &mut RawCommandBuffer,
        bindings: &[Region],
        slots: &[Scalar],
    ) -> Result<Ticket> {
        command_buffer.set(bindings, slots);
        self.submit(queue, command_buffer.steps(), false)
    }

    /// Forgets a command buffer once the steps submitted so far no longer need it.
    fn destroy_command_buffer(&self, _command_buffer: RawCommandBuffer) {}

    /// Copies host bytes into a region, after everything submitted to the queue before. The bytes may be reused at return.
    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()>;

    /// Starts copying a region to the host, after everything submitted to the queue before; [`Ticket::take`] gives the bytes.
    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket>;

    /// Copies a region into host bytes of the same length and waits for it.
    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        let data = self.read(queue, from)?.take()?;
        bytes.copy_from_slice(&data);
        Ok(())
    }

    /// Where a region lies for other devices of its driver; none where they do not reach it.
    fn peer(&self, _region: Region) -> Option<Peer> {
        None
    }

    /// Starts copying as many bytes of another device of its driver into a region, after everything submitted to the queue before. Who
    /// asks has waited for what writes them, and lets nobody write them before this is done.
    fn copy_peer(&self, _queue: QueueId, _to: Region, _from: Peer) -> Result<Ticket> {
        Err(Error::unsupported(format!("{} reaches no other device's memory", self.info().device_string())))
    }

    /// Waits for everything submitted to every queue.
    fn synchronize(&self) -> Result<()>;
}

/// Work under way on a device.
pub trait Pending: Send + Sync {
    /// Whether it is done; its failure once it failed.
    fn poll(&self) -> Result<bool>;

    /// Waits until it is done. Where nothing may wait, as in browsers, an `Unsupported` error while it is not.
    fn wait(&self) -> Result<()>;

    /// Wakes a task when it is done or has failed, at once if it has; false where the interface does not call back, and a thread
    /// must wait.
    fn wake(&self, _waker: &Waker) -> bool {
        false
    }

    /// After a read is done, its bytes; they are given once.
    fn take(&self) -> Option<Vec<u8>>;

    /// After timed steps are done, when each ran, in their order; a wait takes no time.
    fn times(&self) -> Vec<StepTime>;

    /// The device's own number for it, by which its `submit` recognizes a ticket in [`DeviceCommand::Wait`].
    fn token(&self) -> u64;
}

/// When a step ran, in nanoseconds of the device's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTime {
    /// First moment.
    pub start_ns: u64,
    /// Last moment.
    pub end_ns: u64,
}

/// Something that was submitted: done already, or pending.
#[derive(Clone)]
pub enum Ticket {
    /// It was done before `submit` returned.
    Done,
    /// The device is at it.
    Pending(Arc<dyn Pending>),
}

impl Ticket {
    /// Whether it is done; its failure if it failed.
    pub fn poll(&self) -> Result<bool> {
        match self {
            Ticket::Done => Ok(true),
            Ticket::Pending(pending) => pending.poll(),
        }
    }

    /// Waits until it is done.
    pub fn wait(&self) -> Result<()> {
        match self {
            Ticket::Done => Ok(()),
            Ticket::Pending(pending) => pending.wait(),
        }
    }

    /// Wakes a task when it is done, if the device calls back.
    pub fn wake(&self, waker: &Waker) -> bool {
        match self {
            Ticket::Done => {
                waker.wake_by_ref();
                true
            }
            Ticket::Pending(pending) => pending.wake(waker),
        }
    }

    /// Waits for a read and gives its bytes; none the second time.
    pub fn take(&self) -> Result<Vec<u8>> {
        self.wait()?;
        match self {
            Ticket::Done => Ok(Vec::new()),
            Ticket::Pending(pending) => Ok(pending.take().unwrap_or_default()),
        }
    }

    /// Waits for timed steps and gives when each ran.
    pub fn times(&self) -> Result<Vec<StepTime>> {
        self.wait()?;
        match self {
            Ticket::Done => Ok(Vec::new()),
            Ticket::Pending(pending) => Ok(pending.times()),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ticket::Done => f.write_str("Ticket::Done"),
            Ticket::Pending(pending) => write!(f, "Ticket::Pending({})", pending.token()),
        }
    }
}
