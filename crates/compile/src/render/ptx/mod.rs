//! PTX: the instructions of NVIDIA's virtual machine, compiled by its driver for whatever GPU is there.
//!
//! It follows NVIDIA's *PTX ISA*. What the C family says in functions is said here in instructions, to the same bits:
//!
//! * **Registers** are typed and each is written once, but for mutable locals and what a guarded read fills in. Integers of 8
//!   and 16 bits live sign- or zero-extended in 32-bit registers, f16 and bf16 as f32, bools in predicates.
//! * **Floats** carry `.rn` on every operation, without which the assembler may fuse a product with a sum, and never `.ftz`.
//!   Transcendental functions, which PTX has in rough approximation only, were expanded before ([`crate::opt::expand_math`]).
//! * **Vectors** are rendered as their lanes: PTX wants vectors aligned to their whole size, and a region begins at any element.
//!
//! The text asks for no more than the device's capability, and for the version of PTX in which that capability came, which every
//! driver of such a device knows.

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

/// A kernel without collectives and transcendental functions as a program.
pub(super) fn program(kernel: &Kernel, capability: u32, index_bits: u32) -> GeneratedSource {
    entry::program(kernel, capability, index_bits)
}
