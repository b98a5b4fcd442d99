//! Description of a sort.

use std::fmt;

use super::{Operand, product};
use crate::dtype::DType;

/// The first `count` elements of each row in sorted order, `[rows, length]` to `[rows, count]`, and their original indices. NaN is larger
/// than everything else. The sort is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// Element type; the indices are i32.
    pub dtype: DType,
    /// Number of independent rows.
    pub rows: usize,
    /// Elements of a row.
    pub length: usize,
    /// Number of elements to return per row.
    pub count: usize,
    /// True to sort in descending order.
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
