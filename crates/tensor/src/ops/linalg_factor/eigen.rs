//! Eigenvalues of symmetric matrices: a routine where a device has one, and Jacobi's rotations elsewhere: to rounding beside the largest, the
//! same on every device, and slower than other methods from some hundred rows on, since one work-group does a whole matrix.

use panoply_ir::Shape;
use panoply_ir::routine::{self, Routine};

use super::{kernels, number};
use crate::call::CompositeOp;
use crate::ops::sort::SortOrder;
use crate::tensor::Tensor;

/// Sweeps after which what is left beside the diagonal stays. Mostly it is gone after six to twelve; values that lie close together
/// take longer.
const MOST_SWEEPS: usize = 60;

impl Tensor {
    /// The eigenvalues `[…, n]` of symmetric matrices `[…, n, n]` of f32 or f64, the smallest first, and their vectors as columns
    /// `[…, n, n]`, each of length 1 and of either sign. What is not symmetric counts by half with its mirror image. The gradient of
    /// the vectors needs values that differ.
    #[track_caller]
    pub fn eigh(&self) -> (Tensor, Tensor) {
        if let Err(mistake) = self.matrices("eigh", true) {
            return (mistake.clone(), mistake);
        }
        let symmetric = (self + self.t()) * self.literal(0.5);
        let [vectors, values] = symmetric.decomposed();
        // How a value moves does not depend on how its vector does; how that changes, does.
        let values = Tensor::call_with_vjp(
            "eigenvalues",
            [&symmetric, &vectors, &values.detach()],
            (),
            |[_, _, values], ()| values.clone(),
            |[_, vectors, _], _, g, ()| [Some((vectors * g.unsqueeze(-2)).matmul(&vectors.t())), None, None],
        );
        (values, vectors)
    }

    /// The vectors, and the values without a gradient.
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
                let flow = vectors.matmul(&zero.where_self(&same, &inner)).matmul(&vectors.t());
                [Some((&flow + flow.t()) * a.literal(0.5))]
            }),
            routine: |[a], ()| {
                let size = a.0.shape.dims()[a.0.shape.ndim() - 1];
                Some(Routine::Eigh(routine::Eigh { dtype: a.dtype(), batch: a.batch(), size }))
            },
        }
        .apply_batched([self], ())
    }
}

/// The eigenvectors of symmetric matrices and their values, the smallest first.
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
            &number(size),
            &number(MOST_SWEEPS),
        ],
        [whole.clone(), whole.clone(), turns],
        a.batch() * kernels::BLOCK,
    );
    let values = left.diagonal(0);
    let order = values.argsort(-1, SortOrder::Ascending);
    let vectors = vectors.take_along_dim(&order.unsqueeze(-2).expanded(&whole), -1);
    [vectors.reshaped(dims), values.take_along_dim(&order, -1).reshaped(lead)]
}
