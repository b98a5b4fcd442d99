//! A simulated device. It computes by interpretation, fails on request and counts its calls. If deferred, it executes the queues in a
//! random order that only respects the contract.

#![allow(dead_code, reason = "each test program uses a part of the module")]

mod kernels;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use panoply_device::{
    AllocId, Arg, Backend, DeviceCommand, DeviceInfo, Dispatch, Language, MemoryInfo, Pending, Program, ProgramId,
    QueueId, RawDevice, Region, Routine, StepTime, Target, Ticket,
};
use panoply_ir::kernel::{Access, Kernel, Param, Space};
use panoply_ir::random::Random;
use panoply_ir::{Error, ErrorKind, Result, Verified, interpret};
use panoply_runtime::{Device, DeviceOptions};

#[allow(unused_imports, reason = "as above")]
pub use kernels::*;

/// Properties of the simulated device.
#[derive(Clone, Debug)]
pub struct Options {
    pub kind: Backend,
    pub index: usize,
    pub software: bool,
    pub target: Target,
    /// Bytes of memory.
    pub memory: u64,
    /// Seed of a random execution order, in which commands run when they are waited for; `None` runs them at submission.
    pub defer: Option<u64>,
    /// One poll in this many finds that the device has executed a command on its own.
    pub progress: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kind: Backend::Cpu,
            index: 0,
            software: false,
            target: Target::cpu(),
            memory: 1 << 30,
            defer: None,
            progress: 4,
        }
    }
}

pub struct TestDevice {
    info: DeviceInfo,
    options: Options,
    state: Arc<Mutex<State>>,
}

/// Counts of the calls, and of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub allocations: u64,
    /// Bytes allocated now.
    pub used: u64,
    pub texts_compiled: u64,
    pub binaries_loaded: u64,
    pub submissions: u64,
}

/// State of the device and failures to inject.
#[derive(Default)]
pub struct State {
    pub counts: Counts,
    pub live: BTreeMap<u64, Vec<u8>>,
    /// Memory and programs to be released when no queue has work left.
    freed: Vec<u64>,
    released: Vec<u64>,
    pub programs: HashMap<u64, Option<Arc<Verified<Kernel>>>>,
    /// Launches so far; source text is compiled but computes nothing.
    pub dispatches: Vec<([u64; 3], [u32; 3])>,
    /// Returned once by the next compilation.
    pub refuse_program: Option<Error>,
    /// Returned once by the next submission.
    pub refuse_submission: Option<Error>,
    /// Failure of the next command that runs.
    pub fail_step: Option<Error>,
    queues: Vec<VecDeque<Task>>,
    finished: HashMap<u64, Finished>,
    next: u64,
    clock: u64,
    random: Option<Random>,
    progress: u64,
}

struct Task {
    id: u64,
    work: VecDeque<Job>,
    timed: bool,
    result: Finished,
}

enum Job {
    Step(DeviceCommand),
    Write(Region, Vec<u8>),
    Read(Region),
}

#[derive(Default)]
struct Finished {
    bytes: Option<Vec<u8>>,
    times: Vec<StepTime>,
    failure: Option<Error>,
}

impl TestDevice {
    pub fn new(options: Options) -> Arc<TestDevice> {
        let info = DeviceInfo {
            kind: options.kind,
            index: options.index,
            variant: None,
            name: "TestDevice".into(),
            vendor: "tests".into(),
            driver: "test device 1".into(),
            is_software: options.software,
            unified_memory: true,
            compute_units: 1,
            physical_id: None,
            details: Vec::new(),
        };
        let random = options.defer.map(Random::new);
        let state =
            State { queues: vec![VecDeque::new()], random, next: 1, progress: options.progress, ..State::default() };
        Arc::new(TestDevice { info, options, state: Arc::new(Mutex::new(state)) })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl TestDevice {
    pub fn counts(&self) -> Counts {
        self.state().counts
    }
}

/// Returns a device with its `TestDevice`, without a disk cache.
pub fn test_device(options: Options) -> (Device, Arc<TestDevice>) {
    let test_device = TestDevice::new(options);
    (Device::new(test_device.clone(), DeviceOptions::default()), test_device)
}

impl fmt::Debug for TestDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestDevice")
    }
}

