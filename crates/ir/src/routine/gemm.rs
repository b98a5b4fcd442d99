//! Description of a batched matrix product.

use std::fmt;

use super::{Operand, reach};
use crate::dtype::DType;

/// Batched matrix product `c[i] = a[i] × b[i]`: m×k times k×n gives m×n, with any strides. Buffers: a, b, optional bias (In), c (Out).
///
/// A device can treat subnormal bf16 as zero, as AVX-512's bf16 dot product does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Element type of a and b. c has the same type, and f16 and bf16 accumulate in f32; for i8, c is i32 and wraps.
    pub dtype: DType,
    /// True if f32 factors can be rounded to TF32, which has 10 instead of 23 mantissa bits; the sum is f32.
    pub tf32: bool,
    /// True if a vector of n elements is added to every row of c after the sum was rounded.
    pub bias: bool,
    /// Batch size.
    pub batch: usize,
    /// Rows of a and c.
    pub m: usize,
    /// Columns of b and c.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
    /// Layout of the left operand.
    pub a: Layout,
    /// Layout of the right operand.
    pub b: Layout,
    /// Layout of the result.
    pub c: Layout,
}

/// Memory layout of a batch of matrices: element (i, r, c) is at `offset + i·batch + r·row + c·column`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Offset of the first element.
    pub offset: usize,
    /// Batch stride in elements; 0 repeats one matrix.
    pub batch: usize,
    /// Row stride in elements.
    pub row: usize,
    /// Column stride in elements.
    pub column: usize,
}

impl Gemm {
    /// Returns the element type of c.
    pub fn result(&self) -> DType {
        if self.dtype == DType::I8 { DType::I32 } else { self.dtype }
    }

    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let Gemm { dtype, batch, m, n, k, a, b, c, .. } = *self;
        let elems = |layout: Layout, rows, columns| {
            reach(layout.offset, &[(batch, layout.batch), (rows, layout.row), (columns, layout.column)])
        };
        match (at, self.bias) {
            (0, _) => Some(Operand::read("a", dtype, elems(a, m, k))),
            (1, _) => Some(Operand::read("b", dtype, elems(b, k, n))),
            (2, true) => Some(Operand::read("bias", self.result(), Some(n as u64))),
            (2, false) | (3, true) => Some(Operand::written("c", self.result(), elems(c, m, n))),
            _ => None,
        }
    }
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gemm { dtype, tf32, bias, batch, m, n, k, .. } = self;
        let dtype = if *tf32 { "tf32" } else { dtype.name() };
        write!(f, "{dtype} {batch}×{m}×{n}×{k}{}", if *bias { " with bias" } else { "" })
    }
}
