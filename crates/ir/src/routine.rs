//! The closed, short list of work a device may do better than a generated kernel.
//!
//! A routine is an offer, never a need: whoever plans one holds the generated kernel as fallback and as oracle.

use crate::dtype::DType;

/// A piece of work a device may offer to do whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Routine {
    /// Batched matrix product. Buffers: a, b (In), c (Out).
    Gemm(Gemm),
}

/// `c[i] = a[i] × b[i]` for every batch i: m×k times k×n gives m×n, any strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Elements of a, b and c; f16 and bf16 accumulate in f32.
    pub dtype: DType,
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
