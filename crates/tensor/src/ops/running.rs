//! Running combinations along an axis.
//!
//! The derivatives of a running product and of running extremes are sums over all later elements: their work grows with the
//! square of the axis, which is good for up to some thousands of elements a row. Values cost one pass.

use panoply_ir::DType;
use panoply_ir::graph::Op;
use panoply_ir::kernel::ReduceOp;

use crate::tensor::Tensor;

impl Tensor {
    /// Running sum along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        match self.axis("cumsum", axis) {
            Ok(axis) => self.scan(ReduceOp::Sum, axis),
            Err(mistake) => mistake,
        }
    }

    /// Running product along an axis.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Tensor {
        match self.axis("cumprod", axis) {
            Ok(axis) => Tensor::call_with_gradient(
                "cumprod",
                [self],
                axis,
                |[x], axis| x.scan(ReduceOp::Prod, *axis),
                |[x], _, g, axis| [Some(product_flow(x, g, *axis))],
            ),
            Err(mistake) => mistake,
        }
    }

    /// Running maximum along an axis; NaN wins. Of equal elements the latest has the gradient, as in PyTorch.
    #[track_caller]
    pub fn cummax(&self, axis: isize) -> Tensor {
        match self.axis("cummax", axis) {
            Ok(axis) => Tensor::call_with_gradient(
                "cummax",
                [self],
                axis,
                |[x], axis| x.scan(ReduceOp::Max, *axis),
                |[x], y, g, axis| [Some(extreme_flow(x, y, g, *axis))],
            ),
            Err(mistake) => mistake,
        }
    }

    /// Running minimum along an axis; NaN wins. Of equal elements the latest has the gradient, as in PyTorch.
    #[track_caller]
    pub fn cummin(&self, axis: isize) -> Tensor {
        match self.axis("cummin", axis) {
            Ok(axis) => Tensor::call_with_gradient(
                "cummin",
                [self],
                axis,
                |[x], axis| x.scan(ReduceOp::Min, *axis),
                |[x], y, g, axis| [Some(extreme_flow(x, y, g, *axis))],
            ),
            Err(mistake) => mistake,
        }
    }

    /// ln of the running sum of e to the x along an axis; does not overflow. The work is that of a pass over all elements for
    /// each doubling of the axis.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: isize) -> Tensor {
        let axis = match self.whole_axis("logcumsumexp", axis) {
            Ok(axis) => axis,
            Err(mistake) => return mistake,
        };
        Tensor::call("logcumsumexp", [self], axis, |[x], axis| {
            let (rank, length) = (x.0.shape.rank(), x.0.shape.dims()[*axis]);
            let mut column = vec![1; rank];
            column[*axis] = length;
            let places = Tensor::iota(length).reshaped(column.into());
            let (mut sums, mut reach) = (x.clone(), 1);
            // Each sum takes in that of as many elements before it (Hillis and Steele 1986).
            while reach < length {
                let mut widths = vec![(0, 0); rank];
                widths[*axis] = (reach, 0);
                let before = sums.narrow(*axis as isize, 0, length - reach).pad(&widths);
                let far = places.ge(&places.literal(reach as f64));
                sums = sums.logaddexp(&before).where_(&far, &sums);
                reach *= 2;
            }
            sums
        })
    }

    #[track_caller]
    fn scan(&self, op: ReduceOp, axis: usize) -> Tensor {
        // The extreme of bools is that of the numbers 0 and 1.
        if self.dtype() == DType::Bool && matches!(op, ReduceOp::Max | ReduceOp::Min) {
            return self.cast(DType::U8).scan(op, axis).cast(DType::Bool);
        }
        Tensor::primitive(Op::Scan(op, axis), &[self], self.0.shape.clone(), self.dtype())
    }

    /// Every element once for each element of the last axis, in a new axis before it: `[…, n]` as `[…, 1, n]` with the
    /// positions of both, `[n, 1]` and `[n]`.
    fn against_each(&self) -> (Tensor, Tensor, Tensor) {
        let places = Tensor::iota(self.0.shape.dims()[self.0.shape.rank() - 1]);
        (self.unsqueeze(-2), places.unsqueeze(1), places)
    }
}

/// Of element j: the product of those before it, times the sum over i ≥ j of the flow at i and the product of what lies
/// between. No division, so zeros are exact.
fn product_flow(x: &Tensor, g: &Tensor, axis: usize) -> Tensor {
    let (x, g) = (x.transpose(axis as isize, -1), g.transpose(axis as isize, -1));
    let one = x.literal(1.0);
    let (each, mine, theirs) = x.against_each();
    let between = each.where_(&theirs.gt(&mine), &one).cumprod(-1);
    let flow = (g.unsqueeze(-2) * between).where_(&theirs.ge(&mine), &x.literal(0.0)).sum(-1);
    let before = each.where_(&theirs.lt(&mine), &one).prod(-1);
    (before * flow).transpose(axis as isize, -1)
}

/// Of element j: the sum of the flows at all i whose extreme it is.
fn extreme_flow(x: &Tensor, y: &Tensor, g: &Tensor, axis: usize) -> Tensor {
    let [x, y, g] = [x, y, g].map(|tensor| tensor.transpose(axis as isize, -1));
    let hit = x.eq(&y).bitor(&x.is_nan());
    let none = Tensor::constant((-1i32).into());
    let places = Tensor::iota(x.0.shape.dims()[x.0.shape.rank() - 1]);
    let holder = places.where_(&hit, &none).scan(ReduceOp::Max, x.0.shape.rank() - 1);
    let (holder, mine, _) = holder.against_each();
    let flow = g.unsqueeze(-2).where_(&holder.eq(&mine), &g.literal(0.0)).sum(-1);
    flow.transpose(axis as isize, -1)
}
