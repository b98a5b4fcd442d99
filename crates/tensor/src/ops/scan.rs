//! Cumulative operations (scans) along an axis.
//!
//! Values cost one pass. Gradients of products and extremes are linear recurrences from the last element, computed by
//! recursive doubling (Kogge and Stone 1973): about log₂ n passes over n elements, and memory for a few arrays of n.
//! If the length of the axis is dynamic, each element is a sum over all others instead: n² work.

use panoply_ir::DType;
use panoply_ir::graph::Op;
use panoply_ir::kernel::ReduceOp;

use crate::tensor::Tensor;

impl Tensor {
    /// Returns the cumulative sum along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        match self.axis("cumsum", axis) {
            Ok(axis) => self.scan(ReduceOp::Sum, axis),
            Err(mistake) => mistake,
        }
    }

    /// Returns the cumulative product along an axis.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Tensor {
        match self.axis("cumprod", axis) {
            Ok(axis) => Tensor::call_with_vjp(
                "cumprod",
                [self],
                axis,
                |[x], axis| x.scan(ReduceOp::Prod, *axis),
                |[x], _, g, axis| [Some(cumprod_gradient(x, g, *axis))],
            ),
            Err(mistake) => mistake,
        }
    }

    /// Returns the cumulative maximum along an axis; NaN from the first NaN on. Of equal elements the latest gets the
    /// gradient, as in PyTorch.
    #[track_caller]
    pub fn cummax(&self, axis: isize) -> Tensor {
        match self.axis("cummax", axis) {
            Ok(axis) => Tensor::call_with_vjp(
                "cummax",
                [self],
                axis,
                |[x], axis| x.scan(ReduceOp::Max, *axis),
                |[x], y, g, axis| [Some(cummax_gradient(x, y, g, *axis))],
            ),
            Err(mistake) => mistake,
        }
    }

    /// Returns the cumulative minimum along an axis; NaN from the first NaN on. Of equal elements the latest gets the
    /// gradient, as in PyTorch.
    #[track_caller]
    pub fn cummin(&self, axis: isize) -> Tensor {
        match self.axis("cummin", axis) {
            Ok(axis) => Tensor::call_with_vjp(
                "cummin",
                [self],
                axis,
                |[x], axis| x.scan(ReduceOp::Min, *axis),
                |[x], y, g, axis| [Some(cummax_gradient(x, y, g, *axis))],
            ),
            Err(mistake) => mistake,
        }
    }

    /// Returns ln of the cumulative sum of exp(x) along an axis, without overflow. It costs log₂ n passes over all
    /// elements.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: isize) -> Tensor {
        let axis = match self.static_axis("logcumsumexp", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        Tensor::call("logcumsumexp", [self], axis, |[x], axis| {
            let (rank, length) = (x.0.shape.ndim(), x.0.shape.dims()[*axis]);
            let mut column = vec![1; rank];
            column[*axis] = length;
            let places = Tensor::arange(length).reshaped(column.into());
            let (mut sums, mut reach) = (x.clone(), 1);
            // Each sum adds the sum `reach` elements before it (Hillis and Steele 1986).
            while reach < length {
                let mut widths = vec![(0, 0); rank];
                widths[*axis] = (reach, 0);
                let before = sums.narrow(*axis as isize, 0, length - reach).pad(&widths);
                let far = places.ge(&places.literal(reach as f64));
                sums = sums.logaddexp(&before).where_self(&far, &sums);
                reach *= 2;
            }
            sums
        })
    }

    #[track_caller]
    fn scan(&self, op: ReduceOp, axis: usize) -> Tensor {
        // Extremes of bools are those of the numbers 0 and 1.
        if self.dtype() == DType::Bool && matches!(op, ReduceOp::Max | ReduceOp::Min) {
            return self.cast(DType::U8).scan(op, axis).cast(DType::Bool);
        }
        Tensor::primitive(Op::Scan(op, axis), &[self], self.0.shape.clone(), self.dtype())
    }

    /// Pairs every element with each element of the last axis, in a new axis before it: returns `[…, 1, n]`, and the
    /// positions along both axes, `[n, 1]` and `[n]`.
    fn against_each(&self) -> (Tensor, Tensor, Tensor) {
        let places = Tensor::arange(self.0.shape.dims()[self.0.shape.ndim() - 1]);
        (self.unsqueeze(-2), places.unsqueeze(1), places)
    }

    /// Shifts the last axis: returns element `i + by` at `i`, with zeros at the end.
    fn later(&self, by: usize) -> Tensor {
        let rank = self.0.shape.ndim();
        let mut widths = vec![(0, 0); rank];
        widths[rank - 1] = (0, by);
        self.narrow(-1, by, self.0.shape.dims()[rank - 1] - by).pad(&widths)
    }
}

