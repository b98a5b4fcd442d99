//! The vector machine and the checking interpreter as devices.
//!
//! Commands run synchronously inside `submit`, on the calling thread and the pool. A ticket is therefore nearly always
//! `Done`, and a queue is only a lock. As the device contract says, arguments are not validated here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use panoply_device::{
    AllocId, Arg, Backend, DeviceCommand, DeviceInfo, Dispatch, Driver, Epilogue, Error, ErrorKind, HostBytes,
    HostCall, HostFunction, MemoryInfo, Pending, Program, ProgramId, QueueId, RawCommandBuffer, RawDevice, Region,
    Result, Scalar, StepTime, Target, Ticket, command_buffer,
};
use panoply_host::host_info::{self, Processor};
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::Verified;
use panoply_ir::interpret;
use panoply_ir::kernel::{Access, Kernel, Memory, Param, Space};
use panoply_ir::routine::Routine;
use web_time::Instant;

use crate::checked::run_checked;
use crate::command_buffer::Launches;
use crate::memory::{Allocation, Table};
use crate::vm::exec::Buffer;
use crate::vm::launch::{Args, Compiled, scalar_bits};

/// Options of the CPU device. The default uses all threads and the best instruction set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Number of threads that run a kernel, including the calling one; all threads available to the process if `None`.
    pub threads: Option<usize>,
    /// The instruction set; the best available one if `None` or if the machine lacks the one given.
    pub isa: Option<Isa>,
    /// If true, each allocation is surrounded by inaccessible guard pages, so that an out-of-bounds access ends the
    /// process. For tests.
    pub guard_pages: bool,
}

/// Driver of the CPU, which is always present. It exposes the devices `cpu` and `cpu:checked`.
#[derive(Debug, Default)]
pub struct CpuDriver {
    options: CpuOptions,
}

impl CpuDriver {
    /// Creates a driver with the given options.
    pub fn new(options: CpuOptions) -> CpuDriver {
        CpuDriver { options }
    }
}

impl Driver for CpuDriver {
    fn kind(&self) -> Backend {
        Backend::Cpu
    }

    unsafe fn probe(&self) -> Result<Vec<Arc<dyn RawDevice>>> {
        let pool = Arc::new(self.options.threads.map_or_else(Pool::for_machine, Pool::new));
        let isa = self.options.isa.filter(|isa| isa.is_available()).unwrap_or_else(Isa::best);
        let device = |index, executor| CpuDevice {
            guard_pages: self.options.guard_pages,
            ..CpuDevice::new(index, executor, Arc::clone(&pool), isa)
        };
        Ok(vec![Arc::new(device(0, Executor::VectorMachine)), Arc::new(device(1, Executor::Checked))])
    }
}

/// The execution engine of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    VectorMachine,
    Checked,
}

/// A CPU device.
pub struct CpuDevice {
    info: DeviceInfo,
    target: Target,
    executor: Executor,
    pool: Arc<Pool>,
    isa: Isa,
    guard_pages: bool,
    allocations: Table<Allocation>,
    programs: Table<LoadedProgram>,
    command_buffers: Table<Mutex<Launches>>,
    /// One lock per queue; the commands of a queue run in order.
    queues: RwLock<Vec<Arc<Mutex<()>>>>,
    tokens: AtomicU64,
    start: Instant,
}

/// The buffers of a launch in argument order, kept alive until it has run.
type HeldBuffers = Vec<(Arc<Allocation>, Region)>;

/// A loaded program.
#[derive(Debug)]
enum LoadedProgram {
    Compiled(Arc<Compiled>),
    Checked(Arc<Verified<Kernel>>),
    Host(HostFunction),
}

