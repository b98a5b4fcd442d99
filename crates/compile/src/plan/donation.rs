//! Assigns the memory of donated leaves to nodes.
//!
//! Rule: an output takes the memory of a donated leaf of the same type and length in one of these cases:
//!
//! * Every step that reads the leaf precedes the step that writes the output.
//! * The step that writes the output is the last reader, and in it each work-item accesses only the element of its own
//!   index and loads it before storing.
//! * The output is the result of an update ([`Op::SliceScatter`]) of the leaf, or of several one after the other, and no
//!   other step reads the leaf or the results in between from then on. The copy before the first update is then omitted.
//!
//! A kernel that overwrites its input has a single read-write parameter for both, because loads through a second
//! parameter over the same memory could be delayed. Loads-before-stores is checked on the kernel itself.
//!
//! On a GPU a routine is a vendor's, which can fail at run time; the plan is then rebuilt without it. Therefore all
//! leaves stay intact until the last routine has run.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::graph::{Graph, Node, NodeId, Op};
use panoply_ir::kernel::{MemId, Param};
use panoply_ir::target::Style;
use panoply_ir::{MathMode, Result, Target, strides};

use crate::lower::{Argument, lower};
use crate::schedule::loop_nest::{LoopNest, Store};
use crate::schedule::{Schedule, ScheduledOp};

/// Returns pairs of a donated leaf and the node that takes its memory. Records the aliases in the nests.
pub fn assign_donations(
    schedule: &mut Schedule,
    donated: &[u32],
    target: &Target,
    accuracy: MathMode,
) -> Result<Vec<(NodeId, NodeId)>> {
    let mut state = DonationState::of(schedule, donated);
    if state.leaves.is_empty() {
        return Ok(Vec::new());
    }
    let routine = |step: &ScheduledOp| matches!(step, ScheduledOp::Routine(_));
    let first = match target.style {
        Style::Gpu => schedule.steps.iter().rposition(routine).map_or(0, |last| last + 1),
        Style::Cpu { .. } => 0,
    };
    let Schedule { graph, steps } = schedule;
    let mut taken = Vec::new();
    for (at, step) in steps.iter_mut().enumerate().skip(first) {
        if let ScheduledOp::Nest(nest) = step {
            taken.extend(state.donate_to_update(graph, at, nest));
            taken.extend(state.donate_elementwise(graph, at, nest, target, accuracy)?);
        }
    }
    // The result of an update can share the memory of the array it updates, which is then in use from an earlier step
    // on.
    let changes = |step: &ScheduledOp| matches!(step, ScheduledOp::Nest(LoopNest { updates_in_place: Some(_), .. }));
    for (at, step) in steps.iter().enumerate().skip(first).filter(|(_, step)| !changes(step)) {
        taken.extend(state.donate_dead(graph, at, step));
    }
    Ok(taken)
}

/// Donated leaves and outputs that are not yet paired.
struct DonationState {
    /// Donated leaves, each with the last step that reads it.
    leaves: BTreeMap<NodeId, Option<usize>>,
    /// Outputs without assigned memory.
    outputs: BTreeSet<NodeId>,
    /// Results of updates that no step reads but the one that updates them again, each with the result of that.
    updated_again: BTreeMap<NodeId, NodeId>,
}

impl DonationState {
    fn of(Schedule { graph, steps }: &Schedule, donated: &[u32]) -> DonationState {
        let outputs: BTreeSet<NodeId> = graph.outputs.iter().copied().collect();
        let ids = |wanted: u32| {
            let same = move |(_, node): &(usize, &Node)| node.op == Op::Input(wanted);
            graph.nodes.iter().enumerate().filter(same).map(|(at, _)| NodeId(at as u32))
        };
        let mut leaves = BTreeMap::new();
        for number in donated {
            // A leaf with two nodes has its readers divided between them.
            if let (Some(leaf), 1) = (ids(*number).next(), ids(*number).count())
                && !outputs.contains(&leaf)
            {
                leaves.insert(leaf, None);
            }
        }
        let (mut uses, mut updated_again) = (BTreeMap::<NodeId, usize>::new(), BTreeMap::new());
        for (at, step) in steps.iter().enumerate() {
            let changed = match step {
                ScheduledOp::Nest(nest) => nest.updates_in_place,
                ScheduledOp::Routine(_) | ScheduledOp::Kernel(_) => None,
            };
            updated_again.extend(changed);
            for read in step.reads().into_iter().chain(changed.map(|(before, _)| before)) {
                leaves.entry(read).and_modify(|last| *last = Some(at));
                *uses.entry(read).or_default() += 1;
            }
        }
        updated_again.retain(|before, _| uses.get(before) == Some(&1) && !outputs.contains(before));
        DonationState { leaves, outputs, updated_again }
    }

