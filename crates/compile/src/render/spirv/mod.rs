//! SPIR-V of the kernel flavour, which OpenCL 2.1 and Level Zero take, as its assembly text; drivers make words of it.
//!
//! It follows Khronos' *SPIR-V Specification*, *OpenCL SPIR-V Environment* and *OpenCL.std*. The text is what `spirv-as` reads: it can be
//! shown, compared and kept as any other language's, which words could not. What the C family says in functions is said here in
//! instructions, to the same bits:
//!
//! * **Values** are named once. Mutable locals are variables of the function, read and written, which every consumer makes
//!   values of. Integers have no sign of their own and as many bits as their type; f16 and bf16 live as f32.
//! * **Floats** are not contracted (`ContractionOff`). Functions are those of OpenCL.std, the same that OpenCL C calls; divisions and square
//!   roots are rounded correctly where the driver was asked for it, as with OpenCL C.
//! * **Control flow** is labels and branches; kernels need no merge instructions.
//! * **Subgroups** are those of `SPV_INTEL_subgroups`, the only ones whose size a program can demand.
//!
//! A program asks for no capability that it does not use, and for SPIR-V 1.0 unless it needs subgroups.

mod alu;
mod convert;
mod entry;
mod expr;
mod memory;
mod module;
mod stmt;

pub(super) use entry::program;
