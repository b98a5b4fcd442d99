//! Matrix factorizations: Cholesky, QR, LU, eigendecomposition, singular values, and solving linear systems.
//!
//! Large matrices are divided recursively until a block fits a work-group. The kernels in [`kernels`] factor blocks
//! with one work-group for each matrix or one work-item for each column. Matrix products do the rest, so every device
//! runs at the speed of its matrix products. Gradients are the published formulas over the same operations.
//!
//! Properties of the values are never errors: a matrix without a Cholesky factor gives NaN, and a triangular matrix
//! with a zero on its diagonal gives infinities or NaN. Solving or inverting a matrix that is singular to working
//! precision gives NaN, as does its gradient.
//!
//! Sources: Golub and Van Loan, Matrix Computations, 4th ed. 2013, chapters 3 to 5; Murray, Differentiation of the Cholesky
//! Decomposition, 2016; Walter, Lehmann and Lamour, On Evaluating Higher-Order Derivatives of the QR Decomposition, 2012;
//! Joffrain, Low, Quintana-Ortí, van de Geijn and Van Zee, Accumulating Householder Transformations, Revisited, 2006.

mod eig;
mod eigen;
mod kernels;
mod lu;
mod schur;
mod svd;

use std::panic::Location;

use panoply_ir::kernel::ReduceOp;
use panoply_ir::routine::{self, Routine, Triangular};
use panoply_ir::{DType, Error, Scalar, Shape};

use crate::call::CompositeOp;
use crate::tensor::Tensor;
pub use eig::Eig;
pub use eigen::Eigh;
use kernels::BLOCK;
pub use lu::Lu;
pub use svd::Svd;

/// Maximum size at which the single-threaded Cholesky routine is faster than recursive halves, whose matrix products
/// are multithreaded.
const MAX_SERIAL_SIZE: usize = 1024;

/// The triangle of a matrix that an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// On and below the diagonal.
    Lower,
    /// On and above the diagonal.
    Upper,
}

/// QR factors of matrices `[…, m, n]`; k is min(m, n).
#[derive(Clone, Debug)]
pub struct Qr {
    /// The factor `[…, m, k]` with orthonormal columns.
    pub q: Tensor,
    /// The upper triangular factor `[…, k, n]`.
    pub r: Tensor,
}

/// Signs and logarithms of determinants, which do not overflow where the determinants do.
#[derive(Clone, Debug)]
pub struct Slogdet {
    /// The signs `[…]` of the determinants: -1, 0 or 1.
    pub sign: Tensor,
    /// The natural logarithms `[…]` of their magnitudes.
    pub logabsdet: Tensor,
}

impl Tensor {
    /// Returns the lower triangular L with L · Lᵀ = A, for symmetric positive definite matrices `[…, n, n]` of f32 or
    /// f64. Only the lower triangle is read; the gradient is symmetric. If a matrix is not positive definite,
    /// singular ones included, the elements from the first failing column on are NaN, among them the last of the
    /// diagonal.
    #[track_caller]
    pub fn cholesky(&self) -> Tensor {
        if let Err(mistake) = self.check_matrices("cholesky", true) {
            return mistake;
        }
        let [l] = CompositeOp {
            name: "cholesky",
            body: |[a], ()| [in_batches(a, cholesky)],
            gradient: Some(|[_], l, g, ()| {
                let inner = l.t().matmul(g);
                let half = (inner.tril(0) + inner.tril(-1)) * inner.literal(0.5);
                let left = l.t().solve_triangular(&half, Triangle::Upper);
                let grad = l.t().solve_triangular(&left.t(), Triangle::Upper);
                [Some((&grad + grad.t()) * inner.literal(0.5))]
            }),
            routine: |[a], ()| {
                let size = a.0.shape.dims()[a.0.shape.ndim() - 1];
                let of = routine::Cholesky { dtype: a.dtype(), batch: a.batch(), size };
                (size <= MAX_SERIAL_SIZE).then_some(Routine::Cholesky(of))
            },
        }
        .apply_batched([self], ());
        l
    }

