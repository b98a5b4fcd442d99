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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use panoply_ir::graph::{Graph, NodeId, Op};
use panoply_ir::kernel::{MemId, Param};
use panoply_ir::target::Style;
use panoply_ir::{DType, MathMode, Result, Target, strides};

use crate::lower::{Argument, lower};
use crate::schedule::loop_nest::{LoopNest, Store};
use crate::schedule::{Schedule, ScheduledOp};

/// Returns pairs of a donated leaf and the node that takes its memory. Records the aliases in the nests.
pub fn assign_donations(
    schedule: &mut Schedule,
    donated: &[u32],
    target: &Target,
    math_mode: MathMode,
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
            taken.extend(state.donate_to_update(at, nest));
            taken.extend(state.donate_elementwise(graph, at, nest, target, math_mode)?);
        }
    }
    // The result of an update can share the memory of the array it updates, which is then in use from an earlier step
    // on.
    let changes = |step: &ScheduledOp| matches!(step, ScheduledOp::Nest(LoopNest { updates_in_place: Some(_), .. }));
    let mut dead = DeadLeaves::default();
    for (at, step) in steps.iter().enumerate().skip(first) {
        state.bury(graph, at, &mut dead);
        if !changes(step) {
            taken.extend(state.donate_dead(graph, step, &mut dead));
        }
    }
    Ok(taken)
}

/// Donated leaves that are no longer read, by type and number of elements.
type DeadLeaves = BTreeMap<(DType, usize), BTreeSet<NodeId>>;

/// Donated leaves and outputs that are not yet paired.
struct DonationState {
    /// Donated leaves, by the last step that reads them.
    leaves: BTreeMap<Option<usize>, BTreeSet<NodeId>>,
    /// Outputs without assigned memory.
    outputs: BTreeSet<NodeId>,
    /// Results of updates that no step reads but the one that updates them again, each with the result of that.
    updated_again: BTreeMap<NodeId, NodeId>,
}

impl DonationState {
    fn of(Schedule { graph, steps }: &Schedule, donated: &[u32]) -> DonationState {
        let outputs: BTreeSet<NodeId> = graph.outputs.iter().copied().collect();
        let mut ids: HashMap<u32, Vec<NodeId>> = HashMap::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            if let Op::Input(number) = node.op {
                ids.entry(number).or_default().push(NodeId(at as u32));
            }
        }
        let mut leaves: BTreeMap<NodeId, Option<usize>> = BTreeMap::new();
        for number in donated {
            // A leaf with two nodes has its readers divided between them.
            if let Some([leaf]) = ids.get(number).map(Vec::as_slice)
                && !outputs.contains(leaf)
            {
                leaves.insert(*leaf, None);
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
        let mut by_step: BTreeMap<Option<usize>, BTreeSet<NodeId>> = BTreeMap::new();
        leaves.into_iter().for_each(|(leaf, last)| _ = by_step.entry(last).or_default().insert(leaf));
        updated_again.retain(|before, _| uses.get(before) == Some(&1) && !outputs.contains(before));
        DonationState { leaves: by_step, outputs, updated_again }
    }

    /// Returns the leaves that a step is the last to read.
    fn read_last_by(&self, at: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.leaves.get(&Some(at)).into_iter().flatten().copied()
    }

    fn remove(&mut self, at: usize, leaf: NodeId) {
        self.leaves.entry(Some(at)).or_default().remove(&leaf);
    }

    /// Moves the leaves that no step from `at` on reads to `dead`.
    fn bury(&mut self, graph: &Graph, at: usize, dead: &mut DeadLeaves) {
        let read = self.leaves.split_off(&Some(at));
        for leaf in std::mem::replace(&mut self.leaves, read).into_values().flatten() {
            dead.entry(layout(graph, leaf)).or_default().insert(leaf);
        }
    }

    /// Pairs the result of an update, and of the updates that follow it, with the leaf that it updates, if nothing else needs the
    /// leaf.
    fn donate_to_update(&mut self, at: usize, nest: &LoopNest) -> Option<(NodeId, NodeId)> {
        let (before, mut after) = nest.updates_in_place?;
        while let Some(next) = self.updated_again.get(&after) {
            after = *next;
        }
        let reads = || ScheduledOp::Nest(nest.clone()).reads().contains(&before);
        let fits = self.read_last_by(at).any(|leaf| leaf == before) && !reads();
        (fits && self.outputs.remove(&after)).then(|| {
            self.remove(at, before);
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
        math_mode: MathMode,
    ) -> Result<Vec<(NodeId, NodeId)>> {
        let elementwise = nest.loops.is_empty()
            && nest.updates_in_place.is_none()
            && nest.stores.iter().all(|store| store.accumulate.is_none());
        let last = |store: &Store| self.read_last_by(at).any(|leaf| layout(graph, leaf) == layout(graph, store.node));
        // In a kernel with a work-group size, work-items load elements for each other.
        if !elementwise
            || !nest.stores.iter().any(last)
            || lower(graph, nest, target, math_mode)?.kernel.group_size.is_some()
        {
            return Ok(Vec::new());
        }
        let written: Vec<NodeId> = nest.stores.iter().map(|store| store.node).collect();
        for after in written {
            if !self.outputs.contains(&after) {
                continue;
            }
            let fitting = self.read_last_by(at).filter(|leaf| layout(graph, *leaf) == layout(graph, after));
            for before in fitting.collect::<Vec<NodeId>>() {
                nest.aliases.push((before, after));
                if loads_before_stores(graph, nest, target, math_mode)? {
                    self.remove(at, before);
                    self.outputs.remove(&after);
                    break;
                }
                nest.aliases.pop();
            }
        }
        Ok(nest.aliases.clone())
    }

    /// Pairs the outputs of a step with leaves that are no longer read.
    fn donate_dead(&mut self, graph: &Graph, step: &ScheduledOp, dead: &mut DeadLeaves) -> Vec<(NodeId, NodeId)> {
        let mut taken = Vec::new();
        for after in step.writes() {
            if let Some(leaves) = dead.get_mut(&layout(graph, after))
                && let Some(before) = leaves.first().copied()
                && self.outputs.remove(&after)
            {
                leaves.remove(&before);
                taken.push((before, after));
            }
        }
        taken
    }
}

/// Returns the type and number of elements of a node.
fn layout(graph: &Graph, id: NodeId) -> (DType, usize) {
    (graph.node(id).dtype, graph.node(id).shape.numel())
}

/// Returns true if the kernel of a nest loads every aliased element before it stores it.
fn loads_before_stores(graph: &Graph, nest: &LoopNest, target: &Target, math_mode: MathMode) -> Result<bool> {
    let lowered = lower(graph, nest, target, math_mode)?;
    let of = |wanted: NodeId| lowered.arguments.iter().position(|argument| *argument == Argument::Node(wanted));
    let own = nest.aliases.iter().map(|(_, after)| match lowered.kernel.params.get(of(*after)?)? {
        Param::Buffer(mem) => Some(*mem),
        Param::Scalar { .. } => None,
    });
    let own: Option<Vec<MemId>> = own.collect();
    Ok(own
        .is_some_and(|own| own.into_iter().all(|mem| strides::can_write_in_place(&lowered.kernel, mem, lowered.grid))))
}
