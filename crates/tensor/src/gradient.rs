//! Reverse-mode differentiation as a transform of the graph.
//!
//! The gradient of an expression is another expression over the same primitives, so it is fused like any other and
//! can be differentiated again. [`adjoint`] matches over the primitives and [`partials`] over the scalar operations;
//! nothing else defines derivatives. An operation without a derivative cuts the path. If every path from the result
//! to an input is cut, the error names the operation; the gradient is never silently zero.
//!
//! Source: Griewank and Walther, Evaluating Derivatives, 2nd ed. 2008, chapter 3 (reverse accumulation).

mod cotangents;
mod jvp;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use panoply_ir::graph::{Op, Slice};
use panoply_ir::kernel::ReduceOp;
use panoply_ir::{Alu, DType, Error, Math, Result, Scalar, Shape};

use crate::call::{OutputCotangent, TracedBody};
use crate::checkpoint;
use crate::hasher::{NodeMap, NodeSet};
use crate::jit::{State, StateLeaf};
use crate::tensor::{Node, NodeKind, Tensor};
use cotangents::CotangentMap;
pub(crate) use jvp::jvp;

impl Tensor {
    /// Returns the gradients of this single number with respect to each of `inputs`, in their shapes.
    ///
    /// # Errors
    /// This tensor does not have exactly one element, a tensor is not a float, or no differentiable path leads to an
    /// input.
    #[doc(alias = "grad")]
    #[doc(alias = "backward")]
    #[track_caller]
    pub fn gradients(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let place = Location::caller();
        self.grad_impl(inputs).map_err(|error| error.with_location(place))
    }

    fn grad_impl(&self, wanted: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.has_derivatives("gradients", wanted)?;
        if self.0.shape.numel() != 1 {
            return Err(Error::mistake(format!(
                "gradients: {self:?} is not a single number; reduce it, for example with `.mean(..)`"
            )));
        }
        self.vjp_impl("gradients", self.ones_like(), wanted)
    }
}

/// Returns the results of a function detached from their history: no gradient is propagated through it.
///
/// A result without a value keeps the nodes it will be computed from. A loop that carries such a result, for example
/// a running average, frees memory by [`Tensor::eval`] and then [`Tensor::detach`].
///
/// ```
/// # use panoply_tensor::{Tensor, no_grad};
/// let x = Tensor::from_slice(&[3.0f32], [1]);
/// let y = (&x * no_grad(|| x.square())).sum(..);
/// assert_eq!((y.item::<f64>()?, y.gradients(&[&x])?[0].to_vec::<f32>()?), (27.0, vec![9.0]));
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
pub fn no_grad<S: State>(function: impl FnOnce() -> S) -> S {
    let mut given = function();
    given.visit_leaves(&mut |piece| match piece {
        StateLeaf::Tensor(tensor) => *tensor = tensor.detach(),
        StateLeaf::Rng(_) => {}
    });
    given
}

/// Result of reverse-mode differentiation.
pub(crate) struct Vjp {
    /// Cotangent of each input; `None` if no path leads to it.
    pub cotangents: Vec<Option<Tensor>>,
    /// A tensor on a path that ended because its operation has no derivative.
    pub non_differentiable: Option<Tensor>,
}

