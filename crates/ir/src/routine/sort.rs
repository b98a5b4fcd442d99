//! Sorting as plain data.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// The first elements of each row in order, `[rows, length]` to `[rows, count]`, and where they stood. NaN counts as larger than
/// everything; equal elements stay as they stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// The elements; where they stood is i32.
    pub dtype: DType,
    /// Parts that are sorted by themselves.
    pub rows: usize,
    /// Elements of a row.
    pub length: usize,
    /// How many of them are wanted.
    pub count: usize,
    /// Whether the largest come first.
    pub descending: bool,
}

impl Sort {
    pub(super) fn operand(&self, at: usize) -> Option<Operand> {
        let wanted = product(&[self.rows, self.count]);
        match at {
            0 => Some(Operand::read("input", self.dtype, product(&[self.rows, self.length]))),
            1 => Some(Operand::written("values", self.dtype, wanted)),
            2 => Some(Operand::written("positions", DType::I32, wanted)),
            _ => None,
        }
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sort { dtype, rows, length, count, descending } = self;
        let end = if *descending { "largest" } else { "smallest" };
        write!(f, "{dtype} {rows}×{length}, the {count} {end}")
    }
}
