//! Forward-mode differentiation as a transform of the graph, and the combinations of both modes.
//!
//! [`tangent`] maps the tangents of a primitive's inputs to the tangent of its result. A linear primitive applies
//! itself to the tangent, and scalar operations use the same partial derivatives in both modes. A custom VJP is
//! linear in the cotangent; the JVP is its transpose, which is exact and costs a second differentiation.
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
    /// Returns the Jacobian-vector product: the directional derivative of this tensor when each of `inputs` changes
    /// by its tangent, which has its shape and element type. The result has the shape of this tensor.
    ///
    /// # Errors
    /// The tangents do not match `inputs`, a tensor is not a float, or no differentiable path leads to the first
    /// input.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2]);
    /// let tangent = Tensor::from_slice(&[1.0f32, -1.0], [2]);
    /// assert_eq!(x.square().jvp(&[&x], &[&tangent])?.to_vec::<f32>()?, [2.0, -4.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn jvp(&self, inputs: &[&Tensor], tangents: &[&Tensor]) -> Result<Tensor> {
        let place = Location::caller();
        self.jvp_impl(inputs, tangents).map_err(|error| error.with_location(place))
    }

    fn jvp_impl(&self, inputs: &[&Tensor], tangents: &[&Tensor]) -> Result<Tensor> {
        self.has_derivatives("jvp", inputs)?;
        if inputs.len() != tangents.len() {
            let message = format!("jvp: {} tangents for {} inputs", tangents.len(), inputs.len());
            return Err(Error::mistake(message));
        }
        inputs.iter().zip(tangents).try_for_each(|(tensor, tangent)| tangent.fits("jvp", tensor))?;
        let Some(first) = inputs.first() else { return Err(Error::mistake("jvp: there are no inputs")) };
        let Jvp { tangent, non_differentiable: cut } = jvp(self, inputs, tangents)?;
        match tangent {
            Some(tangent) => tangent.check().map(|()| tangent),
            None => Err(no_path("jvp", self, first, cut.as_ref())),
        }
    }

    /// Returns the vector-Jacobian product: the gradients of `sum(self * cotangents)` with respect to each of
    /// `inputs`, in their shapes. `cotangents` has the shape of `self`.
    ///
    /// # Errors
    /// `cotangents` does not match this tensor, a tensor is not a float, or no differentiable path leads to an input.
    #[track_caller]
    pub fn vjp(&self, inputs: &[&Tensor], cotangents: &Tensor) -> Result<Vec<Tensor>> {
        let place = Location::caller();
        let fits = self.has_derivatives("vjp", inputs).and_then(|()| cotangents.fits("vjp", self));
        fits.and_then(|()| self.vjp_impl("vjp", cotangents.clone(), inputs)).map_err(|error| error.with_location(place))
    }

    /// Returns the Jacobian: the derivative of every element with respect to every element of `input`. Its axes are
    /// this tensor's, then those of `input`.
    ///
    /// # Errors
    /// A tensor is not a float, or no differentiable path leads to `input`.
    #[doc(alias = "jacrev")]
    #[doc(alias = "jacfwd")]
    #[track_caller]
    pub fn jacobian(&self, input: &Tensor) -> Result<Tensor> {
        let place = Location::caller();
        self.has_derivatives("jacobian", &[input]).map_err(|error| error.with_location(place))?;
        let (count, dims) = (self.0.shape.numel(), self.0.shape.dims());
        let basis = Tensor::eye(count, self.dtype()).reshaped([&[count], dims].concat().into());
        let [rows] = Tensor::vmap([&basis], |[weights]| {
            [match self.vjp_impl("jacobian", weights.clone(), &[input]) {
                Ok(cotangents) => cotangents.into_iter().next().expect("one was requested"),
                Err(error) => Tensor::mistake(error.with_location(place)),
            }]
        });
        rows.check()?;
        Ok(rows.reshaped([dims, input.0.shape.dims()].concat().into()))
    }

    /// Returns the Hessian of this single number with respect to `input`, whose axes the result has twice.
    ///
    /// # Errors
    /// As [`Tensor::gradients`].
    #[track_caller]
    pub fn hessian(&self, input: &Tensor) -> Result<Tensor> {
        let gradient = self.gradients(&[input])?.remove(0);
        let Vjp { cotangents, non_differentiable: cut } = vjp(&[(&gradient, gradient.zeros_like())], &[input])?;
        match (&cotangents[..], cut) {
            // The gradient is constant.
            ([None], None) => Ok(Tensor::zeros([gradient.0.shape.dims(); 2].concat(), gradient.dtype())),
            _ => gradient.jacobian(input),
        }
    }

    /// Returns the cotangents of `inputs`, or an error that names the operation that cuts the path.
    pub(super) fn vjp_impl(&self, op: &str, weights: Tensor, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Vjp { cotangents, non_differentiable: cut } = vjp(&[(self, weights)], inputs)?;
        let result = cotangents.into_iter().zip(inputs).map(|(cotangent, tensor)| match cotangent {
            Some(gradient) => gradient.check().map(|()| gradient),
            None => Err(no_path(op, self, tensor, cut.as_ref())),
        });
        result.collect()
    }

    /// Checks that this tensor and `inputs` are floats without mistakes.
    pub(super) fn has_derivatives(&self, op: &str, inputs: &[&Tensor]) -> Result<()> {
        self.check()?;
        inputs.iter().try_for_each(|tensor| tensor.check())?;
        match [self].iter().chain(inputs).find(|tensor| !tensor.dtype().is_float()) {
            Some(integer) => Err(Error::mistake(format!("{op}: {integer:?} is not a float and has no derivative"))),
            None => Ok(()),
        }
    }

    fn fits(&self, op: &str, like: &Tensor) -> Result<()> {
        if self.same_shape(op, like)? && self.dtype() == like.dtype() {
            return Ok(());
        }
        Err(Error::mistake(format!("{op}: {self:?} does not have the shape and element type of {like:?}")))
    }
}

