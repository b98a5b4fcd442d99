//! Attention as plain data.

use std::fmt;

use super::{Operand, product, reach};
use crate::dtype::{DType, Scalar};

/// softmax(queries · keysᵀ · scale) · values for each head: queries `[batch, heads, queries, width]`, keys
/// `[batch, key_heads, keys, width]`, values `[batch, key_heads, keys, depth]`.
///
/// `heads` is a multiple of `key_heads`; neighboring heads share keys. A query that sees no key gives zeros, and minus
/// infinity as its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Elements of all buffers but the mask.
    pub dtype: DType,
    /// Independent inputs.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_heads: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub width: usize,
    /// Elements of a value.
    pub depth: usize,
    /// If there, query i sees only keys 0 ..= this + i.
    pub past: Option<usize>,
    /// Factor of the scores, of the buffers' type.
    pub scale: Scalar,
    /// What is added to the scores, or says which count.
    pub mask: Option<Mask>,
}

/// A mask of the scores, which repeats along axes with distance 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask {
    /// Bool says which scores count; the scores' own type is added.
    pub dtype: DType,
    /// Elements from one input of the batch to the next.
    pub batch: usize,
    /// Elements from one head to the next.
    pub head: usize,
    /// Elements from one query to the next.
    pub query: usize,
    /// Elements from one key to the next.
    pub key: usize,
}

impl Attention {
    /// How many pairs of a query and a key that it sees a head has.
    pub fn scores(&self) -> usize {
        let Attention { queries, keys, past, .. } = *self;
        let hidden = match past {
            // The first queries see one key more each until all are seen.
            Some(past) if past < keys => {
                let (most, rows) = ((keys - past - 1) as u128, queries.min(keys - past - 1) as u128);
                rows * most - rows * rows.saturating_sub(1) / 2
            }
            _ => 0,
        };
        usize::try_from(queries as u128 * keys as u128 - hidden).unwrap_or(usize::MAX)
    }

    /// The n-th of the operands that both directions read.
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

    /// How many operands both directions read.
    fn inputs(&self) -> usize {
        3 + usize::from(self.mask.is_some())
    }

    fn result(&self) -> Option<u64> {
        product(&[self.batch, self.heads, self.queries, self.depth])
    }

    fn rows(&self) -> Option<u64> {
        product(&[self.batch, self.heads, self.queries])
    }

    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        match at.checked_sub(self.inputs()) {
            None => self.input(at),
            Some(0) => Some(Operand::written("output", self.dtype, self.result())),
            Some(1) => Some(Operand::written("logarithms", self.dtype, self.rows())),
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
            Some(0) => Some(Operand::read("output", self.dtype, self.result())),
            Some(1) => Some(Operand::read("logarithms", self.dtype, self.rows())),
            Some(2) => Some(Operand::read("flow", self.dtype, self.result())),
            Some(3) => written("to queries", 0),
            Some(4) => written("to keys", 1),
            Some(5) => written("to values", 2),
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
