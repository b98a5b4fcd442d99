//! PTX: the virtual instruction set of NVIDIA GPUs, compiled by the driver for the actual device.
//!
//! The reference is NVIDIA's *PTX ISA*. Operations that are functions in the C family are rendered as instructions
//! here, with the same bits:
//!
//! * **Registers** are typed and each is written once, except for mutable locals and the results of guarded loads.
//!   Integers of 8 and 16 bits are held sign- or zero-extended in 32-bit registers, f16 and bf16 as f32, bools in
//!   predicates.
//! * **Floats** use `.rn` on every operation, because otherwise the assembler could fuse a product with a sum, and
//!   never `.ftz`. Transcendental functions, for which PTX has only rough approximations, were expanded before
//!   ([`crate::opt::expand_math`]).
//! * **Vectors** are rendered as scalars per lane: PTX requires vectors aligned to their full size, and a region can
//!   begin at any element.
//!
//! The text requires no more than the device's capability, and the PTX version that introduced that capability, which
//! every driver of such a device supports.

mod alu;
mod convert;
mod entry;
mod expr;
mod memory;
mod remainder;
mod stmt;
mod writer;

use panoply_ir::kernel::Kernel;

use super::GeneratedSource;

/// Renders a kernel without collectives (except shuffles and matrix products) and transcendental functions as a
/// program.
pub(super) fn program(kernel: &Kernel, capability: u32, index_bits: u32) -> GeneratedSource {
    entry::program(kernel, capability, index_bits)
}