    /// Returns the X with A · X = `right`, for triangular matrices `[…, n, n]` and `[…, n, m]` or `[n]`; leading axes
    /// broadcast. f32 or f64.
    #[track_caller]
    pub fn solve_triangular(&self, right: &Tensor, triangle: Triangle) -> Tensor {
        let (a, b) = match self.broadcast_system("solve_triangular", right) {
            Ok(system) => system,
            Err(mistake) => return mistake,
        };
        if b.0.shape.numel() == 0 {
            return b.squeeze_like(right);
        }
        let [x] = CompositeOp {
            name: "solve_triangular",
            body: |[a, b], lower: &bool| {
                [in_batches_of_two(a, b, if *lower { forward_recursive } else { backward_recursive })]
            },
            gradient: Some(|[a, _], x, g, lower| {
                let other = if *lower { Triangle::Upper } else { Triangle::Lower };
                let grad = a.t().solve_triangular(g, other);
                let to_a = -grad.matmul(&x.t());
                [Some(if *lower { to_a.tril(0) } else { to_a.triu(0) }), Some(grad)]
            }),
            routine: |[a, b], lower| {
                let &[.., size, columns] = b.0.shape.dims() else { unreachable!("the operands were checked") };
                let of = Triangular { dtype: a.dtype(), batch: a.batch(), size, columns, lower: *lower };
                Some(Routine::SolveTriangular(of))
            },
        }
        .apply_batched([&a, &b], triangle == Triangle::Lower);
        x.squeeze_like(right)
    }

    /// Returns Q and R with Q · R = A, for matrices `[…, m, n]` of f32 or f64: Q `[…, m, k]` has orthonormal columns,
    /// R `[…, k, n]` is upper triangular, and k is min(m, n). Signs are as in LAPACK. The gradient needs the first k
    /// columns to be linearly independent.
    #[track_caller]
    pub fn qr(&self) -> Qr {
        if let Err(mistake) = self.check_matrices("qr", false) {
            return Qr { q: mistake.clone(), r: mistake };
        }
        let &[.., m, n] = self.0.shape.dims() else { unreachable!("the operand was checked") };
        let q = self.narrow(-1, 0, m.min(n)).q_factor();
        let r = q.t().matmul(self).triu(0);
        Qr { q, r }
    }

    /// Returns the X with A · X = `right`, for square matrices `[…, n, n]` and `[…, n, m]` or `[n]`; leading axes
    /// broadcast. f32 or f64. X and the gradient are NaN if the matrix is singular to working precision: an
    /// element on the diagonal of its QR factor R is at most 8 · √n · ε times the largest element in its column, where
    /// ε is the machine epsilon.
    #[track_caller]
    pub fn solve(&self, right: &Tensor) -> Tensor {
        let (a, b) = match self.broadcast_system("solve", right) {
            Ok(system) => system,
            Err(mistake) => return mistake,
        };
        if b.0.shape.numel() == 0 {
            return b.squeeze_like(right);
        }
        let [x] = CompositeOp {
            name: "solve",
            body: |[a, b], ()| [a.lstsq(b)],
            gradient: Some(|[a, _], x, g, ()| {
                let Qr { q, r } = a.qr();
                let r = r.nan_if_singular();
                let grad = q.matmul(&r.t().solve_triangular(g, Triangle::Lower));
                [Some(-grad.matmul(&x.t())), Some(grad)]
            }),
            routine: |_, ()| None,
        }
        .apply_batched([&a, &b], ());
        x.squeeze_like(right)
    }