/// Computes the vector-Jacobian product: the cotangents of `wanted` given the cotangents of the tensors in `into`.
pub(crate) fn vjp(into: &[(&Tensor, Tensor)], wanted: &[&Tensor]) -> Result<Vjp> {
    let order = reverse_order(&into.iter().map(|(tensor, _)| *tensor).collect::<Vec<&Tensor>>());
    let reaches = reaching(&order, wanted);
    let mut outputs_of_calls = call_outputs(&order);
    let mut cotangents = CotangentMap::default();
    into.iter().for_each(|(tensor, cotangent)| cotangents.add(tensor, cotangent.clone()));
    let mut cut: Option<Tensor> = None;
    for tensor in order {
        let inputs = &tensor.0.inputs;
        if !inputs.iter().any(|input| reaches.contains(&key(input))) {
            continue;
        }
        let back = if let NodeKind::Call(body, _) = &tensor.0.source {
            // At the last output of the call all cotangents of its outputs are complete.
            let mut given: Vec<OutputCotangent> = Vec::new();
            for output in outputs_of_calls.remove(&key(tensor)).unwrap_or_default() {
                let (NodeKind::Call(_, number), Some(cotangent)) = (&output.0.source, cotangents.of(&output)) else {
                    continue;
                };
                match given.last_mut().filter(|before| before.output == *number) {
                    // The same call was written twice.
                    Some(before) => before.cotangent = &before.cotangent + cotangent,
                    None => given.push(OutputCotangent { output: *number, tensor: output.clone(), cotangent }),
                }
            }
            if given.is_empty() {
                continue;
            }
            body.vjp(inputs, &given)?
        } else {
            let Some(cotangent) = cotangents.of(tensor) else { continue };
            if cotangents.add_slice(tensor, &cotangent) {
                continue;
            }
            if let (NodeKind::Op(Op::MatMul), [left, right]) = (&tensor.0.source, &inputs[..])
                && reaches.contains(&key(right))
            {
                cotangents.add_matmul(right, left, &cotangent);
            }
            adjoint(tensor, &cotangent, |at| reaches.contains(&key(&inputs[at])))?
        };
        let Some(back) = back else {
            cut.get_or_insert_with(|| tensor.clone());
            continue;
        };
        for (input, cotangent) in inputs.iter().zip(back) {
            if let (Some(cotangent), true) = (cotangent, reaches.contains(&key(input))) {
                cotangents.add(input, cotangent);
            }
        }
    }
    Ok(Vjp { cotangents: wanted.iter().map(|tensor| cotangents.of(tensor)).collect(), non_differentiable: cut })
}

/// Returns the outputs of each call in order of their index, keyed by the last of them in this order.
fn call_outputs(users_first: &[&Tensor]) -> NodeMap<Vec<Tensor>> {
    let mut calls: HashMap<(*const TracedBody, Vec<*const Node>), Vec<Tensor>> = HashMap::new();
    for tensor in users_first {
        if let NodeKind::Call(body, _) = &tensor.0.source {
            let inputs = tensor.0.inputs.iter().map(key).collect();
            calls.entry((Arc::as_ptr(body), inputs)).or_default().push((*tensor).clone());
        }
    }
    let number = |tensor: &Tensor| match tensor.0.source {
        NodeKind::Call(_, number) => number,
        _ => 0,
    };
    let by_last = |mut outputs: Vec<Tensor>| {
        let last = outputs.last().map_or(std::ptr::null(), key);
        outputs.sort_by_key(number);
        (last, outputs)
    };
    calls.into_values().map(by_last).collect()
}

fn no_path(op: &str, from: &Tensor, to: &Tensor, cut: Option<&Tensor>) -> Error {
    let error = Error::mistake(format!("{op}: {from:?} does not depend on {to:?} in a differentiable way"));
    match cut {
        Some(tensor) => error.note(format!("the path ends at {}, {tensor:?}", op_name(tensor))),
        None => error,
    }
}

fn op_name(tensor: &Tensor) -> String {
    match &tensor.0.source {
        NodeKind::Op(op) => op.to_string(),
        NodeKind::Detach => "detach".to_string(),
        NodeKind::Checkpoint(_) => "checkpoint".to_string(),
        NodeKind::Call(body, _) => body.call.name.clone(),
        NodeKind::Host(_)
        | NodeKind::Table(_)
        | NodeKind::ScalarArg(..)
        | NodeKind::Materialized
        | NodeKind::Input(_)
        | NodeKind::Mistake(_) => "a tensor without history".to_string(),
    }
}

fn key(tensor: &Tensor) -> *const Node {
    Arc::as_ptr(&tensor.0)
}

/// Returns everything the roots depend on, users before inputs.
fn reverse_order<'t>(roots: &[&'t Tensor]) -> Vec<&'t Tensor> {
    let mut order = crate::eval::topological_order(roots, |_| false);
    order.reverse();
    order
}

/// Returns the nodes that depend on a wanted tensor.
fn reaching(users_first: &[&Tensor], wanted: &[&Tensor]) -> NodeSet {
    let mut reaches: NodeSet = wanted.iter().map(|tensor| key(tensor)).collect();
    for tensor in users_first.iter().rev() {
        if tensor.0.inputs.iter().any(|input| reaches.contains(&key(input))) {
            reaches.insert(key(tensor));
        }
    }
    reaches
}

