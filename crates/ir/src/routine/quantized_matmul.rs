//! A matrix product with packed weights as plain data.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;
use crate::quant::Encoding;

/// `output[i, j] = Σ x[i, l] · weight[j, l]`: activations `[m, k]` times the rows of a packed matrix `[n, k]`. Buffers: x, weight (In),
/// output `[m, n]` (Out).
///
/// A device may round the activations of a block of 32 elements to multiples of its scale, the largest magnitude of the block divided
/// by 127, where the weights are integers with scales. The result then differs by at most `Σ scale / 2 · ‖weights of the block‖₁` over the
/// blocks, plus the rounding of f32 sums. An output depends on its own row of activations only: its bits are the same for every `m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuantizedMatmul {
    /// Elements of x and output: f32, f16 or bf16. Sums are of f32.
    pub dtype: DType,
    /// Encoding of the rows of the matrix.
    pub encoding: Encoding,
    /// Rows of x and output.
    pub m: usize,
    /// Rows of the matrix, columns of the output.
    pub n: usize,
    /// Elements of a row: a whole number of blocks.
    pub k: usize,
    /// True if the rows of the matrix are interleaved by [`Encoding::interleave`].
    pub interleaved: bool,
}

impl QuantizedMatmul {
    /// Element type of the matrix's buffer: that of an unquantized encoding, bytes otherwise.
    pub fn weight_dtype(&self) -> DType {
        self.encoding.float_dtype().unwrap_or(DType::U8)
    }

    /// Bytes of a row of the matrix; none if `k` is not a whole number of blocks.
    pub fn row_bytes(&self) -> Option<usize> {
        self.encoding.row_bytes(self.k)
    }

    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let QuantizedMatmul { dtype, m, n, k, .. } = *self;
        let weight_dtype = self.weight_dtype();
        match at {
            0 => Some(Operand::read("x", dtype, product(&[m, k]))),
            1 => {
                let elems = self.row_bytes().and_then(|bytes| product(&[n, bytes / weight_dtype.bytes()]));
                Some(Operand::read("weight", weight_dtype, elems))
            }
            2 => Some(Operand::written("output", dtype, product(&[m, n]))),
            _ => None,
        }
    }
}

impl fmt::Display for QuantizedMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuantizedMatmul { dtype, encoding, m, n, k, interleaved } = self;
        let how = if *interleaved { " interleaved" } else { "" };
        write!(f, "{dtype} {m}×{k} with {}{how} {n}×{k}", encoding.name())
    }
}
