//! What a device is given to run.

use std::sync::Arc;

use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::target::Language;
use panoply_ir::{DType, Type, Verified};

/// A program in the form the device's [`Language`] asks for.
#[derive(Clone, Debug)]
pub enum Program {
    /// The kernel itself.
    Ir(Arc<Verified<Kernel>>),
    /// Source text for the device's compiler.
    Text(SourceText),
    /// What a compiler made of it before, from a cache: bytes of the device's own format.
    Binary {
        /// The device's own format.
        bytes: Vec<u8>,
        /// The text it was made of, used when the bytes are refused.
        text: SourceText,
    },
}

/// Source text and how its entry point is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// What it is written in.
    pub language: Language,
    /// The text.
    pub source: String,
    /// The function to launch.
    pub entry: String,
    /// Its arguments.
    pub signature: Signature,
}

/// How arguments are passed to an entry point.
///
/// Generated kernels (`hidden` true) take, for each parameter in order: a buffer as pointer, offset in elements and length
/// in elements; a scalar as itself. After them come the three global sizes. Offsets, lengths, sizes and index scalars are
/// unsigned integers of `index_bits`. In PTX two unsigned integers of 32 bits follow, by which groups along the second and third
/// axis are counted on: a grid there is too narrow for some launches, which become several. In WGSL all
/// arguments but buffers are 32-bit words, two for what has 64 bits, of a uniform buffer, followed by three such numbers of groups and a zero;
/// that buffer is binding 0 of group 0 and the kernel's buffers are those from 1 on. Raw source (`hidden` false) takes just pointers and scalars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The kernel's parameters, in order.
    pub params: Vec<ParamType>,
    /// Bits of an index argument: 32 or 64.
    pub index_bits: u32,
    /// Whether offsets, lengths and sizes are passed besides.
    pub hidden: bool,
}

/// What a parameter of an entry point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// A buffer of such elements; a region passed to it starts at a multiple of their size.
    Buffer(DType),
    /// A scalar or an index.
    Scalar(Type),
}

impl Signature {
    /// The signature of a generated kernel.
    pub fn of(kernel: &Kernel, index_bits: u32) -> Signature {
        let params = kernel.params.iter().map(|param| match param {
            Param::Scalar { ty, .. } => ParamType::Scalar(*ty),
            Param::Buffer(mem) => ParamType::Buffer(kernel.mem(*mem).dtype),
        });
        Signature { params: params.collect(), index_bits, hidden: true }
    }
}