    /// Pairs the result of an update, and of the updates that follow it, with the leaf that it updates, if nothing else needs the
    /// leaf.
    fn donate_to_update(&mut self, graph: &Graph, at: usize, nest: &LoopNest) -> Option<(NodeId, NodeId)> {
        let (before, mut after) = nest.updates_in_place?;
        while let Some(next) = self.updated_again.get(&after) {
            after = *next;
        }
        let reads = || ScheduledOp::Nest(nest.clone()).reads().contains(&before);
        let fits = self.leaves.get(&before) == Some(&Some(at)) && !reads() && graph.outputs.contains(&after);
        (fits && self.outputs.remove(&after)).then(|| {
            self.leaves.remove(&before);
            (before, after)
        })
    }

    /// Pairs outputs of an element-wise nest with leaves of which it is the last reader, and records the aliases in the
    /// nest.
    fn donate_elementwise(
        &mut self,
        graph: &Graph,
        at: usize,
        nest: &mut LoopNest,
        target: &Target,
        accuracy: MathMode,
    ) -> Result<Vec<(NodeId, NodeId)>> {
        let elementwise = nest.loops.is_empty()
            && nest.updates_in_place.is_none()
            && nest.stores.iter().all(|store| store.accumulate.is_none());
        let last = |store: &Store| {
            self.leaves.iter().any(|(leaf, last)| *last == Some(at) && same_layout(graph, *leaf, store.node))
        };
        // In a kernel with a work-group size, work-items load elements for each other.
        if !elementwise
            || !nest.stores.iter().any(last)
            || lower(graph, nest, target, accuracy)?.kernel.group_size.is_some()
        {
            return Ok(Vec::new());
        }
        let written: Vec<NodeId> = nest.stores.iter().map(|store| store.node).collect();
        for after in written {
            if !self.outputs.contains(&after) {
                continue;
            }
            let fitting =
                self.leaves.iter().filter(|(leaf, last)| **last == Some(at) && same_layout(graph, **leaf, after));
            for before in fitting.map(|(leaf, _)| *leaf).collect::<Vec<NodeId>>() {
                nest.aliases.push((before, after));
                if loads_before_stores(graph, nest, target, accuracy)? {
                    self.leaves.remove(&before);
                    self.outputs.remove(&after);
                    break;
                }
                nest.aliases.pop();
            }
        }
        Ok(nest.aliases.clone())
    }

    /// Pairs the outputs of a step with leaves that are no longer read.
    fn donate_dead(&mut self, graph: &Graph, at: usize, step: &ScheduledOp) -> Vec<(NodeId, NodeId)> {
        let mut taken = Vec::new();
        for after in step.writes() {
            let free = |(leaf, last): &(&NodeId, &Option<usize>)| {
                last.is_none_or(|last| last < at) && same_layout(graph, **leaf, after)
            };
            let found = self.leaves.iter().find(free).map(|(leaf, _)| *leaf);
            if let Some(before) = found
                && self.outputs.remove(&after)
            {
                self.leaves.remove(&before);
                taken.push((before, after));
            }
        }
        taken
    }
}

/// Returns true if two nodes have the same type and number of elements.
fn same_layout(graph: &Graph, one: NodeId, other: NodeId) -> bool {
    let (one, other) = (graph.node(one), graph.node(other));
    (one.dtype, one.shape.numel()) == (other.dtype, other.shape.numel())
}

/// Returns true if the kernel of a nest loads every aliased element before it stores it.
fn loads_before_stores(graph: &Graph, nest: &LoopNest, target: &Target, accuracy: MathMode) -> Result<bool> {
    let lowered = lower(graph, nest, target, accuracy)?;
    let of = |wanted: NodeId| lowered.arguments.iter().position(|argument| *argument == Argument::Node(wanted));
    let own = nest.aliases.iter().map(|(_, after)| match lowered.kernel.params.get(of(*after)?)? {
        Param::Buffer(mem) => Some(*mem),
        Param::Scalar { .. } => None,
    });
    let own: Option<Vec<MemId>> = own.collect();
    Ok(own
        .is_some_and(|own| own.into_iter().all(|mem| strides::can_write_in_place(&lowered.kernel, mem, lowered.grid))))
}
