//! What runs together: from a graph to a list of kernels to be.
//!
//! [`schedule`] is the table of contents: the graph is simplified ([`rewrite`]) and calls become what does them ([`calls`]),
//! operations without a kernel of their own are expanded ([`expand`]), long reductions are split
//! ([`split`]), [`fuse`] decides what runs in one kernel, and
//! [`nest`] writes each of those as scalar values over loop variables ([`affine`], [`pull`]). Nothing here knows what a
//! work-item is; that is `lower`'s business.

pub mod affine;
pub mod authored;
pub mod calls;
pub mod claim;
pub mod cost;
pub mod expand;
pub mod fuse;
pub mod group;
pub mod nest;
pub mod order;
pub mod pull;
pub mod rewrite;
pub mod siblings;
pub mod split;

use std::collections::BTreeSet;
use std::fmt;

use panoply_ir::graph::{Graph, NodeId};
use panoply_ir::routine::Routine;
use panoply_ir::target::Style;
use panoply_ir::{Accuracy, DType, Result, Target, graph_verify};

use authored::Call;
use claim::Claim;
use group::{Group, Whole};
use nest::{Nest, Value};

/// What to run, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The graph the steps refer to: the one that was asked for, rewritten.
    pub graph: Graph,
    /// What runs, in order.
    pub steps: Vec<Step>,
}

/// One kernel or routine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A kernel of our own.
    Nest(Nest),
    /// A routine of the device.
    Routine(Claim),
    /// A kernel of its author's.
    Kernel(Call),
}

impl Step {
    /// The stored nodes whose elements it reads.
    pub fn reads(&self) -> BTreeSet<NodeId> {
        match self {
            Step::Nest(nest) => {
                let load = |(value, _): &(Value, DType)| match value {
                    Value::Load(node, _) => Some(*node),
                    _ => None,
                };
                nest.values.iter().filter_map(load).collect()
            }
            Step::Routine(claim) => claim.inputs.iter().copied().collect(),
            Step::Kernel(call) => call.stored().collect(),
        }
    }

    /// The nodes whose elements it writes.
    pub fn writes(&self) -> BTreeSet<NodeId> {
        match self {
            Step::Nest(nest) => nest.stores.iter().map(|store| store.node).collect(),
            Step::Routine(claim) => claim.outputs.iter().copied().flatten().collect(),
            Step::Kernel(call) => call.outputs.iter().copied().flatten().collect(),
        }
    }
}

/// Decides what runs together on a target that offers these routines.
pub fn schedule(graph: &Graph, target: &Target, offers: &dyn Fn(&Routine) -> bool) -> Result<Schedule> {
    schedule_to(Accuracy::default(), graph, target, offers)
}

/// [`schedule`] with a say in the order of sums.
pub fn schedule_to(
    accuracy: Accuracy,
    graph: &Graph,
    target: &Target,
    offers: &dyn Fn(&Routine) -> bool,
) -> Result<Schedule> {
    graph_verify::verify(graph)?;
    let exact = accuracy == Accuracy::Exact;
    let offers = &|routine: &Routine| !(exact && routine.sums_floats()) && offers(routine);
    let graph = calls::simplify(graph, target, accuracy, offers);
    let graph = expand::turn_products(&graph);
    let graph = expand::expand(&graph, target, offers);
    let (graph, waits) = order::release(&split::split(&graph, if exact { split::ANYWHERE } else { target.style }));
    let step = |mut group: Group| match group.whole.take() {
        Some(Whole::Routine(claim)) => Step::Routine(claim),
        Some(Whole::Kernel(call)) => Step::Kernel(call),
        None => Step::Nest(nest::nest(&graph, group)),
    };
    let steps = fuse::fuse(&graph, target, accuracy, &waits).into_iter().map(step).collect();
    Ok(Schedule { graph, steps })
}

/// Sizes at which scheduling decides otherwise, with what they are of: tests take sizes on both sides of each.
pub fn thresholds(style: Style) -> Vec<(&'static str, usize)> {
    let (busy, part) = split::scan_sizes(style);
    let mut all = vec![
        ("writes that are selections", expand::FEW_WRITES),
        ("elements among which writes are selections", expand::SHORT),
        ("columns of a scatter by column", expand::COLUMNS),
        ("elements times positions of a scatter by column", expand::SCATTER_WORK),
        ("rows of a reduction that is fused with its users", fuse::FEW_ROWS as usize),
        ("elements of a reduction that is fused with its users", fuse::SMALL as usize),
        ("elements that cost as much as a launch", cost::LAUNCH as usize),
        ("rows of a scan that is not divided", busy),
        ("elements of a scan that is divided", 4 * part),
    ];
    for (columns, spreads) in [(false, false), (false, true), (true, false)] {
        let (busy, least) = split::reduce_sizes(style, columns, spreads);
        all.push(("results of a reduction that is not divided", busy));
        all.push(("elements of a reduction that is divided", 2 * least));
    }
    all
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Step::Nest(nest) => write!(f, "kernel {number}\n{nest}")?,
                Step::Kernel(call) => writeln!(f, "kernel {number}\n  {call}")?,
                Step::Routine(claim) => writeln!(f, "routine {number}\n  {claim}")?,
            }
        }
        Ok(())
    }
}
