//! When things run: what must wait, and which of the kernels that could run next does.
//!
//! A program says that something is to be computed late with [`Op::ControlDependency`]. It has no kernel: [`remove_ordering_nodes`] turns it into what
//! the nodes that read it wait for. In such a program, among kernels that could run, the one that leaves the least memory in use
//! does ([`topological_order`]), so that what is computed late is also done with early. In others the program's own order stays: an
//! LSTM's step took a third longer in the sparing one.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::graph::{Graph, NodeId, Op};

use super::fusion_group::FusionGroup;
use super::index_map;

/// The graph without [`Op::ControlDependency`], and for each node the stored nodes that must be there before it is computed.
///
/// Nothing merges equal nodes from here on: those that wait for something else would become one again.
pub fn remove_ordering_nodes(graph: &Graph) -> (Graph, Vec<Vec<NodeId>>) {
    let mut moved: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    let mut waits: Vec<Vec<NodeId>> = Vec::new();
    let mut released = Graph::default();
    for node in &graph.nodes {
        if node.op == Op::ControlDependency {
            moved.push(moved[node.inputs[0].index()]);
            continue;
        }
        let mut before: BTreeSet<NodeId> = BTreeSet::new();
        for input in &node.inputs {
            before.extend(ordering_deps(graph, *input).filter_map(|awaited| stored(&released, moved[awaited.index()])));
            // What takes no kernel of its own waits in those that it is part of.
            let at = moved[input.index()];
            if index_map::is_movement(&released.node(at).op) {
                before.extend(&waits[at.index()]);
            }
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| moved[input.index()]).collect();
        moved.push(released.push(node.op.clone(), &inputs, node.shape.clone(), node.dtype));
        waits.push(before.into_iter().collect());
    }
    released.outputs = graph.outputs.iter().map(|output| moved[output.index()]).collect();
    (released, waits)
}

/// What a value is given after, where it is one of [`Op::ControlDependency`], or of several in each other.
fn ordering_deps(graph: &Graph, mut at: NodeId) -> impl Iterator<Item = NodeId> {
    std::iter::from_fn(move || {
        let node = graph.node(at);
        (node.op == Op::ControlDependency).then(|| {
            at = node.inputs[0];
            node.inputs[1]
        })
    })
}

/// The node behind movements that a kernel must have computed, if there is one.
fn stored(graph: &Graph, mut at: NodeId) -> Option<NodeId> {
    while index_map::is_movement(&graph.node(at).op) {
        at = graph.node(at).inputs[0];
    }
    (!matches!(graph.node(at).op, Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota)).then_some(at)
}

/// The groups so that each comes after those it waits for. Among those that could come next, the one whose root was asked for
/// first is taken; if `sparing`, the one that takes the least memory more than it gives back.
pub fn topological_order(graph: &Graph, sparing: bool, mut groups: Vec<Option<FusionGroup>>) -> Vec<FusionGroup> {
    let numbers: Vec<usize> = (0..groups.len()).filter(|at| groups[*at].is_some()).collect();
    let group = |at: usize| groups[at].as_ref().expect("only groups that are there are numbered");
    let mut readers: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut waiting: Vec<usize> = vec![0; groups.len()];
    let mut then: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for at in &numbers {
        group(*at).loads.keys().for_each(|read| *readers.entry(*read).or_default() += 1);
        waiting[*at] = group(*at).dependencies.len();
        group(*at).dependencies.iter().for_each(|before| then[*before].push(*at));
    }
    // Outputs stay, and leaves are somebody else's.
    let outputs: BTreeSet<NodeId> = graph.outputs.iter().copied().collect();
    let stays = |id: NodeId| outputs.contains(&id) || matches!(graph.node(id).op, Op::Input(_));
    let mut ready: BTreeSet<usize> = numbers.iter().copied().filter(|at| waiting[*at] == 0).collect();
    let mut order = Vec::with_capacity(numbers.len());
    while order.len() < numbers.len() {
        let more = |at: usize| {
            let bytes = |id: NodeId| (graph.node(id).shape.numel() * graph.node(id).dtype.bytes()) as i64;
            let taken: i64 = group(at).stores.iter().map(|(id, _)| bytes(*id)).sum();
            let last = group(at).loads.keys().filter(|read| readers[read] == 1 && !stays(**read));
            taken - last.map(|read| bytes(*read)).sum::<i64>()
        };
        let next = ready.iter().copied().min_by_key(|at| (if sparing { more(*at) } else { 0 }, group(*at).root));
        let at = next.expect("groups never wait for one another in a circle");
        ready.remove(&at);
        for read in group(at).loads.keys() {
            readers.entry(*read).and_modify(|left| *left -= 1);
        }
        for follower in &then[at] {
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                ready.insert(*follower);
            }
        }
        order.push(at);
    }
    order.into_iter().filter_map(|at| groups[at].take()).collect()
}
