//! How far the bits of a result may depend on the device, which a user chooses.

use std::fmt;

/// What a compiler may do to float arithmetic. Functions such as `exp` keep their bounds, in units in the last place, under all of them.
///
/// Under all of them, sums of f16 and bf16 accumulate in f32 and are rounded once, at their end: those of reductions, products of matrices,
/// convolutions and transposed convolutions, their gradients, and `einsum` of any number of operands. So a result is the exact sum rounded
/// once where f32 holds all partial sums; elsewhere the order of the sum may show in the last place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// Every operation is rounded as it is written, and sums are taken in an order that no device has a say in.
    Exact,
    /// Element by element as it is written. Sums and products of matrices are taken in an order of the device's own, the same in
    /// every run, and a product of theirs may be rounded together with its addition; those of f16 and bf16 on tensor cores may add
    /// several at once and truncate.
    #[default]
    Standard,
    /// The same, and any product is rounded with what is added to it, or without, whichever is quicker.
    Fast,
}

impl MathMode {
    /// Every choice.
    pub const ALL: [MathMode; 3] = [MathMode::Exact, MathMode::Standard, MathMode::Fast];

    /// The spelling.
    pub const fn name(self) -> &'static str {
        match self {
            MathMode::Exact => "exact",
            MathMode::Standard => "standard",
            MathMode::Fast => "fast",
        }
    }

    /// The choice with this spelling.
    pub fn from_name(name: &str) -> Option<MathMode> {
        MathMode::ALL.into_iter().find(|accuracy| accuracy.name() == name)
    }
}

impl fmt::Display for MathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