    /// Returns the least-squares solution of A · X = `right`, for matrices `[…, m, n]` with independent columns and
    /// `[…, m, l]`; NaN where columns are dependent, as in [`Tensor::solve`].
    #[track_caller]
    pub fn lstsq(&self, right: &Tensor) -> Tensor {
        if let Err(mistake) = self.check_matrices("lstsq", false) {
            return mistake;
        }
        let &[.., m, n] = self.0.shape.dims() else { unreachable!("the operand was checked") };
        if m < n {
            let message = format!("lstsq: {m} equations do not determine {n} unknowns of {self:?}");
            return Tensor::mistake(Error::mistake(message));
        }
        let Qr { q, r } = self.qr();
        r.nan_if_singular().solve_triangular(&q.t().matmul(right), Triangle::Upper)
    }

    /// Returns upper triangular QR factors `[…, n, n]`, replaced by NaN where an element of the diagonal is only
    /// rounding: at most 8 · √n machine epsilons times the largest element in its column.
    fn nan_if_singular(&self) -> Tensor {
        let rank = self.0.shape.ndim();
        let size = self.0.shape.dims()[rank - 1];
        let largest = self.abs().reduced(ReduceOp::Max, vec![rank - 2]).squeeze(-2);
        let rounding = &largest * largest.literal(8.0 * epsilon(self.dtype()) * (size as f64).sqrt());
        let is_regular = self.diagonal(0).abs().gt(&rounding).all(-1);
        self.where_self(&is_regular.unsqueeze(-1).unsqueeze(-1), &self.literal(f64::NAN))
    }

    /// Returns the inverses of square matrices `[…, n, n]`; NaN for singular ones, as in [`Tensor::solve`]. To solve
    /// a system use [`Tensor::solve`], which is more accurate.
    #[doc(alias = "inverse")]
    #[track_caller]
    pub fn inv(&self) -> Tensor {
        match self.check_matrices("inv", true) {
            Ok(size) => self.solve(&Tensor::eye(size, self.dtype())),
            Err(mistake) => mistake,
        }
    }

    /// Returns the determinants of square matrices: `[…, n, n]` becomes `[…]`. The gradient needs a nonsingular matrix.
    #[doc(alias = "determinant")]
    #[track_caller]
    pub fn det(&self) -> Tensor {
        match self.pivots("det") {
            Ok((diagonal, sign)) => diagonal.prod(-1) * sign,
            Err(mistake) => mistake,
        }
    }

    /// Returns the signs `[…]` of the determinants of square matrices `[…, n, n]` and the natural logarithms of their
    /// magnitudes, which do not overflow.
    #[doc(alias = "logdet")]
    #[track_caller]
    pub fn slogdet(&self) -> Slogdet {
        match self.pivots("slogdet") {
            Ok((diagonal, sign)) => {
                Slogdet { sign: diagonal.sign().prod(-1) * sign, logabsdet: diagonal.abs().log().sum(-1) }
            }
            Err(mistake) => Slogdet { sign: mistake.clone(), logabsdet: mistake },
        }
    }

