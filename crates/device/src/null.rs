//! A simulated device that records commands and computes nothing.
//!
//! It takes any [`Target`], so that planning, caching and launching can be tested without the hardware, and the host's overhead per
//! launch can be measured. Failures can be injected.
//!
//! **Memory** is zero until written. Writes, copies and fills take effect; launches and routines change nothing. A device
//! [`NullDevice::without_memory`] stores no bytes and no commands: every read returns zeros.
//!
//! **Time.** Commands complete immediately. Each takes a microsecond of a simulated clock, or for launches the time set with
//! [`NullDevice::with_timing`]. After [`NullDevice::hold`], tickets stay pending until they are waited for or
//! [`NullDevice::release_pending`] is called.
//!
//! **Validation.** A real device validates nothing and has undefined behavior on a bad id. This one checks everything that the contract
//! requires of the caller (`validate`) and returns a mistake, so that tests on it also check the caller.

mod validate;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

use panoply_ir::routine::Routine;
use panoply_ir::target::Language;
use panoply_ir::{Error, ErrorKind, Result, Target};

use crate::command::{AllocId, DeviceCommand, Dispatch, ProgramId, QueueId, Region};
use crate::driver_api::{Driver, Pending, RawDevice, StepTime, Ticket};
use crate::info::{Backend, DeviceInfo, MemoryInfo};
use crate::program::{Program, Signature};

/// Simulated duration of a command.
const STEP_NS: u64 = 1000;

/// A simulated device that records commands and computes nothing.
pub struct NullDevice {
    info: DeviceInfo,
    target: Target,
    total_bytes: u64,
    offers: fn(&Routine) -> bool,
    takes_ns: fn(&Dispatch) -> u64,
    hollow: bool,
    state: Arc<Mutex<State>>,
}

/// Counts of a [`NullDevice`]'s operations and resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live allocations.
    pub allocations: u64,
    /// Bytes allocated now.
    pub bytes: u64,
    /// Peak of the bytes allocated.
    pub peak_bytes: u64,
    /// Allocations made so far.
    pub allocated: u64,
    /// Live programs.
    pub programs: u64,
    /// Programs compiled from text or IR.
    pub compiled: u64,
    /// Programs loaded from a binary.
    pub taken_from_binary: u64,
    /// Queues.
    pub queues: u64,
    /// Calls of `submit`.
    pub submits: u64,
    /// Launches.
    pub dispatches: u64,
    /// Routines.
    pub routines: u64,
    /// Copies.
    pub copies: u64,
    /// Fills.
    pub fills: u64,
    /// Waits.
    pub waits: u64,
    /// Bytes copied from the host.
    pub bytes_written: u64,
    /// Bytes copied to the host.
    pub bytes_read: u64,
}

/// A failure to inject into a [`NullDevice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFailure {
    /// An allocation fails with out of memory.
    Allocation {
        /// Number of allocations that succeed before.
        after: u64,
    },
    /// The next compilation fails.
    Build {
        /// The compiler's log.
        log: String,
    },
    /// The device is lost permanently: every operation fails from then on.
    Lost {
        /// Number of submissions that succeed before.
        after: u64,
    },
}

#[derive(Default)]
struct State {
    counts: Counts,
    next_id: u64,
    allocations: HashMap<AllocId, Allocation>,
    programs: HashMap<ProgramId, Compiled>,
    steps: Vec<(QueueId, DeviceCommand)>,
    failures: Vec<InjectedFailure>,
    lost: bool,
    clock_ns: u64,
    /// True if new tickets stay pending; and how many times pending tickets were released.
    held: bool,
    let_go: u64,
    /// Tokens of live tickets.
    tokens: HashSet<u64>,
}

struct Allocation {
    bytes: u64,
    /// `None` until the first write: all zero.
    contents: Option<Vec<u8>>,
}

struct Compiled {
    entry: String,
    /// Source text, or the text of the kernel's IR; `None` for a host function.
    source: Option<String>,
    signature: Signature,
    group: Option<[u32; 3]>,
    binary: Option<Vec<u8>>,
}