impl RawDevice for TestDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.options.target
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: self.options.memory, free: Some(self.options.memory - self.counts().used) }
    }

    fn supports_routine(&self, _: &Routine) -> bool {
        false
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let mut state = self.state();
        assert!(bytes > 0, "the contract requires at least one byte");
        if state.counts.used + bytes > self.options.memory {
            return Err(Error::new(ErrorKind::OutOfMemory, "test device: full"));
        }
        state.counts.used += bytes;
        state.counts.allocations += 1;
        let id = state.id();
        // Garbage, so that no test relies on zeros.
        state.live.insert(id, vec![0xA5; bytes as usize]);
        Ok(AllocId(id))
    }

    fn free(&self, alloc: AllocId) {
        let mut state = self.state();
        let bytes = state.live.get(&alloc.0).expect("only live memory is freed").len() as u64;
        state.counts.used -= bytes;
        if state.queues.iter().any(|queue| !queue.is_empty()) {
            state.freed.push(alloc.0);
        } else {
            state.live.remove(&alloc.0);
        }
    }

    fn compile(&self, program: &Program) -> Result<ProgramId> {
        let mut state = self.state();
        if let Some(error) = state.refuse_program.take() {
            return Err(error);
        }
        let takes_kernels = self.options.target.language == Language::Ir;
        if takes_kernels != matches!(program, Program::Ir(_)) {
            return Err(Error::new(ErrorKind::CompileFailed, "test device: a program in another form"));
        }
        let kernel = match program {
            Program::Ir(kernel) => Some(kernel.clone()),
            Program::Text(_) => {
                state.counts.texts_compiled += 1;
                None
            }
            Program::Binary { bytes, .. } => {
                assert!(bytes.starts_with(b"test device binary"), "runtime passes only binaries of this device");
                state.counts.binaries_loaded += 1;
                None
            }
            Program::Image(_) | Program::Host(_) => unreachable!("other forms are rejected above"),
        };
        let id = state.id();
        state.programs.insert(id, kernel);
        Ok(ProgramId(id))
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        let state = self.state();
        let kernel = state.programs.get(&program.0).expect("only live programs are queried");
        kernel.is_none().then(|| b"test device binary of a text".to_vec())
    }

    fn release(&self, program: ProgramId) {
        let mut state = self.state();
        assert!(state.programs.contains_key(&program.0), "only live programs are released");
        if state.queues.iter().any(|queue| !queue.is_empty()) {
            state.released.push(program.0);
        } else {
            state.programs.remove(&program.0);
        }
    }

    fn queue(&self) -> Result<QueueId> {
        let mut state = self.state();
        state.queues.push(VecDeque::new());
        Ok(QueueId(state.queues.len() as u32 - 1))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        if let Some(error) = self.state().refuse_submission.take() {
            return Err(error);
        }
        self.enqueue(queue, steps.iter().cloned().map(Job::Step).collect(), timed)
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        assert_eq!(to.bytes, bytes.len() as u64);
        self.enqueue(queue, [Job::Write(to, bytes.to_vec())].into(), false).map(drop)
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let ticket = self.enqueue(queue, [Job::Read(from)].into(), false)?;
        Ok(ticket)
    }

    fn synchronize(&self) -> Result<()> {
        let mut state = self.state();
        while state.advance() {}
        assert!(state.queues.iter().all(VecDeque::is_empty), "the queues wait for each other");
        Ok(())
    }
}

impl TestDevice {
    fn enqueue(&self, queue: QueueId, work: VecDeque<Job>, timed: bool) -> Result<Ticket> {
        let mut state = self.state();
        state.counts.submissions += 1;
        let id = state.id();
        let reads = work.iter().any(|job| matches!(job, Job::Read(_)));
        state.queues[queue.0 as usize].push_back(Task { id, work, timed, result: Finished::default() });
        if self.options.defer.is_some() {
            return Ok(Ticket::Pending(Arc::new(LabTicket { id, state: self.state.clone() })));
        }
        while state.advance() {}
        let finished = state.finished.get_mut(&id).expect("queues without waits are drained");
        match finished.failure.clone() {
            Some(failure) => Err(failure),
            None if reads || timed => Ok(Ticket::Pending(Arc::new(LabTicket { id, state: self.state.clone() }))),
            None => Ok(Ticket::Done),
        }
    }
}

struct LabTicket {
    id: u64,
    state: Arc<Mutex<State>>,
}

impl LabTicket {
    fn outcome(state: &State, id: u64) -> Option<Result<()>> {
        state.finished.get(&id).map(|finished| finished.failure.clone().map_or(Ok(()), Err))
    }
}

impl Pending for LabTicket {
    fn poll(&self) -> Result<bool> {
        let mut state = self.state.lock().unwrap();
        if state.goes_on() {
            state.advance();
        }
        LabTicket::outcome(&state, self.id).map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    fn wait(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(outcome) = LabTicket::outcome(&state, self.id) {
                return outcome;
            }
            assert!(state.advance(), "the queues wait for each other");
        }
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.state.lock().unwrap().finished.get_mut(&self.id)?.bytes.take()
    }

