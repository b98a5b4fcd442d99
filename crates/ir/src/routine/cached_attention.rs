//! Description of attention to a key-value cache.

use std::fmt;

use super::{Operand, product};
use crate::dtype::{DType, Scalar};

/// Attention of single tokens of several sequences to a key-value cache: softmax(query · keysᵀ · scale) · values for each head. Queries have
/// the shape `[tokens, heads, width]`, keys and values `[key_heads, slots · slot_rows, width]`, all f32.
///
/// A cache has `slots` slots of `slot_rows` rows, one sequence in each. `rows` is i32 `[tokens]`: the row that holds the token's own key. A
/// token attends to the rows from the first of its slot up to its own, the last `window` of them if there is a window. A token whose row is
/// out of range attends to none and gives zeros. Lengths are thus data, and a result does not depend on the other tokens: its bits are the
/// same alone and among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CachedAttention {
    /// Number of tokens.
    pub tokens: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`. Consecutive heads share keys.
    pub key_heads: usize,
    /// Number of sequences that the cache can hold.
    pub slots: usize,
    /// Rows of a slot: the longest sequence.
    pub slot_rows: usize,
    /// Elements of a query, key and value.
    pub width: usize,
    /// Factor of the scores, f32.
    pub scale: Scalar,
    /// Scores x become c · tanh(x / c), f32.
    pub soft_cap: Option<Scalar>,
    /// Maximum number of rows that a token attends to, its own included.
    pub window: Option<usize>,
}

impl CachedAttention {
    /// Returns the number of rows of the cache.
    pub fn rows(&self) -> Option<usize> {
        self.slots.checked_mul(self.slot_rows)
    }

    /// Returns the rows that a token attends to; empty if its own is out of range.
    pub fn visible(&self, row: i32) -> std::ops::Range<usize> {
        let rows = self.slots.saturating_mul(self.slot_rows);
        match usize::try_from(row) {
            Ok(row) if row < rows => {
                let first = row - row % self.slot_rows;
                let windowed = self.window.map_or(first, |window| first.max((row + 1).saturating_sub(window)));
                windowed..row + 1
            }
            _ => 0..0,
        }
    }

    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let CachedAttention { tokens, heads, key_heads, slots, slot_rows, width, .. } = *self;
        let cache = product(&[key_heads, slots, slot_rows, width]);
        let of_tokens = product(&[tokens, heads, width]);
        match at {
            0 => Some(Operand::read("queries", DType::F32, of_tokens)),
            1 => Some(Operand::read("keys", DType::F32, cache)),
            2 => Some(Operand::read("values", DType::F32, cache)),
            3 => Some(Operand::read("rows", DType::I32, product(&[tokens]))),
            4 => Some(Operand::written("output", DType::F32, of_tokens)),
            _ => None,
        }
    }
}

impl fmt::Display for CachedAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CachedAttention { tokens, heads, key_heads, slots, slot_rows, width, .. } = self;
        write!(f, "f32 {tokens}×{heads}×{width} on {slots}×{slot_rows} rows")?;
        if key_heads != heads {
            write!(f, " of {key_heads} heads")?;
        }
        if self.soft_cap.is_some() {
            f.write_str(", capped")?;
        }
        match self.window {
            Some(window) => write!(f, ", window {window}"),
            None => Ok(()),
        }
    }
}