/// Returns the cotangent of each input of `y` given the cotangent `g` of `y`. An inner `None` marks an input without
/// a derivative or that is not wanted; the outer `None` an operation without a derivative.
fn adjoint(y: &Tensor, g: &Tensor, wanted: impl Fn(usize) -> bool) -> Result<Option<Vec<Option<Tensor>>>> {
    let inputs = &y.0.inputs;
    let op = match &y.0.source {
        NodeKind::Op(op) => op,
        NodeKind::Checkpoint(given) => return checkpoint::backward(inputs, *given, g),
        _ => return Ok(None),
    };
    let one = |grad: Tensor| Ok(Some(vec![Some(grad)]));
    let x = inputs.first();
    let x = || x.expect("this primitive has an input");
    match op {
        Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota | Op::Bitcast => Ok(None),
        Op::Alu(op) => Ok(partials(*op, inputs, y, g, &wanted)),
        Op::Cast => {
            if y.dtype().is_float() && x().dtype().is_float() {
                one(g.cast(x().dtype()))
            } else {
                Ok(None)
            }
        }
        Op::Reduce(ReduceOp::Sum, _) => one(g.expanded(&x().0.shape)),
        Op::Reduce(ReduceOp::Prod, axes) => one(product_adjoint(x(), g, axes)),
        Op::Reduce(ReduceOp::Max | ReduceOp::Min, axes) => {
            one((amax_weights(x(), y, axes) * g.widened()).cast(g.dtype()))
        }
        Op::Scan(ReduceOp::Sum, axis) => {
            let (g, along) = (g.mask_padding(&[*axis], zero(g)), *axis as isize);
            one(g.flip(along).cumsum(along).flip(along))
        }
        Op::Scan(other, _) => {
            let message = format!("gradients: a cumulative {} has no gradient", other.name());
            Err(Error::mistake(message).note(format!("at {y:?}")))
        }
        Op::Reshape => {
            // Elements that a view cuts off do not contribute to the result.
            let view = x().0.shape == y.0.shape;
            let cut: Vec<usize> =
                (0..y.0.shape.ndim()).filter(|axis| view && x().valid_length(*axis).is_none()).collect();
            one(g.mask_padding(&cut, zero(g)).reshaped(x().0.shape.clone()))
        }
        Op::Permute(perm) => {
            let mut inverse = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
            one(g.permuted(inverse))
        }
        Op::Expand => {
            let dims = x().0.shape.dims().iter().zip(y.0.shape.dims()).enumerate();
            let stretched = dims.filter(|(_, (from, to))| from != to).map(|(axis, _)| axis);
            one(g.reduced(ReduceOp::Sum, stretched.collect()))
        }
        Op::Pad(widths) => {
            let dims = x().0.shape.dims().iter().zip(widths);
            one(g.sliced(dims.map(|(len, (before, _))| Slice { start: *before, step: 1, len: *len }).collect()))
        }
        Op::Slice(slices) => one(slice_adjoint(x(), g, slices)),
        // The cotangent of the right operand is collected by [`CotangentMap::add_matmul`].
        Op::MatMul => Ok(Some(vec![Some(g.matmul(&inputs[1].t())), None])),
        Op::Gather(axis) => {
            let grad = x().zeros_like().index_add(*axis as isize, &inputs[1], g);
            Ok(Some(vec![Some(grad), None]))
        }
        Op::ControlDependency => Ok(Some(vec![Some(g.clone()), None])),
        Op::CustomCall(..) => Ok(None),
        Op::Call(..) => unreachable!("tensors hold the body itself"),
        Op::SliceScatter(axis) => {
            let (part, position, along) = (&inputs[1], &inputs[2], *axis as isize);
            let (length, whole) = (part.0.shape.dims()[*axis], inputs[0].0.shape.dims()[*axis]);
            let kept = g.slice_scatter(&part.zeros_like(), along, position);
            let g = &g.mask_padding(&[*axis], zero(g));
            // With a constant position the cotangent is a view, without arithmetic on positions.
            if let NodeKind::Op(Op::Const(at)) = position.0.source
                && let Ok(at) = usize::try_from(at.to_i128())
                && at + length <= whole
            {
                return Ok(Some(vec![Some(kept), Some(g.narrow(along, at, length)), None]));
            }
            let positions = Tensor::arange(length).cast(position.dtype()) + position;
            Ok(Some(vec![Some(kept), Some(g.index_select(along, &positions)), None]))
        }
        Op::ScatterAdd(axis) => {
            let rows = g.index_select(*axis as isize, &inputs[1]);
            Ok(Some(vec![Some(g.clone()), None, Some(rows)]))
        }
    }
}

