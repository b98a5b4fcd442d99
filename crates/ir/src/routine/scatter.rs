//! Rows put at positions.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// A copy of an array with rows put into it: `output[b, positions[i], c] += rows[b, i, c]` or `=`, i in order. What is at a
/// position outside is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// The elements.
    pub dtype: DType,
    /// What positions are: i32 or i64.
    pub positions: DType,
    /// Whether rows are added to what is there, or take its place.
    pub accumulate: bool,
    /// Parts that rows are put into alike.
    pub batch: usize,
    /// Rows of the array.
    pub length: usize,
    /// Rows that are put.
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
