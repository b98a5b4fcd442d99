//! WGSL, the language of WebGPU, which `wgpu` translates to the machine's native API.
//!
//! The reference is the W3C's *WebGPU Shading Language* with the extensions for 64-bit numbers of native APIs; without
//! them, 64-bit integers are emulated by pairs of words ([`int64`]). Features that other languages provide are
//! implemented here, with the same bits:
//!
//! * **Memory** consists of words of 32 or 64 bits. Elements of 8 and 16 bits in buffers are parts of words, extracted
//!   by shifts; a store clears and sets its bits by atomic operations, so neighbors written by other work-items are
//!   preserved. If the device has f16, elements of f16 are native. In arrays of a group or work-item each element is a
//!   word.
//! * **Arguments** other than buffers are words of one uniform buffer, in the order described in [`entry`]. All buffers
//!   are declared as writable, because `wgpu` tracks entire buffers and would reject a launch that reads one part and
//!   writes another.
//! * **Floats**: WGSL does not specify if `fma` is fused, nor the accuracy of remainders. [`soft_float`] implements
//!   both in integers or f64. If a device's own operations have been verified to be correct, the driver enables them
//!   when it creates the pipeline. Transcendental functions were expanded before ([`crate::opt::expand_math`]).
//! * **Constants**: compilers evaluate an operation on literals only, and reject overflow, so one of the literals
//!   becomes a variable. Infinities and NaN have no literals and are created from their bits.
//! * **Zero** as an operand is a word of the launch: Mesa's llvmpipe simplifies any float times zero to zero, and -0
//!   plus 0 to -0.
//!
//! The language does not forbid contraction or reordering of floats; the driver does so where the API permits.

mod convert;
mod entry;
mod expr;
mod int64;
mod memory;
mod ops;
mod soft_float;
mod stmt;

use panoply_ir::kernel::Kernel;
use panoply_ir::{Error, Result, Target};

use super::GeneratedSource;

/// Renders a kernel without collectives (except shuffles) and transcendental functions as a program.
///
/// # Errors
///
/// Returns an unsupported error if the kernel needs too much shared memory.
pub(super) fn program(kernel: &Kernel, target: &Target, index_bits: u32) -> Result<GeneratedSource> {
    let bytes = memory::shared_bytes(kernel, target);
    if bytes > u64::from(target.shared_bytes) {
        return Err(Error::unsupported(format!(
            "kernel {} has {bytes} bytes of shared memory in words, {} allows at most {}; use smaller shared arrays or groups",
            kernel.name, target.name, target.shared_bytes
        )));
    }
    Ok(entry::program(kernel, target, index_bits))
}
