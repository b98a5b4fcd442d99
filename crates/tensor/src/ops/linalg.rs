//! Matrix and vector products, distances.

use panoply_ir::graph::Op;
use panoply_ir::{Error, Shape};

use super::axes::KeepDim;
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the matrix product: `[…, m, k]` × `[…, k, n]` gives `[…, m, n]`; leading axes broadcast.
    ///
    /// A vector on the left is a row, on the right a column, and the added axis is removed from the result, as in
    /// NumPy.
    #[doc(alias = "mv")]
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        if let Some(mistake) = Tensor::leftmost([self, other]) {
            return mistake;
        }
        let operands = || format!("left {self:?}, right {other:?}");
        let (left, right) = (self.0.shape.ndim(), other.0.shape.ndim());
        if left == 0 || right == 0 {
            return Tensor::mistake(Error::mistake("matmul: operands must have at least one axis").note(operands()));
        }
        if left == 1 {
            return self.unsqueeze(0).matmul(other).squeeze(if right == 1 { 0 } else { -2 });
        }
        if right == 1 {
            return self.matmul(&other.unsqueeze(1)).squeeze(-1);
        }
        let (a, b) = (self.0.shape.dims(), other.0.shape.dims());
        let (m, k, n) = (a[left - 2], a[left - 1], b[right - 1]);
        if b[right - 2] != k {
            let message = format!("matmul: inner dimensions {k} and {} differ", b[right - 2]);
            return Tensor::mistake(Error::mistake(message).note(operands()));
        }
        if self.dtype() != other.dtype() {
            let message = format!("matmul: element types {} and {} differ", self.dtype(), other.dtype());
            return Tensor::mistake(Error::mistake(message).note(operands()));
        }
        // Plans count the multiplications in an i64.
        let uncounted = |batch: usize| {
            let products = [m, k, n].iter().try_fold(batch, |count, length| count.checked_mul(*length));
            let message = || format!("matmul: {self:?} by {other:?} has more products than an i64 can count");
            products.is_none_or(|count| i64::try_from(count).is_err()).then(|| Error::mistake(message()))
        };
        if (left, right) == (2, 2) {
            if let Some(error) = uncounted(1) {
                return Tensor::mistake(error);
            }
            return Tensor::primitive(Op::MatMul, &[self, other], [m, n], self.dtype());
        }
        let joined = (1..left - 1).all(|axis| self.valid_length(axis).is_none());
        if left > 2 && right == 2 && joined {
            // One product with all rows, and one in the gradient, instead of a sum of small products over the leading
            // axes.
            let rows = a[..left - 1].iter().product::<usize>();
            let whole = Shape::new([&a[..left - 1], &[n]].concat());
            return self.reshaped([rows, k].into()).matmul(other).reshaped(whole);
        }
        let (outer_a, outer_b) = (Shape::from(&a[..left - 2]), Shape::from(&b[..right - 2]));
        let batch = match outer_a.broadcast(&outer_b) {
            Ok(batch) => batch,
            Err(error) => {
                return Tensor::mistake(Error::mistake(format!("matmul: {}", error.message())).note(operands()));
            }
        };
        if let Some(error) = uncounted(batch.numel()) {
            return Tensor::mistake(error);
        }
        let over = |rows: usize, columns: usize| Shape::new([batch.dims(), &[rows, columns]].concat());
        let (x, y) = (self.expanded(&over(m, k)), other.expanded(&over(k, n)));
        Tensor::primitive(Op::MatMul, &[&x, &y], over(m, n), self.dtype())
    }

    /// Returns the products of all pairs of elements of two vectors: `[m]` and `[n]` give `[m, n]`.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Tensor {
        match self.vectors("outer", other) {
            Some(mistake) => mistake,
            None => self.unsqueeze(1) * other.unsqueeze(0),
        }
    }

    /// Returns the inner product of two vectors, of shape `[]`. f16 and bf16 compute in f32 and round once.
    #[doc(alias = "inner")]
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        match self.vectors("dot", other) {
            Some(mistake) => mistake,
            None => self.in_single_with(other, |x, y| (x * y).sum(..)),
        }
    }

    /// Returns the cross product along an axis of length 3; other axes broadcast. Tensors of different ranks need a
    /// negative axis. f16 and bf16 compute in f32 and round once.
    #[track_caller]
    pub fn cross(&self, other: &Tensor, axis: isize) -> Tensor {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let ranks = operands.map(|operand| operand.0.shape.ndim());
        if ranks[0] != ranks[1] && axis >= 0 {
            let message = format!("cross: axis {axis} differs between {self:?} and {other:?}; use a negative axis");
            return Tensor::mistake(Error::mistake(message));
        }
        for operand in operands {
            match operand.axis("cross", axis) {
                Ok(place) if operand.0.shape.dims()[place] == 3 => {}
                Ok(_) => {
                    let message = format!("cross: axis {axis} of {operand:?} does not have length 3");
                    let note = format!("left {self:?}, right {other:?}");
                    return Tensor::mistake(Error::mistake(message).note(note));
                }
                Err(mistake) => return mistake,
            }
        }
        self.in_single_with(other, |x, y| {
            let [[a1, a2], [b1, b2]] = [x, y].map(|x| [x.roll(-1, axis), x.roll(-2, axis)]);
            a1 * b2 - a2 * b1
        })
    }

    /// Returns the Kronecker product: `[m, n]` and `[p, q]` give `[m·p, n·q]`. The operand of lower rank gets leading
    /// axes of length 1.
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Tensor {
        if let Some(mistake) = [self, other].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let rank = self.0.shape.ndim().max(other.0.shape.ndim());
        let filled = |x: &Tensor| [&vec![1; rank - x.0.shape.ndim()], x.0.shape.dims()].concat();
        let (a, b) = (filled(self), filled(other));
        let apart = |dims: &[usize], first: bool| {
            let pair = |dim: &usize| if first { [*dim, 1] } else { [1, *dim] };
            Shape::new(dims.iter().flat_map(pair).collect::<Vec<usize>>())
        };
        let whole: Vec<usize> = a.iter().zip(&b).map(|(a, b)| a.saturating_mul(*b)).collect();
        (self.reshaped(apart(&a, true)) * other.reshaped(apart(&b, false))).reshaped(Shape::new(whole))
    }

    /// Returns the p-norm distances of all pairs of rows: `[…, m, k]` and `[…, n, k]` give `[…, m, n]`. `p` is 2 for
    /// Euclidean distances, 1 for sums of magnitudes, infinity for the largest, in general `(Σ |x - y|^p)^(1/p)`.
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Tensor {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let widths = operands.map(|x| x.0.shape.dims().last().copied().filter(|_| x.0.shape.ndim() > 1));
        let float = self.dtype().is_float() && self.dtype() == other.dtype();
        if widths[0].is_none() || widths[0] != widths[1] || !float || p.is_nan() || p <= 0.0 {
            let message = format!("cdist: no distances with p = {p} between rows of {self:?} and {other:?}");
            let note = "it needs matrices of floats of one type with equally long rows, and p above 0";
            return Tensor::mistake(Error::mistake(message).note(note));
        }
        self.in_f32(|x| {
            let other = other.cast(x.dtype());
            if p == 2.0 { x.euclidean(&other) } else { x.apart(&other, p) }
        })
    }

    /// Returns Euclidean distances with a gradient by matrix products. Both operands are centered on the mean of the
    /// other rows, since far from it the products would cancel. Two points that are n times closer to each other than
    /// to the mean lose a factor n of their gradients' precision.
    #[track_caller]
    fn euclidean(&self, other: &Tensor) -> Tensor {
        let rank = self.0.shape.ndim().max(other.0.shape.ndim());
        let dims = |x: &Tensor| [&vec![1; rank - x.0.shape.ndim()], x.0.shape.dims()].concat();
        let [ours, theirs] = [self, other].map(dims);
        let leading = |dims: &[usize]| Shape::from(&dims[..rank - 2]);
        let lengths = [self, other].iter().any(|x| (0..x.0.shape.ndim()).any(|axis| x.valid_length(axis).is_some()));
        let batch = match leading(&ours).broadcast(&leading(&theirs)) {
            Ok(batch) if !lengths => batch,
            _ => return self.apart(other, 2.0),
        };
        let whole = |x: &Tensor, dims: &[usize]| x.expanded(&Shape::new([batch.dims(), &dims[rank - 2..]].concat()));
        Tensor::call_with_vjp(
            "cdist",
            [&whole(self, &ours), &whole(other, &theirs)],
            (),
            |[x, other], ()| x.apart(other, 2.0),
            |[x, other], distances, g, ()| {
                let (zero, one) = (g.literal(0.0), g.literal(1.0));
                let none = distances.eq(&zero);
                let pull = zero.where_self(&none, &(g / one.where_self(&none, distances)));
                let middle = other.detach().mean(KeepDim(-2));
                let (x, other) = (x - &middle, other - &middle);
                let grad =
                    |x: &Tensor, pull: &Tensor, other: &Tensor| x * pull.sum(-1).unsqueeze(-1) - pull.matmul(other);
                [Some(grad(&x, &pull, &other)), Some(grad(&other, &pull.t(), &x))]
            },
        )
    }

    /// Computes distances directly from the differences.
    #[track_caller]
    fn apart(&self, other: &Tensor, power: f64) -> Tensor {
        // Transposing and negating one operand stores the rows contiguously that all others are compared with.
        let (apart, axis) = if self.0.shape.dims().last() <= other.0.shape.dims().iter().rev().nth(1) {
            (self.unsqueeze(-1) + (-other.t()).unsqueeze(-3), -2)
        } else {
            (self.unsqueeze(-2) - other.unsqueeze(-3), -1)
        };
        if power == 2.0 { apart.magnitude(power, axis) } else { apart.abs().magnitude(power, axis) }
    }

    /// Returns the p-norm of magnitudes along an axis, which is removed.
    #[track_caller]
    fn magnitude(&self, power: f64, axis: isize) -> Tensor {
        if power == f64::INFINITY {
            return self.max(axis);
        }
        if power == 1.0 {
            return self.sum(axis);
        }
        // The gradient at distance 0 is 0, not that of a root.
        let (zero, one) = (self.literal(0.0), self.literal(1.0));
        let pow = |x: &Tensor, power: f64| {
            let none = x.eq(&zero);
            zero.where_self(&none, &one.where_self(&none, x).pow(power))
        };
        let sum = if power == 2.0 { (self * self).sum(axis) } else { pow(self, power).sum(axis) };
        pow(&sum, 1.0 / power)
    }

    /// Returns the mistake of operands that are not vectors, if any.
    #[track_caller]
    fn vectors(&self, op: &str, other: &Tensor) -> Option<Tensor> {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return Some(mistake.clone());
        }
        let matrix = operands.into_iter().find(|operand| operand.0.shape.ndim() != 1)?;
        Some(Tensor::mistake(Error::mistake(format!("{op}: {matrix:?} is not a vector; flatten it first"))))
    }
}
