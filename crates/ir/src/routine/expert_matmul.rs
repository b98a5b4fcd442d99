//! Matrix products with the packed weights of chosen experts as plain data.

use std::fmt;

use super::{Operand, QuantizedMatmul, product};
use crate::dtype::DType;
use crate::quant::Encoding;

/// `output[i, u, j] = Σ x[i, s, l] · weight[ids[i, u] · n + j, l]`: each row of activations times the matrices of the experts that its ids
/// select. s is u, or 0 if all experts of a row take the same activations. The product with an id that is not an expert is zero. Buffers: x
/// `[m, slots, k]`, weight `[experts · n, k]`, ids i32 `[m, used]` (In), output `[m, used, n]` (Out).
///
/// Activations are rounded as by [`QuantizedMatmul`]. An output depends on its own row and expert only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertMatmul {
    /// Elements of x and output: f32, f16 or bf16. Sums are of f32.
    pub dtype: DType,
    /// Encoding of the rows of the matrices.
    pub encoding: Encoding,
    /// Rows of x, ids and output.
    pub m: usize,
    /// Rows of activations for each of them: 1 or `used`.
    pub slots: usize,
    /// Experts of each of them.
    pub used: usize,
    /// Experts.
    pub experts: usize,
    /// Rows of the matrix of an expert.
    pub n: usize,
    /// Elements of a row: a whole number of blocks.
    pub k: usize,
}

impl ExpertMatmul {
    /// Returns the product of `m` rows with the matrix of one expert.
    pub fn of_one(&self, m: usize) -> QuantizedMatmul {
        let ExpertMatmul { dtype, encoding, n, k, .. } = *self;
        QuantizedMatmul { dtype, encoding, m, n, k, interleaved: false }
    }

    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let ExpertMatmul { dtype, m, slots, used, experts, n, k, .. } = *self;
        let one = self.of_one(1);
        let weight_dtype = one.weight_dtype();
        match at {
            0 => Some(Operand::read("x", dtype, product(&[m, slots, k]))),
            1 => {
                let elems = one.row_bytes().and_then(|bytes| product(&[experts, n, bytes / weight_dtype.bytes()]));
                Some(Operand::read("weight", weight_dtype, elems))
            }
            2 => Some(Operand::read("ids", DType::I32, product(&[m, used]))),
            3 => Some(Operand::written("output", dtype, product(&[m, used, n]))),
            _ => None,
        }
    }
}

impl fmt::Display for ExpertMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExpertMatmul { dtype, encoding, m, slots, used, experts, n, k } = self;
        write!(f, "{dtype} {m}×{slots}×{k} with {used} of {experts} {} {n}×{k}", encoding.name())
    }
}
