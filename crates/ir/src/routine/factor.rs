//! Descriptions of matrix factorizations and triangular systems.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// Solution X of A · X = B with triangular matrices A `[batch, size, size]`, whose other half is not read, and B `[batch, size, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triangular {
    /// Element type.
    pub dtype: DType,
    /// Number of independent systems.
    pub batch: usize,
    /// Rows and columns of A.
    pub size: usize,
    /// Columns of X.
    pub columns: usize,
    /// True if A is lower triangular.
    pub lower: bool,
}

/// Cholesky factor: the lower triangular L with L · Lᵀ = A, for symmetric matrices `[batch, size, size]` whose upper half is ignored.
/// Elements are NaN from the first non-positive pivot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cholesky {
    /// Element type.
    pub dtype: DType,
    /// Number of matrices.
    pub batch: usize,
    /// Rows and columns of each matrix.
    pub size: usize,
}

/// LU decomposition with partial pivoting of matrices `[batch, size, size]`: L below the diagonal, U on and above it, and the permutation
/// of the rows, `[batch, size]` of i32. A column without a pivot gets zeros in L.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lu {
    /// Element type.
    pub dtype: DType,
    /// Number of matrices.
    pub batch: usize,
    /// Rows and columns of each matrix.
    pub size: usize,
}

/// Q of the reduced QR decomposition Q · R = A of matrices `[batch, rows, columns]` with columns ≤ rows: orthonormal columns with the signs
/// of LAPACK. For columns of A that depend linearly on earlier ones, Q has arbitrary orthonormal columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qr {
    /// Element type.
    pub dtype: DType,
    /// Number of matrices.
    pub batch: usize,
    /// Rows of each matrix.
    pub rows: usize,
    /// Columns of each matrix.
    pub columns: usize,
}

/// Eigendecomposition of symmetric matrices `[batch, size, size]`: the eigenvectors as columns of length 1 with arbitrary sign, and the
/// eigenvalues `[batch, size]` in ascending order. NaN for a matrix that contains NaN or an infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eigh {
    /// Element type.
    pub dtype: DType,
    /// Number of matrices.
    pub batch: usize,
    /// Rows and columns of each matrix.
    pub size: usize,
}

impl Triangular {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let sides = product(&[self.batch, self.size, self.columns]);
        match at {
            0 => Some(Operand::read("triangle", self.dtype, product(&[self.batch, self.size, self.size]))),
            1 => Some(Operand::read("right-hand side", self.dtype, sides)),
            2 => Some(Operand::written("solution", self.dtype, sides)),
            _ => None,
        }
    }
}

impl Cholesky {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let elems = product(&[self.batch, self.size, self.size]);
        match at {
            0 => Some(Operand::read("matrix", self.dtype, elems)),
            1 => Some(Operand::written("factor", self.dtype, elems)),
            _ => None,
        }
    }
}

impl Lu {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let elems = product(&[self.batch, self.size, self.size]);
        match at {
            0 => Some(Operand::read("matrix", self.dtype, elems)),
            1 => Some(Operand::written("factors", self.dtype, elems)),
            2 => Some(Operand::written("order", DType::I32, product(&[self.batch, self.size]))),
            _ => None,
        }
    }
}

impl Qr {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let elems = product(&[self.batch, self.rows, self.columns]);
        match at {
            0 => Some(Operand::read("matrix", self.dtype, elems)),
            1 => Some(Operand::written("q", self.dtype, elems)),
            _ => None,
        }
    }
}

impl Eigh {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let elems = product(&[self.batch, self.size, self.size]);
        match at {
            0 => Some(Operand::read("matrix", self.dtype, elems)),
            1 => Some(Operand::written("vectors", self.dtype, elems)),
            2 => Some(Operand::written("values", self.dtype, product(&[self.batch, self.size]))),
            _ => None,
        }
    }
}

impl fmt::Display for Eigh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Eigh { dtype, batch, size } = self;
        write!(f, "{dtype} {batch}×{size}×{size}")
    }
}

impl fmt::Display for Qr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Qr { dtype, batch, rows, columns } = self;
        write!(f, "{dtype} {batch}×{rows}×{columns}")
    }
}

impl fmt::Display for Lu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lu { dtype, batch, size } = self;
        write!(f, "{dtype} {batch}×{size}×{size}")
    }
}

impl fmt::Display for Triangular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Triangular { dtype, batch, size, columns, lower } = self;
        write!(f, "{dtype} {batch}×{size}×{columns}, {}", if *lower { "lower" } else { "upper" })
    }
}

impl fmt::Display for Cholesky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cholesky { dtype, batch, size } = self;
        write!(f, "{dtype} {batch}×{size}×{size}")
    }
}
