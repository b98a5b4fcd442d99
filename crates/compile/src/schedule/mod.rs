//! Scheduling: turns a graph into a list of future kernels and routines.
//!
//! [`schedule`] runs these steps. The graph is simplified ([`rewrite`]) and calls are resolved ([`inline_calls`]).
//! Operations without a kernel are decomposed ([`decompose`]) and long reductions are split ([`split_reduction`]).
//! [`fuse`] decides which nodes run in one kernel, and [`loop_nest`] writes each kernel as scalar values over loop
//! variables ([`affine`], [`index_map`]). This module does not know work-items; these are introduced by `lower`.

pub mod affine;
pub mod cost;
pub mod custom_kernel;
pub mod decompose;
pub mod dependencies;
pub mod fuse;
pub mod fusion_group;
pub mod horizontal_fusion;
pub mod index_map;
pub mod inline_calls;
pub mod loop_nest;
pub mod rewrite;
pub mod routine_match;
pub mod split_reduction;
pub mod topological_order;

use std::collections::BTreeSet;
use std::fmt;

use panoply_ir::graph::{Graph, NodeId};
use panoply_ir::routine::Routine;
use panoply_ir::target::Style;
use panoply_ir::{DType, MathMode, Result, Target, graph_verify};

use custom_kernel::CustomKernelCall;
use fusion_group::{FusionGroup, LibraryKernel};
use loop_nest::{LoopNest, Value};
use routine_match::RoutineMatch;

/// Kernels and routines to run, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Rewritten graph to which the steps refer.
    pub graph: Graph,
    /// Steps, in execution order.
    pub steps: Vec<ScheduledOp>,
}

/// One kernel or routine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduledOp {
    /// A generated kernel.
    Nest(LoopNest),
    /// A library routine of the device.
    Routine(RoutineMatch),
    /// A custom kernel.
    Kernel(CustomKernelCall),
}

impl ScheduledOp {
    /// Returns the stored nodes whose elements the step reads.
    pub fn reads(&self) -> BTreeSet<NodeId> {
        match self {
            ScheduledOp::Nest(nest) => {
                let load = |(value, _): &(Value, DType)| match value {
                    Value::Load(node, _) => Some(*node),
                    _ => None,
                };
                nest.values.iter().filter_map(load).collect()
            }
            ScheduledOp::Routine(routine_match) => routine_match.inputs.iter().copied().collect(),
            ScheduledOp::Kernel(call) => call.stored().collect(),
        }
    }

    /// Returns the nodes whose elements the step writes.
    pub fn writes(&self) -> BTreeSet<NodeId> {
        match self {
            ScheduledOp::Nest(nest) => nest.stores.iter().map(|store| store.node).collect(),
            ScheduledOp::Routine(routine_match) => routine_match.outputs.iter().copied().flatten().collect(),
            ScheduledOp::Kernel(call) => call.outputs.iter().copied().flatten().collect(),
        }
    }
}

/// Schedules a graph for a target with default math mode. `offers` returns true for the routines that the target
/// provides.
///
/// # Errors
///
/// Returns an error if the graph is invalid.
pub fn schedule(graph: &Graph, target: &Target, offers: &dyn Fn(&Routine) -> bool) -> Result<Schedule> {
    schedule_with(MathMode::default(), graph, target, offers)
}

/// Schedules a graph like [`schedule`], with a [`MathMode`]. In [`MathMode::Exact`] the order of float sums does not
/// depend on the device.
///
/// # Errors
///
/// Returns an error if the graph is invalid.
pub fn schedule_with(
    math_mode: MathMode,
    graph: &Graph,
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
) -> Result<Schedule> {
    graph_verify::verify(graph)?;
    let exact = math_mode == MathMode::Exact;
    let offers = &|routine: &Routine| !(exact && routine.accumulates_floats()) && offers(routine);
    let graph = inline_calls::simplify(graph, target, math_mode, offers);
    let graph = decompose::transpose_matmuls(&graph);
    let graph = decompose::decompose(&graph, target, offers);
    let (graph, ordering_deps) = topological_order::remove_ordering_nodes(&split_reduction::split_reductions(
        &graph,
        if exact { split_reduction::ANYWHERE } else { target.style },
    ));
    let step = |mut group: FusionGroup| match group.library_kernel.take() {
        Some(LibraryKernel::Routine(routine_match)) => ScheduledOp::Routine(routine_match),
        Some(LibraryKernel::Kernel(call)) => ScheduledOp::Kernel(call),
        None => ScheduledOp::Nest(loop_nest::nest(&graph, group)),
    };
    let steps = fuse::fuse(&graph, target, math_mode, &ordering_deps).into_iter().map(step).collect();
    Ok(Schedule { graph, steps })
}

/// Returns the sizes at which scheduling decisions change, with descriptions. Tests use sizes on both sides of each.
pub fn thresholds(style: Style) -> Vec<(&'static str, usize)> {
    let (busy, part) = split_reduction::scan_sizes(style);
    let mut all = vec![
        ("writes that become selections", decompose::FEW_WRITES),
        ("elements up to which writes become selections", decompose::SHORT),
        ("columns of a scatter by column", decompose::COLUMNS),
        ("elements times positions of a scatter by column", decompose::SCATTER_WORK),
        ("rows of a reduction that is fused with its users", fuse::FEW_ROWS as usize),
        ("elements of a reduction that is fused with its users", fuse::SMALL as usize),
        ("elements that cost as much as a launch", cost::LAUNCH as usize),
        ("rows of a scan that is not divided", busy),
        ("elements of a scan that is divided", 4 * part),
    ];
    for (columns, spreads) in [(false, false), (false, true), (true, false)] {
        let (busy, least) = split_reduction::reduce_sizes(style, columns, spreads);
        all.push(("results of a reduction that is not divided", busy));
        all.push(("elements of a reduction that is divided", 2 * least));
    }
    all
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                ScheduledOp::Nest(nest) => write!(f, "kernel {number}\n{nest}")?,
                ScheduledOp::Kernel(call) => writeln!(f, "kernel {number}\n  {call}")?,
                ScheduledOp::Routine(routine_match) => writeln!(f, "routine {number}\n  {routine_match}")?,
            }
        }
        Ok(())
    }
}
