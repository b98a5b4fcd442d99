//! Description of a scatter of rows.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// A copy of an array with rows scattered into it: `output[b, positions[i], c] += rows[b, i, c]` or `=`, with i in order. Rows at
/// out-of-range indices are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// Element type.
    pub dtype: DType,
    /// Type of the indices: i32 or i64.
    pub positions: DType,
    /// True to add rows to the existing ones, false to replace those.
    pub accumulate: bool,
    /// Batch size; all batches use the same indices.
    pub batch: usize,
    /// Rows of the array.
    pub length: usize,
    /// Number of scattered rows.
    pub count: usize,
    /// Elements of a row.
    pub columns: usize,
}

impl Scatter {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let array = product(&[self.batch, self.length, self.columns]);
        match at {
            0 => Some(Operand::read("array", self.dtype, array)),
            1 => Some(Operand::read("positions", self.positions, product(&[self.count]))),
            2 => Some(Operand::read("rows", self.dtype, product(&[self.batch, self.count, self.columns]))),
            3 => Some(Operand::written("output", self.dtype, array)),
            _ => None,
        }
    }
}

impl fmt::Display for Scatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scatter { dtype, positions, accumulate: adds, batch, length, count, columns } = self;
        let how = if *adds { "added to" } else { "in place of" };
        write!(f, "{dtype} {batch}×{count}×{columns} {how} {length} rows at {positions}")
    }
}
