//! A batched matrix product as plain data.

use std::fmt;

use super::{Operand, reach};
use crate::dtype::DType;

/// `c[i] = a[i] × b[i]` for every batch i: m×k times k×n gives m×n, any strides. Buffers: a, b, the bias if there is one (In), c (Out).
///
/// A device may take subnormal bf16 for zero: AVX-512's products of pairs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Elements of a and b. Those of c are the same, and f16 and bf16 accumulate in f32; but of i8 they are i32, and wrap.
    pub dtype: DType,
    /// Whether factors of f32 may lose their last 13 bits, as in NVIDIA's TF32, which keeps 10 behind the point; the sum is of f32.
    pub tf32: bool,
    /// Whether a vector of n elements is added to every row of c, after the sum was rounded.
    pub bias: bool,
    /// Independent products.
    pub batch: usize,
    /// Rows of a and c.
    pub m: usize,
    /// Columns of b and c.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
    /// The left operand.
    pub a: Layout,
    /// The right operand.
    pub b: Layout,
    /// The result.
    pub c: Layout,
}

/// Where a matrix of a batch lies in its buffer: element (i, r, c) is at `offset + i·batch + r·row + c·column`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Elements before the first.
    pub offset: usize,
    /// Elements from one batch to the next; 0 repeats one matrix.
    pub batch: usize,
    /// Elements from one row to the next.
    pub row: usize,
    /// Elements from one column to the next.
    pub column: usize,
}

impl Gemm {
    /// Elements of c.
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