    /// Returns the n-th power of square matrices `[…, n, n]`, by repeated squaring; a negative power is that of the
    /// inverse, of f32 or f64.
    #[track_caller]
    pub fn matrix_power(&self, n: i64) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let size = match *self.0.shape.dims() {
            [.., rows, columns] if rows == columns => columns,
            _ => {
                return Tensor::mistake(Error::mistake(format!("matrix_power: needs square matrices, not {self:?}")));
            }
        };
        let one = || Tensor::eye(size, self.dtype()).expanded(&self.0.shape).with_lengths_of(self);
        let (mut base, mut exponent) = (if n < 0 { self.inv() } else { self.clone() }, n.unsigned_abs());
        let mut power: Option<Tensor> = None;
        while exponent > 0 && !base.is_mistake() {
            if exponent % 2 == 1 {
                power = Some(power.map_or_else(|| base.clone(), |power| power.matmul(&base)));
            }
            exponent /= 2;
            if exponent > 0 {
                base = base.matmul(&base);
            }
        }
        if base.is_mistake() { base } else { power.unwrap_or_else(one) }
    }

    /// Returns the diagonal `[…, n]` of the LU factor U, and the sign `[…]` of the row permutation.
    #[track_caller]
    fn pivots(&self, op: &str) -> Result<(Tensor, Tensor), Tensor> {
        let size = self.check_matrices(op, true)?;
        let [packed, order] = lu::lu_packed(self);
        let (one, minus) = (self.literal(1.0), self.literal(-1.0));
        // Each pair of rows in reversed order (an inversion) flips the sign.
        let positions = Tensor::arange(size);
        let signs = minus.where_self(&order.unsqueeze(-1).gt(&order.unsqueeze(-2)), &one);
        let signs = signs.where_self(&positions.gt(&positions.unsqueeze(1)), &one);
        Ok((packed.diagonal(0), signs.prod(-1).prod(-1)))
    }

    /// Checks that this is a batch of matrices of a supported type, square if `square`. Returns the length of the
    /// last axis.
    #[track_caller]
    fn check_matrices(&self, op: &str, square: bool) -> Result<usize, Tensor> {
        if self.is_mistake() {
            return Err(self.clone());
        }
        self.check_static(op, 0..self.0.shape.ndim())?;
        let needed = match *self.0.shape.dims() {
            [.., rows, columns] if square && rows != columns => "square matrices",
            [.., rows, columns] if rows == 0 || columns == 0 => "elements",
            [.., _, columns] if matches!(self.dtype(), DType::F32 | DType::F64) => return Ok(columns),
            [.., _, _] => "f32 or f64",
            _ => "matrices",
        };
        Err(Tensor::mistake(Error::mistake(format!("{op}: needs {needed}, not {self:?}"))))
    }

    /// Checks a linear system and broadcasts its square matrices and right sides to equal leading axes; a vector becomes a
    /// column.
    #[track_caller]
    fn broadcast_system(&self, op: &str, right: &Tensor) -> Result<(Tensor, Tensor), Tensor> {
        let size = self.check_matrices(op, true)?;
        if right.is_mistake() {
            return Err(right.clone());
        }
        let location = Location::caller();
        let wrong = |what: String| {
            let note = format!("left {self:?}, right {right:?}");
            Err(Tensor::mistake(Error::mistake(format!("{op}: {what}")).note(note).with_location(location)))
        };
        right.check_static(op, 0..right.0.shape.ndim())?;
        let column = if right.0.shape.ndim() == 1 { right.unsqueeze(1) } else { right.clone() };
        let (a, b) = (self.0.shape.dims(), column.0.shape.dims());
        let &[.., rows, columns] = b else { return wrong("a single number is not a valid right side".to_string()) };
        if rows != size {
            return wrong(format!("{size} equations do not fit a right side of {rows} × {columns}"));
        }
        if self.dtype() != right.dtype() {
            return wrong(format!("element types {} and {} differ", self.dtype(), right.dtype()));
        }
        let lead = Shape::from(&a[..a.len() - 2]).broadcast(&Shape::from(&b[..b.len() - 2]));
        let lead = match lead {
            Ok(lead) => lead,
            Err(error) => return wrong(error.message().to_string()),
        };
        let broadcast = |last: [usize; 2]| Shape::new([lead.dims(), &last].concat());
        Ok((self.expanded(&broadcast([size, size])), column.expanded(&broadcast([size, columns]))))
    }

    /// Removes the column axis of a solution if the right side was a vector.
    fn squeeze_like(self, right: &Tensor) -> Tensor {
        if right.0.shape.ndim() == 1 && !self.is_mistake() { self.squeeze(-1) } else { self }
    }

    /// Returns the QR factor Q `[…, m, n]` of matrices with m ≥ n.
    #[track_caller]
    fn q_factor(&self) -> Tensor {
        let [q] = CompositeOp {
            name: "qr",
            body: |[a], ()| [in_batches(a, q_factor)],
            gradient: Some(|[a], q, g, ()| {
                let r = q.t().matmul(a).triu(0);
                let inner = -g.t().matmul(q);
                let symmetric = inner.tril(0) + inner.tril(-1).t();
                let grad = g + q.matmul(&symmetric);
                [Some(r.solve_triangular(&grad.t(), Triangle::Upper).t())]
            }),
            routine: |[a], ()| {
                let &[.., rows, columns] = a.0.shape.dims() else { unreachable!("the operand was checked") };
                let of = routine::Qr { dtype: a.dtype(), batch: a.batch(), rows, columns };
                Some(Routine::Qr(of))
            },
        }
        .apply_batched([self], ());
        q
    }

    /// Returns the number of matrices.
    fn batch(&self) -> usize {
        let dims = self.0.shape.dims();
        dims[..dims.len() - 2].iter().product()
    }

    /// Returns the block of the last two axes at this row and column, of this size.
    fn block(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) -> Tensor {
        self.narrow(-2, row, rows).narrow(-1, column, columns)
    }
}

