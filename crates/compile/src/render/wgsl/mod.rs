//! WGSL, the language of WebGPU, which `wgpu` turns into whatever the machine's interface takes.
//!
//! It follows the W3C's *WebGPU Shading Language* with the extensions for 64-bit numbers that native interfaces have; where there
//! are none, 64-bit integers are pairs of words ([`int64`]). What other
//! languages do for us is said here in their stead, to the same bits:
//!
//! * **Memory** is words of 32 or 64 bits. Elements of 8 and 16 bits are parts of words in buffers, taken out by shifts; a write clears
//!   and sets its own bits by atomic operations, so neighbors written by others stay. Where the device has f16, those of f16 are its own. In arrays of a group or work-item each is a word.
//! * **Arguments** that are no buffers are words of one uniform buffer, [`entry`] says in which order. All buffers are declared as
//!   writable, for `wgpu` tracks whole buffers and would refuse one of which a launch reads a part and writes another.
//! * **Floats**: WGSL leaves open whether a fused multiply-add is one, and what remainders are worth. [`soft_float`] says both in integers or f64;
//!   where a device has shown that its own is right, the driver says so when it makes the pipeline. Transcendental functions
//!   were expanded before ([`crate::opt::expand_math`]).
//! * **Constants**: an operation on nothing but literals would be computed by the compiler, which refuses what overflows, so one of them
//!   becomes a variable. Infinities and NaN have no literals and are made from the bits of one.
//!
//! * **Zero** as an operand is a word of the launch: Mesa's llvmpipe takes any float times zero for zero, and -0 plus 0 for -0.
//!
//! Nothing in the language forbids a compiler to contract or reorder floats; the driver does so where the interface lets it.

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

/// A kernel without collectives and transcendental functions as a program.
pub(super) fn program(kernel: &Kernel, target: &Target, index_bits: u32) -> Result<GeneratedSource> {
    let bytes = memory::shared_bytes(kernel, target);
    if bytes > u64::from(target.shared_bytes) {
        return Err(Error::unsupported(format!(
            "kernel {} has {bytes} bytes of shared memory as words, {} allows {} at most; use smaller shared arrays or groups",
            kernel.name, target.name, target.shared_bytes
        )));
    }
    Ok(entry::program(kernel, target, index_bits))
}
