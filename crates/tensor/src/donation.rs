//! Buffer donation: outputs in the memory of input buffers that are no longer needed.
//!
//! A training step computes new parameters from old ones, which are not needed afterwards. [`eval_donated`] takes the
//! old tensors and the new ones by value. A leaf of the graph is **donated** if all handles to it, to the nodes that
//! depend on it and to its memory are among the tensors passed. A clone, a snapshot, a view, a readback in progress
//! or a graph kept for another gradient holds one more handle, and the leaf keeps its memory. Handles are counted;
//! since all of them are passed here, no other thread can create one.
//!
//! A plan allocates all its memory before its first step runs. If an allocation fails, the old tensors are returned
//! unchanged. A device that fails while it runs loses the buffers it was writing, as in every evaluation.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use panoply_ir::Result;
use panoply_ir::graph::{NodeId, Op};
use panoply_runtime::Device;

use crate::eval::{TracedNodes, eval, eval_on};
use crate::tensor::Tensor;

/// Evaluates `new` and returns its values, detached, reusing the memory of the `old` tensors that have no other
/// handles. `old` is empty afterwards.
///
/// # Errors
/// A mistake in `new`, or a failed evaluation; `old` is unchanged then.
///
/// ```
/// # use panoply_tensor::{Tensor, eval_donated};
/// let mut old = vec![Tensor::from_slice(&[1.0f32, 2.0], [2])];
/// for _ in 0..3 {
///     let next = &old[0] * 2.0;
///     old = eval_donated(&mut old, vec![next])?;
/// }
/// assert_eq!(old[0].to_vec::<f32>()?, [8.0, 16.0]);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[doc(alias = "donate_argnums")]
pub fn eval_donated(old: &mut Vec<Tensor>, new: Vec<Tensor>) -> Result<Vec<Tensor>> {
    new.iter().try_for_each(Tensor::check)?;
    let roots: Vec<&Tensor> = new.iter().filter(|root| root.0.value.get().is_none()).collect();
    let device = roots.iter().find_map(|root| root.device().cloned()).map_or_else(Device::current, Ok)?;
    match roots.iter().all(|root| root.device().is_none_or(|other| *other == device)) {
        true => eval_on(&device, &roots, |reached| donated_leaves(reached, &roots, old))?,
        false => eval(&roots)?,
    }
    old.clear();
    Ok(new.iter().map(Tensor::detach).collect())
}

/// Returns the leaves whose only handles are these tensors and nodes that only these tensors lead to.
fn donated_leaves(reached: &TracedNodes<'_>, roots: &[&Tensor], old: &[Tensor]) -> Vec<u32> {
    // Number of handles to each tensor that are accounted for.
    let mut known: Vec<usize> = vec![0; reached.order.len()];
    // A root that is a leaf keeps its value.
    let leaf = |id: NodeId| matches!(reached.graph.node(id).op, Op::Input(_));
    let roots = roots.iter().filter_map(|root| reached.id(root)).filter(|id| !leaf(*id));
    for id in roots.chain(old.iter().filter_map(|tensor| reached.id(tensor))) {
        known[id.index()] += 1;
    }
    let mut donated = Vec::new();
    for (at, tensor) in reached.order.iter().enumerate().rev() {
        if Arc::strong_count(&tensor.0) != known[at] {
            continue;
        }
        // Synchronizes with the drop of other handles: their drops of inputs happened before, so those counts are up
        // to date.
        fence(Ordering::Acquire);
        // The graph lists the inputs that a node reads; a leaf can hold the history of its value as well.
        let node = reached.graph.node(NodeId(at as u32));
        node.inputs.iter().for_each(|input| known[input.index()] += 1);
        let others = tensor.0.inputs[node.inputs.len()..].iter().filter_map(|input| reached.id(input));
        others.for_each(|input| known[input.index()] += 1);
        // The two handles to its memory are the tensor's and the one in the list of leaves.
        if let Op::Input(number) = node.op
            && reached.leaves[number as usize].handle_count() == 2
            && !reached.leaves[number as usize].is_read_only()
        {
            donated.push(number);
        }
    }
    // Synchronizes with earlier holders, whose last use happened before.
    fence(Ordering::Acquire);
    donated.sort_unstable();
    donated
}