    fn times(&self) -> Vec<StepTime> {
        self.state.lock().unwrap().finished.get(&self.id).map_or(Vec::new(), |finished| finished.times.clone())
    }

    fn token(&self) -> u64 {
        self.id
    }
}

impl State {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn goes_on(&mut self) -> bool {
        self.random.as_mut().is_some_and(|random| random.below(self.progress) == 0)
    }

    /// Runs one job of a queue that is ready; returns false if all are empty or wait.
    fn advance(&mut self) -> bool {
        let ready: Vec<usize> = (0..self.queues.len()).filter(|queue| self.is_ready(*queue)).collect();
        if ready.is_empty() {
            return false;
        }
        let pick = self.random.as_mut().map_or(0, |random| random.below(ready.len() as u64) as usize);
        let queue = ready[pick];
        let mut task = self.queues[queue].pop_front().expect("a ready queue has a task");
        if let Some(job) = task.work.pop_front() {
            self.run(job, &mut task);
        }
        if task.work.is_empty() {
            self.finished.insert(task.id, task.result);
        } else {
            self.queues[queue].push_front(task);
        }
        if self.queues.iter().all(VecDeque::is_empty) {
            for id in std::mem::take(&mut self.freed) {
                self.live.remove(&id);
            }
            for id in std::mem::take(&mut self.released) {
                self.programs.remove(&id);
            }
        }
        true
    }

    fn is_ready(&self, queue: usize) -> bool {
        match self.queues[queue].front().map(|task| task.work.front()) {
            Some(Some(Job::Step(DeviceCommand::Wait(Ticket::Pending(other))))) => {
                self.finished.contains_key(&other.token())
            }
            Some(_) => true,
            None => false,
        }
    }

    fn run(&mut self, job: Job, task: &mut Task) {
        let start_ns = self.clock;
        self.clock += 1000;
        if !matches!(job, Job::Step(DeviceCommand::Wait(_)))
            && let Some(failure) = self.fail_step.take()
        {
            task.result.failure = Some(failure);
            return;
        }
        match job {
            Job::Write(to, bytes) => self.bytes(to).copy_from_slice(&bytes),
            Job::Read(from) => task.result.bytes = Some(self.bytes(from).to_vec()),
            Job::Step(DeviceCommand::Copy { from, to }) => {
                let bytes = self.bytes(from).to_vec();
                self.bytes(to).copy_from_slice(&bytes);
            }
            Job::Step(DeviceCommand::Fill { to, pattern }) => {
                self.bytes(to).chunks_exact_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(&pattern));
            }
            Job::Step(DeviceCommand::Dispatch(dispatch)) => self.dispatch(&dispatch),
            Job::Step(DeviceCommand::Routine(..)) => unreachable!("the test device supports no routine"),
            Job::Step(DeviceCommand::Wait(_)) => {}
        }
        if task.timed {
            task.result.times.push(StepTime { start_ns, end_ns: self.clock });
        }
    }

    fn bytes(&mut self, region: Region) -> &mut [u8] {
        let memory = self.live.get_mut(&region.alloc.0).expect("work accesses only live memory");
        &mut memory[region.offset as usize..][..region.bytes as usize]
    }

    fn dispatch(&mut self, dispatch: &Dispatch) {
        self.dispatches.push((dispatch.grid, dispatch.group_size));
        let Some(kernel) = self.programs[&dispatch.program.0].clone() else { return };
        let mut copies: Vec<Option<Vec<u8>>> = dispatch
            .args
            .iter()
            .map(|arg| if let Arg::Buffer(region) = arg { Some(self.bytes(*region).to_vec()) } else { None })
            .collect();
        let mut args: Vec<interpret::Arg<'_>> = dispatch
            .args
            .iter()
            .zip(&mut copies)
            .map(|(arg, copy)| match (arg, copy) {
                (Arg::Scalar(value), _) => interpret::Arg::Scalar(*value),
                (Arg::Index(value), _) => interpret::Arg::Index(*value),
                (Arg::Buffer(_), Some(bytes)) => interpret::Arg::Write(bytes),
                (Arg::Buffer(_), None) => unreachable!("every buffer was copied"),
            })
            .collect();
        interpret::run(&kernel, dispatch.grid, dispatch.group_size, &mut args, &mut ())
            .expect("runtime has validated the launch");
        for (param, (arg, copy)) in kernel.params.iter().zip(dispatch.args.iter().zip(copies)) {
            if let (Param::Buffer(mem), Arg::Buffer(region), Some(copy)) = (param, arg, copy)
                && kernel.mem(*mem).space != Space::Buffer(Access::In)
            {
                self.bytes(*region).copy_from_slice(&copy);
            }
        }
    }
}