impl CpuDevice {
    fn new(index: usize, executor: Executor, pool: Arc<Pool>, isa: Isa) -> CpuDevice {
        let Processor { name, vendor, caches } = Processor::here();
        let mut details = vec![("instruction set".to_string(), isa.to_string())];
        details.extend(caches);
        let what = match executor {
            Executor::VectorMachine => "vector machine",
            Executor::Checked => "checked interpreter",
        };
        let info = DeviceInfo {
            kind: Backend::Cpu,
            index,
            variant: (executor == Executor::Checked).then(|| "checked".to_string()),
            name,
            vendor,
            driver: format!("panoply {what} {}", env!("CARGO_PKG_VERSION")),
            is_software: false,
            unified_memory: true,
            compute_units: pool.threads() as u32,
            physical_id: None,
            details,
        };
        CpuDevice {
            info,
            target: Target::cpu(),
            executor,
            pool,
            isa,
            guard_pages: false,
            allocations: Table::new(),
            programs: Table::new(),
            command_buffers: Table::new(),
            queues: RwLock::new(vec![Arc::default()]),
            tokens: AtomicU64::new(1),
            start: Instant::now(),
        }
    }

    fn allocation(&self, id: AllocId) -> Result<Arc<Allocation>> {
        self.allocations.get(id.0).ok_or_else(|| Error::mistake(format!("allocation {} of cpu does not exist", id.0)))
    }

    fn lock_of(&self, queue: QueueId) -> Result<Arc<Mutex<()>>> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let lock = queues.get(queue.0 as usize).cloned();
        lock.ok_or_else(|| Error::mistake(format!("queue {} of cpu does not exist", queue.0)))
    }

    fn step(&self, step: &DeviceCommand) -> Result<()> {
        match step {
            DeviceCommand::Dispatch(dispatch) => self.dispatch(dispatch),
            DeviceCommand::Routine(routine, regions, end) => self.routine(routine, regions, end.as_deref()),
            DeviceCommand::Copy { from, to } => {
                let (source, destination) = (self.allocation(from.alloc)?, self.allocation(to.alloc)?);
                let (source, destination) = (source.address(*from), destination.address(*to));
                // SAFETY: the caller promises that the regions are inside their allocations and do not overlap.
                unsafe { panoply_routines::copy(&self.pool, source, destination, from.bytes as usize) };
                Ok(())
            }
            DeviceCommand::Fill { to, pattern } => {
                let destination = self.allocation(to.alloc)?;
                // SAFETY: the caller promises that the region is inside its allocation and its length is a multiple of
                // the pattern's.
                unsafe { panoply_routines::fill(&self.pool, destination.address(*to), to.bytes as usize, pattern) };
                Ok(())
            }
            DeviceCommand::Wait(ticket) => ticket.wait(),
        }
    }

    fn dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        let (program, allocations) = self.held(dispatch)?;
        self.run_held(&program, dispatch, &allocations)
    }

    /// Returns the program of a launch and the allocations of its buffers in argument order.
    fn held(&self, dispatch: &Dispatch) -> Result<(Arc<LoadedProgram>, HeldBuffers)> {
        let program = self.programs.get(dispatch.program.0);
        let program =
            program.ok_or_else(|| Error::mistake(format!("program {} of cpu does not exist", dispatch.program.0)))?;
        // Holding the allocations keeps them alive until the kernel has run, even if they are freed meanwhile.
        let mut allocations = Vec::with_capacity(dispatch.args.len());
        for arg in &dispatch.args {
            if let Arg::Buffer(region) = arg {
                allocations.push((self.allocation(region.alloc)?, *region));
            }
        }
        Ok((program, allocations))
    }

    fn run_held(
        &self,
        program: &LoadedProgram,
        dispatch: &Dispatch,
        allocations: &[(Arc<Allocation>, Region)],
    ) -> Result<()> {
        match program {
            LoadedProgram::Compiled(compiled) => self.launch(compiled, dispatch, allocations),
            LoadedProgram::Checked(kernel) => check(kernel, dispatch, allocations),
            LoadedProgram::Host(function) => call(function, dispatch, allocations),
        }
    }

    fn launch(
        &self,
        compiled: &Compiled,
        dispatch: &Dispatch,
        allocations: &[(Arc<Allocation>, Region)],
    ) -> Result<()> {
        let (buffers, scalars) = launched(compiled, dispatch, allocations);
        // SAFETY: the caller validated the arguments; the allocations are held above.
        unsafe { compiled.launch(&self.pool, dispatch.grid, &buffers, &scalars) }
    }

    fn routine(&self, routine: &Routine, regions: &[Region], end: Option<&Epilogue>) -> Result<()> {
        let held = regions.iter().map(|region| self.allocation(region.alloc)).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<*mut u8> =
            held.iter().zip(regions).map(|(allocation, region)| allocation.address(*region)).collect();
        let run = |end: Option<panoply_routines::Epilogue<'_>>| {
            // SAFETY: the caller validated the regions against the routine and its epilogue; the allocations are held above.
            unsafe { panoply_routines::run_with_epilogue(&self.pool, self.isa, routine, &addresses, end) }
            Ok(())
        };
        let Some(Epilogue { dispatch, keep_output: keeps }) = end else { return run(None) };
        let (program, allocations) = self.held(dispatch)?;
        if let LoadedProgram::Compiled(compiled) = &*program
            && let Some(mem) = at_once(compiled, routine, regions, dispatch)
        {
            let (buffers, scalars) = launched(compiled, dispatch, &allocations);
            let args = Args { buffers: &buffers, scalars: &scalars };
            if let Some(pieces) = compiled.chunks(dispatch.grid, mem, args) {
                return run(Some(panoply_routines::Epilogue { pieces: &pieces, keep_output: *keeps }));
            }
        }
        run(None)?;
        self.run_held(&program, dispatch, &allocations)
    }
}