fn zero(tensor: &Tensor) -> Scalar {
    Scalar::from_i128(tensor.dtype(), 0)
}

/// Returns the gradient weights of a maximum or minimum: equal elements share equally, as in PyTorch's `amax`.
/// Weights of f16 and bf16 are f32, and counts are integers: f16 ends at 65504, and no sum of ones in f32 exceeds
/// 2²⁴.
fn amax_weights(x: &Tensor, y: &Tensor, axes: &[usize]) -> Tensor {
    let hit = x.eq(y);
    // Padding that equals the extreme of the valid elements is not an extreme.
    let hit =
        x.masked_source().map_or(hit.clone(), |of| hit.clone().with_lengths_of(of).mask_padding(axes, zero(&hit)));
    let wide = if y.is_half() { DType::F32 } else { y.dtype() };
    hit.cast(wide) / hit.how_many(axes.to_vec()).cast(wide)
}

/// Returns the gradient of a product: `g` times the product of the other elements. Exact when factors are zero:
/// cumulative products from both ends exclude the element.
fn product_adjoint(x: &Tensor, g: &Tensor, axes: &[usize]) -> Tensor {
    if axes.iter().any(|axis| x.0.shape.dims()[*axis] == 0) {
        return x * g;
    }
    let rank = x.0.shape.ndim();
    let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let perm: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let moved = x.permuted(perm.clone());
    let dims = moved.0.shape.dims().to_vec();
    let flat = moved.flatten(kept.len() as isize, -1);
    let axis = kept.len();
    let len = flat.0.shape.dims()[axis];
    let before = |x: &Tensor| {
        // Cumulative product of the elements before each: ones are shifted in at the front.
        let mut widths = vec![(0, 0); axis + 1];
        widths[axis] = (1, 0);
        let shifted = x.narrow(axis as isize, 0, len - 1);
        let ones = shifted.pad(&widths);
        let first = Tensor::arange(len).eq(&Tensor::constant(0i32.into()));
        x.literal(1.0).where_self(&first, &ones).cumprod(axis as isize)
    };
    let others = before(&flat) * before(&flat.flip(axis as isize)).flip(axis as isize);
    let mut inverse = vec![0; rank];
    perm.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
    others.reshaped(Shape::new(dims)).permuted(inverse) * g
}

/// Scatters the cotangent of a slice back to the elements it was taken from, with zeros between.
fn slice_adjoint(x: &Tensor, g: &Tensor, slices: &[Slice]) -> Tensor {
    let mut grad = g.clone();
    for (axis, slice) in slices.iter().enumerate() {
        let whole = x.0.shape.dims()[axis];
        if slice.step < 0 {
            grad = grad.flip(axis as isize);
        }
        let step = slice.step.unsigned_abs();
        let first = if slice.step < 0 { slice.start + step - step * slice.len.max(1) } else { slice.start };
        let mut spread = slice.len;
        if step > 1 && slice.len > 0 {
            // [n] → [n, 1] → [n, step] → [n · step], of which the last step - 1 zeros can be beyond the axis.
            let dims = grad.0.shape.dims().to_vec();
            let mut widths = vec![(0, 0); dims.len() + 1];
            widths[axis + 1] = (0, step - 1);
            let mut joined = dims;
            joined[axis] *= step;
            grad = grad.unsqueeze(axis as isize + 1).pad(&widths).reshaped(Shape::new(joined));
            spread = ((slice.len - 1) * step) + 1;
            grad = grad.narrow(axis as isize, 0, spread);
        }
        let mut widths = vec![(0, 0); slices.len()];
        widths[axis] = (first, whole - first - spread);
        grad = grad.pad(&widths);
    }
    grad
}

