//! Discrete Fourier transforms as plain data.

use std::fmt;

use super::{Operand, product};
use crate::dtype::{DType, Scalar};

/// Fourier transforms of any length along one axis of an array, each number of the result times a factor. A complex number is two
/// elements, its real part first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fourier {
    /// All elements: f32 or f64.
    pub dtype: DType,
    /// What is transformed to what.
    pub kind: FourierKind,
    /// The product of the axes before the one that is transformed.
    pub outer: usize,
    /// Numbers of a transform: of the complex ones, or of the real ones.
    pub length: usize,
    /// The product of the axes behind it.
    pub inner: usize,
    /// What the sums are multiplied by, of the elements' type.
    pub scale: Scalar,
}

/// What a Fourier transform of n numbers is given and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FourierKind {
    /// `Σ x[j] · exp(-2πi·j·k / n)` of n complex numbers: n complex numbers.
    Forward,
    /// `Σ x[k] · exp(2πi·j·k / n)` of n complex numbers: n complex numbers.
    Backward,
    /// [`FourierKind::Forward`] of n real numbers: the n/2 + 1 frequencies that say all.
    RealToComplex,
    /// The n real numbers that [`FourierKind::Backward`] gives of n/2 + 1 frequencies and the others that real numbers have with
    /// these. The imaginary part of frequency 0, and of n/2 if n is even, does not count.
    ComplexToReal,
}

impl FourierKind {
    /// The spelling.
    pub fn name(self) -> &'static str {
        match self {
            FourierKind::Forward => "forward",
            FourierKind::Backward => "backward",
            FourierKind::RealToComplex => "from real",
            FourierKind::ComplexToReal => "to real",
        }
    }

    /// Elements that a transform of n numbers reads and writes.
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

    /// Operations by the usual count for a length that is a power of two: 5 · n · log₂ n, of real numbers half of that; none beyond 64 bits.
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
