//! Eigendecomposition of symmetric matrices: a routine where a device has one, Jacobi rotations elsewhere. Their
//! errors are roundings relative to the largest eigenvalue, and the same on every device. From some hundred rows they
//! are slower than other methods, since one work-group processes a whole matrix.

use panoply_ir::Shape;
use panoply_ir::routine::{self, Routine};

use super::{kernels, scalar_arg};
use crate::call::CompositeOp;
use crate::ops::sort::SortOrder;
use crate::tensor::Tensor;

/// Maximum number of sweeps; elements off the diagonal that remain then are ignored. Most matrices converge in six to
/// twelve; close eigenvalues take longer.
pub(super) const MAX_SWEEPS: usize = 60;

/// The eigendecomposition of symmetric matrices `[…, n, n]`.
#[derive(Clone, Debug)]
pub struct Eigh {
    /// The eigenvalues `[…, n]` in ascending order.
    #[doc(alias = "eigenvalues")]
    pub values: Tensor,
    /// The eigenvectors, as columns of `[…, n, n]`.
    #[doc(alias = "eigenvectors")]
    pub vectors: Tensor,
}

impl Tensor {
    /// Returns the eigenvalues `[…, n]` of symmetric matrices `[…, n, n]` of f32 or f64 in ascending order, and the
    /// eigenvectors as columns `[…, n, n]`, each of length 1 and of either sign. A matrix that is not symmetric is
    /// replaced by the mean of it and its transpose. The gradient of the eigenvectors needs distinct eigenvalues.
    #[track_caller]
    pub fn eigh(&self) -> Eigh {
        if let Err(mistake) = self.check_matrices("eigh", true) {
            return Eigh { values: mistake.clone(), vectors: mistake };
        }
        let symmetric = (self + self.t()) * self.literal(0.5);
        let [vectors, values] = symmetric.decomposed();
        // The first derivative of the eigenvalues does not depend on the derivative of the eigenvectors; the second
        // does.
        let values = Tensor::call_with_vjp(
            "eigenvalues",
            [&symmetric, &vectors, &values.detach()],
            (),
            |[_, _, values], ()| values.clone(),
            |[_, vectors, _], _, g, ()| [Some((vectors * g.unsqueeze(-2)).matmul(&vectors.t())), None, None],
        );
        Eigh { values, vectors }
    }

    /// Returns the eigenvalues `[…, n]` of symmetric matrices `[…, n, n]` of f32 or f64 in ascending order. It is
    /// `eigh().values`.
    #[track_caller]
    pub fn eigvalsh(&self) -> Tensor {
        self.eigh().values
    }

    /// Returns the eigenvectors, and the eigenvalues without a gradient.
    #[track_caller]
    fn decomposed(&self) -> [Tensor; 2] {
        CompositeOp {
            name: "eigh",
            body: |[a], ()| eigh_unsorted(a),
            gradient: Some(|[a], vectors, g, ()| {
                let values = (a.matmul(vectors) * vectors).sum(-2);
                let apart = values.unsqueeze(-2) - values.unsqueeze(-1);
                let places = Tensor::arange(values.0.shape.dims()[values.0.shape.ndim() - 1]);
                let same = places.unsqueeze(1).eq(&places);
                let (zero, one) = (a.literal(0.0), a.literal(1.0));
                let inner = vectors.t().matmul(g) / one.where_self(&same, &apart);
                let grad = vectors.matmul(&zero.where_self(&same, &inner)).matmul(&vectors.t());
                [Some((&grad + grad.t()) * a.literal(0.5))]
            }),
            routine: |[a], ()| {
                let size = a.0.shape.dims()[a.0.shape.ndim() - 1];
                Some(Routine::Eigh(routine::Eigh { dtype: a.dtype(), batch: a.batch(), size }))
            },
        }
        .apply_batched([self], ())
    }
}

/// Returns the eigenvectors of symmetric matrices and their eigenvalues, in ascending order.
fn eigh_unsorted(a: &Tensor) -> [Tensor; 2] {
    let (dims, size) = (a.0.shape.clone(), a.0.shape.dims()[a.0.shape.ndim() - 1]);
    let lead = Shape::from(&dims.dims()[..dims.ndim() - 1]);
    if a.batch() == 0 {
        return [a.clone(), Tensor::zeros(lead, a.dtype())];
    }
    let whole = Shape::from([a.batch(), size, size]);
    let even = size.next_multiple_of(2);
    let turns = Shape::from([a.batch(), even]);
    let [left, vectors, _] = Tensor::custom_kernel(
        kernels::of(a.dtype(), kernels::jacobi::<f32>, kernels::jacobi::<f64>),
        &[
            &a.reshaped(whole.clone()),
            &Tensor::eye(size, a.dtype()).expanded(&whole),
            &Tensor::zeros(turns.clone(), a.dtype()),
            &scalar_arg(size),
            &scalar_arg(MAX_SWEEPS),
        ],
        [whole.clone(), whole.clone(), turns],
        a.batch() * kernels::BLOCK,
    );
    let values = left.diagonal(0);
    let order = values.argsort(-1, SortOrder::Ascending);
    let vectors = vectors.take_along_dim(&order.unsqueeze(-2).expanded(&whole), -1);
    [vectors.reshaped(dims), values.take_along_dim(&order, -1).reshaped(lead)]
}
