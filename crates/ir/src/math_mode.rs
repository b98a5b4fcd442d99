//! Floating-point modes: how far the bits of a result can depend on the device.

use std::fmt;

/// Floating-point transformations that the compiler can apply. Functions such as `exp` keep their error bounds, in ULP, in all modes.
///
/// In all modes, sums of f16 and bf16 accumulate in f32 and are rounded once at the end. This holds for reductions, matrix products,
/// convolutions and transposed convolutions, their gradients, and `einsum` of any number of operands. A result is the exact sum rounded
/// once if f32 represents all partial sums; otherwise the order of summation can affect the last bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// Every operation is rounded as written, and sums use a fixed order that does not depend on the device.
    Exact,
    /// Elementwise operations are rounded as written. Sums and matrix products use an order chosen per device, the same in every run,
    /// and can fuse a product with its addition. On tensor cores, those of f16 and bf16 can add several products at once and truncate.
    #[default]
    Standard,
    /// Like `Standard`, and any multiplication can be fused with a following addition.
    Fast,
}

impl MathMode {
    /// All modes.
    pub const ALL: [MathMode; 3] = [MathMode::Exact, MathMode::Standard, MathMode::Fast];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            MathMode::Exact => "exact",
            MathMode::Standard => "standard",
            MathMode::Fast => "fast",
        }
    }

    /// Returns the mode with this name.
    pub fn from_name(name: &str) -> Option<MathMode> {
        MathMode::ALL.into_iter().find(|math_mode| math_mode.name() == name)
    }
}

impl fmt::Display for MathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
