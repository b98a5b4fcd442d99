//! Singular value decomposition: QR, then Jacobi rotations of the rows of R until they are orthogonal, which finds small
//! singular values as accurately as large ones (Drmač and Veselić, New Fast and Accurate Jacobi SVD Algorithm, 2008). As
//! for [`super::eigen`], one work-group processes a whole matrix. The gradient is that of Townsend, Differentiating the
//! Singular Value Decomposition, 2016; that of the pseudo-inverse of Golub and Pereyra, The Differentiation of
//! Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate, 1973.

use panoply_ir::Shape;
use panoply_ir::kernel::ReduceOp;

use super::eigen::MAX_SWEEPS;
use super::{epsilon, kernels, scalar_arg};
use crate::call::CompositeOp;
use crate::ops::axes::KeepDim;
use crate::ops::sort::SortOrder;
use crate::tensor::Tensor;

/// The singular value decomposition of matrices `[…, m, n]`: U · diag(s) · Vᵀ. k is min(m, n).
#[derive(Clone, Debug)]
pub struct Svd {
    /// The left singular vectors, as columns of `[…, m, k]`.
    pub u: Tensor,
    /// The singular values `[…, k]` in descending order.
    pub s: Tensor,
    /// The right singular vectors, as rows of `[…, k, n]`.
    pub vh: Tensor,
}

impl Tensor {
    /// Returns the singular value decomposition of matrices `[…, m, n]` of f32 or f64, PyTorch's with
    /// `full_matrices=False`. Pairs of singular vectors have either sign. The gradient of the vectors needs distinct
    /// singular values, and if m and n differ, none that is 0.
    #[track_caller]
    pub fn svd(&self) -> Svd {
        if let Err(mistake) = self.check_matrices("svd", false) {
            return Svd { u: mistake.clone(), s: mistake.clone(), vh: mistake };
        }
        let &[.., m, n] = self.0.shape.dims() else { unreachable!("the operand was checked") };
        if m < n {
            let Svd { u, s, vh } = self.t().svd();
            return Svd { u: vh.t(), s, vh: u.t() };
        }
        let [u, s, vh] = CompositeOp { name: "svd", body: |[a], ()| svd(a), gradient: None, routine: |_, ()| None }
            .apply_batched([self], ());
        // The derivatives are expressions of the decomposition, whose own derivatives are the second ones.
        let s = Tensor::call_with_vjp(
            "svd values",
            [self, &s.detach()],
            (),
            |[_, s], ()| s.clone(),
            |[a, _], _, g, ()| {
                let Svd { u, vh, .. } = a.svd();
                [Some((u * g.unsqueeze(-2)).matmul(&vh)), None]
            },
        );
        let u = Tensor::call_with_vjp(
            "svd left",
            [self, &u.detach()],
            (),
            |[_, u], ()| u.clone(),
            |[a, _], _, g, ()| {
                let Svd { u, s, vh } = a.svd();
                let mut grad = u.matmul(&(s.inverse_gaps() * u.t().matmul(g).antisymmetric() * s.unsqueeze(-2)));
                let &[.., m, k] = u.0.shape.dims() else { unreachable!("it is a matrix") };
                if m > k {
                    grad += (g - u.matmul(&u.t().matmul(g))) / s.unsqueeze(-2);
                }
                [Some(grad.matmul(&vh)), None]
            },
        );
        let vh = Tensor::call_with_vjp(
            "svd right",
            [self, &vh.detach()],
            (),
            |[_, vh], ()| vh.clone(),
            |[a, _], _, g, ()| {
                let Svd { u, s, vh } = a.svd();
                let inner = s.inverse_gaps() * vh.matmul(&g.t()).antisymmetric() * s.unsqueeze(-1);
                [Some(u.matmul(&inner.matmul(&vh))), None]
            },
        );
        Svd { u, s, vh }
    }

    /// Returns the singular values `[…, k]` of matrices `[…, m, n]` of f32 or f64 in descending order, where k is
    /// min(m, n). It is `svd().s`.
    #[track_caller]
    pub fn svdvals(&self) -> Tensor {
        self.svd().s
    }