/// Returns which memory of the epilogue's kernel is the routine's output, if running the epilogue fused with the routine pays off.
fn at_once(kernel: &Compiled, routine: &Routine, regions: &[Region], dispatch: &Dispatch) -> Option<usize> {
    if !panoply_routines::supports_epilogue(routine) {
        return None;
    }
    let result = regions[routine.operands().position(|operand| operand.access == Access::Out)?];
    let buffers = || dispatch.args.iter().filter_map(Arg::region).zip(&kernel.kernel().mems);
    let besides = buffers().filter(|(region, memory)| *region != result && memory.space == Space::Buffer(Access::In));
    let pays = panoply_routines::epilogue_pays_off(routine, besides.map(|(region, _)| region.bytes).sum());
    buffers().position(|(region, _)| region == result).filter(|_| pays)
}

/// Converts the arguments of a launch into the vector machine's buffers and scalars.
fn launched(
    compiled: &Compiled,
    dispatch: &Dispatch,
    allocations: &[(Arc<Allocation>, Region)],
) -> (Vec<Buffer>, Vec<u64>) {
    let memories = allocations.iter().zip(&compiled.kernel().mems);
    let buffer = |((allocation, region), memory): (&(Arc<Allocation>, Region), &Memory)| Buffer {
        ptr: allocation.address(*region),
        len: region.bytes / memory.dtype.bytes() as u64,
    };
    let scalar = |arg: &Arg| match arg {
        Arg::Buffer(_) => 0,
        Arg::Scalar(value) => scalar_bits(*value),
        Arg::Index(value) => *value,
    };
    (memories.map(buffer).collect(), dispatch.args.iter().map(scalar).collect())
}

/// Runs a kernel on the checking interpreter.
fn check(kernel: &Verified<Kernel>, dispatch: &Dispatch, allocations: &[(Arc<Allocation>, Region)]) -> Result<()> {
    let access = kernel.params.iter().map(|param| match param {
        Param::Scalar { .. } => None,
        Param::Buffer(mem) => match kernel.mem(*mem).space {
            Space::Buffer(access) => Some(access),
            Space::Shared(_) | Space::Private(_) => None,
        },
    });
    let group = kernel.group_size.unwrap_or(dispatch.group_size.map(|size| size.max(1)));
    run_checked(kernel, dispatch.grid, group, &mut arguments(access, dispatch, allocations)?)
}

/// Calls a host function. If it panics, the launch fails and the device remains usable.
fn call(function: &HostFunction, dispatch: &Dispatch, allocations: &[(Arc<Allocation>, Region)]) -> Result<()> {
    let args = arguments(function.access.iter().copied(), dispatch, allocations)?;
    let mut call = HostCall::new(&function.entry, dispatch.grid, args);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (function.body)(&mut call)));
    done.unwrap_or_else(|_| {
        let entry = &function.entry;
        Err(Error::new(ErrorKind::Driver, format!("kernel {entry}: its CPU function panicked; fix the function")))
    })
}

