//! Cache of compiled plans by graph, device and options, so that a training loop schedules and compiles once.
//!
//! The graph itself is the key: it holds no addresses and no values, and comparing graphs rules out hash collisions.
//! The cache is global to the process, like the registry of devices. When a device has [`CAPACITY`] plans, the least
//! recently used one is dropped.

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use panoply_compile::plan::{BufferId, Options, Plan, PlanArg, PlanBuffer, PlanStep, Role, Variant, plan_with};
use panoply_ir::graph::Graph;
use panoply_ir::kernel::{Access, Kernel, Param, Space};
use panoply_ir::{Result, Scalar};
use panoply_runtime::{
    Backend, BindingKind, BindingSlot, Command, CommandBuffer, CompiledKernel, Device, Epilogue, Event, Grid,
    LaunchArg, Storage,
};

use crate::hasher::WordMap;

/// Maximum number of cached plans for each device.
const CAPACITY: usize = 512;

/// Maximum number of recording attempts for each range of a plan's steps: the memory layout of the leaves can differ once, or change
/// permanently.
const RECORDINGS: usize = 2;

/// Maximum number of ranges of steps of a plan that are recorded.
const RECORDED_RANGES: usize = 64;

static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(Mutex::default);
static COUNTS: Counts = Counts { plans: AtomicU64::new(0), hits: AtomicU64::new(0), replays: AtomicU64::new(0) };

/// Plans by device and options.
type Plans = HashMap<(Device, Options), Programs>;

/// Plans of one device, each with the time of its last use.
type Programs = WordMap<Arc<Graph>, (Arc<CompiledPlan>, u64)>;

struct Counts {
    plans: AtomicU64,
    hits: AtomicU64,
    replays: AtomicU64,
}

/// Statistics of the plan cache of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCacheStats {
    /// Graphs that were planned.
    pub misses: u64,
    /// Graphs that were found in the cache.
    pub hits: u64,
    /// Replays of recorded command buffers: one for a run, or one for each part of a run in parts.
    pub replays: u64,
}

/// Returns the statistics since the start of the process.
pub fn stats() -> PlanCacheStats {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    PlanCacheStats { misses: read(&COUNTS.plans), hits: read(&COUNTS.hits), replays: read(&COUNTS.replays) }
}

/// A plan with its compiled kernels, one entry for each step of the plan: `None` for a copy, or for a routine without
/// an epilogue.
pub(crate) struct CompiledPlan {
    graph: Arc<Graph>,
    /// Options of the plan.
    options: Options,
    plan: Plan,
    kernels: Vec<Option<Arc<CompiledKernel>>>,
    /// Fastest measured variants of some steps, which replace their kernels.
    fastest: OnceLock<BTreeMap<usize, (Arc<CompiledKernel>, Grid)>>,
    /// Command buffers of ranges of the plan's steps, recorded when they run a second time.
    recordings: Mutex<BTreeMap<(usize, usize), CommandBuffers>>,
    /// Replacement plan, once the device disabled a routine of this one.
    instead: OnceLock<Arc<CompiledPlan>>,
}

/// The recorded command buffers of some steps, one for each memory layout of the leaves.
#[derive(Clone, Default)]
struct CommandBuffers {
    made: Vec<Arc<CommandBuffer>>,
    /// True once the steps ran.
    ran: bool,
    /// Number of attempts, failed ones included.
    tried: usize,
}

/// Parts of the outputs of a run, which are reported in order.
pub(crate) struct OutputParts<'a> {
    /// For each part the number of outputs up to its end.
    ends: &'a [usize],
    /// Number of parts that were reported; a run that is repeated reports the others.
    reported: usize,
    /// True if a report failed, which ends the run.
    failed: bool,
    /// Called for each part with its number and the outputs up to its end.
    on_part: &'a mut dyn FnMut(usize, &[Storage]) -> Result<()>,
}

impl<'a> OutputParts<'a> {
    /// Creates parts with these ends. The last part ends with the last output.
    pub fn new(ends: &'a [usize], on_part: &'a mut dyn FnMut(usize, &[Storage]) -> Result<()>) -> OutputParts<'a> {
        OutputParts { ends, reported: 0, failed: false, on_part }
    }

    /// Reports the parts before this one that were not reported yet.
    fn report(&mut self, end: usize, outputs: &[Storage]) -> Result<()> {
        while self.reported < end {
            let part = self.reported;
            self.reported += 1;
            let done = (self.on_part)(part, &outputs[..self.ends[part]]);
            self.failed = done.is_err();
            done?;
        }
        Ok(())
    }
}

