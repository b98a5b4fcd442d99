//! Eigendecomposition of general matrices: the Schur form by QR steps, then the eigenvectors of its triangle. As for
//! [`super::eigen`], one work-group processes a whole matrix; a routine of LAPACK's kind, in blocks, does not exist yet.
//! The gradient is that of Boeddeker, Hanebrink, Drude, Heymann and Haeb-Umbach, On the Computation of Complex-valued
//! Gradients with Application to Statistically Optimum Beamforming, 2017, section 4.4.

use panoply_ir::Shape;
use panoply_ir::kernel::ReduceOp;

use super::{kernels, scalar_arg, schur};
use crate::call::CompositeOp;
use crate::ops::axes::KeepDim;
use crate::tensor::Tensor;

/// QR steps for each row, LAPACK's number; two or three suffice for most matrices.
const STEPS_PER_ROW: usize = 30;

/// The eigendecomposition of square matrices `[…, n, n]`. Complex numbers are a last axis of 2, real part first.
#[derive(Clone, Debug)]
pub struct Eig {
    /// The eigenvalues `[…, n, 2]`, in no particular order.
    #[doc(alias = "eigvals")]
    #[doc(alias = "eigenvalues")]
    pub values: Tensor,
    /// The eigenvectors, as columns of `[…, n, n, 2]`.
    #[doc(alias = "eigenvectors")]
    pub vectors: Tensor,
}

impl Tensor {
    /// Returns the complex eigenvalues `[…, n, 2]` of real square matrices `[…, n, n]` of f32 or f64, in no particular order,
    /// and the eigenvectors as columns `[…, n, n, 2]`, each of length 1 with a largest element that is real and positive. For
    /// symmetric matrices use [`Tensor::eigh`], which is more accurate and faster.
    ///
    /// Errors are roundings relative to the largest element of the matrix; rows and columns are not balanced. A real
    /// eigenvalue can have an imaginary part of that size. A matrix that contains NaN or infinity, or does not
    /// converge, has eigenvalues and eigenvectors of NaN. A matrix without n independent eigenvectors has vectors that are equal up to rounding.
    ///
    /// The gradient needs distinct eigenvalues; that of the vectors is of functions that do not depend on their phase, such as
    /// magnitudes, as in PyTorch.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// // A quarter turn.
    /// let turn = Tensor::from_slice(&[0.0f64, -1.0, 1.0, 0.0], [2, 2]);
    /// let mut imaginary = turn.eig().values.imag().to_vec::<f64>()?;
    /// imaginary.sort_by(f64::total_cmp);
    /// assert!((imaginary[0] + 1.0).abs() < 1e-14 && (imaginary[1] - 1.0).abs() < 1e-14);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn eig(&self) -> Eig {
        if let Err(mistake) = self.check_matrices("eig", true) {
            return Eig { values: mistake.clone(), vectors: mistake };
        }
        let [values, vectors] =
            CompositeOp { name: "eig", body: |[a], ()| eig(a), gradient: None, routine: |_, ()| None }
                .apply_batched([self], ());
        let (values, vectors) = (values.detach(), vectors.detach());
        // The derivatives are expressions of the decomposition, whose own derivatives are the second ones.
        let values = Tensor::call_with_vjp(
            "eigenvalues of eig",
            [self, &values],
            (),
            |[_, values], ()| values.clone(),
            |[a, _], _, g, ()| {
                let vectors = Complex::of(&a.eig().vectors);
                // V⁻ᴴ · diag(g) · Vᴴ.
                let adjoint = vectors.adjoint();
                let g = Complex::of(g).map(|part| part.unsqueeze(-1));
                [Some(adjoint.solved_real(&g.times(&adjoint))), None]
            },
        );
        let vectors = Tensor::call_with_vjp(
            "eigenvectors of eig",
            [self, &vectors],
            (),
            |[_, vectors], ()| vectors.clone(),
            |[a, _], _, g, ()| {
                let Eig { values, vectors } = a.eig();
                let (values, vectors) = (Complex::of(&values), Complex::of(&vectors));
                let adjoint = vectors.adjoint();
                let inner = adjoint.matmul(&Complex::of(g));
                // The part that would change the vectors' lengths.
                let along = inner.real.diagonal(0).unsqueeze(-2);
                let lengths = adjoint.matmul(&vectors).map(|part| part * &along);
                let inner = Complex { real: inner.real - lengths.real, imag: inner.imag - lengths.imag };
                let gaps = Complex {
                    real: values.real.unsqueeze(-2) - values.real.unsqueeze(-1),
                    imag: values.imag.unsqueeze(-1) - values.imag.unsqueeze(-2),
                };
                let places = Tensor::arange(a.0.shape.dims()[a.0.shape.ndim() - 1]);
                let same = places.unsqueeze(1).eq(&places);
                // z / w = z · w̄ / |w|².
                let square = gaps.real.square() + gaps.imag.square();
                let square = a.literal(1.0).where_self(&same, &square);
                let inverse = gaps.conjugate().map(|part| part / &square);
                let inner = inner.times(&inverse).map(|part| a.literal(0.0).where_self(&same, part));
                [Some(adjoint.solved_real(&inner.matmul(&adjoint))), None]
            },
        );
        Eig { values, vectors }
    }
}

