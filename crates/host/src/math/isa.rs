//! Properties of the target machine that the functions depend on.

/// Selects whether a function uses fused multiply-add and native rounding.
///
/// Without the instructions `f32::mul_add` and `f32::floor` are calls into the C library, which are slow and prevent
/// vectorization. With them they are the fastest and most accurate choice.
pub trait Isa: Copy {
    /// True if fused multiply-add and rounding to an integer are one instruction each.
    const FUSED: bool;
}

/// Machines with fused multiply-add and native rounding: x86-64 with `fma` (AVX2, AVX-512), AArch64.
#[derive(Clone, Copy, Debug)]
pub struct Fused;

/// Machines without these instructions, or unknown ones: x86-64 baseline, WebAssembly.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Isa for Fused {
    const FUSED: bool = true;
}

impl Isa for Portable {
    const FUSED: bool = false;
}