/// The memory of one run.
struct PlanMemory {
    /// The buffers that a command buffer binds: the leaves, then the arenas, then each output.
    bindings: Vec<Storage>,
    leaves: usize,
    outputs: usize,
}

impl PlanMemory {
    fn new(device: &Device, plan: &Plan, leaves: Vec<Storage>) -> Result<PlanMemory> {
        let (leaves, mut bindings) = (leaves.len(), leaves);
        for bytes in &plan.arenas {
            bindings.push(device.allocate(*bytes)?);
        }
        let outputs = bindings.len();
        for output in plan.buffers.iter().filter(|buffer| buffer.role == Role::Output) {
            bindings.push(device.allocate(output.bytes())?);
        }
        Ok(PlanMemory { bindings, leaves, outputs })
    }

    /// Returns the location of each of the plan's buffers: a binding, and the byte offset in it.
    fn of<'p>(&self, plan: &'p Plan) -> impl Iterator<Item = (usize, u64)> + use<'p> {
        let (leaves, mut output) = (self.leaves, self.outputs);
        plan.buffers.iter().map(move |buffer| match buffer.role {
            Role::Leaf(n) | Role::Donated(n) => (n as usize, 0),
            Role::Temp { arena, offset } => (leaves + arena, offset),
            Role::Output => {
                output += 1;
                (output - 1, 0)
            }
        })
    }

    fn buffers(&self, plan: &Plan) -> Result<Vec<Storage>> {
        let buffers = self.of(plan).zip(&plan.buffers);
        let storage = |((binding, offset), buffer): ((usize, u64), &PlanBuffer)| match buffer.role {
            Role::Temp { .. } => self.bindings[binding].slice(offset..offset + buffer.bytes()),
            Role::Leaf(_) | Role::Donated(_) | Role::Output => Ok(self.bindings[binding].clone()),
        };
        buffers.map(storage).collect()
    }

    fn outputs(&self, plan: &Plan) -> Vec<Storage> {
        let places: Vec<(usize, u64)> = self.of(plan).collect();
        plan.outputs.iter().map(|id: &BufferId| self.bindings[places[id.index()].0].clone()).collect()
    }

    /// Returns which operands of these steps are which bindings and slots. Steps are numbered from the first of them.
    fn places(&self, plan: &Plan, steps: Range<usize>) -> Vec<BindingSlot> {
        let of: Vec<(usize, u64)> = self.of(plan).collect();
        let source = |id: &BufferId| {
            let (binding, offset) = of[id.index()];
            BindingKind::Binding { binding: binding as u32, offset }
        };
        let add_arg = |add: &mut dyn FnMut(usize, BindingKind), (operand, arg): (usize, &PlanArg)| match arg {
            PlanArg::Buffer(id) => add(operand, source(id)),
            PlanArg::ScalarInput(n) => add(operand, BindingKind::Slot(*n)),
            PlanArg::Scalar(_) => {}
        };
        let mut places = Vec::new();
        for (step, planned) in plan.steps[steps].iter().enumerate() {
            let mut add = |operand: usize, source| {
                places.push(BindingSlot { step: step as u32, operand: operand as u32, source })
            };
            match planned {
                PlanStep::Kernel { args, .. } => args.iter().enumerate().for_each(|arg| add_arg(&mut add, arg)),
                PlanStep::Routine { buffers, epilogue, .. } => {
                    buffers.iter().enumerate().for_each(|(operand, id)| add(operand, source(id)));
                    let args = epilogue.iter().flat_map(|epilogue| &epilogue.args);
                    (buffers.len()..).zip(args).for_each(|arg| add_arg(&mut add, arg));
                }
                PlanStep::Copy { from, to } => {
                    [from, to].into_iter().enumerate().for_each(|(operand, id)| add(operand, source(id)));
                }
            }
        }
        places
    }
}

