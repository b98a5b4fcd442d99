//! SPIR-V for OpenCL kernels, which OpenCL 2.1 and Level Zero accept, in assembly text; drivers assemble it to binary.
//!
//! The references are Khronos' *SPIR-V Specification*, *OpenCL SPIR-V Environment* and *OpenCL.std*. The text is in the
//! format of `spirv-as`: unlike binary, it can be shown, compared and stored like that of any other language.
//! Operations that are functions in the C family are rendered as instructions here, with the same bits:
//!
//! * **Values** are in SSA form. Mutable locals are variables of the function, loaded and stored, which every consumer
//!   converts to SSA. Integers are unsigned with the width of their type; f16 and bf16 are held as f32.
//! * **Floats** are not contracted (`ContractionOff`). Functions are those of OpenCL.std, the same that OpenCL C calls;
//!   divisions and square roots are correctly rounded where the driver was requested to, as with OpenCL C.
//! * **Control flow** consists of labels and branches; kernels need no merge instructions.
//! * **Subgroups** are those of `SPV_INTEL_subgroups`, the only ones whose size a program can require.
//!
//! A program declares only capabilities that it uses, and SPIR-V 1.0 unless it needs subgroups.

mod alu;
mod convert;
mod entry;
mod expr;
mod memory;
mod module;
mod stmt;

pub(super) use entry::program;
