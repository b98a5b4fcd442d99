//! What narrows a mask.

use super::{Affine, Slot, Src};

/// How an affine index is compared with a value that all lanes share.
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

/// What lanes must fulfill to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The bool of the lane is `holds`.
    Lanes {
        /// The bools.
        value: Src,
        /// What they must be.
        holds: bool,
    },
    /// A comparison.
    Range(Range),
    /// The bool that all lanes share is `holds`.
    Uniform {
        /// The bool.
        value: Slot,
        /// What it must be.
        holds: bool,
    },
}

/// A comparison of an affine index with a value that all lanes share: its outcome is a range of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The left side.
    pub at: Affine,
    /// How.
    pub compare: Compare,
    /// The right side.
    pub bound: Slot,
    /// Whether both are i64.
    pub signed: bool,
}