impl CompiledPlan {
    /// Returns true if the plan reads or overwrites the n-th leaf.
    pub fn reads(&self, leaf: usize) -> bool {
        let is = |n: u32| n as usize == leaf;
        self.plan.buffers.iter().any(|buffer| matches!(buffer.role, Role::Leaf(n) | Role::Donated(n) if is(n)))
    }

    /// Runs the plan and returns its outputs. If a library routine fails and is disabled, runs another plan of the
    /// same graph.
    pub fn run(&self, device: &Device, leaves: Vec<Storage>, slots: &[Scalar]) -> Result<Vec<Storage>> {
        let mut outputs = Vec::new();
        let mut keep = |_, whole: &[Storage]| {
            outputs = whole.to_vec();
            Ok(())
        };
        self.run_in_parts(device, leaves, slots, &mut OutputParts::new(&[self.plan.outputs.len()], &mut keep))?;
        Ok(outputs)
    }

    /// Runs the plan like [`CompiledPlan::run`] and reports each part of its outputs. A CPU computes a part, reports it, and computes the next
    /// one. Another device is given all steps before the first report: reads wait for everything that was submitted before.
    pub fn run_in_parts(
        &self,
        device: &Device,
        leaves: Vec<Storage>,
        slots: &[Scalar],
        parts: &mut OutputParts<'_>,
    ) -> Result<()> {
        if let Some(instead) = self.instead.get() {
            return instead.run_in_parts(device, leaves, slots, parts);
        }
        let mut memory = PlanMemory::new(device, &self.plan, leaves)?;
        let routines = self.plan.steps.iter().filter_map(|step| match step {
            PlanStep::Routine { routine, .. } => Some(routine),
            PlanStep::Kernel { .. } | PlanStep::Copy { .. } => None,
        });
        match self.run_on(device, &memory, slots, parts) {
            // The leaves are unchanged: a plan with library routines does not write to them before its last routine
            // ran.
            Err(failure) if !parts.failed && device.has_lost_routine(routines, &failure) => {
                memory.bindings.truncate(memory.leaves);
                let instead = Arc::new(CompiledPlan::new(device, &self.options, self.graph.clone())?);
                self.instead.get_or_init(|| instead).run_in_parts(device, memory.bindings, slots, parts)
            }
            done => done,
        }
    }

