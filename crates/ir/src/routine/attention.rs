//! Description of attention.

use std::fmt;

use super::{Operand, product, reach};
use crate::dtype::{DType, Scalar};

/// Scaled dot-product attention: softmax(queries · keysᵀ · scale) · values for each head. Queries have the shape `[batch, heads, queries,
/// width]`, keys `[batch, key_heads, keys, width]`, and values `[batch, key_heads, keys, depth]`.
///
/// `heads` is a multiple of `key_heads`; neighboring heads share keys. A query that attends to no key gives zeros, and minus infinity as
/// its log-sum-exp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Element type of all buffers except the mask.
    pub dtype: DType,
    /// Batch size.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads.
    pub key_heads: usize,
    /// Number of queries per head.
    pub queries: usize,
    /// Number of keys per head.
    pub keys: usize,
    /// Number of elements of a query and of a key.
    pub width: usize,
    /// Number of elements of a value.
    pub depth: usize,
    /// Causal masking: if set, query i attends only to keys 0 ..= past + i.
    pub past: Option<usize>,
    /// Factor of the scores, of the buffers' type.
    pub scale: Scalar,
    /// Mask of the scores, if any.
    pub mask: Option<Mask>,
}

/// A mask of the scores; a stride of 0 broadcasts it along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask {
    /// Element type: a bool mask selects scores, a mask of the scores' type is added to them.
    pub dtype: DType,
    /// Stride of the batch axis, in elements.
    pub batch: usize,
    /// Stride of the head axis, in elements.
    pub head: usize,
    /// Stride of the query axis, in elements.
    pub query: usize,
    /// Stride of the key axis, in elements.
    pub key: usize,
}

impl Attention {
    /// Returns the number of unmasked pairs of a query and a key per head, with respect to causal masking.
    pub fn scores(&self) -> usize {
        let Attention { queries, keys, past, .. } = *self;
        let hidden = match past {
            // The first queries attend to one more key each, until all keys are covered.
            Some(past) if past < keys => {
                let (most, rows) = ((keys - past - 1) as u128, queries.min(keys - past - 1) as u128);
                rows * most - rows * rows.saturating_sub(1) / 2
            }
            _ => 0,
        };
        usize::try_from(queries as u128 * keys as u128 - hidden).unwrap_or(usize::MAX)
    }

    /// Returns the n-th of the operands that the forward and backward pass read.
    fn input(&self, at: usize) -> Option<Operand> {
        let Attention { dtype, batch, heads, key_heads, queries, keys, width, depth, .. } = *self;
        match at {
            0 => Some(Operand::read("queries", dtype, product(&[batch, heads, queries, width]))),
            1 => Some(Operand::read("keys", dtype, product(&[batch, key_heads, keys, width]))),
            2 => Some(Operand::read("values", dtype, product(&[batch, key_heads, keys, depth]))),
            3 => self.mask.map(|mask| {
                let axes = [(batch, mask.batch), (heads, mask.head), (queries, mask.query), (keys, mask.key)];
                Operand::read("mask", mask.dtype, reach(0, &axes))
            }),
            _ => None,
        }
    }

    /// Returns the number of operands that the forward and backward pass read.
    fn inputs(&self) -> usize {
        3 + usize::from(self.mask.is_some())
    }

    fn output_elems(&self) -> Option<u64> {
        product(&[self.batch, self.heads, self.queries, self.depth])
    }

    fn logsumexp_elems(&self) -> Option<u64> {
        product(&[self.batch, self.heads, self.queries])
    }

    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        match at.checked_sub(self.inputs()) {
            None => self.input(at),
            Some(0) => Some(Operand::written("output", self.dtype, self.output_elems())),
            Some(1) => Some(Operand::written("logsumexp", self.dtype, self.logsumexp_elems())),
            Some(_) => None,
        }
    }

    pub(super) fn gradient_operand(&self, at: usize) -> Option<Operand> {
        let written = |name, like| {
            let elems = self.input(like).and_then(|operand| operand.elems);
            Some(Operand::written(name, self.dtype, elems))
        };
        match at.checked_sub(self.inputs()) {
            None => self.input(at),
            Some(0) => Some(Operand::read("output", self.dtype, self.output_elems())),
            Some(1) => Some(Operand::read("logsumexp", self.dtype, self.logsumexp_elems())),
            Some(2) => Some(Operand::read("output gradient", self.dtype, self.output_elems())),
            Some(3) => written("query gradient", 0),
            Some(4) => written("key gradient", 1),
            Some(5) => written("value gradient", 2),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attention { dtype, batch, heads, key_heads, queries, keys, width, .. } = self;
        write!(f, "{dtype} {batch}×{heads}×{queries}×{width} on {keys} keys")?;
        if key_heads != heads {
            write!(f, " of {key_heads} heads")?;
        }
        if self.past.is_some() {
            f.write_str(", causal")?;
        }
        if self.mask.is_some() { f.write_str(", masked") } else { Ok(()) }
    }
}
