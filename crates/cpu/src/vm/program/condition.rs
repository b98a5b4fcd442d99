//! Conditions that narrow a mask.

use super::{Affine, Slot, Src};

/// Comparison of an affine index with a uniform value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// index < bound.
    Lt,
    /// index ≤ bound.
    Le,
    /// index > bound.
    Gt,
    /// index ≥ bound.
    Ge,
    /// index = bound.
    Eq,
    /// index ≠ bound.
    Ne,
}

/// Condition that lanes must satisfy to stay in a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The lane's bool equals `holds`.
    Lanes {
        /// The bools.
        value: Src,
        /// The required value.
        holds: bool,
    },
    /// A comparison.
    Range(Range),
    /// The uniform bool equals `holds`.
    Uniform {
        /// The bool.
        value: Slot,
        /// The required value.
        holds: bool,
    },
}

/// A comparison of an affine index with a uniform value: its result is a range of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The left side.
    pub at: Affine,
    /// The comparison.
    pub compare: Compare,
    /// The right side.
    pub bound: Slot,
    /// True if both sides are i64 instead of u64.
    pub signed: bool,
}
