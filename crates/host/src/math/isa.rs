//! Properties of the instruction set that the functions depend on.

/// Selects fused multiply-add and native rounding for a function. This is the only property of an instruction set that
/// changes results, unlike [`crate::isa::Isa`], which also fixes the vector width.
///
/// Without the instructions `f32::mul_add` and `f32::floor` are calls into the C library, which are slow and prevent
/// vectorization. With them they are the fastest and most accurate choice.
pub trait MathIsa: Copy {
    /// True if fused multiply-add and rounding to an integer are one instruction each.
    const FUSED: bool;
}

/// Instruction sets with fused multiply-add and native rounding: x86-64 with `fma` (AVX2, AVX-512), AArch64.
#[derive(Clone, Copy, Debug)]
pub struct Fused;

/// Instruction sets without these instructions, or unknown ones: x86-64 baseline, WebAssembly.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl MathIsa for Fused {
    const FUSED: bool = true;
}

impl MathIsa for Portable {
    const FUSED: bool = false;
}
