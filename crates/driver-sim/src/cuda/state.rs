//! The state behind the API, under one lock.

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

/// The result of a call.
pub type Answer = Result<(), i32>;

/// The state of the simulated driver.
pub struct State {
    pub config: Config,
    pub initialized: bool,
    pub devices: Vec<Device>,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
    pub modules: HashMap<u64, Arc<Module>>,
    /// A module and the name of an entry point.
    pub functions: HashMap<u64, (Arc<Module>, String)>,
    /// Graphs, and their instances.
    pub graphs: HashMap<u64, Vec<Node>>,
    pub instances: HashMap<u64, Vec<Node>>,
    /// Linked images.
    pub links: HashMap<u64, Vec<u8>>,
    /// HIP's loaded modules.
    pub code: HashMap<u64, Arc<Code>>,
    /// HIP functions: a module and the name of an entry point.
    pub entries: HashMap<u64, (Arc<Code>, String)>,
    /// HIP sources compiled for the host.
    pub executables: HashMap<String, Arc<Program>>,
    /// HIP's compiler programs.
    pub sources: HashMap<u64, HipProgram>,
    /// Objects of Level Zero.
    pub level_zero: Objects,
    /// Objects of cuBLASLt or hipBLASLt.
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
    /// Reference count of its context.
    pub retained: u32,
    /// The error that all further calls return.
    pub lost: Option<i32>,
}

/// A request to make calls fail.
struct Failure {
    function: String,
    code: i32,
    skip: u32,
    times: u32,
}

thread_local! {
    /// The stack of devices whose contexts this thread pushed.
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

    /// Calls `f` with the state.
    pub fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
        let state = STATE.get_or_init(|| Mutex::new(State::new()));
        f(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Executes a call of the API: counts it, fails it on request, rejects it before `cuInit`.
    pub fn call(name: &'static str, f: impl FnOnce(&mut State) -> Answer) -> i32 {
        State::with(|state| {
            *state.calls.entry(name).or_default() += 1;
            if let Some(code) = state.requested(name) {
                return code;
            }
            let before = ["cuInit", "cuDriverGetVersion", "hipInit", "hipDriverGetVersion"];
            // Level Zero returns a code of its own for this.
            if !state.initialized && !before.contains(&name) && !name.starts_with("ze") {
                return NOT_INITIALIZED;
            }
            f(state).err().unwrap_or(SUCCESS)
        })
    }

    /// Executes a call that needs a current context, with its device.
    pub fn on_device(name: &'static str, f: impl FnOnce(&mut State, usize) -> Answer) -> i32 {
        // HIP's first device is current on a thread by default.
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

    /// Returns the number of calls of a function.
    pub fn calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of live objects.
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

    /// Returns a new handle, which is never 0.
    pub fn handle(&mut self) -> u64 {
        self.next += 1;
        0x1000 + self.next * 16
    }

    /// Returns true if a host address is in pinned memory.
    pub fn is_pinned(&self, address: u64) -> bool {
        let before = self.pinned.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| address < start + bytes.len() as u64)
    }
}