/// Result of forward-mode differentiation.
pub(crate) struct Jvp {
    /// The tangent; `None` if the tensor does not depend on the inputs differentiably.
    pub tangent: Option<Tensor>,
    /// A tensor on a path that ended because its operation has no derivative.
    pub non_differentiable: Option<Tensor>,
}

/// Computes the tangent of `y` given the tangents of `inputs`.
pub(crate) fn jvp(y: &Tensor, inputs: &[&Tensor], tangents: &[&Tensor]) -> Result<Jvp> {
    let given = inputs.iter().zip(tangents).map(|(tensor, tangent)| (key(tensor), (*tangent).clone()));
    let mut found: NodeMap<Tensor> = given.collect();
    let mut cut = None;
    let is_input = |tensor: &Tensor| inputs.iter().any(|other| other.ptr_eq(tensor));
    for tensor in crate::eval::topological_order(&[y], is_input) {
        if is_input(tensor) {
            continue;
        }
        let tangents: Vec<Option<Tensor>> =
            tensor.0.inputs.iter().map(|input| found.get(&key(input)).cloned()).collect();
        if tangents.iter().all(Option::is_none) {
            continue;
        }
        match tangent(tensor, &tangents)? {
            Some(tangent) => drop(found.insert(key(tensor), tangent.summand_of(tensor))),
            None => drop(cut.get_or_insert_with(|| tensor.clone())),
        }
    }
    Ok(Jvp { tangent: found.remove(&key(y)), non_differentiable: cut })
}

/// Returns the tangent of `y` given the tangents of its inputs, `None` where one has none. Returns `None` if the
/// operation has no derivative.
fn tangent(y: &Tensor, tangents: &[Option<Tensor>]) -> Result<Option<Tensor>> {
    let inputs = &y.0.inputs;
    let op = match &y.0.source {
        NodeKind::Op(op) => op,
        NodeKind::Call(body, output) => return body.jvp(*output, inputs, y, tangents),
        NodeKind::Checkpoint(_) => return Ok(tangents[0].clone()),
        _ => return Ok(None),
    };
    let first = || tangents[0].clone();
    let whole = |at: usize| tangents[at].clone().unwrap_or_else(|| inputs[at].zeros_like());
    Ok(match op {
        Op::Input(_) | Op::Const(_) | Op::ScalarInput(_) | Op::Iota | Op::Bitcast | Op::CustomCall(..) => None,
        Op::Alu(op) => {
            let each = tangents.iter().enumerate().filter_map(|(at, tangent)| Some((at, tangent.as_ref()?)));
            let terms = each
                .filter_map(|(at, tangent)| partials(*op, inputs, y, tangent, &|input| input == at)?.swap_remove(at));
            terms.reduce(|sum, term| sum + term)
        }
        Op::Cast => first()
            .filter(|tangent| y.dtype().is_float() && tangent.dtype().is_float())
            .map(|tangent| tangent.cast(y.dtype())),
        Op::Reduce(ReduceOp::Sum, _)
        | Op::Scan(ReduceOp::Sum, _)
        | Op::Reshape
        | Op::Permute(_)
        | Op::Expand
        | Op::Pad(_) => first().map(|tangent| Tensor::primitive(op.clone(), &[&tangent], y.0.shape.clone(), y.dtype())),
        // The tangent is sliced with the same valid lengths as the value.
        Op::Slice(_) => first().map(|tangent| y.with_source(NodeKind::Op(op.clone()), vec![tangent])),
        Op::Reduce(ReduceOp::Prod, axes) => {
            first().map(|tangent| product_adjoint(&inputs[0], &tangent, axes).reduced(ReduceOp::Sum, axes.clone()))
        }
        Op::Reduce(ReduceOp::Max | ReduceOp::Min, axes) => {
            let share = amax_weights(&inputs[0], y, axes);
            first().map(|tangent| (share * tangent.widened()).reduced(ReduceOp::Sum, axes.clone()).cast(y.dtype()))
        }
        Op::Scan(other, _) => {
            let message = format!("jvp: a cumulative {} has no derivative", other.name());
            return Err(Error::mistake(message).note(format!("at {y:?}")));
        }
        Op::MatMul => {
            let left = first().map(|tangent| tangent.matmul(&inputs[1]));
            let right = tangents[1].as_ref().map(|tangent| inputs[0].matmul(tangent));
            left.into_iter().chain(right).reduce(|sum, term| sum + term)
        }
        Op::Gather(axis) => first().map(|tangent| tangent.index_select(*axis as isize, &inputs[1])),
        Op::ScatterAdd(axis) => Some(whole(0).index_add(*axis as isize, &inputs[1], &whole(2))),
        Op::SliceScatter(axis) => Some(whole(0).slice_scatter(&whole(1), *axis as isize, &inputs[2])),
        Op::ControlDependency => first(),
        Op::Call(..) => unreachable!("tensors hold the body itself"),
    })
}
