//! Matrix products.

use panoply_ir::graph::Op;
use panoply_ir::{Error, Shape};

use crate::tensor::Tensor;

impl Tensor {
    /// Matrix product: `[…, m, k]` × `[…, k, n]` gives `[…, m, n]`; leading axes broadcast.
    ///
    /// A right operand of one axis is a column, a left one a row, and that axis goes away, as in NumPy.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        if let Some(mistake) = Tensor::leftmost([self, other]) {
            return mistake;
        }
        let operands = || format!("left {self:?}, right {other:?}");
        let (left, right) = (self.0.shape.ndim(), other.0.shape.ndim());
        if left == 0 || right == 0 {
            return Tensor::mistake(Error::mistake("matmul: a single number is no matrix").note(operands()));
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
        // How much a plan has to do is counted.
        let uncounted = |batch: usize| {
            let products = [m, k, n].iter().try_fold(batch, |count, length| count.checked_mul(*length));
            let message = || format!("matmul: {self:?} by {other:?} is more products than can be counted");
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
            // One product of many rows, and one in the gradient: not a sum over the leading axes of small ones.
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

    /// Products of every element of one vector with every element of another: `[m]` and `[n]` give `[m, n]`.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Tensor {
        match self.vectors("outer", other) {
            Some(mistake) => mistake,
            None => self.unsqueeze(1) * other.unsqueeze(0),
        }
    }

    /// Sum of the products of two vectors' elements, of shape `[]`. Of halves it is computed in f32 and rounded once.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        match self.vectors("dot", other) {
            Some(mistake) => mistake,
            None => self.in_single_with(other, |x, y| (x * y).sum(..)),
        }
    }

    /// The vectors at right angles to both, along an axis of length 3; other axes broadcast. Tensors of different ranks count it
    /// from the end. Of halves they are computed in f32 and rounded once.
    #[track_caller]
    pub fn cross(&self, other: &Tensor, axis: isize) -> Tensor {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let ranks = operands.map(|operand| operand.0.shape.ndim());
        if ranks[0] != ranks[1] && axis >= 0 {
            let message =
                format!("cross: axis {axis} is not the same of {self:?} and {other:?}; count it from the end");
            return Tensor::mistake(Error::mistake(message));
        }
        for operand in operands {
            match operand.axis("cross", axis) {
                Ok(place) if operand.0.shape.dims()[place] == 3 => {}
                Ok(_) => {
                    let message = format!("cross: axis {axis} of {operand:?} is not 3 long");
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

    /// Every element of one tensor times all of another, as blocks: `[m, n]` and `[p, q]` give `[m·p, n·q]`. Fewer axes are filled up
    /// with ones in front.
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

    /// Distances of every row of one matrix from every row of another: `[…, m, k]` and `[…, n, k]` give `[…, m, n]`. `power` is 2 for
    /// Euclid's, 1 for sums of magnitudes, infinite for the largest, in general p of `(Σ |x - y|^p)^(1/p)`.
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Tensor {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let widths = operands.map(|x| x.0.shape.dims().last().copied().filter(|_| x.0.shape.ndim() > 1));
        let float = self.dtype().is_float() && self.dtype() == other.dtype();
        if widths[0].is_none() || widths[0] != widths[1] || !float || p.is_nan() || p <= 0.0 {
            let message = format!("cdist: no distances of power {p} between rows of {self:?} and {other:?}");
            let note = "it takes matrices of floats of one type with equally long rows, and a power above 0";
            return Tensor::mistake(Error::mistake(message).note(note));
        }
        self.in_f32(|x| {
            let other = other.cast(x.dtype());
            if p == 2.0 { x.euclidean(&other) } else { x.apart(&other, p) }
        })
    }

    /// Euclid's distances. What flows back is by products; both are seen from the middle of the others, far from which they would cancel:
    /// points that lie so many times nearer to each other than to that lose as much of their slopes' precision.
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
                let middle = other.detach().mean_keepdim(-2);
                let (x, other) = (x - &middle, other - &middle);
                let flow =
                    |x: &Tensor, pull: &Tensor, other: &Tensor| x * pull.sum(-1).unsqueeze(-1) - pull.matmul(other);
                [Some(flow(&x, &pull, &other)), Some(flow(&other, &pull.t(), &x))]
            },
        )
    }

    /// Distances by a power, one after the other.
    #[track_caller]
    fn apart(&self, other: &Tensor, power: f64) -> Tensor {
        // Turned first and negated then, rows that all others are compared with are stored side by side.
        let (apart, axis) = if self.0.shape.dims().last() <= other.0.shape.dims().iter().rev().nth(1) {
            (self.unsqueeze(-1) + (-other.t()).unsqueeze(-3), -2)
        } else {
            (self.unsqueeze(-2) - other.unsqueeze(-3), -1)
        };
        if power == 2.0 { apart.magnitude(power, axis) } else { apart.abs().magnitude(power, axis) }
    }

    /// What magnitudes along an axis, which goes away, come to with this power.
    #[track_caller]
    fn magnitude(&self, power: f64, axis: isize) -> Tensor {
        if power == f64::INFINITY {
            return self.max(axis);
        }
        if power == 1.0 {
            return self.sum(axis);
        }
        // At distance 0 the slope is 0, not what a root's would be.
        let (zero, one) = (self.literal(0.0), self.literal(1.0));
        let pow = |x: &Tensor, power: f64| {
            let none = x.eq(&zero);
            zero.where_self(&none, &one.where_self(&none, x).powf(power))
        };
        let sum = if power == 2.0 { (self * self).sum(axis) } else { pow(self, power).sum(axis) };
        pow(&sum, 1.0 / power)
    }

    /// What is wrong with two operands that should be vectors.
    #[track_caller]
    fn vectors(&self, op: &str, other: &Tensor) -> Option<Tensor> {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return Some(mistake.clone());
        }
        let matrix = operands.into_iter().find(|operand| operand.0.shape.ndim() != 1)?;
        Some(Tensor::mistake(Error::mistake(format!("{op}: {matrix:?} is no vector; flatten it first"))))
    }
}
