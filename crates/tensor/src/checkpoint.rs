//! Computing anew instead of keeping: less memory for more work.
//!
//! What flows back through a part of a network needs the values inside it, which therefore wait from the first layer's forward
//! step to its backward step. A checkpointed part keeps only what goes into it; when something flows back, its values are
//! computed once more, from inputs that are there only after that flow is ([`Op::ControlDependency`]), so that neither the compiler makes one
//! of both computations nor the device begins the second early.
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
    /// `body` of these inputs, whose inner values are computed anew for the gradient instead of being kept until then. The
    /// values are the same, the gradients but for the rounding of sums. What `body` captures counts as kept; it runs once, here.
    /// What it makes and hands out another way gets no gradient through this result.
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
        // Numbers passed at launch count as inputs: what the body makes of them alone, such as what a dropout drops, is large.
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
        let (shape, live) = (result.0.shape.clone(), result.0.valid_lengths.clone());
        Tensor::step(NodeKind::Checkpoint(from.len()), &operands, shape, result.dtype(), live)
    }

    /// The same value, computed after another.
    fn after(&self, before: &Tensor) -> Tensor {
        Tensor::primitive(Op::ControlDependency, &[self, before], self.0.shape.clone(), self.dtype())
    }
}

/// What flows to the operands of a checkpoint when `g` flows into it. After the result they are what it is computed from anew, so
/// many, and what was captured. None if nothing flows on.
pub(crate) fn flows(operands: &[Tensor], from: usize, g: &Tensor) -> Result<Option<Vec<Option<Tensor>>>> {
    let (result, edges) = operands.split_first().expect("a checkpoint has a result");
    let lengths = lengths_of(result, edges);
    let late = |input: &Tensor| if lengths.contains_key(&at(input)) { input.clone() } else { input.after(g) };
    let late: Vec<Tensor> = edges[..from].iter().map(late).collect();
    let instead: Vec<&Tensor> = late.iter().chain(&edges[from..]).collect();
    let moved = edges.iter().map(at).zip(instead.iter().copied().cloned());
    let again = rebuilt(result, lengths.into_iter().chain(moved).collect());
    let flows = vjp(&[(&again, g.clone())], &instead)?.cotangents;
    let any = flows.iter().any(Option::is_some);
    Ok(any.then(|| [None].into_iter().chain(flows).collect()))
}

/// The lengths on the way to a tensor from others. They are kept: single numbers, by which axes are known to be equally long.
fn lengths_of(to: &Tensor, from: &[Tensor]) -> NodeMap<Tensor> {
    let from: NodeSet = from.iter().map(at).collect();
    let all = topological_order(&[to], |tensor| from.contains(&at(tensor)));
    let parts =
        all.iter().filter_map(|tensor| tensor.0.valid_lengths.as_ref()).flat_map(|live| live.parts.iter().flatten());
    parts.map(|part| (at(&part.length), part.length.clone())).collect()
}

/// The steps that lead to a tensor from others, from those that are named for them.
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
            // Given, not made.
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
    moved.remove(&at(to)).expect("the walk ends at it")
}

fn at(tensor: &Tensor) -> *const Node {
    Arc::as_ptr(&tensor.0)
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(&a.0, &b.0)
}
