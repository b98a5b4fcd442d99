//! Factors of dense matrices and the systems that they solve, as plain data.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// The X with A · X = B, of triangular matrices `[batch, size, size]`, the other half of which is not read, and `[batch, size, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triangular {
    /// Type of all elements.
    pub dtype: DType,
    /// Systems that are solved by themselves.
    pub batch: usize,
    /// Rows and columns of A.
    pub size: usize,
    /// Columns of X.
    pub columns: usize,
    /// Whether A is a lower triangle.
    pub lower: bool,
}

/// The lower triangular L with L · Lᵀ = A, of symmetric matrices `[batch, size, size]` of which the upper half does not matter. NaN from the first
/// pivot that is not above 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cholesky {
    /// Type of all elements.
    pub dtype: DType,
    /// Matrices.
    pub batch: usize,
    /// Rows and columns of each.
    pub size: usize,
}

/// L below the diagonal and U on and above it, of the rows of matrices `[batch, size, size]` in an order that puts the largest that is left of
/// each column first; and that order, `[batch, size]` of i32. A column without a pivot gets zeros in L.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lu {
    /// Type of all elements.
    pub dtype: DType,
    /// Matrices.
    pub batch: usize,
    /// Rows and columns of each.
    pub size: usize,
}

/// The Q of Q · R = A, of matrices `[batch, rows, columns]` with no more columns than rows: as many orthonormal columns as A has, signs as
/// LAPACK's. Columns of A that depend on those before them get any that are orthonormal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qr {
    /// Type of all elements.
    pub dtype: DType,
    /// Matrices.
    pub batch: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub columns: usize,
}

/// The eigenvectors of symmetric matrices `[batch, size, size]` as columns, each of length 1 and of either sign, and the eigenvalues
/// `[batch, size]`, the smallest first. NaN for a matrix that holds NaN or an infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eigh {
    /// Type of all elements.
    pub dtype: DType,
    /// Matrices.
    pub batch: usize,
    /// Rows and columns of each.
    pub size: usize,
}

impl Triangular {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let sides = product(&[self.batch, self.size, self.columns]);
        match at {
            0 => Some(Operand::read("triangle", self.dtype, product(&[self.batch, self.size, self.size]))),
            1 => Some(Operand::read("right side", self.dtype, sides)),
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
