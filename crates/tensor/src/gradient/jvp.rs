//! Forward-mode differentiation as a transform of the graph, and what both directions make together.
//!
//! Where the gradient walks from the result back, this walks from the inputs on: [`tangent`] says of each primitive how its
//! result moves when its inputs do. What is linear moves as it is computed, and scalar operations have the same partial
//! derivatives in both directions. An operation whose author says what flows back is linear in what flows in, and how it
//! moves is the transpose of that: exact, at the price of a second derivative.
//!
//! Source: Griewank and Walther, Evaluating Derivatives, 2nd ed. 2008, chapter 3.

use std::panic::Location;

use panoply_ir::graph::Op;
use panoply_ir::kernel::ReduceOp;
use panoply_ir::{Error, Result};

use super::{Vjp, amax_weights, key, no_path, partials, product_adjoint, vjp};
use crate::hasher::NodeMap;
use crate::tensor::{NodeKind, Tensor};

impl Tensor {
    /// How this moves when each of `wanted` moves by its direction, a tensor like it: the Jacobian-vector product, in this
    /// tensor's shape.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2]);
    /// let direction = Tensor::from_slice(&[1.0f32, -1.0], [2]);
    /// assert_eq!(x.square().jvp(&[&x], &[&direction])?.to_vec::<f32>()?, [2.0, -4.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn jvp(&self, wanted: &[&Tensor], tangents: &[&Tensor]) -> Result<Tensor> {
        let place = Location::caller();
        self.jvp_impl(wanted, tangents).map_err(|error| error.with_location(place))
    }

    fn jvp_impl(&self, wanted: &[&Tensor], directions: &[&Tensor]) -> Result<Tensor> {
        self.has_derivatives("jvp", wanted)?;
        if wanted.len() != directions.len() {
            let message = format!("jvp: {} directions for {} tensors", directions.len(), wanted.len());
            return Err(Error::mistake(message));
        }
        wanted.iter().zip(directions).try_for_each(|(tensor, direction)| direction.fits("jvp", tensor))?;
        let Some(first) = wanted.first() else { return Err(Error::mistake("jvp: no tensors are named")) };
        let Jvp { tangent: moved, non_differentiable: cut } = jvp(self, wanted, directions)?;
        match moved {
            Some(moved) => moved.check().map(|()| moved),
            None => Err(no_path("jvp", self, first, cut.as_ref())),
        }
    }

    /// Returns the vector-Jacobian product: the gradients of `sum(self * cotangents)` with respect to each of `wanted`, in their
    /// shapes. `cotangents` has the shape of `self`.
    #[track_caller]
    pub fn vjp(&self, wanted: &[&Tensor], cotangents: &Tensor) -> Result<Vec<Tensor>> {
        let place = Location::caller();
        let fits = self.has_derivatives("vjp", wanted).and_then(|()| cotangents.fits("vjp", self));
        fits.and_then(|()| self.vjp_impl("vjp", cotangents.clone(), wanted)).map_err(|error| error.with_location(place))
    }

    /// The derivative of every element with respect to every element of another: this tensor's axes, then the other's.
    #[track_caller]
    pub fn jacobian(&self, wanted: &Tensor) -> Result<Tensor> {
        let place = Location::caller();
        self.has_derivatives("jacobian", &[wanted]).map_err(|error| error.with_location(place))?;
        let (count, dims) = (self.0.shape.numel(), self.0.shape.dims());
        let basis = Tensor::eye(count, self.dtype()).reshaped([&[count], dims].concat().into());
        let [rows] = Tensor::vmap([&basis], |[weights]| {
            [match self.vjp_impl("jacobian", weights.clone(), &[wanted]) {
                Ok(flows) => flows.into_iter().next().expect("one was wanted"),
                Err(error) => Tensor::mistake(error.with_location(place)),
            }]
        });
        rows.check()?;
        Ok(rows.reshaped([dims, wanted.0.shape.dims()].concat().into()))
    }

    /// The second derivatives of this single number with respect to another tensor, whose axes they have twice.
    #[track_caller]
    pub fn hessian(&self, wanted: &Tensor) -> Result<Tensor> {
        let slope = self.gradients(&[wanted])?.remove(0);
        let Vjp { cotangents: flows, non_differentiable: cut } = vjp(&[(&slope, slope.zeros_like())], &[wanted])?;
        match (&flows[..], cut) {
            // The same slope everywhere.
            ([None], None) => Ok(Tensor::zeros([slope.0.shape.dims(); 2].concat(), slope.dtype())),
            _ => slope.jacobian(wanted),
        }
    }

    /// The flows to wanted tensors, or why there are none.
    pub(super) fn vjp_impl(&self, op: &str, weights: Tensor, wanted: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Vjp { cotangents: flows, non_differentiable: cut } = vjp(&[(self, weights)], wanted)?;
        let result = flows.into_iter().zip(wanted).map(|(flow, tensor)| match flow {
            Some(gradient) => gradient.check().map(|()| gradient),
            None => Err(no_path(op, self, tensor, cut.as_ref())),
        });
        result.collect()
    }

    /// Whether this and the wanted tensors are floats without mistakes.
    pub(super) fn has_derivatives(&self, op: &str, wanted: &[&Tensor]) -> Result<()> {
        self.check()?;
        wanted.iter().try_for_each(|tensor| tensor.check())?;
        match [self].iter().chain(wanted).find(|tensor| !tensor.dtype().is_float()) {
            Some(integer) => Err(Error::mistake(format!("{op}: {integer:?} is not a float and has no derivative"))),
            None => Ok(()),
        }
    }

    fn fits(&self, op: &str, like: &Tensor) -> Result<()> {
        if self.same_shape(op, like)? && self.dtype() == like.dtype() {
            return Ok(());
        }
        Err(Error::mistake(format!("{op}: {self:?} has not the shape and type of {like:?}")))
    }
}