/// Converts the arguments of a launch into host memory.
fn arguments<'a>(
    access: impl Iterator<Item = Option<Access>>,
    dispatch: &'a Dispatch,
    allocations: &'a [(Arc<Allocation>, Region)],
) -> Result<Vec<interpret::Arg<'a>>> {
    let mut buffers = allocations.iter();
    let argument = |(position, (access, arg)): (usize, (Option<Access>, &Arg))| match (access, arg) {
        (_, Arg::Scalar(value)) => Ok(interpret::Arg::Scalar(*value)),
        (_, Arg::Index(value)) => Ok(interpret::Arg::Index(*value)),
        (Some(access), Arg::Buffer(_)) => {
            let (allocation, region) = buffers.next().expect("there is one allocation per buffer argument");
            let (start, bytes) = (allocation.address(*region), region.bytes as usize);
            // SAFETY: the caller promises that the region is inside its allocation, that memory a kernel only reads is
            // not written meanwhile, and that memory it writes aliases no other argument.
            Ok(unsafe {
                match access {
                    Access::In => interpret::Arg::Read(std::slice::from_raw_parts(start, bytes)),
                    Access::Out | Access::InOut => interpret::Arg::Write(std::slice::from_raw_parts_mut(start, bytes)),
                }
            })
        }
        (None, Arg::Buffer(_)) => {
            Err(Error::mistake(format!("argument {} must be a scalar, not a buffer", position + 1)))
        }
    };
    access.zip(&dispatch.args).enumerate().map(argument).collect()
}

