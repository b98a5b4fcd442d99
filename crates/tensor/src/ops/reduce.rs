//! Over axes: sums, extremes, running sums, and what is composed of them.

use panoply_ir::graph::Op;
use panoply_ir::kernel::ReduceOp;
use panoply_ir::{DType, Shape};

use crate::tensor::Tensor;

/// Which axes a reduction covers: one, several, or `..` for all. Negative ones count from the end.
pub trait Axes {
    /// The axes, as the caller wrote them; none is all.
    fn axes(self) -> Option<Vec<isize>>;
}

impl Axes for isize {
    fn axes(self) -> Option<Vec<isize>> {
        Some(vec![self])
    }
}

impl Axes for i32 {
    fn axes(self) -> Option<Vec<isize>> {
        Some(vec![self as isize])
    }
}

impl<const N: usize> Axes for [isize; N] {
    fn axes(self) -> Option<Vec<isize>> {
        Some(self.to_vec())
    }
}

impl Axes for std::ops::RangeFull {
    fn axes(self) -> Option<Vec<isize>> {
        None
    }
}

impl Tensor {
    /// The combination over axes, which stay with length 1.
    #[track_caller]
    pub fn reduce_keep(&self, op: ReduceOp, axes: impl Axes) -> Tensor {
        let named = axes.axes().unwrap_or_else(|| (0..self.0.shape.rank() as isize).collect());
        let mut axes = Vec::new();
        for axis in named {
            match self.axis(op.name(), axis) {
                Ok(axis) => axes.push(axis),
                Err(mistake) => return mistake,
            }
        }
        axes.sort_unstable();
        axes.dedup();
        self.reduced(op, axes)
    }

    #[track_caller]
    pub(crate) fn reduced(&self, op: ReduceOp, axes: Vec<usize>) -> Tensor {
        if self.is_mistake() || axes.is_empty() {
            return self.clone();
        }
        let mut dims = self.0.shape.dims().to_vec();
        axes.iter().for_each(|axis| dims[*axis] = 1);
        Tensor::primitive(Op::Reduce(op, axes), &[self], dims, self.dtype())
    }

    /// A reduction whose axes of length 1 go away.
    #[track_caller]
    fn reduce(&self, op: ReduceOp, axes: impl Axes) -> Tensor {
        self.reduce_keep(op, axes).dropping_reduced(self)
    }

    /// `self` without the axes along which it is 1 long and `whole` was reduced.
    #[track_caller]
    fn dropping_reduced(&self, whole: &Tensor) -> Tensor {
        let Tensor(node) = self;
        let axes = match &node.source {
            crate::tensor::Source::Op(Op::Reduce(_, axes)) if node.inputs[0].is_same(whole) => axes.clone(),
            _ => return self.clone(),
        };
        let kept = node.shape.dims().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        self.reshaped(Shape::new(kept.map(|(_, dim)| *dim).collect::<Vec<usize>>()))
    }

    /// Sum over axes.
    #[track_caller]
    pub fn sum(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceOp::Sum, axes)
    }

    /// Product over axes.
    #[track_caller]
    pub fn prod(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceOp::Prod, axes)
    }

    /// Largest over axes; NaN wins.
    #[track_caller]
    pub fn max(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceOp::Max, axes)
    }

    /// Smallest over axes; NaN wins.
    #[track_caller]
    pub fn min(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceOp::Min, axes)
    }

    /// Mean over axes.
    #[track_caller]
    pub fn mean(&self, axes: impl Axes) -> Tensor {
        let sum = self.sum(axes);
        let count = self.0.shape.elems() as f64 / sum.0.shape.elems().max(1) as f64;
        &sum / sum.literal(count)
    }

    /// Mean over one axis, which stays with length 1.
    #[track_caller]
    pub fn mean_keep(&self, axis: isize) -> Tensor {
        let sum = self.reduce_keep(ReduceOp::Sum, axis);
        let count = self.0.shape.elems() as f64 / sum.0.shape.elems().max(1) as f64;
        &sum / sum.literal(count)
    }

    /// Variance over one axis, which stays with length 1: the mean squared distance from the mean.
    #[track_caller]
    pub fn variance_keep(&self, axis: isize) -> Tensor {
        (self - self.mean_keep(axis)).square().mean_keep(axis)
    }

    /// Whether any element over axes holds.
    #[track_caller]
    pub fn any(&self, axes: impl Axes) -> Tensor {
        self.cast(DType::I32).max(axes).cast(DType::Bool)
    }

    /// Whether all elements over axes hold.
    #[track_caller]
    pub fn all(&self, axes: impl Axes) -> Tensor {
        self.cast(DType::I32).min(axes).cast(DType::Bool)
    }

    /// Position (i32) of the first largest element along an axis; the axis goes away.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Tensor {
        self.arg(ReduceOp::Max, axis)
    }

    /// Position (i32) of the first smallest element along an axis; the axis goes away.
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Tensor {
        self.arg(ReduceOp::Min, axis)
    }

    #[track_caller]
    fn arg(&self, op: ReduceOp, axis: isize) -> Tensor {
        let position = match self.axis("argmax", axis) {
            Ok(position) => position,
            Err(mistake) => return mistake,
        };
        let best = self.reduce_keep(op, axis);
        // A NaN is the best and equals nothing: an element that differs from itself counts as equal to it.
        let hit = self.eq(&best).bitor(&self.ne(self));
        let len = self.0.shape.dims()[position];
        let mut dims = vec![1; self.0.shape.rank()];
        dims[position] = len;
        let positions = Tensor::iota(len).reshaped(Shape::new(dims));
        let beyond = positions.literal(len as f64);
        positions.where_(&hit, &beyond).min(axis)
    }

    /// Running sum along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        self.scan(ReduceOp::Sum, axis)
    }

    /// Running product along an axis.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Tensor {
        self.scan(ReduceOp::Prod, axis)
    }

    /// Running maximum along an axis.
    #[track_caller]
    pub fn cummax(&self, axis: isize) -> Tensor {
        self.scan(ReduceOp::Max, axis)
    }

    #[track_caller]
    pub(crate) fn scan(&self, op: ReduceOp, axis: isize) -> Tensor {
        match self.axis("scan", axis) {
            Ok(axis) => Tensor::primitive(Op::Scan(op, axis), &[self], self.0.shape.clone(), self.dtype()),
            Err(mistake) => mistake,
        }
    }

    /// ln of the sum of e to the x along an axis, which stays with length 1; does not overflow.
    #[track_caller]
    pub fn logsumexp_keep(&self, axis: isize) -> Tensor {
        let top = self.reduce_keep(ReduceOp::Max, axis).detach();
        (self - &top).exp().reduce_keep(ReduceOp::Sum, axis).ln() + top
    }
}
