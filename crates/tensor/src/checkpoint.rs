//! Computing anew instead of keeping: less memory for more work.
//!
//! What flows back through a part of a network needs the values inside it, which therefore wait from the first layer's forward
//! step to its backward step. A checkpointed part keeps only what goes into it; when something flows back, its values are
//! computed once more, from inputs that are there only after that flow is ([`Op::After`]), so that neither the compiler makes one
//! of both computations nor the device begins the second early.
//!
//! Source: Chen, Xu, Zhang and Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.

use std::collections::HashMap;

use panoply_ir::Result;
use panoply_ir::graph::Op;

use crate::gradient::pull_back;
use crate::realize::inputs_first;
use crate::tensor::{Node, Source, Tensor};

impl Tensor {
    /// `body` of these inputs, whose inner values are computed anew for the gradient instead of being kept until then. The
    /// values and the gradients are the same. What `body` captures counts as kept; it runs once, here.
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
        let result = body(inputs);
        let part = Part::between(&inputs, &result);
        if result.is_mistake() || part.inside.is_empty() {
            return result;
        }
        // Captured values come after the inputs, to be told from them.
        let operands: Vec<&Tensor> = [&result].into_iter().chain(inputs).chain(&part.captured).collect();
        Tensor::step(Source::Checkpoint(N), &operands, result.0.shape.clone(), result.dtype())
    }

    /// The same value, computed after another.
    fn after(&self, before: &Tensor) -> Tensor {
        Tensor::primitive(Op::After, &[self, before], self.0.shape.clone(), self.dtype())
    }
}

/// What flows to the operands of a checkpoint, of which so many after the result are inputs, when `g` flows into it.
pub(crate) fn flows(operands: &[Tensor], inputs: usize, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
    let (result, kept) = operands.split_first().expect("a checkpoint has a result");
    let (inputs, captured) = kept.split_at(inputs);
    let late: Vec<Tensor> = inputs.iter().map(|input| input.after(g)).collect();
    let again = Part::between(&inputs.iter().collect::<Vec<&Tensor>>(), result).on(inputs, &late, result);
    let wanted: Vec<&Tensor> = late.iter().chain(captured).collect();
    let flows = pull_back(&again, g.clone(), &wanted)?.flows;
    Ok([None].into_iter().chain(flows).collect())
}

/// What is computed on the way from some tensors to another.
struct Part {
    /// Those on the way, inputs before users.
    inside: Vec<Tensor>,
    /// What they need beside the tensors from which the way starts.
    captured: Vec<Tensor>,
}

impl Part {
    fn between(from: &[&Tensor], to: &Tensor) -> Part {
        let at = |tensor: &Tensor| std::sync::Arc::as_ptr(&tensor.0);
        let start: Vec<*const Node> = from.iter().map(|tensor| at(tensor)).collect();
        let mut depends: HashMap<*const Node, bool> = start.iter().map(|start| (*start, true)).collect();
        let mut part = Part { inside: Vec::new(), captured: Vec::new() };
        for tensor in inputs_first(&[to], |tensor| start.contains(&at(tensor))) {
            if start.contains(&at(&tensor)) {
                continue;
            }
            let inside = tensor.0.inputs.iter().any(|input| depends[&at(input)]);
            depends.insert(at(&tensor), inside);
            if inside {
                part.inside.push(tensor);
            }
        }
        let mut seen: Vec<*const Node> = Vec::new();
        for input in part.inside.iter().flat_map(|tensor| &tensor.0.inputs) {
            if !depends[&at(input)] && !seen.contains(&at(input)) {
                seen.push(at(input));
                part.captured.push(input.clone());
            }
        }
        part
    }

    /// The same steps from other tensors.
    fn on(&self, from: &[Tensor], instead: &[Tensor], to: &Tensor) -> Tensor {
        let at = |tensor: &Tensor| std::sync::Arc::as_ptr(&tensor.0);
        let mut moved: HashMap<*const Node, Tensor> = from.iter().map(at).zip(instead.iter().cloned()).collect();
        for tensor in &self.inside {
            let node = &tensor.0;
            let inputs = node.inputs.iter().map(|input| moved.get(&at(input)).unwrap_or(input).clone()).collect();
            let source = match &node.source {
                Source::Op(op) => Source::Op(op.clone()),
                Source::Call(body, output) => Source::Call(body.clone(), *output),
                Source::Detach => Source::Detach,
                Source::Checkpoint(inputs) => Source::Checkpoint(*inputs),
                Source::Host(_) | Source::Slot(_) | Source::Value | Source::Input(_) | Source::Mistake(_) => {
                    unreachable!("it has no inputs")
                }
            };
            let again = Tensor::new(source, inputs, node.shape.clone(), node.dtype, node.device.clone());
            moved.insert(at(tensor), again);
        }
        moved.remove(&at(to)).expect("the result is on the way")
    }
}
