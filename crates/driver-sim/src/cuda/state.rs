//! Everything behind the API, under one lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::codes::*;
use super::config::Config;
use super::graphs::Node;
use super::streams::{Event, Stream};
use crate::blas;
use crate::hip::host::Program;
use crate::hip::{Code, HipProgram};
use crate::level_zero::Objects;
use crate::ptx::Module;
use crate::ptx::memory::Memory;

/// What a call answers.
pub type Answer = Result<(), i32>;

/// The whole driver.
pub struct State {
    pub config: Config,
    pub initialized: bool,
    pub devices: Vec<Device>,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
    pub modules: HashMap<u64, Arc<Module>>,
    /// A module and the name of an entry point.
    pub functions: HashMap<u64, (Arc<Module>, String)>,
    /// Graphs, and what can be launched of them.
    pub graphs: HashMap<u64, Vec<Node>>,
    pub instances: HashMap<u64, Vec<Node>>,
    /// What linking made.
    pub links: HashMap<u64, Vec<u8>>,
    /// HIP's programs that were loaded.
    pub code: HashMap<u64, Arc<Code>>,
    /// A program of HIP and the name of an entry point.
    pub entries: HashMap<u64, (Arc<Code>, String)>,
    /// HIP's texts as programs for the host.
    pub executables: HashMap<String, Arc<Program>>,
    /// HIP's programs that are being compiled.
    pub sources: HashMap<u64, HipProgram>,
    /// What Level Zero made.
    pub level_zero: Objects,
    /// What cuBLASLt or hipBLASLt made.
    pub lt: blas::Objects,
    /// rocBLAS' handles.
    pub rocblas: HashMap<u64, blas::Handle>,
    /// Pinned host memory by address.
    pub pinned: BTreeMap<u64, Box<[u8]>>,
    pub started: Instant,
    calls: HashMap<&'static str, u64>,
    failures: Vec<Failure>,
    next: u64,
}

/// A device.
#[derive(Default)]
pub struct Device {
    pub memory: Memory,
    /// How often its context was asked for and not given back.
    pub retained: u32,
    /// The error that every call answers from now on.
    pub lost: Option<i32>,
}

/// A request that calls fail.
struct Failure {
    function: String,
    code: i32,
    skip: u32,
    times: u32,
}

thread_local! {
    /// The devices whose contexts this thread pushed.
    pub static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

impl State {
    fn new() -> State {
        let config = Config::read();
        State {
            devices: (0..config.devices).map(|_| Device::default()).collect(),
            config,
            initialized: false,
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            instances: HashMap::new(),
            links: HashMap::new(),
            code: HashMap::new(),
            entries: HashMap::new(),
            executables: HashMap::new(),
            sources: HashMap::new(),
            level_zero: Objects::default(),
            lt: blas::Objects::default(),
            rocblas: HashMap::new(),
            pinned: BTreeMap::new(),
            started: Instant::now(),
            calls: HashMap::new(),
            failures: Vec::new(),
            next: 0,
        }
    }

    /// Does something with the state.
    pub fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
        let state = STATE.get_or_init(|| Mutex::new(State::new()));
        f(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call of the API: counted, failed on request, refused before `cuInit`.
    pub fn call(name: &'static str, f: impl FnOnce(&mut State) -> Answer) -> i32 {
        State::with(|state| {
            *state.calls.entry(name).or_default() += 1;
            if let Some(code) = state.requested(name) {
                return code;
            }
            let before = ["cuInit", "cuDriverGetVersion", "hipInit", "hipDriverGetVersion"];
            // Level Zero has its own answer to that.
            if !state.initialized && !before.contains(&name) && !name.starts_with("ze") {
                return NOT_INITIALIZED;
            }
            f(state).err().unwrap_or(SUCCESS)
        })
    }

    /// A call that needs the current context, given its device.
    pub fn on_device(name: &'static str, f: impl FnOnce(&mut State, usize) -> Answer) -> i32 {
        // A thread's device is the first of HIP until it says otherwise.
        let first = (name.starts_with("hip") || name.starts_with("rocblas")).then_some(0);
        let current = CURRENT.with_borrow(|stack| stack.last().copied()).or(first);
        State::call(name, |state| {
            let device = current.ok_or(INVALID_CONTEXT)?;
            if let Some(code) = state.devices[device].lost {
                return Err(code);
            }
            f(state, device)
        })
    }

    fn requested(&mut self, name: &str) -> Option<i32> {
        let failure = self.failures.iter_mut().find(|failure| failure.function == name && failure.times > 0)?;
        if failure.skip > 0 {
            failure.skip -= 1;
            return None;
        }
        failure.times -= 1;
        Some(failure.code)
    }

    /// Makes later calls fail.
    pub fn fail(&mut self, function: String, code: i32, skip: u32, times: u32) {
        self.failures.push(Failure { function, code, skip, times });
    }

    /// How often a function was called.
    pub fn calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// Objects that nobody gave back.
    pub fn live(&self) -> u64 {
        let contexts: u64 = self.devices.iter().map(|device| u64::from(device.retained)).sum();
        let memory: usize = self.devices.iter().map(|device| device.memory.count()).sum();
        let events = self.events.values().filter(|event| event.live).count();
        let programs = self.modules.len() + self.links.len() + self.code.len() + self.sources.len();
        let blas = self.lt.live() + self.rocblas.len();
        let graphs = self.graphs.len() + self.instances.len();
        let level_zero = self.level_zero.live() as u64;
        contexts
            + level_zero
            + (memory + events + programs + graphs + blas + self.streams.len() + self.pinned.len()) as u64
    }

    /// A handle nobody has; never 0.
    pub fn handle(&mut self) -> u64 {
        self.next += 1;
        0x1000 + self.next * 16
    }

    /// Whether bytes at a host address are pinned.
    pub fn is_pinned(&self, address: u64) -> bool {
        let before = self.pinned.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| address < start + bytes.len() as u64)
    }
}