    /// Returns the bytes of the plan's outputs and of its arenas.
    pub fn memory(&self) -> (u64, u64) {
        let outputs = self.plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Output));
        (outputs.map(|buffer| buffer.bytes()).sum(), self.plan.arenas.iter().sum())
    }

    fn run_on(
        &self,
        device: &Device,
        memory: &PlanMemory,
        slots: &[Scalar],
        parts: &mut OutputParts<'_>,
    ) -> Result<()> {
        let (outputs, count) = (memory.outputs(&self.plan), self.plan.steps.len());
        if !self.plan.variants.is_empty() && self.fastest.get().is_none() {
            self.tune(device, &self.commands(0..count, &memory.buffers(&self.plan)?, slots))?;
            self.mark_as_run((0, count));
            return parts.report(parts.ends.len(), &outputs);
        }
        let mut start = 0;
        if parts.ends.len() > 1 && device.info().kind == Backend::Cpu {
            for (part, end) in self.steps_of(&parts.ends[..parts.ends.len() - 1]).into_iter().enumerate() {
                if start < end {
                    self.run_steps(device, memory, slots, start..end)?.wait()?;
                    start = end;
                }
                parts.report(part + 1, &outputs)?;
            }
        }
        if start < count {
            self.run_steps(device, memory, slots, start..count)?;
        }
        parts.report(parts.ends.len(), &outputs)
    }

    /// Returns for each number of outputs the number of steps after which they are computed.
    fn steps_of(&self, counts: &[usize]) -> Vec<usize> {
        let mut computed = vec![0; self.plan.buffers.len()];
        for (at, step) in self.plan.steps.iter().enumerate() {
            let written = step.touches().filter(|(_, access)| *access != Access::In);
            written.for_each(|(id, _)| computed[id.index()] = at + 1);
        }
        let last = |count: usize| self.plan.outputs[..count].iter().map(|id| computed[id.index()]).max();
        counts.iter().map(|count| last(*count).unwrap_or(0)).collect()
    }

    fn run_steps(&self, device: &Device, memory: &PlanMemory, slots: &[Scalar], steps: Range<usize>) -> Result<Event> {
        let bindings: Vec<&Storage> = memory.bindings.iter().collect();
        let key = (steps.start, steps.end);
        let recordings = self.recordings().get(&key).cloned().unwrap_or_default();
        for recorded in &recordings.made {
            // An error during the replay is returned, not retried: leaves may have been overwritten.
            if let Some(event) = recorded.try_replay(&bindings, slots)? {
                COUNTS.replays.fetch_add(1, Ordering::Relaxed);
                return Ok(event);
            }
        }
        let buffers = memory.buffers(&self.plan)?;
        let work = self.commands(steps.clone(), &buffers, slots);
        let event = device.submit_to(&device.default_queue(), &work)?;
        if !recordings.ran {
            self.mark_as_run(key);
        } else if recordings.tried < RECORDINGS {
            let places = memory.places(&self.plan, steps);
            self.keep(key, recordings.tried, device.record_commands(&work, &bindings, slots, places));
        }
        Ok(event)
    }

    /// Plans a graph and compiles its kernels.
    fn new(device: &Device, options: &Options, graph: Arc<Graph>) -> Result<CompiledPlan> {
        COUNTS.plans.fetch_add(1, Ordering::Relaxed);
        let plan = plan_with(options, &graph, device.target(), &|routine| device.supports_routine(routine))?;
        let kernels: Vec<_> = plan.steps.iter().filter_map(PlanStep::kernel).collect();
        let mut prepared = device.compile_all(&kernels)?.into_iter();
        let kernels = plan.steps.iter().map(|step| step.kernel().and_then(|_| prepared.next())).collect();
        let (fastest, recordings, instead) = Default::default();
        Ok(CompiledPlan { graph, options: *options, plan, kernels, fastest, recordings, instead })
    }

    /// Runs the plan step by step, measures the variants of steps that have some, and keeps the fastest for later
    /// runs.
    fn tune(&self, device: &Device, work: &[Command<'_>]) -> Result<()> {
        let mut fastest = BTreeMap::new();
        for (at, one) in work.iter().enumerate() {
            match (&self.plan.steps[at], self.plan.variants.get(&at), one) {
                (PlanStep::Kernel { kernel, .. }, Some(variants), Command::Kernel { grid, args, .. })
                    if repeats(kernel) =>
                {
                    let others = variants.iter().map(|Variant { kernel, grid }| (kernel, Grid(*grid)));
                    let candidates: Vec<_> = iter::once((kernel, *grid)).chain(others).collect();
                    fastest.insert(at, device.run_fastest(&candidates, args)?);
                }
                _ => device.submit(std::slice::from_ref(one))?,
            }
        }
        // Another thread may have been first; either choice is correct.
        let _ = self.fastest.set(fastest);
        Ok(())
    }

    fn recordings(&self) -> MutexGuard<'_, BTreeMap<(usize, usize), CommandBuffers>> {
        self.recordings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a range of steps ran, so that its next run is recorded.
    fn mark_as_run(&self, steps: (usize, usize)) {
        let mut recordings = self.recordings();
        if recordings.len() < RECORDED_RANGES {
            recordings.entry(steps).or_default().ran = true;
        }
    }

    /// Keeps a recording, unless another thread made one first.
    fn keep(&self, steps: (usize, usize), tried: usize, recorded: Result<CommandBuffer>) {
        // Out of memory is not counted as an attempt: the next one can succeed.
        let again = matches!(&recorded, Err(error) if error.is_out_of_memory());
        if let Some(recordings) = self.recordings().get_mut(&steps)
            && recordings.tried == tried
            && !again
        {
            recordings.tried += 1;
            recordings.made.extend(recorded.ok().map(Arc::new));
        }
    }

    /// Returns the commands of these steps with these buffers, one for each of the plan's buffers.
    fn commands<'a>(&'a self, steps: Range<usize>, buffers: &'a [Storage], slots: &[Scalar]) -> Vec<Command<'a>> {
        let fastest = self.fastest.get();
        let step =
            |(at, (step, prepared)): (usize, (&'a PlanStep, &'a Option<Arc<CompiledKernel>>))| match (step, prepared) {
                (PlanStep::Kernel { kernel, grid, args }, Some(prepared)) => {
                    let given = (prepared, Grid(*grid));
                    let faster = fastest.and_then(|fastest| fastest.get(&at));
                    let (prepared, grid) = faster.map_or(given, |(prepared, grid)| (prepared, *grid));
                    Command::Kernel { prepared, grid, args: arguments(kernel, args, buffers, slots) }
                }
                (PlanStep::Routine { routine, buffers: ids, epilogue }, prepared) => {
                    let epilogue = epilogue.as_ref().zip(prepared.as_ref()).map(|(planned, prepared)| {
                        Box::new(Epilogue {
                            prepared,
                            grid: Grid(planned.grid),
                            args: arguments(&planned.kernel, &planned.args, buffers, slots),
                            keep_output: planned.keep_output,
                        })
                    });
                    let buffers = ids.iter().map(|id| &buffers[id.index()]).collect();
                    Command::Routine { routine: *routine, buffers, epilogue }
                }
                (PlanStep::Copy { from, to }, _) => {
                    Command::Copy { from: &buffers[from.index()], to: &buffers[to.index()] }
                }
                (PlanStep::Kernel { kernel, .. }, None) => {
                    unreachable!("kernel {} of a plan was not compiled", kernel.name)
                }
            };
        let numbered = self.plan.steps.iter().zip(&self.kernels).enumerate();
        numbered.skip(steps.start).take(steps.len()).map(step).collect()
    }
}

