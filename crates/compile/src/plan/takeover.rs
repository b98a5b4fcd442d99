//! Which nodes take the memory of leaves that the caller gives away.
//!
//! THE rule: an output takes the memory of a spent leaf of its type and length if every step that reads the leaf comes before the
//! one that writes the output, or is that one, and in it each work-item touches the element of its own number alone and reads it
//! before it writes it. What a write changes ([`Op::Write`]) takes the leaf's memory if nobody reads the leaf from then on, and
//! the copy before it is left out.
//!
//! A kernel that replaces what it reads has one memory for both, which it reads and writes: two parameters over one memory
//! would be free to be read late. Whether it reads first is read off the kernel itself.
//!
//! On a GPU a routine is a vendor's, which may refuse when its turn comes, and the plan is then made anew without it: until
//! the last of them has run, all leaves stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::graph::{Graph, Node, NodeId, Op};
use panoply_ir::kernel::{MemId, Param};
use panoply_ir::target::Style;
use panoply_ir::{Accuracy, Result, Target, strides};

use crate::lower::{Argument, lower};
use crate::schedule::nest::{Nest, Store};
use crate::schedule::{Schedule, Step};

/// Leaves, each with the node that takes its memory. Nests are told what they replace.
pub fn decide(
    schedule: &mut Schedule,
    spent: &[u32],
    target: &Target,
    accuracy: Accuracy,
) -> Result<Vec<(NodeId, NodeId)>> {
    let mut ends = Ends::of(schedule, spent);
    if ends.leaves.is_empty() {
        return Ok(Vec::new());
    }
    let routine = |step: &Step| matches!(step, Step::Routine(_));
    let first = match target.style {
        Style::Gpu => schedule.steps.iter().rposition(routine).map_or(0, |last| last + 1),
        Style::Cpu { .. } => 0,
    };
    let Schedule { graph, steps } = schedule;
    let mut taken = Vec::new();
    for (at, step) in steps.iter_mut().enumerate().skip(first) {
        if let Step::Nest(nest) = step {
            taken.extend(ends.changed(graph, at, nest));
            taken.extend(ends.replaced(graph, at, nest, target, accuracy)?);
        }
    }
    // What a write changes may have the memory of what it becomes, and then from long before on.
    let changes = |step: &Step| matches!(step, Step::Nest(Nest { changes: Some(_), .. }));
    for (at, step) in steps.iter().enumerate().skip(first).filter(|(_, step)| !changes(step)) {
        taken.extend(ends.freed(graph, at, step));
    }
    Ok(taken)
}

/// What may still be given and taken.
struct Ends {
    /// Leaves whose memory is to be had, each with the last step that reads it.
    leaves: BTreeMap<NodeId, Option<usize>>,
    /// Outputs that have no memory yet.
    outputs: BTreeSet<NodeId>,
}

impl Ends {
    fn of(Schedule { graph, steps }: &Schedule, spent: &[u32]) -> Ends {
        let outputs: BTreeSet<NodeId> = graph.outputs.iter().copied().collect();
        let ids = |wanted: u32| {
            let same = move |(_, node): &(usize, &Node)| node.op == Op::Leaf(wanted);
            graph.nodes.iter().enumerate().filter(same).map(|(at, _)| NodeId(at as u32))
        };
        let mut leaves = BTreeMap::new();
        for number in spent {
            // A leaf that is there twice has readers under two names.
            if let (Some(leaf), 1) = (ids(*number).next(), ids(*number).count())
                && !outputs.contains(&leaf)
            {
                leaves.insert(leaf, None);
            }
        }
        for (at, step) in steps.iter().enumerate() {
            let changed = match step {
                Step::Nest(nest) => nest.changes.map(|(before, _)| before),
                Step::Routine(_) | Step::Kernel(_) => None,
            };
            for read in step.reads().into_iter().chain(changed) {
                leaves.entry(read).and_modify(|last| *last = Some(at));
            }
        }
        Ends { leaves, outputs }
    }

    /// The leaf that a write changes, if nobody needs it besides.
    fn changed(&mut self, graph: &Graph, at: usize, nest: &Nest) -> Option<(NodeId, NodeId)> {
        let (before, after) = nest.changes?;
        let reads = || Step::Nest(nest.clone()).reads().contains(&before);
        let fits = self.leaves.get(&before) == Some(&Some(at)) && !reads() && graph.outputs.contains(&after);
        (fits && self.outputs.remove(&after)).then(|| {
            self.leaves.remove(&before);
            (before, after)
        })
    }

    /// The leaves that a nest reads last and element by element, each with what it writes over them.
    fn replaced(
        &mut self,
        graph: &Graph,
        at: usize,
        nest: &mut Nest,
        target: &Target,
        accuracy: Accuracy,
    ) -> Result<Vec<(NodeId, NodeId)>> {
        let whole =
            nest.loops.is_empty() && nest.changes.is_none() && nest.stores.iter().all(|store| store.adds.is_none());
        let last =
            |store: &Store| self.leaves.iter().any(|(leaf, last)| *last == Some(at) && alike(graph, *leaf, store.node));
        // The work-items of a group read for each other.
        if !whole || !nest.stores.iter().any(last) || lower(graph, nest, target, accuracy)?.kernel.group.is_some() {
            return Ok(Vec::new());
        }
        let written: Vec<NodeId> = nest.stores.iter().map(|store| store.node).collect();
        for after in written {
            if !self.outputs.contains(&after) {
                continue;
            }
            let fitting = self.leaves.iter().filter(|(leaf, last)| **last == Some(at) && alike(graph, **leaf, after));
            for before in fitting.map(|(leaf, _)| *leaf).collect::<Vec<NodeId>>() {
                nest.replaces.push((before, after));
                if reads_first(graph, nest, target, accuracy)? {
                    self.leaves.remove(&before);
                    self.outputs.remove(&after);
                    break;
                }
                nest.replaces.pop();
            }
        }
        Ok(nest.replaces.clone())
    }

    /// Leaves that nobody reads any more, for what a step writes.
    fn freed(&mut self, graph: &Graph, at: usize, step: &Step) -> Vec<(NodeId, NodeId)> {
        let mut taken = Vec::new();
        for after in step.writes() {
            let free = |(leaf, last): &(&NodeId, &Option<usize>)| {
                last.is_none_or(|last| last < at) && alike(graph, **leaf, after)
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

/// Whether two nodes have as many elements of one type.
fn alike(graph: &Graph, one: NodeId, other: NodeId) -> bool {
    let (one, other) = (graph.node(one), graph.node(other));
    (one.dtype, one.shape.elems()) == (other.dtype, other.shape.elems())
}

/// Whether the kernel of a nest may have one memory for all that it replaces.
fn reads_first(graph: &Graph, nest: &Nest, target: &Target, accuracy: Accuracy) -> Result<bool> {
    let lowered = lower(graph, nest, target, accuracy)?;
    let of = |wanted: NodeId| lowered.arguments.iter().position(|argument| *argument == Argument::Node(wanted));
    let own = nest.replaces.iter().map(|(_, after)| match lowered.kernel.params.get(of(*after)?)? {
        Param::Buffer(mem) => Some(*mem),
        Param::Scalar { .. } => None,
    });
    let own: Option<Vec<MemId>> = own.collect();
    Ok(own.is_some_and(|own| own.into_iter().all(|mem| strides::replaces(&lowered.kernel, mem, lowered.grid))))
}
