//! Reductions over axes.

use std::panic::Location;

use panoply_ir::graph::Op;
use panoply_ir::kernel::ReduceOp;
use panoply_ir::{DType, Error, Shape};

use super::axes::{Axes, ReduceAxes};
use super::sort::ValuesWithIndices;
use crate::tensor::Tensor;

impl Tensor {
    /// Reduces over an axis, which is kept with length 1. An empty axis gives the identity of the operation.
    #[track_caller]
    pub(crate) fn reduce_keepdim(&self, op: ReduceOp, axis: isize) -> Tensor {
        match self.axis(op.name(), axis) {
            Ok(axis) => self.reduced(op, vec![axis]),
            Err(mistake) => mistake,
        }
    }

    #[track_caller]
    pub(crate) fn reduced(&self, op: ReduceOp, axes: Vec<usize>) -> Tensor {
        if self.is_mistake() || axes.is_empty() {
            return self.clone();
        }
        // Extremes of bools are those of the numbers 0 and 1.
        if self.dtype() == DType::Bool && matches!(op, ReduceOp::Max | ReduceOp::Min) {
            return self.cast(DType::U8).reduced(op, axes).cast(DType::Bool);
        }
        let mut dims = self.0.shape.dims().to_vec();
        axes.iter().for_each(|axis| dims[*axis] = 1);
        Tensor::primitive(Op::Reduce(op, axes), &[self], dims, self.dtype())
    }

    /// Reduces over axes.
    #[track_caller]
    fn reduce(&self, op: ReduceOp, axes: impl Into<Axes>) -> Tensor {
        match self.reduce_axes(op.name(), axes) {
            Ok(axes) => self.reduced(op, axes.axes.clone()).without(&axes),
            Err(mistake) => mistake,
        }
    }

    /// Returns the sum over axes.
    #[track_caller]
    pub fn sum(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(ReduceOp::Sum, axes)
    }

    /// Returns the product over axes.
    #[track_caller]
    pub fn prod(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(ReduceOp::Prod, axes)
    }

    /// Returns the maximum over axes of at least one element; NaN if one is NaN. Equal maxima share the gradient.
    #[doc(alias = "amax")]
    #[track_caller]
    pub fn max(&self, axes: impl Into<Axes>) -> Tensor {
        self.extreme(ReduceOp::Max, axes)
    }

    /// Returns the minimum over axes of at least one element; NaN if one is NaN. Equal minima share the gradient.
    #[doc(alias = "amin")]
    #[track_caller]
    pub fn min(&self, axes: impl Into<Axes>) -> Tensor {
        self.extreme(ReduceOp::Min, axes)
    }