    /// Returns the pseudo-inverses `[…, n, m]` of matrices `[…, m, n]` of f32 or f64. Singular values up to `rtol` times
    /// the largest count as 0; by default max(m, n) times the machine epsilon. The gradient is that
    /// of matrices of the same rank.
    #[track_caller]
    pub fn pinv(&self, rtol: Option<f64>) -> Tensor {
        if let Err(mistake) = self.check_matrices("pinv", false) {
            return mistake;
        }
        let &[.., m, n] = self.0.shape.dims() else { unreachable!("the operand was checked") };
        let body = |[a]: [&Tensor; 1], rtol: &f64| {
            let Svd { u, s, vh } = a.svd();
            let (zero, one) = (s.literal(0.0), s.literal(1.0));
            let some = s.gt(s.narrow(-1, 0, 1) * s.literal(*rtol));
            let inverse = (&one / s.where_self(&some, &one)).where_self(&some, &zero);
            vh.t().matmul(&(inverse.unsqueeze(-1) * u.t()))
        };
        Tensor::call_with_vjp(
            "pinv",
            [self],
            rtol.unwrap_or(epsilon(self.dtype()) * m.max(n) as f64),
            body,
            |[a], p, g, _| {
                let (p_t, g_t) = (p.t(), g.t());
                let (left, right) = (g_t.matmul(p).matmul(&p_t), p_t.matmul(p).matmul(&g_t));
                let outside = &left - a.matmul(&p.matmul(&left)) + &right - right.matmul(p).matmul(a);
                [Some(outside - p_t.matmul(g).matmul(&p_t))]
            },
        )
    }

    /// Returns 1 / (s[j]² - s[i]²) of singular values, and zeros on the diagonal.
    fn inverse_gaps(&self) -> Tensor {
        let (row, column) = (self.unsqueeze(-2), self.unsqueeze(-1));
        let places = Tensor::arange(self.0.shape.dims()[self.0.shape.ndim() - 1]);
        let same = places.unsqueeze(1).eq(&places);
        // A product of sum and difference, so that close values do not cancel.
        let apart = self.literal(1.0).where_self(&same, &((&row - &column) * (&row + &column)));
        self.literal(0.0).where_self(&same, apart.reciprocal())
    }

    /// Returns the difference from the transpose.
    fn antisymmetric(&self) -> Tensor {
        self - self.t()
    }
}

/// Returns U, the singular values and Vᵀ of matrices with at least as many rows as columns.
fn svd(a: &Tensor) -> [Tensor; 3] {
    let &[ref lead @ .., _, n] = a.0.shape.dims() else { unreachable!("it is a matrix") };
    let (whole, values) = (Shape::new([lead, &[n, n]].concat()), Shape::new([lead, &[n]].concat()));
    if a.batch() == 0 {
        return [a.clone(), Tensor::zeros(values, a.dtype()), Tensor::zeros(whole, a.dtype())];
    }
    // Squares of numbers up to 1 do not overflow.
    let rank = a.0.shape.ndim();
    let size = a.abs().reduced(ReduceOp::Max, vec![rank - 2, rank - 1]);
    let size = size.where_self(&(size.is_finite() & size.gt(size.literal(0.0))), &size.literal(1.0));
    let a = a / &size;
    let q = a.q_factor();
    let flat = Shape::from([a.batch(), n, n]);
    let [rows, turns] = Tensor::custom_kernel(
        kernels::of(a.dtype(), kernels::orthogonalize::<f32>, kernels::orthogonalize::<f64>),
        &[
            &q.t().matmul(&a).triu(0).reshaped(flat.clone()),
            &Tensor::eye(n, a.dtype()).expanded(&flat),
            &scalar_arg(n),
            &scalar_arg(MAX_SWEEPS),
        ],
        [flat.clone(), flat],
        a.batch() * kernels::BLOCK,
    );
    let [rows, turns] = [rows, turns].map(|x| x.reshaped(whole.clone()));
    let lengths = rows.square().sum(-1).sqrt();
    let order = lengths.argsort(-1, SortOrder::Descending);
    let [rows, turns] = [rows, turns].map(|x| x.permute_rows(&order));
    // Rows of length 0 have no direction; QR completes the others to an orthonormal basis.
    let v = rows.t().q_factor();
    let along = (&v * rows.t()).sum(KeepDim(-2));
    let sign = along.literal(-1.0).where_self(&along.lt(along.literal(0.0)), &along.literal(1.0));
    let s = lengths.take_along_dim(&order, -1) * size.squeeze(-1);
    [q.matmul(&turns.t()), s, (v * sign).t()]
}