impl NullDevice {
    /// Creates a device with this target, 1 GiB of memory and no routines.
    pub fn new(target: Target) -> NullDevice {
        let kind = match target.language {
            Language::Ir => Backend::Cpu,
            Language::OpenClC => Backend::OpenCl,
            Language::Hip => Backend::Rocm,
            Language::Ptx { .. } | Language::CudaC => Backend::Cuda,
            Language::Wgsl => Backend::Vulkan,
            Language::Msl => Backend::Metal,
            Language::SpirV => Backend::OneApi,
        };
        let info = DeviceInfo {
            kind,
            index: 0,
            variant: Some("null".into()),
            name: "nothing".into(),
            vendor: "panoply".into(),
            driver: "null".into(),
            is_software: false,
            unified_memory: false,
            compute_units: 1,
            physical_id: None,
            details: Vec::new(),
        };
        let offers = |_: &Routine| false;
        let state = State { counts: Counts { queues: 1, ..Counts::default() }, ..State::default() };
        NullDevice {
            info,
            target,
            total_bytes: 1 << 30,
            offers,
            takes_ns: |_| STEP_NS,
            hollow: false,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Sets the device properties.
    #[must_use]
    pub fn with_info(self, info: DeviceInfo) -> NullDevice {
        NullDevice { info, ..self }
    }

    /// Sets the memory size in bytes.
    #[must_use]
    pub fn in_memory(self, total_bytes: u64) -> NullDevice {
        NullDevice { total_bytes, ..self }
    }

    /// Sets the supported routines.
    #[must_use]
    pub fn with_routines(self, offers: fn(&Routine) -> bool) -> NullDevice {
        NullDevice { offers, ..self }
    }

    /// Sets the simulated duration of launches, in nanoseconds.
    #[must_use]
    pub fn with_timing(self, takes_ns: fn(&Dispatch) -> u64) -> NullDevice {
        NullDevice { takes_ns, ..self }
    }

    /// Makes the device store no bytes and no commands.
    #[must_use]
    pub fn without_memory(self) -> NullDevice {
        NullDevice { hollow: true, ..self }
    }

    /// Schedules a failure. Several can be scheduled.
    pub fn fail(&self, failure: InjectedFailure) {
        self.state().failures.push(failure);
    }

    /// Keeps the tickets of later submissions pending.
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Completes all pending tickets, and stops holding new ones.
    pub fn release_pending(&self) {
        let mut state = self.state();
        state.held = false;
        state.let_go += 1;
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Returns the commands since the last call, in order, each with its queue. Tickets of waits are replaced by [`Ticket::Done`].
    pub fn take_steps(&self) -> Vec<(QueueId, DeviceCommand)> {
        mem::take(&mut self.state().steps)
    }

    /// Returns the entry point's name of a live program.
    pub fn entry(&self, program: ProgramId) -> Option<String> {
        self.state().programs.get(&program).map(|compiled| compiled.entry.clone())
    }

    /// Returns the source text or IR text of a live program; `None` for a host function.
    pub fn source(&self, program: ProgramId) -> Option<String> {
        self.state().programs.get(&program)?.source.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mistake(&self, what: impl fmt::Display) -> Error {
        Error::mistake(format!("{}: {what}", self.info.device_string()))
    }

    fn ticket(&self, state: &mut State, times: Vec<StepTime>, bytes: Option<Vec<u8>>) -> Ticket {
        if !state.held && times.is_empty() && bytes.is_none() {
            return Ticket::Done;
        }
        let token = state.fresh_id();
        state.tokens.insert(token);
        let done_after = state.held.then_some(state.let_go);
        let bytes = Mutex::new(bytes);
        Ticket::Pending(Arc::new(PendingTicket { token, done_after, times, bytes, state: self.state.clone() }))
    }

    fn run(&self, state: &mut State, queue: QueueId, step: &DeviceCommand) -> Result<StepTime> {
        self.check_step(state, step)?;
        let start_ns = state.clock_ns;
        match step {
            DeviceCommand::Dispatch(_) => state.counts.dispatches += 1,
            DeviceCommand::Routine(..) => state.counts.routines += 1,
            DeviceCommand::Copy { from, to } => {
                state.counts.copies += 1;
                let bytes = state.bytes(*from, self.hollow);
                state.store(*to, &bytes, self.hollow);
            }
            DeviceCommand::Fill { to, pattern } => {
                state.counts.fills += 1;
                let bytes: Vec<u8> =
                    if self.hollow { Vec::new() } else { pattern.repeat(to.bytes as usize / pattern.len()) };
                state.store(*to, &bytes, self.hollow);
            }
            DeviceCommand::Wait(_) => state.counts.waits += 1,
        }
        if !self.hollow {
            // A recorded ticket would keep this state alive in a reference cycle.
            let step = if let DeviceCommand::Wait(_) = step { DeviceCommand::Wait(Ticket::Done) } else { step.clone() };
            state.steps.push((queue, step));
        }
        state.clock_ns +=
            if let DeviceCommand::Dispatch(dispatch) = step { (self.takes_ns)(dispatch) } else { STEP_NS };
        Ok(StepTime { start_ns, end_ns: state.clock_ns })
    }

    /// Returns an error if the device is lost or a scheduled loss is due.
    fn check_lost(&self, state: &mut State, submits: u64) -> Result<()> {
        let due = state.failures.iter_mut().any(|failure| match failure {
            InjectedFailure::Lost { after: 0 } => true,
            InjectedFailure::Lost { after } => {
                *after -= submits;
                false
            }
            InjectedFailure::Allocation { .. } | InjectedFailure::Build { .. } => false,
        });
        state.lost |= due && submits > 0;
        match state.lost {
            true => Err(Error::new(
                ErrorKind::DeviceLost,
                format!("{}: device lost (injected failure); open another", self.info.device_string()),
            )),
            false => Ok(()),
        }
    }
}

impl State {
    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns true if an injected allocation failure is due; each occurs once.
    fn allocation_fails(&mut self) -> bool {
        let mut due = None;
        for (i, failure) in self.failures.iter_mut().enumerate() {
            match failure {
                InjectedFailure::Allocation { after: 0 } => due = due.or(Some(i)),
                InjectedFailure::Allocation { after } => *after -= 1,
                InjectedFailure::Build { .. } | InjectedFailure::Lost { .. } => {}
            }
        }
        due.map(|i| self.failures.remove(i)).is_some()
    }

    fn build_fails(&mut self) -> Option<String> {
        let due = self.failures.iter().position(|failure| matches!(failure, InjectedFailure::Build { .. }))?;
        match self.failures.remove(due) {
            InjectedFailure::Build { log } => Some(log),
            InjectedFailure::Allocation { .. } | InjectedFailure::Lost { .. } => None,
        }
    }

    fn bytes(&self, region: Region, hollow: bool) -> Vec<u8> {
        if hollow {
            return Vec::new();
        }
        let range = region.offset as usize..(region.offset + region.bytes) as usize;
        let contents = self.allocations.get(&region.alloc).and_then(|allocation| allocation.contents.as_ref());
        contents.map_or_else(|| vec![0; range.len()], |contents| contents[range.clone()].to_vec())
    }

    fn store(&mut self, region: Region, bytes: &[u8], hollow: bool) {
        if hollow {
            return;
        }
        if let Some(allocation) = self.allocations.get_mut(&region.alloc) {
            let contents = allocation.contents.get_or_insert_with(|| vec![0; allocation.bytes as usize]);
            contents[region.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl RawDevice for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: self.total_bytes, free: Some(self.total_bytes - self.state().counts.bytes) }
    }

    fn supports_routine(&self, routine: &Routine) -> bool {
        (self.offers)(routine)
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let mut state = self.state();
        self.check_lost(&mut state, 0)?;
        if bytes == 0 {
            return Err(self.mistake("an allocation of 0 bytes; allocate at least 1"));
        }
        let free = self.total_bytes - state.counts.bytes;
        if bytes > free || bytes > self.target.max_buffer_bytes || state.allocation_fails() {
            let (name, total, largest) = (self.info.device_string(), self.total_bytes, self.target.max_buffer_bytes);
            let message = format!("out of memory on {name}: needs {bytes} bytes, {free} free of {total}; free buffers");
            return Err(
                Error::new(ErrorKind::OutOfMemory, message).note(format!("the maximum buffer size is {largest} bytes"))
            );
        }
        let id = AllocId(state.fresh_id());
        state.allocations.insert(id, Allocation { bytes, contents: None });
        let counts = &mut state.counts;
        (counts.allocations, counts.allocated, counts.bytes) =
            (counts.allocations + 1, counts.allocated + 1, counts.bytes + bytes);
        counts.peak_bytes = counts.peak_bytes.max(counts.bytes);
        Ok(id)
    }

    fn free(&self, alloc: AllocId) {
        let mut state = self.state();
        if let Some(allocation) = state.allocations.remove(&alloc) {
            state.counts.allocations -= 1;
            state.counts.bytes -= allocation.bytes;
        }
    }

    fn compile(&self, program: &Program) -> Result<ProgramId> {
        let mut state = self.state();
        self.check_lost(&mut state, 0)?;
        let (compiled, from_binary) = self.read_program(program)?;
        if let Some(log) = state.build_fails() {
            let message =
                format!("{}: compiling {} failed; its log follows", self.info.device_string(), compiled.entry);
            return Err(Error::new(ErrorKind::CompileFailed, message).note(log));
        }
        let id = ProgramId(state.fresh_id());
        state.programs.insert(id, compiled);
        state.counts.programs += 1;
        state.counts.compiled += u64::from(!from_binary);
        state.counts.taken_from_binary += u64::from(from_binary);
        Ok(id)
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        self.state().programs.get(&program)?.binary.clone()
    }

    fn release(&self, program: ProgramId) {
        let mut state = self.state();
        if state.programs.remove(&program).is_some() {
            state.counts.programs -= 1;
        }
    }

    fn queue(&self) -> Result<QueueId> {
        let mut state = self.state();
        self.check_lost(&mut state, 0)?;
        state.counts.queues += 1;
        Ok(QueueId(state.counts.queues as u32 - 1))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let mut state = self.state();
        self.check_queue(&state, queue)?;
        self.check_lost(&mut state, 1)?;
        state.counts.submits += 1;
        let mut times = Vec::new();
        for step in steps {
            let time = self.run(&mut state, queue, step)?;
            if timed {
                times.push(time);
            }
        }
        Ok(self.ticket(&mut state, times, None))
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        self.check_lost(&mut state, 0)?;
        self.check_queue(&state, queue)?;
        self.check_region(&state, to)?;
        if bytes.len() as u64 != to.bytes {
            return Err(self.mistake(format_args!("{} bytes for a region of {}", bytes.len(), to.bytes)));
        }
        state.counts.bytes_written += to.bytes;
        state.store(to, bytes, self.hollow);
        Ok(())
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let mut state = self.state();
        self.check_lost(&mut state, 0)?;
        self.check_queue(&state, queue)?;
        self.check_region(&state, from)?;
        state.counts.bytes_read += from.bytes;
        let bytes = if self.hollow { vec![0; from.bytes as usize] } else { state.bytes(from, false) };
        Ok(self.ticket(&mut state, Vec::new(), Some(bytes)))
    }

    fn synchronize(&self) -> Result<()> {
        let mut state = self.state();
        self.check_lost(&mut state, 0)?;
        state.let_go += 1;
        Ok(())
    }
}

impl fmt::Debug for NullDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.info.device_string(), self.target.name)
    }
}

/// A ticket of a [`NullDevice`].
struct PendingTicket {
    token: u64,
    /// Count of releases that must be exceeded for completion; `None` if already complete.
    done_after: Option<u64>,
    times: Vec<StepTime>,
    bytes: Mutex<Option<Vec<u8>>>,
    state: Arc<Mutex<State>>,
}

impl PendingTicket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> bool {
        self.done_after.is_none_or(|before| self.state().let_go > before)
    }
}

impl Pending for PendingTicket {
    fn poll(&self) -> Result<bool> {
        Ok(self.done())
    }

