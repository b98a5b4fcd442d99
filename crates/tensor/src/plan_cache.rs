//! Plans by graph and device, so that a training loop schedules and compiles once.
//!
//! The graph itself is the key: it holds no addresses and no values, and comparing it cannot mistake one program for
//! another. The cache belongs to the process, as the registry of devices does; when a device has [`CAPACITY`] programs,
//! the one not used for longest goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use panoply_compile::plan::{BufferId, Plan, PlanArg, PlanStep, Role, plan};
use panoply_ir::graph::Graph;
use panoply_ir::kernel::{Access, Param, Space};
use panoply_ir::{Result, Scalar};
use panoply_runtime::{Device, Grid, LaunchArg, Prepared, Storage, Work};

/// Programs kept for each device.
const CAPACITY: usize = 512;

static PLANS: LazyLock<Mutex<HashMap<Device, Programs>>> = LazyLock::new(Mutex::default);
static COUNTS: Counts = Counts { plans: AtomicU64::new(0), hits: AtomicU64::new(0) };

/// The programs of one device, each with when it was last used.
type Programs = HashMap<Arc<Graph>, (Arc<Ready>, u64)>;

struct Counts {
    plans: AtomicU64,
    hits: AtomicU64,
}

/// How often a graph was planned, and how often it was known already, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCounts {
    /// Graphs planned.
    pub plans: u64,
    /// Graphs found in the cache.
    pub hits: u64,
}

/// The counts so far.
pub fn counts() -> PlanCounts {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    PlanCounts { plans: read(&COUNTS.plans), hits: read(&COUNTS.hits) }
}

/// A plan whose kernels are ready to launch, in the order of the plan's steps; none for a routine.
struct Ready {
    plan: Plan,
    kernels: Vec<Option<Arc<Prepared>>>,
}

/// Runs a graph and gives its outputs.
pub(crate) fn run(device: &Device, graph: Graph, leaves: &[Storage], slots: &[Scalar]) -> Result<Vec<Storage>> {
    let ready = find(device, graph)?;
    let plan = &ready.plan;
    let arena = (plan.arena_bytes > 0).then(|| device.allocate(plan.arena_bytes)).transpose()?;
    let mut buffers = Vec::with_capacity(plan.buffers.len());
    for buffer in &plan.buffers {
        buffers.push(match (buffer.role, &arena) {
            (Role::Leaf(n), _) => leaves[n as usize].clone(),
            (Role::Temp { offset }, Some(arena)) => arena.slice(offset..offset + buffer.bytes())?,
            (Role::Output | Role::Temp { .. }, _) => device.allocate(buffer.bytes())?,
        });
    }
    let work: Vec<Work<'_>> = plan
        .steps
        .iter()
        .zip(&ready.kernels)
        .map(|(step, prepared)| match (step, prepared) {
            (PlanStep::Kernel { kernel, grid, args }, Some(prepared)) => {
                let args = kernel.params.iter().zip(args).map(|(param, arg)| match (param, arg) {
                    (Param::Buffer(mem), PlanArg::Buffer(id)) => {
                        let memory = kernel.mem(*mem);
                        let storage = &buffers[id.index()];
                        match memory.space {
                            Space::Buffer(Access::In) => LaunchArg::read(storage, memory.dtype),
                            _ => LaunchArg::write(storage, memory.dtype),
                        }
                    }
                    (_, PlanArg::Slot(n)) => LaunchArg::Scalar(slots[*n as usize]),
                    (_, PlanArg::Number(value)) => LaunchArg::Scalar(*value),
                    (Param::Scalar { name, .. }, PlanArg::Buffer(_)) => {
                        unreachable!("the plan of {} passes a buffer for the number {name}", kernel.name)
                    }
                });
                Work::Kernel { prepared, grid: Grid(*grid), args: args.collect() }
            }
            (PlanStep::Routine { routine, buffers: ids }, _) => {
                Work::Routine { routine: *routine, buffers: ids.iter().map(|id| &buffers[id.index()]).collect() }
            }
            (PlanStep::Copy { from, to }, _) => Work::Copy { from: &buffers[from.index()], to: &buffers[to.index()] },
            (PlanStep::Kernel { kernel, .. }, None) => {
                unreachable!("kernel {} of a plan was not prepared", kernel.name)
            }
        })
        .collect();
    device.submit(&work)?;
    Ok(plan.outputs.iter().map(|id: &BufferId| buffers[id.index()].clone()).collect())
}

/// Bytes of a graph's outputs and of what it needs in between. It is planned if it was not.
pub(crate) fn memory(device: &Device, graph: Graph) -> Result<(u64, u64)> {
    let ready = find(device, graph)?;
    let outputs = ready.plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Output));
    Ok((outputs.map(|buffer| buffer.bytes()).sum(), ready.plan.arena_bytes))
}

fn find(device: &Device, graph: Graph) -> Result<Arc<Ready>> {
    let used = COUNTS.hits.load(Ordering::Relaxed) + COUNTS.plans.load(Ordering::Relaxed);
    if let Some((ready, last)) = lock().entry(device.clone()).or_default().get_mut(&graph) {
        *last = used;
        COUNTS.hits.fetch_add(1, Ordering::Relaxed);
        return Ok(ready.clone());
    }
    // Planning is slow: others may use the cache meanwhile, and two threads may plan the same graph once each.
    COUNTS.plans.fetch_add(1, Ordering::Relaxed);
    let plan = plan(&graph, device.target(), &|routine| device.offers(routine))?;
    let kernels = plan.steps.iter().map(|step| match step {
        PlanStep::Kernel { kernel, .. } => device.prepare(kernel).map(Some),
        PlanStep::Routine { .. } | PlanStep::Copy { .. } => Ok(None),
    });
    let kernels = kernels.collect::<Result<Vec<Option<Arc<Prepared>>>>>()?;
    let ready = Arc::new(Ready { plan, kernels });
    let mut plans = lock();
    let programs = plans.entry(device.clone()).or_default();
    if programs.len() >= CAPACITY {
        let oldest = programs.iter().min_by_key(|(_, (_, last))| *last).map(|(graph, _)| graph.clone());
        oldest.map(|graph| programs.remove(&graph));
    }
    programs.insert(Arc::new(graph), (ready.clone(), used));
    Ok(ready)
}

fn lock() -> std::sync::MutexGuard<'static, HashMap<Device, Programs>> {
    PLANS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
