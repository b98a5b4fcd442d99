//! LU decomposition with partial pivoting: recursively by halves of the columns, blocks by a kernel and the rest by
//! matrix products (Toledo, Locality of Reference in LU Decomposition with Partial Pivoting, 1997). The gradient is
//! that of de Hoog, Anderssen and Lukas, Differentiation of Matrix Functionals Using Triangular Factorization, 2011.

use panoply_ir::routine::{self, Routine};
use panoply_ir::{DType, Shape};

use super::kernels::{self, BLOCK};
use super::{Triangle, forward, scalar_arg, split_point};
use crate::call::CompositeOp;
use crate::ops::sort::SortOrder;
use crate::tensor::Tensor;

/// LU factors of matrices `[…, n, n]`.
#[derive(Clone, Debug)]
pub struct Lu {
    /// The row order `[…, n]`, as i32: row i of L · U is row `perm[i]` of the matrix. `torch.linalg.lu` returns it as a
    /// matrix.
    pub perm: Tensor,
    /// The lower triangular factor `[…, n, n]`, with ones on the diagonal.
    pub l: Tensor,
    /// The upper triangular factor `[…, n, n]`.
    pub u: Tensor,
}

impl Tensor {
    /// Returns the row order, L and U of square matrices `[…, n, n]` of f32 or f64, with partial pivoting: no element of
    /// L exceeds 1 in magnitude. A singular matrix has zeros on the diagonal of U; the gradient needs a regular matrix.
    #[track_caller]
    pub fn lu(&self) -> Lu {
        if let Err(mistake) = self.check_matrices("lu", true) {
            return Lu { perm: mistake.clone(), l: mistake.clone(), u: mistake };
        }
        let [packed, perm] = lu_packed(self);
        Lu { perm, l: packed.unit_lower(), u: packed.triu(0) }
    }

    /// Returns the strictly lower triangle with ones on the diagonal.
    #[track_caller]
    pub(super) fn unit_lower(&self) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        self.tril(-1) + Tensor::eye(self.0.shape.dims()[self.0.shape.ndim() - 1], self.dtype())
    }

    /// Permutes the rows of each matrix by its own order.
    #[track_caller]
    pub(super) fn permute_rows(&self, order: &Tensor) -> Tensor {
        self.take_along_dim(&order.unsqueeze(-1).expanded(&self.0.shape), -2)
    }
}

/// Returns L below the diagonal and U on and above it in one matrix, and the row order.
#[track_caller]
pub(super) fn lu_packed(a: &Tensor) -> [Tensor; 2] {
    CompositeOp {
        name: "lu",
        body: |[a], ()| {
            let (dims, size) = (a.0.shape.dims(), a.0.shape.dims()[a.0.shape.ndim() - 1]);
            let lead = Shape::from(&dims[..dims.len() - 1]);
            if a.batch() == 0 {
                return [a.clone(), Tensor::zeros(lead, DType::I32)];
            }
            let (packed, order) = elimination(&a.reshaped([a.batch(), size, size].into()));
            [packed.reshaped(a.0.shape.clone()), order.reshaped(lead)]
        },
        gradient: Some(|[a], packed, g, ()| {
            let [_, order] = lu_packed(a);
            let (l, u) = (packed.unit_lower(), packed.triu(0));
            let inner = l.t().matmul(&g.tril(-1)).tril(-1) + g.triu(0).matmul(&u.t()).triu(0);
            let left = l.t().solve_triangular(&inner, Triangle::Upper);
            let grad = u.solve_triangular(&left.t(), Triangle::Upper).t();
            [Some(grad.permute_rows(&order.argsort(-1, SortOrder::Ascending)))]
        }),
        routine: |[a], ()| {
            let size = a.0.shape.dims()[a.0.shape.ndim() - 1];
            Some(Routine::Lu(routine::Lu { dtype: a.dtype(), batch: a.batch(), size }))
        },
    }
    .apply_batched([a], ())
}

/// Like [`lu_packed`], for `[batch, m, n]`, m ≥ n.
fn elimination(a: &Tensor) -> (Tensor, Tensor) {
    let &[batch, rows, columns] = a.0.shape.dims() else { unreachable!("it has three axes") };
    if columns <= BLOCK {
        let places = Tensor::arange(rows).expanded(&[batch, rows].into());
        let [packed, order] = Tensor::custom_kernel(
            kernels::of(a.dtype(), kernels::pivot::<f32>, kernels::pivot::<f64>),
            &[a, &places, &scalar_arg(rows), &scalar_arg(columns)],
            [a.0.shape.clone(), [batch, rows].into()],
            batch * BLOCK,
        );
        return (packed, order);
    }
    let first = split_point(columns);
    let below = |x: &Tensor| x.narrow(1, first, rows - first);
    let (left, order) = elimination(&a.narrow(2, 0, first));
    let right = a.narrow(2, first, columns - first).permute_rows(&order);
    if right.is_mistake() {
        return (right.clone(), right);
    }
    let upper = left.narrow(1, 0, first);
    let top = forward(&upper.unit_lower(), &right.narrow(1, 0, first));
    let (rest, again) = elimination(&(below(&right) - below(&left).matmul(&top)));
    let lower = Tensor::concat([below(&left).permute_rows(&again), rest], 2);
    let order = Tensor::concat([order.narrow(1, 0, first), below(&order).take_along_dim(&again, 1)], 1);
    (Tensor::concat([Tensor::concat([upper, top], 2), lower], 1), order)
}
