//! Over axes: sums, extremes, and what is composed of them.

use panoply_ir::graph::Op;
use panoply_ir::kernel::ReduceOp;
use panoply_ir::{DType, Error, Shape};

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
        match self.named_axes(op.name(), axes) {
            Ok(axes) => self.reduced(op, axes),
            Err(mistake) => mistake,
        }
    }

    /// Positions of the axes, ascending, or the mistake as a tensor.
    #[track_caller]
    fn named_axes(&self, op: &str, axes: impl Axes) -> Result<Vec<usize>, Tensor> {
        let named = axes.axes().unwrap_or_else(|| (0..self.0.shape.rank() as isize).collect());
        let mut axes = Vec::with_capacity(named.len());
        for axis in named {
            axes.push(self.axis(op, axis)?);
        }
        axes.sort_unstable();
        if let Some(twice) = axes.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("{op}: axis {} of {self:?} is named twice", twice[0]);
            return Err(Tensor::mistake(Error::mistake(message)));
        }
        Ok(axes)
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
        match self.named_axes(op.name(), axes) {
            Ok(axes) => self.reduced(op, axes.clone()).without(&axes),
            Err(mistake) => mistake,
        }
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
        let axes = match self.named_axes("sum", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        self.reduced(ReduceOp::Sum, axes.clone()).without(&axes) / self.count(&axes)
    }

    /// Mean over one axis, which stays with length 1.
    #[track_caller]
    pub fn mean_keep(&self, axis: isize) -> Tensor {
        match self.axis("sum", axis) {
            Ok(axis) => self.reduced(ReduceOp::Sum, vec![axis]) / self.count(&[axis]),
            Err(mistake) => mistake,
        }
    }

    /// Variance over one axis, which stays with length 1: the mean squared distance from the mean.
    #[track_caller]
    pub fn variance_keep(&self, axis: isize) -> Tensor {
        (self - self.mean_keep(axis)).square().mean_keep(axis)
    }

    /// Variance over axes: the sum of squared distances from the mean over the count less `correction`, 1 for the unbiased
    /// estimate and 0 for the mean.
    #[track_caller]
    pub fn var(&self, axes: impl Axes, correction: usize) -> Tensor {
        let axes = match self.named_axes("var", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        let count = self.count(&axes);
        let mean = self.reduced(ReduceOp::Sum, axes.clone()) / &count;
        let total = (self - mean).square().reduced(ReduceOp::Sum, axes.clone());
        (total / (count - self.literal(correction as f64))).without(&axes)
    }

    /// These axes, along which it is 1 long, go away.
    #[track_caller]
    fn without(&self, axes: &[usize]) -> Tensor {
        let dims = self.0.shape.dims().iter().enumerate();
        let kept = dims.filter(|(axis, _)| !axes.contains(axis)).map(|(_, dim)| *dim);
        self.reshaped(Shape::new(kept.collect::<Vec<usize>>()))
    }

    /// Sum over axes of what is not NaN.
    #[track_caller]
    pub fn nansum(&self, axes: impl Axes) -> Tensor {
        self.where_(&self.eq(self), &self.literal(0.0)).sum(axes)
    }

    /// Mean over axes of what is not NaN; NaN where there is nothing else.
    #[track_caller]
    pub fn nanmean(&self, axes: impl Axes) -> Tensor {
        let axes = match self.named_axes("nanmean", axes) {
            Ok(axes) => axes,
            Err(mistake) => return mistake,
        };
        let there = self.eq(self);
        let count = there.cast(self.dtype()).reduced(ReduceOp::Sum, axes.clone());
        (self.where_(&there, &self.literal(0.0)).reduced(ReduceOp::Sum, axes.clone()) / count).without(&axes)
    }

    /// Root of [`Tensor::var`].
    #[track_caller]
    pub fn std(&self, axes: impl Axes, correction: usize) -> Tensor {
        self.var(axes, correction).sqrt()
    }

    /// Length of the vectors over axes: the root of the sum of squares.
    #[track_caller]
    pub fn norm(&self, axes: impl Axes) -> Tensor {
        self.square().sum(axes).sqrt()
    }

    /// ln of the sum of e to the x over an axis, which goes away; does not overflow.
    #[track_caller]
    pub fn logsumexp(&self, axis: isize) -> Tensor {
        self.logsumexp_keep(axis).squeeze(axis)
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

    /// ln of the sum of e to the x along an axis, which stays with length 1; does not overflow.
    #[track_caller]
    pub fn logsumexp_keep(&self, axis: isize) -> Tensor {
        let top = self.reduce_keep(ReduceOp::Max, axis).detach();
        // An infinity less itself would be NaN.
        let top = top.where_(&top.is_finite(), &top.literal(0.0));
        (self - &top).exp().reduce_keep(ReduceOp::Sum, axis).ln() + top
    }
}
