//! The driver and device traits.
//!
//! Slow operations return a [`Ticket`] that can be polled or waited for. A device executes the commands of a queue in order and can
//! overlap queues. Handles are plain numbers; the device owns the objects.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use panoply_ir::routine::Routine;
use panoply_ir::target::Language;
use panoply_ir::{Error, Result, Scalar, Target};

use crate::command::{AllocId, DeviceCommand, Peer, ProgramId, QueueId, Region};
use crate::command_buffer::{BindingSlot, RawCommandBuffer};
use crate::host_bytes::HostBytes;
use crate::info::{Backend, DeviceInfo, MemoryInfo};
use crate::program::{Program, ProgramForm};

/// A backend driver, which finds the devices of one backend.
#[allow(unsafe_code, reason = "a declaration: a device validates nothing, so its caller must")]
pub trait Driver: Send + Sync {
    /// Returns the backend.
    fn kind(&self) -> Backend;

    /// Returns the devices found, in the interface's order. Must not panic, as long as the library does not crash.
    ///
    /// # Errors
    /// `Unavailable` if there is no device or library, or the driver is too old, with a remedy.
    ///
    /// # Safety
    ///
    /// A device validates nothing. The caller is responsible for every method call on the returned devices, including calls by code that
    /// it passes them to: the programs must be safe to run and every argument must be valid as described in [`RawDevice`].
    /// `panoply_runtime` ensures this for safe code: its devices validate everything and never expose the raw device.
    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>>;

    /// Returns `Unavailable` errors for hardware and drivers that were found but are unusable, such as a driver that does not load or a
    /// device that is too old. The indices of [`Driver::probe`] do not count them.
    fn rejected(&self) -> Vec<Error> {
        Vec::new()
    }
}

/// Memory, programs and queues of one device.
///
/// The caller must have validated every argument: ids are live, regions are inside their allocations, work-groups and shared memory
/// respect the target's limits, and argument types match. No other thread writes memory that a call reads or writes at the same time.
/// Otherwise the behavior is undefined, which is why [`Driver::probe`] is unsafe.
pub trait RawDevice: Send + Sync + fmt::Debug {
    /// Returns the device's properties.
    fn info(&self) -> &DeviceInfo;

    /// Returns the target description for code generation.
    fn target(&self) -> &Target;

    /// Returns the device's total and free memory.
    fn memory(&self) -> MemoryInfo;

    /// Returns true if the device supports the routine.
    fn supports_routine(&self, routine: &Routine) -> bool;

    /// Returns the implementation of matrix products if that depends on the installation: a vendor library and its path, or the
    /// built-in kernels and the reason. The search can take 0.1 s.
    fn blas_library(&self) -> Option<String> {
        None
    }

    /// Allocates `bytes` bytes, at least 1, aligned to at least 64, with undefined contents. Fails with `OutOfMemory`.
    fn allocate(&self, bytes: u64) -> Result<AllocId>;

    /// Makes host bytes memory of the device without a copy, read-only and held until [`RawDevice::free`]. `None` if the device cannot use
    /// them in place, or they are not aligned to at least 64 bytes.
    fn adopt(&self, _bytes: &Arc<HostBytes>) -> Result<Option<AllocId>> {
        Ok(None)
    }

    /// Frees memory once all commands submitted so far no longer need it.
    fn free(&self, alloc: AllocId);

    /// Returns the accepted forms of external programs, those that need no compiler first.
    fn accepted_forms(&self) -> Vec<ProgramForm> {
        match self.target().language {
            Language::Ir => vec![ProgramForm::Host],
            language => vec![ProgramForm::Text(language)],
        }
    }

    /// Compiles a program. Fails with `CompileFailed` and the compiler's log in the notes.
    fn compile(&self, program: &Program) -> Result<ProgramId>;

    /// Returns the program in the device's binary format, for a disk cache; `None` if there is no such format.
    fn binary(&self, program: ProgramId) -> Option<Vec<u8>>;

    /// Releases a program once all commands submitted so far no longer need it.
    fn release(&self, program: ProgramId);

    /// Creates another queue.
    fn queue(&self) -> Result<QueueId>;

    /// Starts commands on a queue, after all work submitted to it before. With `timed`, the ticket has the time of each command.
    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket>;