/// Applies `f` to matrices flattened to one leading axis.
fn in_batches(a: &Tensor, f: fn(&Tensor) -> Tensor) -> Tensor {
    in_batches_of_two(a, a, |a, _| f(a))
}

fn in_batches_of_two(a: &Tensor, b: &Tensor, f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
    let flat = |x: &Tensor| {
        let dims = x.0.shape.dims();
        x.reshaped([&[x.batch()], &dims[dims.len() - 2..]].concat().into())
    };
    if a.batch() == 0 {
        return b.clone();
    }
    f(&flat(a), &flat(b)).reshaped(b.0.shape.clone())
}

/// Returns the machine epsilon of f32 or f64, NumPy's `finfo(dtype).eps`.
fn epsilon(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

/// Returns the size of the first part of a divided matrix: half, rounded up to whole blocks.
fn split_point(size: usize) -> usize {
    (size / 2).next_multiple_of(BLOCK)
}

/// Returns the Cholesky factor of `[batch, n, n]`.
fn cholesky(a: &Tensor) -> Tensor {
    let &[batch, size, _] = a.0.shape.dims() else { unreachable!("it has three axes") };
    if size <= BLOCK {
        let [l] = Tensor::custom_kernel(
            kernels::of(a.dtype(), kernels::cholesky::<f32>, kernels::cholesky::<f64>),
            &[a, &scalar_arg(size)],
            [a.0.shape.clone()],
            batch * BLOCK,
        );
        return l;
    }
    let (first, rest) = (split_point(size), size - split_point(size));
    let top = a.block([0, 0], [first, first]).cholesky();
    let side = forward(&top, &a.block([first, 0], [rest, first]).t()).t();
    let below = (a.block([first, first], [rest, rest]) - side.matmul(&side.t())).cholesky();
    let upper = top.pad(&[(0, 0), (0, 0), (0, rest)]);
    Tensor::concat([upper, Tensor::concat([side, below], 2)], 1)
}

/// Returns the X with L · X = B, for `[batch, n, n]` and `[batch, n, m]`: forward substitution, by a routine if the
/// device has one.
fn forward(l: &Tensor, b: &Tensor) -> Tensor {
    l.solve_triangular(b, Triangle::Lower)
}

/// Like [`forward`], without a routine: divides L into quarters recursively.
fn forward_recursive(l: &Tensor, b: &Tensor) -> Tensor {
    let &[batch, size, columns] = b.0.shape.dims() else { unreachable!("it has three axes") };
    if size <= BLOCK {
        let [x] = Tensor::custom_kernel(
            kernels::of(l.dtype(), kernels::forward::<f32>, kernels::forward::<f64>),
            &[l, b, &scalar_arg(size), &scalar_arg(columns)],
            [b.0.shape.clone()],
            batch * columns,
        );
        return x;
    }
    let (first, rest) = (split_point(size), size - split_point(size));
    let top = forward_recursive(&l.block([0, 0], [first, first]), &b.narrow(1, 0, first));
    let reduced = b.narrow(1, first, rest) - l.block([first, 0], [rest, first]).matmul(&top);
    let below = forward_recursive(&l.block([first, first], [rest, rest]), &reduced);
    Tensor::concat([top, below], 1)
}

/// Returns the X with U · X = B, for upper triangular matrices: forward substitution in reversed order.
fn backward_recursive(u: &Tensor, b: &Tensor) -> Tensor {
    forward_recursive(&u.flip(1).flip(2), &b.flip(1)).flip(1)
}

/// Like [`backward_recursive`], by a routine if the device has one.
fn backward(u: &Tensor, b: &Tensor) -> Tensor {
    u.solve_triangular(b, Triangle::Upper)
}

/// Returns the Householder vectors of `[batch, m, n]`, m ≥ n: for each block of columns the vectors of its
/// reflections I - v·vᵀ, as columns that begin at the block's diagonal.
fn reflectors(a: &Tensor) -> Vec<Tensor> {
    // Squares of numbers up to 1 do not overflow. Each column is scaled separately, so that none vanishes next to
    // another; this does not change Q.
    let scale = a.abs().reduced(ReduceOp::Max, vec![1]);
    let is_valid = scale.is_finite().bitwise_and(&scale.gt(&scale.literal(0.0)));
    let mut rest = a / scale.where_self(&is_valid, &scale.literal(1.0));
    let mut panels = Vec::new();
    loop {
        let &[batch, rows, columns] = rest.0.shape.dims() else { unreachable!("it has three axes") };
        let width = columns.min(BLOCK);
        let panel = rest.narrow(2, 0, width);
        let [factored] = Tensor::custom_kernel(
            kernels::of(a.dtype(), kernels::reflect::<f32>, kernels::reflect::<f64>),
            &[&panel, &scalar_arg(rows), &scalar_arg(width)],
            [panel.0.shape.clone()],
            batch * BLOCK,
        );
        let v = factored.tril(0);
        if columns == width {
            panels.push(v);
            return panels;
        }
        let right = rest.narrow(2, width, columns - width);
        let reflected = &right - v.matmul(&forward(&compact_wy_inverse(&v), &v.t().matmul(&right)));
        rest = reflected.narrow(1, width, rows - width);
        panels.push(v);
    }
}

/// Returns the inverse of Tᵀ, a lower triangular matrix, in the compact WY form I - V·T·Vᵀ of the product of the
/// reflections whose vectors are the columns of V.
fn compact_wy_inverse(v: &Tensor) -> Tensor {
    v.t().matmul(v).tril(-1) + Tensor::eye(v.0.shape.dims()[2], v.dtype())
}

/// Returns the Q of `[batch, m, n]`, m ≥ n: the product of the reflections, applied to the first columns of the
/// identity.
fn q_factor(a: &Tensor) -> Tensor {
    let panels = reflectors(a);
    let mut q: Option<Tensor> = None;
    for v in panels.iter().rev() {
        let &[batch, rows, width] = v.0.shape.dims() else { unreachable!("it has three axes") };
        let one = Tensor::eye(width, v.dtype()).expanded(&[batch, width, width].into());
        let start = match &q {
            None => one.pad(&[(0, 0), (0, rows - width), (0, 0)]),
            Some(q) => {
                let columns = q.0.shape.dims()[2];
                one.pad(&[(0, 0), (0, rows - width), (0, columns)]) + q.pad(&[(0, 0), (width, 0), (width, 0)])
            }
        };
        let reflected = backward(&compact_wy_inverse(v).t(), &v.t().matmul(&start));
        q = Some(&start - v.matmul(&reflected));
    }
    q.expect("there is a column")
}

/// Creates a u32 scalar argument of a kernel.
fn scalar_arg(value: usize) -> Tensor {
    Tensor::constant(Scalar::from(value as u32))
}
