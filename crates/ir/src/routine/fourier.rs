//! Description of discrete Fourier transforms.

use std::fmt;

use super::{Operand, product};
use crate::dtype::{DType, Scalar};

/// Fourier transforms of any length along one axis of an array, scaled by a factor. A complex number is two elements, the real part first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fourier {
    /// Element type: f32 or f64.
    pub dtype: DType,
    /// Type of the transform.
    pub kind: FourierKind,
    /// Product of the lengths of the axes before the transformed one.
    pub outer: usize,
    /// Length n of the transform, in complex numbers, or in real numbers for real transforms.
    pub length: usize,
    /// Product of the lengths of the axes after the transformed one.
    pub inner: usize,
    /// Factor of the result, of the element type.
    pub scale: Scalar,
}

/// Type of a Fourier transform of length n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FourierKind {
    /// Forward: `Σ x[j] · exp(-2πi·j·k / n)`, from n to n complex numbers.
    Forward,
    /// Unnormalized inverse: `Σ x[k] · exp(2πi·j·k / n)`, from n to n complex numbers.
    Backward,
    /// [`FourierKind::Forward`] of n real numbers: the n/2 + 1 non-redundant frequencies.
    RealToComplex,
    /// [`FourierKind::Backward`] of a Hermitian-symmetric spectrum, given its first n/2 + 1 frequencies: n real numbers. The
    /// imaginary parts of
    /// frequency 0, and of n/2 if n is even, are ignored.
    ComplexToReal,
}

impl FourierKind {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            FourierKind::Forward => "forward",
            FourierKind::Backward => "backward",
            FourierKind::RealToComplex => "from real",
            FourierKind::ComplexToReal => "to real",
        }
    }

    /// Returns the numbers of elements that a transform of length n reads and writes.
    pub fn elems(self, n: usize) -> [usize; 2] {
        let (all, half) = (n.saturating_mul(2), (n / 2 + 1).saturating_mul(2));
        match self {
            FourierKind::Forward | FourierKind::Backward => [all, all],
            FourierKind::RealToComplex => [n, half],
            FourierKind::ComplexToReal => [half, n],
        }
    }
}

impl Fourier {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let [read, written] = self.kind.elems(self.length).map(|elems| product(&[self.outer, elems, self.inner]));
        match at {
            0 => Some(Operand::read("input", self.dtype, read)),
            1 => Some(Operand::written("output", self.dtype, written)),
            _ => None,
        }
    }

    /// Returns the nominal operation count 5 · n · log₂ n, half of it for real transforms; `None` if it exceeds 64 bits.
    pub fn flops(&self) -> Option<u64> {
        let all = product(&[5, self.outer, self.inner, self.length, self.length.max(2).ilog2() as usize])?;
        match self.kind {
            FourierKind::Forward | FourierKind::Backward => Some(all),
            FourierKind::RealToComplex | FourierKind::ComplexToReal => Some(all / 2),
        }
    }
}

impl fmt::Display for Fourier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fourier { dtype, kind, outer, length, inner, scale } = self;
        write!(f, "{dtype} {} {outer}×{length}×{inner} times {scale}", kind.name())
    }
}