impl RawDevice for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> MemoryInfo {
        let host_info::Memory { total, available } = host_info::Memory::now();
        MemoryInfo { total, free: available }
    }

    fn supports_routine(&self, routine: &Routine) -> bool {
        self.executor == Executor::VectorMachine && panoply_routines::offers(routine)
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let allocation = if self.guard_pages { Allocation::guarded(bytes)? } else { Allocation::new(bytes)? };
        Ok(AllocId(self.allocations.insert(allocation)))
    }

    fn adopt(&self, bytes: &Arc<HostBytes>) -> Result<Option<AllocId>> {
        // Guard pages cannot be placed around memory that exists.
        let allocation = if self.guard_pages { None } else { Allocation::adopt(bytes) };
        Ok(allocation.map(|allocation| AllocId(self.allocations.insert(allocation))))
    }

    fn free(&self, alloc: AllocId) {
        self.allocations.remove(alloc.0);
    }

    fn compile(&self, program: &Program) -> Result<ProgramId> {
        let kernel = match program {
            Program::Ir(kernel) => Arc::clone(kernel),
            Program::Host(function) => {
                return Ok(ProgramId(self.programs.insert(LoadedProgram::Host(function.clone()))));
            }
            Program::Text(_) | Program::Binary { .. } | Program::Image(_) => {
                return Err(program.rejected_by(self.info.device_string(), &self.accepted_forms()));
            }
        };
        Ok(ProgramId(self.programs.insert(match self.executor {
            Executor::VectorMachine => LoadedProgram::Compiled(Arc::new(Compiled::new(kernel, self.isa)?)),
            Executor::Checked => LoadedProgram::Checked(kernel),
        })))
    }

    fn binary(&self, _: ProgramId) -> Option<Vec<u8>> {
        None
    }

    fn release(&self, program: ProgramId) {
        self.programs.remove(program.0);
    }

    fn queue(&self) -> Result<QueueId> {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        queues.push(Arc::default());
        Ok(QueueId(queues.len() as u32 - 1))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let lock = self.lock_of(queue)?;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !timed {
            steps.iter().try_for_each(|step| self.step(step))?;
            return Ok(Ticket::Done);
        }
        let now = || self.start.elapsed().as_nanos() as u64;
        let mut times = Vec::with_capacity(steps.len());
        for step in steps {
            let start_ns = now();
            self.step(step)?;
            times.push(StepTime { start_ns, end_ns: now() });
        }
        Ok(self.finished(times, None))
    }

    fn record(&self, steps: Vec<DeviceCommand>, places: Vec<command_buffer::BindingSlot>) -> Result<RawCommandBuffer> {
        let apart = |step: &DeviceCommand, program: &Compiled| match step {
            DeviceCommand::Routine(routine, regions, Some(end)) => {
                at_once(program, routine, regions, &end.dispatch).is_none()
            }
            DeviceCommand::Dispatch(_)
            | DeviceCommand::Routine(..)
            | DeviceCommand::Copy { .. }
            | DeviceCommand::Fill { .. }
            | DeviceCommand::Wait(_) => true,
        };
        let launches =
            Launches::of(&steps, &places, |step, dispatch| match &*self.programs.get(dispatch.program.0)? {
                LoadedProgram::Compiled(compiled) => Some(Arc::clone(compiled)).filter(|program| apart(step, program)),
                LoadedProgram::Checked(_) | LoadedProgram::Host(_) => None,
            });
        let mut command_buffer = RawCommandBuffer::new(steps, places);
        command_buffer.graph = self.command_buffers.insert(Mutex::new(launches));
        Ok(command_buffer)
    }

    fn replay(
        &self,
        queue: QueueId,
        command_buffer: &mut RawCommandBuffer,
        bindings: &[Region],
        slots: &[Scalar],
    ) -> Result<Ticket> {
        let lock = self.lock_of(queue)?;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let launches = self
            .command_buffers
            .get(command_buffer.graph)
            .ok_or_else(|| Error::mistake("a command buffer of cpu does not exist"))?;
        let held = bindings.iter().map(|region| self.allocation(region.alloc)).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<*mut u8> =
            held.iter().zip(bindings).map(|(allocation, region)| allocation.address(*region)).collect();
        command_buffer.set(bindings, slots);
        let mut launches = launches.lock().unwrap_or_else(PoisonError::into_inner);
        let other = |step: &DeviceCommand, alone| match step {
            DeviceCommand::Routine(routine, regions, _) if alone => self.routine(routine, regions, None),
            step => self.step(step),
        };
        // SAFETY: the caller validated the bindings against the command buffer; the allocations are held above.
        unsafe { launches.run(&self.pool, command_buffer.steps(), &addresses, slots, other) }?;
        Ok(Ticket::Done)
    }

    fn destroy_command_buffer(&self, command_buffer: RawCommandBuffer) {
        self.command_buffers.remove(command_buffer.graph);
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        let lock = self.lock_of(queue)?;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let destination = self.allocation(to.alloc)?;
        // SAFETY: the caller promises that the region is inside its allocation and has the length of the bytes.
        unsafe { panoply_routines::copy(&self.pool, bytes.as_ptr(), destination.address(to), bytes.len()) };
        Ok(())
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let mut bytes = vec![0; from.bytes as usize];
        self.read_into(queue, from, &mut bytes)?;
        Ok(self.finished(Vec::new(), Some(bytes)))
    }

    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        let lock = self.lock_of(queue)?;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let source = self.allocation(from.alloc)?;
        // SAFETY: the caller promises that the region is inside its allocation and has the length of the bytes.
        unsafe { panoply_routines::copy(&self.pool, source.address(from), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner).clone();
        for lock in queues {
            drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }
}

impl CpuDevice {
    fn finished(&self, times: Vec<StepTime>, bytes: Option<Vec<u8>>) -> Ticket {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        Ticket::Pending(Arc::new(Finished { token, times, bytes: Mutex::new(bytes) }))
    }
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.allocations.sum(Allocation::bytes);
        let spelling = self.info.device_string();
        write!(f, "{spelling} ({}, {} threads, {bytes} bytes allocated)", self.isa, self.pool.threads())
    }
}

/// A ticket of work that has already finished, with its timings and any bytes still to be fetched.
struct Finished {
    token: u64,
    times: Vec<StepTime>,
    bytes: Mutex<Option<Vec<u8>>>,
}

impl Pending for Finished {
    fn poll(&self) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn times(&self) -> Vec<StepTime> {
        self.times.clone()
    }

    fn token(&self) -> u64 {
        self.token
    }
}