/// How a tensor moves.
pub(crate) struct Jvp {
    /// None if it does not.
    pub tangent: Option<Tensor>,
    /// A tensor on a path that ended because its operation has no derivative.
    pub non_differentiable: Option<Tensor>,
}

/// How `y` moves when the wanted tensors move by these directions.
pub(crate) fn jvp(y: &Tensor, wanted: &[&Tensor], directions: &[&Tensor]) -> Result<Jvp> {
    let given = wanted.iter().zip(directions).map(|(tensor, direction)| (key(tensor), (*direction).clone()));
    let mut moves: NodeMap<Tensor> = given.collect();
    let mut cut = None;
    let is_wanted = |tensor: &Tensor| wanted.iter().any(|other| other.ptr_eq(tensor));
    for tensor in crate::eval::topological_order(&[y], is_wanted) {
        if is_wanted(tensor) {
            continue;
        }
        let inputs: Vec<Option<Tensor>> = tensor.0.inputs.iter().map(|input| moves.get(&key(input)).cloned()).collect();
        if inputs.iter().all(Option::is_none) {
            continue;
        }
        match tangent(tensor, &inputs)? {
            Some(moved) => drop(moves.insert(key(tensor), moved.summand_of(tensor))),
            None => drop(cut.get_or_insert_with(|| tensor.clone())),
        }
    }
    Ok(Jvp { tangent: moves.remove(&key(y)), non_differentiable: cut })
}

/// How `y` moves when its inputs move by these, none where one does not; none if the operation has no derivative.
fn tangent(y: &Tensor, moves: &[Option<Tensor>]) -> Result<Option<Tensor>> {
    let inputs = &y.0.inputs;
    let op = match &y.0.source {
        NodeKind::Op(op) => op,
        NodeKind::Call(body, output) => return body.jvp(*output, inputs, y, moves),
        NodeKind::Checkpoint(_) => return Ok(moves[0].clone()),
        _ => return Ok(None),
    };
    let first = || moves[0].clone();
    let whole = |at: usize| moves[at].clone().unwrap_or_else(|| inputs[at].zeros_like());
    Ok(match op {
        Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota | Op::Bitcast | Op::CustomCall(..) => None,
        Op::Alu(op) => {
            let each = moves.iter().enumerate().filter_map(|(at, moved)| Some((at, moved.as_ref()?)));
            let terms =
                each.filter_map(|(at, moved)| partials(*op, inputs, y, moved, &|wanted| wanted == at)?.swap_remove(at));
            terms.reduce(|sum, term| sum + term)
        }
        Op::Cast => {
            first().filter(|moved| y.dtype().is_float() && moved.dtype().is_float()).map(|moved| moved.cast(y.dtype()))
        }
        Op::Reduce(ReduceOp::Sum, _)
        | Op::Scan(ReduceOp::Sum, _)
        | Op::Reshape
        | Op::Permute(_)
        | Op::Expand
        | Op::Pad(_) => first().map(|moved| Tensor::primitive(op.clone(), &[&moved], y.0.shape.clone(), y.dtype())),
        // What is not there of the whole is not there of how it moves.
        Op::Slice(_) => first().map(|moved| y.with_source(NodeKind::Op(op.clone()), vec![moved])),
        Op::Reduce(ReduceOp::Prod, axes) => {
            first().map(|moved| product_adjoint(&inputs[0], &moved, axes).reduced(ReduceOp::Sum, axes.clone()))
        }
        Op::Reduce(ReduceOp::Max | ReduceOp::Min, axes) => {
            let share = amax_weights(&inputs[0], y, axes);
            first().map(|moved| (share * moved.widened()).reduced(ReduceOp::Sum, axes.clone()).cast(y.dtype()))
        }
        Op::Scan(other, _) => {
            let message = format!("jvp: the running {} has no derivative here", other.name());
            return Err(Error::mistake(message).note(format!("at {y:?}")));
        }
        Op::MatMul => {
            let left = first().map(|moved| moved.matmul(&inputs[1]));
            let right = moves[1].as_ref().map(|moved| inputs[0].matmul(moved));
            left.into_iter().chain(right).reduce(|sum, term| sum + term)
        }
        Op::Gather(axis) => first().map(|moved| moved.index_select(*axis as isize, &inputs[1])),
        Op::ScatterAdd(axis) => Some(whole(0).index_add(*axis as isize, &inputs[1], &whole(2))),
        Op::SliceScatter(axis) => Some(whole(0).slice_scatter(*axis as isize, &inputs[2], &whole(1))),
        Op::ControlDependency => first(),
        Op::Call(..) => unreachable!("tensors hold the body itself"),
    })
}