/// Complex matrices as two real ones.
struct Complex {
    real: Tensor,
    imag: Tensor,
}

impl Complex {
    /// Splits complex numbers `[…, 2]`.
    fn of(pairs: &Tensor) -> Complex {
        Complex { real: pairs.real(), imag: pairs.imag() }
    }

    fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Complex {
        Complex { real: f(&self.real), imag: f(&self.imag) }
    }

    fn conjugate(&self) -> Complex {
        Complex { real: self.real.clone(), imag: -&self.imag }
    }

    /// Returns the conjugate transpose.
    fn adjoint(&self) -> Complex {
        self.conjugate().map(|part| part.t())
    }

    /// Multiplies elements.
    fn times(&self, other: &Complex) -> Complex {
        Complex {
            real: &self.real * &other.real - &self.imag * &other.imag,
            imag: &self.real * &other.imag + &self.imag * &other.real,
        }
    }

    fn matmul(&self, other: &Complex) -> Complex {
        Complex {
            real: self.real.matmul(&other.real) - self.imag.matmul(&other.imag),
            imag: self.real.matmul(&other.imag) + self.imag.matmul(&other.real),
        }
    }

    /// Returns the real part of the X with self · X = `right`, by a real system of twice the size.
    fn solved_real(&self, right: &Complex) -> Tensor {
        let upper = Tensor::concat([&self.real, &-&self.imag], -1);
        let lower = Tensor::concat([&self.imag, &self.real], -1);
        let x = Tensor::concat([&upper, &lower], -2).solve(&Tensor::concat([&right.real, &right.imag], -2));
        let size = self.real.0.shape.dims()[self.real.0.shape.ndim() - 2];
        x.narrow(-2, 0, size)
    }
}

/// Returns the eigenvalues and eigenvectors of square matrices.
fn eig(a: &Tensor) -> [Tensor; 2] {
    let (rank, dims) = (a.0.shape.ndim(), a.0.shape.dims());
    let (n, lead) = (dims[rank - 1], &dims[..rank - 2]);
    let (line, whole) = (Shape::new([lead, &[n, 2]].concat()), Shape::new([lead, &[n, n, 2]].concat()));
    if a.batch() == 0 {
        return [Tensor::zeros(line, a.dtype()), Tensor::zeros(whole, a.dtype())];
    }
    // Squares of numbers up to 1 do not overflow.
    let a = a.reshaped(Shape::from([a.batch(), n, n]));
    let (is_finite, nan) = (a.is_finite().all(-1).all(-1), a.literal(f64::NAN));
    let size = a.abs().reduced(ReduceOp::Max, vec![1, 2]);
    let size = size.where_self(&(size.is_finite() & size.gt(size.literal(0.0))), &size.literal(1.0));
    let planes = Shape::from([a.batch(), 2, n, n]);
    let imaginary = |real: &Tensor| real.unsqueeze(1).pad(&[(0, 0), (0, 1), (0, 0), (0, 0)]);
    let one = Tensor::eye(n, a.dtype()).expanded(&Shape::from([a.batch(), n, n]));
    let [t, z] = Tensor::custom_kernel(
        kernels::of(a.dtype(), schur::schur::<f32>, schur::schur::<f64>),
        &[&imaginary(&(&a / &size)), &imaginary(&one), &scalar_arg(n), &scalar_arg(STEPS_PER_ROW * n.max(10))],
        [planes.clone(), planes.clone()],
        a.batch() * kernels::BLOCK,
    );
    let [x] = Tensor::custom_kernel(
        kernels::of(a.dtype(), schur::triangular_vectors::<f32>, schur::triangular_vectors::<f64>),
        &[&Tensor::zeros(planes.clone(), a.dtype()), &t, &scalar_arg(n)],
        [planes],
        a.batch() * n,
    );
    let [t, z, x] = [t, z, x].map(|planes| {
        let [real, imag] = [0, 1].map(|part| planes.narrow(1, part, 1).squeeze(1));
        Complex { real, imag }
    });
    let values = t.map(|part| part.diagonal(0) * size.squeeze(-1));
    let vectors = z.matmul(&x);
    // Lengths of elements up to 1 do not overflow.
    let largest = vectors.real.abs().maximum(vectors.imag.abs()).max(KeepDim(-2));
    let vectors = vectors.map(|part| part / &largest);
    let squares = vectors.real.square() + vectors.imag.square();
    let length = squares.sum(KeepDim(-2)).sqrt();
    let place = squares.argmax(-2).unsqueeze(-2);
    let phase = vectors.map(|part| part.take_along_dim(&place, -2));
    let radius = phase.real.hypot(&phase.imag) * length;
    let vectors = vectors.times(&phase.conjugate().map(|part| part / &radius));
    // Deflation treats NaN as a rounding error.
    let values = values.map(|part| part.where_self(&is_finite.unsqueeze(-1), &nan));
    let vectors = vectors.map(|part| part.where_self(&is_finite.unsqueeze(-1).unsqueeze(-1), &nan));
    let joined = |parts: Complex, shape: Shape| Tensor::complex(&parts.real, &parts.imag).reshaped(shape);
    [joined(values, line), joined(vectors, whole)]
}