    /// Records commands to be submitted many times with other operands at `places`. Their programs must outlive the command buffer. The
    /// recorded memory need not exist at a replay.
    fn record(&self, steps: Vec<DeviceCommand>, places: Vec<BindingSlot>) -> Result<RawCommandBuffer> {
        Ok(RawCommandBuffer::new(steps, places))
    }

    /// Submits a command buffer with these bindings, of the recorded sizes, and these slots.
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

    /// Destroys a command buffer once all commands submitted so far no longer need it.
    fn destroy_command_buffer(&self, _command_buffer: RawCommandBuffer) {}

    /// Copies host bytes into a region, after all work submitted to the queue before. `bytes` can be reused on return.
    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()>;

    /// Starts copying a region to the host, after all work submitted to the queue before. [`Ticket::take`] returns the bytes.
    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket>;

    /// Copies a region into host memory of equal length and waits for the copy.
    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        let data = self.read(queue, from)?.take()?;
        bytes.copy_from_slice(&data);
        Ok(())
    }

    /// Returns the region's address for other devices of the driver; `None` if they cannot access it.
    fn peer(&self, _region: Region) -> Option<Peer> {
        None
    }

    /// Starts copying from another device of the driver into a region of equal length, after all work submitted to the queue before. The
    /// caller has waited for the writes to the source, and prevents further writes to it until the copy is complete.
    fn copy_peer(&self, _queue: QueueId, _to: Region, _from: Peer) -> Result<Ticket> {
        Err(Error::unsupported(format!("{} cannot access the memory of other devices", self.info().device_string())))
    }

    /// Waits for all work submitted to all queues.
    fn synchronize(&self) -> Result<()>;
}

/// Pending work on a device.
pub trait Pending: Send + Sync {
    /// Returns true if the work is complete, or its failure.
    fn poll(&self) -> Result<bool>;

    /// Waits for the work. Where blocking is impossible, as in browsers, fails with `Unsupported` while the work is pending.
    fn wait(&self) -> Result<()>;

    /// Wakes a task when the work completes or fails, immediately if it already has. Returns false if the interface has no callbacks, so
    /// that a thread must wait.
    fn wake(&self, _waker: &Waker) -> bool {
        false
    }

    /// Returns the bytes of a completed read, once.
    fn take(&self) -> Option<Vec<u8>>;

    /// Returns the time of each completed timed command, in order. A wait takes no time.
    fn times(&self) -> Vec<StepTime>;

    /// Returns the device's number for this work, by which its `submit` recognizes a ticket in [`DeviceCommand::Wait`].
    fn token(&self) -> u64;
}

/// Start and end of a command, in nanoseconds of the device's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTime {
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// State of submitted work: complete or pending.
#[derive(Clone)]
pub enum Ticket {
    /// The work was complete before `submit` returned.
    Done,
    /// The work is pending.
    Pending(Arc<dyn Pending>),
}

impl Ticket {
    /// Returns true if the work is complete.
    ///
    /// # Errors
    /// The work failed.
    pub fn poll(&self) -> Result<bool> {
        match self {
            Ticket::Done => Ok(true),
            Ticket::Pending(pending) => pending.poll(),
        }
    }

    /// Waits for the work.
    ///
    /// # Errors
    /// The work failed, or blocking is impossible.
    pub fn wait(&self) -> Result<()> {
        match self {
            Ticket::Done => Ok(()),
            Ticket::Pending(pending) => pending.wait(),
        }
    }

    /// Wakes a task when the work completes. Returns false if the device has no callbacks.
    pub fn wake(&self, waker: &Waker) -> bool {
        match self {
            Ticket::Done => {
                waker.wake_by_ref();
                true
            }
            Ticket::Pending(pending) => pending.wake(waker),
        }
    }

    /// Waits for a read and returns its bytes; empty at the second call.
    ///
    /// # Errors
    /// The read failed.
    pub fn take(&self) -> Result<Vec<u8>> {
        self.wait()?;
        match self {
            Ticket::Done => Ok(Vec::new()),
            Ticket::Pending(pending) => Ok(pending.take().unwrap_or_default()),
        }
    }

    /// Waits for timed commands and returns the time of each.
    ///
    /// # Errors
    /// The work failed.
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