    #[track_caller]
    fn extreme(&self, op: ReduceOp, axes: impl Into<Axes>) -> Tensor {
        let axes = match self.reduce_axes(op.name(), axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        match self.has_elements(op.name(), &axes.axes) {
            Ok(()) => self.reduced(op, axes.axes.clone()).without(&axes),
            Err(mistake) => mistake,
        }
    }

    /// Checks that axes of which one element is selected are not empty, unless the result is empty as well.
    #[track_caller]
    fn has_elements(&self, op: &str, axes: &[usize]) -> Result<(), Tensor> {
        let mut beside = (0..self.0.shape.ndim()).filter(|axis| !axes.contains(axis));
        let kept = !beside.any(|axis| self.is_empty_along(axis));
        match axes.iter().find(|axis| kept && self.is_empty_along(**axis)) {
            Some(axis) => Err(self.nothing_along(op, *axis)),
            None => Ok(()),
        }
    }

    /// Returns the mistake of selecting an element along an empty axis.
    #[track_caller]
    pub(crate) fn nothing_along(&self, op: &str, axis: usize) -> Tensor {
        Tensor::mistake(Error::mistake(format!("{op}: there is no element along axis {axis} of {self:?}")))
    }

    /// Applies `f` in f32 to f16 and bf16, whose sums would overflow before they are divided, and rounds once.
    #[track_caller]
    pub(crate) fn in_f32(&self, f: impl Fn(&Tensor) -> Tensor) -> Tensor {
        let result = f(&self.widened());
        match result.check() {
            Err(error) if !self.is_mistake() => Tensor::mistake(error.relocated(Location::caller())),
            _ => result.cast(self.dtype()),
        }
    }

    /// Like [`Tensor::in_f32`], of two tensors of one element type, which broadcast.
    #[track_caller]
    pub(crate) fn in_single_with(&self, other: &Tensor, f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
        // Different types are a mistake, also f16 with bf16.
        match self.broadcast_with(other) {
            Ok(_) => self.in_f32(|x| f(x, &other.widened())),
            Err(mistake) => mistake,
        }
    }

    /// Converts f16 and bf16 to f32; other types stay.
    #[track_caller]
    pub(crate) fn widened(&self) -> Tensor {
        if self.is_half() { self.cast(DType::F32) } else { self.clone() }
    }

    /// Returns true if the element type is f16 or bf16.
    pub(crate) fn is_half(&self) -> bool {
        matches!(self.dtype(), DType::F16 | DType::BF16)
    }

    /// Returns the axes of a mean, of floats.
    #[track_caller]
    fn mean_axes(&self, op: &str, axes: impl Into<Axes>) -> Result<ReduceAxes, Tensor> {
        let axes = self.reduce_axes(op, axes)?;
        self.check_float(op).map(|()| axes)
    }

    /// Checks that the element type is a float.
    #[track_caller]
    pub(crate) fn check_float(&self, op: &str) -> Result<(), Tensor> {
        if self.is_mistake() || self.dtype().is_float() {
            return Ok(());
        }
        let message = format!("{op}: {self:?} has no fractions; cast it to a float first");
        Err(Tensor::mistake(Error::mistake(message)))
    }

    /// Returns the mean over axes of floats.
    #[track_caller]
    pub fn mean(&self, axes: impl Into<Axes>) -> Tensor {
        match self.mean_axes("mean", axes) {
            Ok(axes) => self.in_f32(|x| x.mean_over(&axes.axes).without(&axes)),
            Err(mistake) => mistake,
        }
    }

    /// Returns the mean over axes, which are kept with length 1.
    #[track_caller]
    fn mean_over(&self, axes: &[usize]) -> Tensor {
        self.reduced(ReduceOp::Sum, axes.to_vec()) / self.count(axes)
    }

    /// Returns the variance over axes: the sum of squared differences from the mean, divided by the count less
    /// `correction`. A correction of 1 is the unbiased estimate. If the correction is not below the count, the result
    /// is infinite, or NaN if all elements are equal.
    #[track_caller]
    pub fn var(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        match self.mean_axes("var", axes) {
            Ok(axes) => self.in_f32(|x| x.variance(&axes, correction)),
            Err(mistake) => mistake,
        }
    }

    #[track_caller]
    fn variance(&self, axes: &ReduceAxes, correction: usize) -> Tensor {
        let total = (self - self.mean_over(&axes.axes)).square().reduced(ReduceOp::Sum, axes.axes.clone());
        let count = self.count(&axes.axes) - self.literal(correction as f64);
        (total / count.maximum(&self.literal(0.0))).without(axes)
    }

    /// Returns the square root of nonnegative numbers, with gradient 0 at 0.
    #[track_caller]
    fn root(&self) -> Tensor {
        let (zero, one) = (self.literal(0.0), self.literal(1.0));
        let nothing = self.eq(&zero);
        zero.where_self(&nothing, &one.where_self(&nothing, self).sqrt())
    }

    /// Returns the sum over axes of the elements that are not NaN.
    #[track_caller]
    pub fn nansum(&self, axes: impl Into<Axes>) -> Tensor {
        self.where_self(&self.eq(self), &self.literal(0.0)).sum(axes)
    }

    /// Returns the mean over axes of the elements that are not NaN; NaN if there are none.
    #[track_caller]
    pub fn nanmean(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = match self.mean_axes("nanmean", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        self.in_f32(|x| {
            let there = x.eq(x);
            let count = there.how_many(axes.axes.clone()).cast(x.dtype());
            (x.where_self(&there, &x.literal(0.0)).reduced(ReduceOp::Sum, axes.axes.clone()) / count).without(&axes)
        })
    }

    /// Returns the square root of [`Tensor::var`]. The gradient is 0 where all elements are equal.
    #[track_caller]
    pub fn std(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
        match self.mean_axes("std", axes) {
            Ok(axes) => self.in_f32(|x| x.variance(&axes, correction).root()),
            Err(mistake) => mistake,
        }
    }

    /// Returns the Euclidean norm over axes. The gradient is 0 at 0.
    #[track_caller]
    pub fn norm(&self, axes: impl Into<Axes>) -> Tensor {
        match self.mean_axes("norm", axes) {
            Ok(axes) => self.in_f32(|x| x.square().reduced(ReduceOp::Sum, axes.axes.clone()).without(&axes).root()),
            Err(mistake) => mistake,
        }
    }

    /// Returns true where any element over axes is true or nonzero.
    #[track_caller]
    pub fn any(&self, axes: impl Into<Axes>) -> Tensor {
        self.extreme_of_held("any", ReduceOp::Max, axes)
    }

    /// Returns true where all elements over axes are true or nonzero.
    #[track_caller]
    pub fn all(&self, axes: impl Into<Axes>) -> Tensor {
        self.extreme_of_held("all", ReduceOp::Min, axes)
    }

    /// Counts the true elements over axes, which are kept with length 1: i32, or i64 if the count might not fit in an
    /// i32.
    #[track_caller]
    pub(crate) fn how_many(&self, axes: Vec<usize>) -> Tensor {
        let most = axes.iter().fold(1usize, |most, axis| most.saturating_mul(self.0.shape.dims()[*axis]));
        let counts = if i32::try_from(most).is_ok() { DType::I32 } else { DType::I64 };
        self.cast(counts).reduced(ReduceOp::Sum, axes)
    }

    /// Returns i32 1 where an element is true or nonzero, and 0 elsewhere.
    #[track_caller]
    pub(crate) fn held(&self) -> Tensor {
        let held = if self.dtype() == DType::Bool { self.clone() } else { self.ne(&self.literal(0.0)) };
        held.cast(DType::I32)
    }

    /// Returns true where the extreme of [`Tensor::held`] is 1. Over no elements `any` is false and `all` is true.
    #[track_caller]
    fn extreme_of_held(&self, op: &str, of: ReduceOp, axes: impl Into<Axes>) -> Tensor {
        let axes = match self.reduce_axes(op, axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        let extreme = self.held().reduced(of, axes.axes.clone()).without(&axes);
        extreme.gt(&extreme.literal(0.0))
    }

    /// Checks that an i32 can represent the positions along an axis, and their count.
    #[track_caller]
    pub(crate) fn has_positions(&self, op: &str, axis: usize) -> Result<(), Tensor> {
        if i32::try_from(self.0.shape.dims()[axis]).is_ok() {
            return Ok(());
        }
        let message = format!("{op}: axis {axis} of {self:?} has more elements than an i32 can count");
        Err(Tensor::mistake(Error::mistake(message).note("split it into shorter parts")))
    }

    /// Returns the positions (i32) of the first maximum along one axis, or with `..` its position among all elements
    /// in row-major order.
    #[track_caller]
    pub fn argmax(&self, axis: impl Into<Axes>) -> Tensor {
        self.arg("argmax", ReduceOp::Max, axis.into())
    }

    /// Returns the positions (i32) of the first minimum along one axis, or with `..` its position among all elements
    /// in row-major order.
    #[track_caller]
    pub fn argmin(&self, axis: impl Into<Axes>) -> Tensor {
        self.arg("argmin", ReduceOp::Min, axis.into())
    }

    /// Returns the maximum along one axis and its positions (i32), those of the first if several are equal; NaN if one
    /// is NaN. The gradient goes to the element at the position.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let best = Tensor::from_slice(&[1.0f32, 7.0, 3.0, 5.0], [2, 2]).max_with_indices(1);
    /// assert_eq!(best.values.to_vec::<f32>()?, [7.0, 5.0]);
    /// assert_eq!(best.indices.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn max_with_indices(&self, axis: impl Into<Axes>) -> ValuesWithIndices {
        self.extreme_with_indices("max_with_indices", ReduceOp::Max, axis.into())
    }

    /// Returns the minimum along one axis and its positions; see [`Tensor::max_with_indices`].
    #[track_caller]
    pub fn min_with_indices(&self, axis: impl Into<Axes>) -> ValuesWithIndices {
        self.extreme_with_indices("min_with_indices", ReduceOp::Min, axis.into())
    }

    #[track_caller]
    fn extreme_with_indices(&self, name: &str, op: ReduceOp, axis: Axes) -> ValuesWithIndices {
        let axes = match self.single_axis(name, axis) {
            Ok(axes) => axes,
            Err(mistake) => return ValuesWithIndices::mistake(mistake),
        };
        let indices = self.positions_of(name, op, axes.axes[0]);
        let values = self.take_along_dim(&indices, axes.axes[0] as isize);
        ValuesWithIndices { values: values.without(&axes), indices: indices.without(&axes) }
    }

    #[track_caller]
    fn arg(&self, name: &str, op: ReduceOp, axis: Axes) -> Tensor {
        if axis.axes.is_none() && !self.is_mistake() {
            let best = self.reshaped([self.0.shape.numel()].into()).positions_of(name, op, 0);
            return best.reshaped(vec![1; if axis.keepdim { self.0.shape.ndim() } else { 0 }].into());
        }
        match self.single_axis(name, axis) {
            Ok(axes) => self.positions_of(name, op, axes.axes[0]).without(&axes),
            Err(mistake) => mistake,
        }
    }

    /// Returns the axis of an operation that takes only one, or a tensor with the mistake.
    #[track_caller]
    fn single_axis(&self, name: &str, axis: Axes) -> Result<ReduceAxes, Tensor> {
        let axes = self.reduce_axes(name, axis)?;
        if axes.axes.len() == 1 {
            return Ok(axes);
        }
        let message = format!("{name}: takes one axis of {self:?}, not {}", axes.axes.len());
        Err(Tensor::mistake(Error::mistake(message).note("merge axes first, for example with `.flatten(0, -1)`")))
    }

    /// Returns the positions (i32) of the first extreme along an axis, which is kept with length 1.
    #[track_caller]
    fn positions_of(&self, name: &str, op: ReduceOp, axis: usize) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        if let Err(mistake) = self.has_elements(name, &[axis]) {
            return mistake;
        }
        if let Err(mistake) = self.has_positions(name, axis) {
            return mistake;
        }
        if self.dtype() == DType::Bool {
            return self.cast(DType::U8).positions_of(name, op, axis);
        }
        let best = self.reduced(op, vec![axis]);
        // If the extreme is NaN it equals nothing, so elements that differ from themselves count as hits.
        let hit = self.eq(&best).bitwise_or(&self.ne(self));
        let len = self.0.shape.dims()[axis];
        let mut dims = vec![1; self.0.shape.ndim()];
        dims[axis] = len;
        let positions = Tensor::arange(len).reshaped(Shape::new(dims));
        let beyond = positions.literal(len as f64);
        positions.where_self(&hit, &beyond).reduced(ReduceOp::Min, vec![axis])
    }

    /// Returns ln Σ exp(x) over axes, without overflow. The gradient is the softmax; where the result is infinite, the
    /// elements equal to it share the gradient equally.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = match self.reduce_axes("logsumexp", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        self.in_f32(|x| {
            Tensor::call_with_vjp(
                "logsumexp",
                [x],
                axes.axes.clone(),
                |[x], axes| {
                    let top = x.reduced(ReduceOp::Max, axes.clone());
                    // An infinity minus itself would be NaN.
                    let top = top.where_self(&top.is_finite(), &top.literal(0.0));
                    (x - &top).exp().reduced(ReduceOp::Sum, axes.clone()).log() + top
                },
                |[x], y, g, axes| {
                    let infinite = y.abs().eq(&y.literal(f64::INFINITY));
                    let equal = x.eq(y);
                    let share = equal.cast(x.dtype()) / equal.how_many(axes.clone()).cast(x.dtype());
                    // Where the result is infinite the difference can be NaN, which must not reach the second
                    // derivative.
                    let finite = x.literal(0.0).where_self(&infinite, &(x - y)).exp();
                    [Some(g * share.where_self(&infinite, &finite))]
                },
            )
            .without(&axes)
        })
    }
}