/// Returns the launch arguments of a kernel with these buffers, one for each of the plan's buffers.
fn arguments<'a>(kernel: &Kernel, args: &[PlanArg], buffers: &'a [Storage], slots: &[Scalar]) -> Vec<LaunchArg<'a>> {
    let args = kernel.params.iter().zip(args).map(|(param, arg)| match (param, arg) {
        (Param::Buffer(mem), PlanArg::Buffer(id)) => {
            let memory = kernel.mem(*mem);
            let storage = &buffers[id.index()];
            match memory.space {
                Space::Buffer(Access::In) => LaunchArg::read(storage, memory.dtype),
                _ => LaunchArg::write(storage, memory.dtype),
            }
        }
        (_, PlanArg::ScalarInput(n)) => LaunchArg::Scalar(slots[*n as usize]),
        (_, PlanArg::Scalar(value)) => LaunchArg::Scalar(*value),
        (Param::Scalar { name, .. }, PlanArg::Buffer(_)) => {
            unreachable!("the plan of {} passes a buffer for the number {name}", kernel.name)
        }
    });
    args.collect()
}

/// Returns true if running the kernel again gives the same result.
fn repeats(kernel: &Kernel) -> bool {
    kernel.mems.iter().all(|mem| mem.space != Space::Buffer(Access::InOut))
}

/// Returns the cached plan of a graph, compiling it on a miss.
pub(crate) fn lookup_or_compile(device: &Device, graph: Graph) -> Result<Arc<CompiledPlan>> {
    let key = (
        device.clone(),
        Options {
            math_mode: device.math_mode(),
            tf32: device.is_tf32_allowed(),
            variants: device.is_autotune_enabled(),
        },
    );
    let used = COUNTS.hits.load(Ordering::Relaxed) + COUNTS.plans.load(Ordering::Relaxed);
    if let Some((ready, last)) = lock().entry(key.clone()).or_default().get_mut(&graph) {
        *last = used;
        COUNTS.hits.fetch_add(1, Ordering::Relaxed);
        return Ok(ready.clone());
    }
    // Planning is slow: the lock is free meanwhile, and two threads can plan the same graph once each.
    let ready = Arc::new(CompiledPlan::new(device, &key.1, Arc::new(graph))?);
    let mut gone = None;
    let mut plans = lock();
    let programs = plans.entry(key).or_default();
    if programs.len() >= CAPACITY {
        let oldest = programs.iter().min_by_key(|(_, (_, last))| *last).map(|(graph, _)| graph.clone());
        gone = oldest.and_then(|graph| programs.remove(&graph));
    }
    let replaced = programs.insert(ready.graph.clone(), (ready.clone(), used));
    // Dropping a command buffer waits for its device, so it happens without the lock.
    drop(plans);
    drop((gone, replaced));
    Ok(ready)
}

fn lock() -> MutexGuard<'static, Plans> {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}