/// Returns the gradient of a cumulative product: for cotangents g, `Π_{i<j} x[i] · r[j]` where `r[j] = g[j] + x[j +
/// 1] · r[j + 1]`. It does not divide, so zeros are exact.
fn cumprod_gradient(x: &Tensor, g: &Tensor, axis: usize) -> Tensor {
    if x.static_axis("cumprod", axis as isize).is_err() {
        return cumprod_gradient_of_pairs(x, g, axis);
    }
    let length = x.0.shape.dims()[axis];
    if length < 2 {
        return g.clone();
    }
    let dtype = g.dtype();
    let (x, g) = (x.widened().transpose(axis as isize, -1), g.widened().transpose(axis as isize, -1));
    let places = Tensor::arange(length);
    let (mut sums, mut factors, mut reach) = (g, x.later(1), 1);
    while reach < length {
        let inside = places.lt(&places.literal((length - reach) as f64));
        let more = &sums + &factors * sums.later(reach);
        sums = more.where_self(&inside, &sums);
        factors = &factors * factors.later(reach);
        reach *= 2;
    }
    let mut widths = vec![(0, 0); x.0.shape.ndim()];
    widths[x.0.shape.ndim() - 1] = (1, 0);
    let before = x.cumprod(-1).narrow(-1, 0, length - 1).pad(&widths);
    let before = before.where_self(&places.ge(&places.literal(1.0)), &x.literal(1.0));
    (before * sums).cast(dtype).transpose(axis as isize, -1)
}

/// Computes [`cumprod_gradient`] as a sum over all pairs of elements.
fn cumprod_gradient_of_pairs(x: &Tensor, g: &Tensor, axis: usize) -> Tensor {
    let (x, g) = (x.transpose(axis as isize, -1), g.transpose(axis as isize, -1));
    let one = x.literal(1.0);
    let (each, mine, theirs) = x.against_each();
    let between = each.where_self(&theirs.gt(&mine), &one).cumprod(-1);
    let grad = (g.unsqueeze(-2) * between).where_self(&theirs.ge(&mine), &x.literal(0.0)).sum(-1);
    let before = each.where_self(&theirs.lt(&mine), &one).prod(-1);
    (before * grad).transpose(axis as isize, -1)
}

/// Returns the gradient of cumulative extremes: at j the sum of the cotangents of all i whose extreme is element j.
/// Those i are consecutive, starting at j.
fn cummax_gradient(x: &Tensor, y: &Tensor, g: &Tensor, axis: usize) -> Tensor {
    let known = x.static_axis("cummax", axis as isize).is_ok();
    let dtype = g.dtype();
    let [x, y, g] = [x, y, g].map(|tensor| tensor.transpose(axis as isize, -1));
    let hit = x.eq(&y).bitwise_or(&x.is_nan());
    let none = Tensor::constant((-1i32).into());
    let length = x.0.shape.dims()[x.0.shape.ndim() - 1];
    let places = Tensor::arange(length);
    let holder = places.where_self(&hit, &none).scan(ReduceOp::Max, x.0.shape.ndim() - 1);
    if !known {
        let (holder, mine, _) = holder.against_each();
        let grad = g.unsqueeze(-2).where_self(&holder.eq(&mine), &g.literal(0.0)).sum(-1);
        return grad.transpose(axis as isize, -1);
    }
    let (mut sums, mut reach) = (g.widened(), 1);
    // From 1 on, since there are zeros beyond the end.
    let numbers = &holder + holder.literal(1.0);
    while reach < length {
        let same = numbers.eq(&numbers.later(reach));
        sums = &sums + sums.later(reach).where_self(&same, &sums.literal(0.0));
        reach *= 2;
    }
    sums.where_self(&holder.eq(&places), &sums.literal(0.0)).cast(dtype).transpose(axis as isize, -1)
}
