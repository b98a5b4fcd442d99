//! Rows added at positions.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// A copy of an array with rows added to it: `output[b, positions[i], c] += rows[b, i, c]`, i in order. What is at a position
/// outside is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScatterAdd {
    /// The elements.
    pub dtype: DType,
    /// What positions are: i32 or i64.
    pub positions: DType,
    /// Parts that rows are added to alike.
    pub batch: usize,
    /// Rows of the array.
    pub length: usize,
    /// Rows that are added.
    pub count: usize,
    /// Elements of a row.
    pub columns: usize,
}

impl ScatterAdd {
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

impl fmt::Display for ScatterAdd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScatterAdd { dtype, positions, batch, length, count, columns } = self;
        write!(f, "{dtype} {batch}×{count}×{columns} into {length} rows at {positions}")
    }
}
