//! Activation checkpointing: recomputes values for the gradient to save memory.
//!
//! The gradient of a network needs the values inside it, which stay allocated from a layer's forward step to its
//! backward step. A checkpointed section keeps only its inputs. For the gradient its values are recomputed from
//! inputs that depend on the cotangent ([`Op::ControlDependency`]). Therefore the compiler does not merge both
//! computations, and the device does not start the second one early.
//!
//! Source: Chen, Xu, Zhang and Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.

use std::sync::Arc;

use panoply_ir::Result;
use panoply_ir::graph::Op;

use crate::eval::topological_order;
use crate::gradient::vjp;
use crate::hasher::{NodeMap, NodeSet};
use crate::tensor::{Node, NodeKind, Tensor};

impl Tensor {
    /// Applies `body` to these inputs; its intermediate values are recomputed for the gradient instead of kept.
    ///
    /// The values are the same; gradients can differ in the rounding of sums. Tensors that `body` captures are kept.
    /// `body` runs once, here. A tensor that it passes out by other means than its result gets no gradient through
    /// this result.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let (x, w) = (Tensor::from_slice(&[1.0f32, 2.0], [1, 2]), Tensor::from_slice(&[0.5f32; 4], [2, 2]));
    /// let y = Tensor::checkpoint([&x], |[x]| x.matmul(&w).gelu().matmul(&w).gelu());
    /// let gradient = y.sum(..).gradients(&[&w])?.remove(0);
    /// assert_eq!(gradient.shape()?.dims(), [2, 2]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn checkpoint<const N: usize>(inputs: [&Tensor; N], body: impl FnOnce([&Tensor; N]) -> Tensor) -> Tensor {
        let start = Node::next_serial();
        let result = body(inputs);
        if result.is_mistake() {
            return result;
        }
        let is_input = |tensor: &Tensor| inputs.iter().any(|input| same(input, tensor));
        let is_captured = |tensor: &Tensor| tensor.0.serial < start || tensor.0.value.get().is_some();
        let is_edge = |tensor: &Tensor| is_input(tensor) || is_captured(tensor);
        if is_edge(&result) {
            return result;
        }
        // Numbers passed at launch count as inputs: a tensor that the body makes of them alone, such as a dropout
        // mask, is large.
        let (mut from, mut captured): (Vec<&Tensor>, Vec<&Tensor>) = (inputs.to_vec(), Vec::new());
        let needed = topological_order(&[&result], is_edge);
        for tensor in needed {
            match tensor.0.source {
                _ if is_input(tensor) => {}
                _ if is_captured(tensor) => captured.push(tensor),
                NodeKind::ScalarArg(..) => from.push(tensor),
                NodeKind::Host(_) | NodeKind::Table(_) => captured.push(tensor),
                _ => {}
            }
        }
        let operands: Vec<&Tensor> = [&result].into_iter().chain(from.iter().copied()).chain(captured).collect();
        let (shape, valid_lengths) = (result.0.shape.clone(), result.0.valid_lengths.clone());
        Tensor::step(NodeKind::Checkpoint(from.len()), &operands, shape, result.dtype(), valid_lengths)
    }

    /// Returns the same value, computed after `before`.
    fn after(&self, before: &Tensor) -> Tensor {
        Tensor::primitive(Op::ControlDependency, &[self, before], self.0.shape.clone(), self.dtype())
    }
}

/// Returns the cotangents of a checkpoint's operands given the cotangent `g` of its result; `None` if all are `None`.
/// The operands are the result, then `from` tensors that the result is recomputed from, then captured tensors.
pub(crate) fn backward(operands: &[Tensor], from: usize, g: &Tensor) -> Result<Option<Vec<Option<Tensor>>>> {
    let (result, edges) = operands.split_first().expect("a checkpoint has a result");
    let lengths = lengths_of(result, edges);
    let late = |input: &Tensor| if lengths.contains_key(&at(input)) { input.clone() } else { input.after(g) };
    let late: Vec<Tensor> = edges[..from].iter().map(late).collect();
    let instead: Vec<&Tensor> = late.iter().chain(&edges[from..]).collect();
    let moved = edges.iter().map(at).zip(instead.iter().copied().cloned());
    let again = rebuilt(result, lengths.into_iter().chain(moved).collect());
    let cotangents = vjp(&[(&again, g.clone())], &instead)?.cotangents;
    let any = cotangents.iter().any(Option::is_some);
    Ok(any.then(|| [None].into_iter().chain(cotangents).collect()))
}

/// Returns the dynamic lengths between `from` and `to`. They are not recomputed: they are single numbers, and axes
/// are known to be equally long by their identity.
fn lengths_of(to: &Tensor, from: &[Tensor]) -> NodeMap<Tensor> {
    let from: NodeSet = from.iter().map(at).collect();
    let all = topological_order(&[to], |tensor| from.contains(&at(tensor)));
    let dynamic_dims = all
        .iter()
        .filter_map(|tensor| tensor.0.valid_lengths.as_ref())
        .flat_map(|valid_lengths| valid_lengths.dynamic_dims.iter().flatten());
    dynamic_dims.map(|part| (at(&part.length), part.length.clone())).collect()
}

/// Rebuilds the nodes that lead to `to`, replacing the keys of `moved` by their values.
fn rebuilt(to: &Tensor, mut moved: NodeMap<Tensor>) -> Tensor {
    let edges: NodeSet = moved.keys().copied().collect();
    for tensor in topological_order(&[to], |tensor| edges.contains(&at(tensor))) {
        if edges.contains(&at(tensor)) {
            continue;
        }
        let node = &tensor.0;
        let source = match &node.source {
            NodeKind::Op(op) => NodeKind::Op(op.clone()),
            NodeKind::Call(body, output) => NodeKind::Call(body.clone(), *output),
            NodeKind::Detach => NodeKind::Detach,
            NodeKind::Checkpoint(from) => NodeKind::Checkpoint(*from),
            // Leaves are not recomputed.
            NodeKind::Host(_)
            | NodeKind::Table(_)
            | NodeKind::ScalarArg(..)
            | NodeKind::Materialized
            | NodeKind::Input(_)
            | NodeKind::Mistake(_) => {
                moved.insert(at(tensor), tensor.clone());
                continue;
            }
        };
        let inputs = node.inputs.iter().map(|input| moved[&at(input)].clone()).collect();
        let again = tensor.with_source(source, inputs);
        moved.insert(at(tensor), again);
    }
    moved.remove(&at(to)).expect("the walk ends at `to`")
}

fn at(tensor: &Tensor) -> *const Node {
    Arc::as_ptr(&tensor.0)
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(&a.0, &b.0)
}
