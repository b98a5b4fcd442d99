//! New values in the memory of old ones.
//!
//! A step of training makes parameters of parameters. Nobody needs the old ones afterwards, and who knows that gives them away:
//! [`eval_donated`] takes them and what is to be made of them by value. A leaf of the graph is then **spent** if all handles to it, to
//! what leads to it, and to its memory are among those that were given: a clone, a snapshot, a view, a reading that is not over,
//! or a graph that somebody keeps for another gradient holds one more, and the leaf stays as it is. That is counted, not
//! believed; nobody can make a handle out of those that are all here.
//!
//! All memory that a plan needs is allocated before the first of its steps runs, so when there is too little, what was given is as it was,
//! and is given back. A device that fails while it runs takes with it what it was writing, as always.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use panoply_ir::Result;
use panoply_ir::graph::{NodeId, Op};
use panoply_runtime::Device;

use crate::eval::{TracedNodes, eval, eval_on};
use crate::tensor::Tensor;

/// Computes tensors whose history nobody needs any more and gives their values, in the memory of `old` ones where nobody holds
/// it besides. On error `old` is as it was, and otherwise empty.
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
pub fn eval_donated(old: &mut Vec<Tensor>, new: Vec<Tensor>) -> Result<Vec<Tensor>> {
    new.iter().try_for_each(Tensor::check)?;
    let roots: Vec<&Tensor> = new.iter().filter(|root| root.0.value.get().is_none()).collect();
    let device = roots.iter().find_map(|root| root.device().cloned()).map_or_else(Device::current, Ok)?;
    match roots.iter().all(|root| root.device().is_none_or(|other| *other == device)) {
        true => eval_on(&device, &roots, |reached| spent(reached, &roots, old))?,
        false => eval(&roots)?,
    }
    old.clear();
    Ok(new.iter().map(Tensor::detach).collect())
}

/// The leaves that nobody holds but these tensors, which are about to go, and what only they lead to.
fn spent(reached: &TracedNodes<'_>, roots: &[&Tensor], old: &[Tensor]) -> Vec<u32> {
    // How many handles to each tensor are accounted for.
    let mut known: Vec<usize> = vec![0; reached.order.len()];
    // Of data that are asked for the value stays.
    let leaf = |id: NodeId| matches!(reached.graph.node(id).op, Op::Input(_));
    let roots = roots.iter().filter_map(|root| reached.id(root)).filter(|id| !leaf(*id));
    for id in roots.chain(old.iter().filter_map(|tensor| reached.id(tensor))) {
        known[id.index()] += 1;
    }
    let mut spent = Vec::new();
    for (at, tensor) in reached.order.iter().enumerate().rev() {
        if Arc::strong_count(&tensor.0) != known[at] {
            continue;
        }
        // Whoever let go of it has let go of what it leads to before, or holds that, and is seen to.
        fence(Ordering::Acquire);
        // What a node of the graph reads is known to the graph; a leaf may hold the history of its value.
        let node = reached.graph.node(NodeId(at as u32));
        node.inputs.iter().for_each(|input| known[input.index()] += 1);
        let others = tensor.0.inputs[node.inputs.len()..].iter().filter_map(|input| reached.id(input));
        others.for_each(|input| known[input.index()] += 1);
        // Its memory is held by the tensor and by the list of leaves.
        if let Op::Input(number) = node.op
            && reached.leaves[number as usize].handle_count() == 2
        {
            spent.push(number);
        }
    }
    // Who held one before has let go of it after the last use.
    fence(Ordering::Acquire);
    spent.sort_unstable();
    spent
}