/// Returns `g` times the partial derivatives of a scalar operation with respect to the wanted operands.
fn partials(
    op: Alu,
    x: &[Tensor],
    y: &Tensor,
    g: &Tensor,
    wanted: &dyn Fn(usize) -> bool,
) -> Option<Vec<Option<Tensor>>> {
    let number = |value: f64| g.literal(value);
    let one = |grad: Tensor| Some(vec![Some(grad)]);
    let each = |grads: &[&dyn Fn() -> Tensor]| {
        Some(grads.iter().enumerate().map(|(at, grad)| wanted(at).then(grad)).collect::<Vec<Option<Tensor>>>())
    };
    if !g.dtype().is_float() || !y.dtype().is_float() {
        return None;
    }
    // f16 and bf16 compute in f32 and round once: squares overflow, and differences from 1 have few bits.
    let in_steps = matches!(op, Alu::Math(_) | Alu::Sqrt | Alu::Div | Alu::Rem | Alu::Pow);
    if in_steps && g.is_half() {
        let wide: Vec<Tensor> = x.iter().map(Tensor::widened).collect();
        let grads = partials(op, &wide, &y.widened(), &g.widened(), wanted)?;
        return Some(grads.into_iter().map(|grad| grad.map(|grad| grad.cast(g.dtype()))).collect());
    }
    match op {
        Alu::Neg => one(-g),
        Alu::Abs => one(g * x[0].sign()),
        Alu::Math(Math::Exp) => one(g * y),
        Alu::Math(Math::Exp2) => one(g * y * number(std::f64::consts::LN_2)),
        Alu::Math(Math::Log) => one(g / &x[0]),
        Alu::Math(Math::Log2) => one(g * number(std::f64::consts::LOG2_E) / &x[0]),
        Alu::Math(Math::Log1p) => one(g / (&x[0] + number(1.0))),
        // Not y + 1, which cancels for x far below 0.
        Alu::Math(Math::Expm1) => one(g * x[0].exp()),
        Alu::Math(Math::Sin) => one(g * x[0].cos()),
        Alu::Math(Math::Cos) => one(-(g * x[0].sin())),
        Alu::Math(Math::Tan) => one(g * (y.square() + number(1.0))),
        Alu::Math(Math::Atan) => one(g / (x[0].square() + number(1.0))),
        Alu::Math(Math::Tanh) => one(g * (number(1.0) - y.square())),
        Alu::Math(Math::Erf) => one(g * (-x[0].square()).exp() * number(std::f64::consts::FRAC_2_SQRT_PI)),
        Alu::Sqrt => one(g * number(0.5) / y),
        // Piecewise constant: the derivative is zero wherever it exists, as in PyTorch.
        Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc => one(x[0].zeros_like()),
        Alu::Add => each(&[&|| g.clone(), &|| g.clone()]),
        Alu::Sub => each(&[&|| g.clone(), &|| -g]),
        Alu::Mul => each(&[&|| g * &x[1], &|| g * &x[0]]),
        Alu::Div => each(&[&|| g / &x[1], &|| -(g * y / &x[1])]),
        // The quotient x / y itself can round up to the next integer.
        Alu::Rem => each(&[&|| g.clone(), &|| -(g * ((&x[0] - y) / &x[1]).round())]),
        Alu::Min | Alu::Max => {
            // Equal operands share the cotangent.
            let (less, greater) = (Tensor::alu(Alu::Lt, &[&x[0], &x[1]]), Tensor::alu(Alu::Lt, &[&x[1], &x[0]]));
            let (left, right) = if op == Alu::Max { (greater, less) } else { (less, greater) };
            let (zero, half) = (number(0.0), g * number(0.5));
            let side = |mine: &Tensor, theirs: &Tensor| g.where_self(mine, &zero.where_self(theirs, &half));
            each(&[&|| side(&left, &right), &|| side(&right, &left)])
        }
        Alu::Pow => {
            // x^0 is a constant, also at x = 0.
            let less = || x[1].where_self(&x[1].eq(&number(0.0)), &(&x[1] - number(1.0)));
            // x^y does not depend on y at x = 0.
            let logarithm = || number(0.0).where_self(&x[0].eq(&number(0.0)), &x[0].log());
            each(&[&|| g * &x[1] * x[0].pow(&less()), &|| g * y * logarithm()])
        }
        Alu::Select => {
            let zero = number(0.0);
            let [left, right] = [1, 2].map(wanted);
            Some(vec![None, left.then(|| g.where_self(&x[0], &zero)), right.then(|| zero.where_self(&x[0], g))])
        }
        Alu::Fma => each(&[&|| g * &x[1], &|| g * &x[0], &|| g.clone()]),
        Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => None,
        Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne => None,
    }
}
