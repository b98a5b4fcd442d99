//! Orders groups topologically, and chooses between those that are ready.
//!
//! A program requests late computation with [`Op::ControlDependency`]. It has no kernel: [`remove_ordering_nodes`]
//! converts it to ordering dependencies of the nodes that read it. In such a program [`topological_order`] picks the
//! ready kernel that leaves the least memory in use, so that a value computed late also dies early. Other programs keep
//! their own order: an LSTM's step took a third longer in the memory-saving one.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::graph::{Graph, NodeId, Op};

use super::dependencies::Dependencies;
use super::fusion_group::FusionGroup;
use super::index_map;

/// Returns the graph without [`Op::ControlDependency`], and for each node the stored nodes that must be computed before
/// it.
///
/// Equal nodes must not be merged afterwards: nodes with different ordering dependencies would become one again.
pub fn remove_ordering_nodes(graph: &Graph) -> (Graph, Vec<Vec<NodeId>>) {
    let mut new_ids: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    let mut deps: Vec<Vec<NodeId>> = Vec::new();
    let mut released = Graph::default();
    for node in &graph.nodes {
        if node.op == Op::ControlDependency {
            new_ids.push(new_ids[node.inputs[0].index()]);
            continue;
        }
        let mut before: BTreeSet<NodeId> = BTreeSet::new();
        for input in &node.inputs {
            before
                .extend(ordering_deps(graph, *input).filter_map(|awaited| stored(&released, new_ids[awaited.index()])));
            // A node without a kernel passes its dependencies on to its users' kernels.
            let at = new_ids[input.index()];
            if index_map::is_movement(&released.node(at).op) {
                before.extend(&deps[at.index()]);
            }
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| new_ids[input.index()]).collect();
        new_ids.push(released.push(node.op.clone(), &inputs, node.shape.clone(), node.dtype));
        deps.push(before.into_iter().collect());
    }
    released.outputs = graph.outputs.iter().map(|output| new_ids[output.index()]).collect();
    (released, deps)
}

/// Returns the ordering dependencies of a value that is an [`Op::ControlDependency`], or several nested ones.
fn ordering_deps(graph: &Graph, mut at: NodeId) -> impl Iterator<Item = NodeId> {
    std::iter::from_fn(move || {
        let node = graph.node(at);
        (node.op == Op::ControlDependency).then(|| {
            at = node.inputs[0];
            node.inputs[1]
        })
    })
}

/// Returns the computed node behind movement operations, or `None` for leaves and constants.
fn stored(graph: &Graph, mut at: NodeId) -> Option<NodeId> {
    while index_map::is_movement(&graph.node(at).op) {
        at = graph.node(at).inputs[0];
    }
    (!matches!(graph.node(at).op, Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota)).then_some(at)
}

/// Returns the groups in topological order. Among ready groups, the one whose root comes first in the graph is taken;
/// if `sparing`, the one with the smallest increase in memory use.
pub fn topological_order(
    graph: &Graph,
    sparing: bool,
    mut groups: Vec<Option<FusionGroup>>,
    dependencies: &Dependencies,
) -> Vec<FusionGroup> {
    let numbers: Vec<usize> = (0..groups.len()).filter(|at| groups[*at].is_some()).collect();
    let group = |at: usize| groups[at].as_ref().expect("only existing groups are numbered");
    let mut readers: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut waiting: Vec<usize> = vec![0; groups.len()];
    let mut then: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for at in &numbers {
        group(*at).loads.keys().for_each(|read| *readers.entry(*read).or_default() += 1);
        waiting[*at] = dependencies.producers(*at).len();
        dependencies.producers(*at).iter().for_each(|before| then[*before].push(*at));
    }
    // Outputs stay in memory, and leaves belong to the caller.
    let outputs: BTreeSet<NodeId> = graph.outputs.iter().copied().collect();
    let stays = |id: NodeId| outputs.contains(&id) || matches!(graph.node(id).op, Op::Input(_));
    // In the order of their roots, each of which belongs to one group.
    let ready = numbers.iter().copied().filter(|at| waiting[*at] == 0);
    let mut ready: BTreeSet<(NodeId, usize)> = ready.map(|at| (group(at).root, at)).collect();
    let mut order = Vec::with_capacity(numbers.len());
    while order.len() < numbers.len() {
        let more = |at: usize| {
            let bytes = |id: NodeId| (graph.node(id).shape.numel() * graph.node(id).dtype.bytes()) as i64;
            let taken: i64 = group(at).stores.iter().map(|(id, _)| bytes(*id)).sum();
            let last = group(at).loads.keys().filter(|read| readers[read] == 1 && !stays(**read));
            taken - last.map(|read| bytes(*read)).sum::<i64>()
        };
        let next = match sparing {
            true => ready.iter().copied().min_by_key(|(root, at)| (more(*at), *root)),
            false => ready.first().copied(),
        };
        let next = next.expect("dependencies between groups have no cycle");
        ready.remove(&next);
        let at = next.1;
        for read in group(at).loads.keys() {
            readers.entry(*read).and_modify(|left| *left -= 1);
        }
        for follower in &then[at] {
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                ready.insert((group(*follower).root, *follower));
            }
        }
        order.push(at);
    }
    order.into_iter().filter_map(|at| groups[at].take()).collect()
}
