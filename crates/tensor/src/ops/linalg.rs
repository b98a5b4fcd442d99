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
        if self.is_mistake() || other.is_mistake() {
            return if self.is_mistake() { self.clone() } else { other.clone() };
        }
        let operands = || format!("left {self:?}, right {other:?}");
        let (left, right) = (self.0.shape.rank(), other.0.shape.rank());
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
        if left > 2 && right == 2 {
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
        let over = |rows: usize, columns: usize| Shape::new([batch.dims(), &[rows, columns]].concat());
        let (x, y) = (self.expand_to(&over(m, k)), other.expand_to(&over(k, n)));
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

    /// Sum of the products of two vectors' elements, of shape `[]`.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        match self.vectors("dot", other) {
            Some(mistake) => mistake,
            None => (self * other).sum(..),
        }
    }

    /// What is wrong with two operands that should be vectors.
    #[track_caller]
    fn vectors(&self, op: &str, other: &Tensor) -> Option<Tensor> {
        let operands = [self, other];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return Some(mistake.clone());
        }
        let matrix = operands.into_iter().find(|operand| operand.0.shape.rank() != 1)?;
        Some(Tensor::mistake(Error::mistake(format!("{op}: {matrix:?} is no vector; flatten it first"))))
    }
}
