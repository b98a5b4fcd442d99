//! Pooling over windows, and to a given size.

use panoply_ir::graph::Slice;
use panoply_ir::kernel::ReduceOp;
use panoply_ir::{DType, Error, Shape};

use super::window::Window;
use crate::tensor::Tensor;

impl Tensor {
    /// Largest of each window over the last N axes, after `padding` elements of minus infinity on both sides. Equal
    /// extremes share the gradient.
    #[track_caller]
    pub fn max_pool<const N: usize>(&self, window: &Window<N>, padding: [usize; N]) -> Tensor {
        if (0..N).any(|along| padding[along] * 2 > window.size[along]) {
            let message = format!("max_pool: padding {padding:?} is more than half a window of {:?}", window.size);
            return if self.is_mistake() { self.clone() } else { Tensor::mistake(Error::mistake(message)) };
        }
        self.padded_with(&padding, f64::NEG_INFINITY).pooled(window, Tensor::maximum)
    }

    /// Mean of each window over the last N axes, after `padding` zeros on both sides; the zeros count.
    #[track_caller]
    pub fn average_pool<const N: usize>(&self, window: &Window<N>, padding: [usize; N]) -> Tensor {
        let sums = self.padded_with(&padding, 0.0).pooled(window, |a, b| a + b);
        let count = sums.literal(window.size.iter().product::<usize>() as f64);
        sums / count
    }

    /// Means of parts of equal length over the last N axes, `sizes` of them; where the lengths do not divide, the parts
    /// overlap, as in PyTorch.
    #[track_caller]
    pub fn adaptive_average_pool<const N: usize>(&self, sizes: [usize; N]) -> Tensor {
        self.adaptive_pool(sizes, ReduceOp::Sum)
    }

    /// Largest of parts of equal length over the last N axes; see [`Tensor::adaptive_average_pool`].
    #[track_caller]
    pub fn adaptive_max_pool<const N: usize>(&self, sizes: [usize; N]) -> Tensor {
        self.adaptive_pool(sizes, ReduceOp::Max)
    }

    #[track_caller]
    fn adaptive_pool<const N: usize>(&self, sizes: [usize; N], op: ReduceOp) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let rank = self.0.shape.rank();
        if rank < N || sizes.contains(&0) || self.0.shape.dims()[rank - N..].contains(&0) {
            return Tensor::mistake(Error::mistake(format!("adaptive pool: {self:?} cannot be made {sizes:?}")));
        }
        let mut pooled = self.clone();
        for (along, parts) in sizes.into_iter().enumerate() {
            pooled = pooled.parts_along(rank - N + along, parts, op);
        }
        pooled
    }

    /// Part p of an axis of length n covers `floor(p · n / parts) .. ceil((p + 1) · n / parts)`.
    fn parts_along(&self, axis: usize, parts: usize, op: ReduceOp) -> Tensor {
        let dims = self.0.shape.dims();
        let length = dims[axis];
        let number = |value: usize| Tensor::constant((value as i32).into());
        let part = Tensor::iota(parts).unsqueeze(1);
        let start = &part * number(length) / number(parts);
        let end = ((&part + number(1)) * number(length) + number(parts - 1)) / number(parts);
        let place = Tensor::iota(length).unsqueeze(0);
        let inside = place.ge(&start).bitand(&place.lt(&end));
        let mut around = vec![1; dims.len() + 1];
        (around[axis], around[axis + 1]) = (parts, length);
        let inside = inside.reshaped(Shape::new(around));
        let neutral = if op == ReduceOp::Max { f64::NEG_INFINITY } else { 0.0 };
        let chosen = self.unsqueeze(axis as isize).where_(&inside, &self.literal(neutral));
        let combined = chosen.reduced(op, vec![axis + 1]).squeeze(axis as isize + 1);
        if op == ReduceOp::Max {
            return combined;
        }
        let mut counts = vec![1; dims.len()];
        counts[axis] = parts;
        combined / (end - start).reshaped(Shape::new(counts)).cast(self.dtype())
    }

    /// The elements of each window over the last N axes combined, one axis after the other: with windows of a few elements
    /// that is element-wise work on strided views, which needs no loop inside a work-item.
    #[track_caller]
    fn pooled<const N: usize>(&self, window: &Window<N>, combine: fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
        let counts = match self.window_counts(window) {
            Ok(counts) => counts,
            Err(mistake) => return mistake,
        };
        let lead = self.0.shape.rank() - N;
        let mut pooled = self.clone();
        for (along, count) in counts.into_iter().enumerate() {
            let part = |element: usize| {
                let mut slices = pooled.whole();
                let start = element * window.dilation[along];
                slices[lead + along] = Slice { start, step: window.stride[along] as isize, len: count };
                pooled.sliced(slices)
            };
            pooled = (1..window.size[along]).fold(part(0), |sum, element| combine(&sum, &part(element)));
        }
        pooled
    }

    /// Elements of this value on both sides of the last N axes.
    #[track_caller]
    pub(crate) fn padded_with(&self, padding: &[usize], value: f64) -> Tensor {
        if self.is_mistake() || padding.iter().all(|width| *width == 0) {
            return self.clone();
        }
        let Some(lead) = self.0.shape.rank().checked_sub(padding.len()) else {
            return Tensor::mistake(Error::mistake(format!("{} paddings for {self:?}", padding.len())));
        };
        let widths: Vec<(usize, usize)> =
            std::iter::repeat_n((0, 0), lead).chain(padding.iter().map(|width| (*width, *width))).collect();
        let padded = self.pad(&widths);
        if value == 0.0 {
            return padded;
        }
        let inside = Tensor::ones(self.0.shape.clone(), DType::Bool).pad(&widths);
        padded.where_(&inside, &self.literal(value))
    }
}