    fn wait(&self) -> Result<()> {
        if !self.done() {
            self.state().let_go += 1;
        }
        Ok(())
    }

    fn take(&self) -> Option<Vec<u8>> {
        if self.done() { self.bytes.lock().unwrap_or_else(PoisonError::into_inner).take() } else { None }
    }

    fn times(&self) -> Vec<StepTime> {
        self.times.clone()
    }

    fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for PendingTicket {
    fn drop(&mut self) {
        self.state().tokens.remove(&self.token);
    }
}

/// A driver with a fixed list of devices, for tests of device selection.
#[derive(Debug)]
pub struct NullDriver {
    /// Backend.
    pub kind: Backend,
    /// Result of [`Driver::probe`].
    pub devices: Result<Vec<Arc<NullDevice>>>,
    /// Result of [`Driver::rejected`].
    pub refused: Vec<Error>,
}

#[allow(
    unsafe_code,
    reason = "a declaration: these devices validate their arguments, so no safety requirement applies"
)]
impl Driver for NullDriver {
    fn kind(&self) -> Backend {
        self.kind
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        Ok(self.devices.clone()?.into_iter().map(|device| device as Arc<dyn RawDevice>).collect())
    }

    fn rejected(&self) -> Vec<Error> {
        self.refused.clone()
    }
}

#[cfg(test)]
mod tests;
