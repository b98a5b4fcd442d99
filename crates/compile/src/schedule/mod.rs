//! What runs together: from a graph to a list of kernels to be.
//!
//! [`schedule`] is the table of contents: the graph is simplified ([`rewrite`]) and inline_calls become what does them ([`inline_calls`]),
//! operations without a kernel of their own are decomposeed ([`decompose`]), long reductions are split
//! ([`split_reduction`]), [`fuse`] decides what runs in one kernel, and
//! [`loop_nest`] writes each of those as scalar values over loop variables ([`affine`], [`index_map`]). Nothing here knows what a
//! work-item is; that is `lower`'s business.

pub mod affine;
pub mod cost;
pub mod custom_kernel;
pub mod decompose;
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

/// What to run, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The graph the steps refer to: the one that was asked for, rewritten.
    pub graph: Graph,
    /// What runs, in order.
    pub steps: Vec<ScheduledOp>,
}

/// One kernel or routine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduledOp {
    /// A kernel of our own.
    Nest(LoopNest),
    /// A routine of the device.
    Routine(RoutineMatch),
    /// A kernel of its author's.
    Kernel(CustomKernelCall),
}

impl ScheduledOp {
    /// The stored nodes whose elements it reads.
    pub fn reads(&self) -> BTreeSet<NodeId> {
        match self {
            ScheduledOp::Nest(nest) => {
                let load = |(value, _): &(Value, DType)| match value {
                    Value::Load(node, _) => Some(*node),
                    _ => None,
                };
                nest.values.iter().filter_map(load).collect()
            }
            ScheduledOp::Routine(claim) => claim.inputs.iter().copied().collect(),
            ScheduledOp::Kernel(call) => call.stored().collect(),
        }
    }

    /// The nodes whose elements it writes.
    pub fn writes(&self) -> BTreeSet<NodeId> {
        match self {
            ScheduledOp::Nest(nest) => nest.stores.iter().map(|store| store.node).collect(),
            ScheduledOp::Routine(claim) => claim.outputs.iter().copied().flatten().collect(),
            ScheduledOp::Kernel(call) => call.outputs.iter().copied().flatten().collect(),
        }
    }
}

/// Decides what runs together on a target that offers these routines.
pub fn schedule(graph: &Graph, target: &Target, offers: &dyn Fn(&Routine) -> bool) -> Result<Schedule> {
    schedule_with(MathMode::default(), graph, target, offers)
}

/// [`schedule`] with a say in the order of sums.
pub fn schedule_with(
    accuracy: MathMode,
    graph: &Graph,
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
) -> Result<Schedule> {
    graph_verify::verify(graph)?;
    let exact = accuracy == MathMode::Exact;
    let offers = &|routine: &Routine| !(exact && routine.accumulates_floats()) && offers(routine);
    let graph = inline_calls::simplify(graph, target, accuracy, offers);
    let graph = decompose::transpose_matmuls(&graph);
    let graph = decompose::decompose(&graph, target, offers);
    let (graph, waits) = topological_order::remove_ordering_nodes(&split_reduction::split_reductions(
        &graph,
        if exact { split_reduction::ANYWHERE } else { target.style },
    ));
    let step = |mut group: FusionGroup| match group.whole.take() {
        Some(LibraryKernel::Routine(claim)) => ScheduledOp::Routine(claim),
        Some(LibraryKernel::Kernel(call)) => ScheduledOp::Kernel(call),
        None => ScheduledOp::Nest(loop_nest::nest(&graph, group)),
    };
    let steps = fuse::fuse(&graph, target, accuracy, &waits).into_iter().map(step).collect();
    Ok(Schedule { graph, steps })
}

/// Sizes at which scheduling decides otherwise, with what they are of: tests take sizes on both sides of each.
pub fn thresholds(style: Style) -> Vec<(&'static str, usize)> {
    let (busy, part) = split_reduction::scan_sizes(style);
    let mut all = vec![
        ("writes that are selections", decompose::FEW_WRITES),
        ("elements among which writes are selections", decompose::SHORT),
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
                ScheduledOp::Routine(claim) => writeln!(f, "routine {number}\n  {claim}")?,
            }
        }
        Ok(())
    }
}
