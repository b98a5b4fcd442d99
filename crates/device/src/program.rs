//! Programs that a device executes.

use std::fmt::Display;
use std::sync::Arc;

use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::target::Language;
use panoply_ir::{DType, Error, Type, Verified};

use crate::host::HostFunction;

/// A program in the form that the device's [`Language`] requires.
#[derive(Clone, Debug)]
pub enum Program {
    /// The kernel's IR.
    Ir(Arc<Verified<Kernel>>),
    /// Source text for the device's compiler.
    Text(SourceText),
    /// A compiled program from a cache, in the device's binary format.
    Binary {
        /// Bytes in the device's binary format.
        bytes: Vec<u8>,
        /// Source text of the program, used if the bytes are rejected.
        text: SourceText,
    },
    /// Code compiled outside of Panoply.
    Image(Image),
    /// A host function, for the CPU device.
    Host(HostFunction),
}

/// Code compiled outside of Panoply. Only the driver can detect errors in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Format of the code.
    pub format: BinaryFormat,
    /// The code.
    pub bytes: Arc<[u8]>,
    /// Name of the entry point.
    pub entry: String,
    /// Parameters.
    pub signature: Signature,
}

/// Format of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryFormat {
    /// Machine code for one NVIDIA architecture, or a fat binary for several.
    Cubin,
    /// Machine code for one AMD architecture.
    CodeObject,
    /// SPIR-V: the Kernel flavor for OpenCL, the Shader flavor for Vulkan.
    SpirV,
    /// A Metal library.
    MetalLibrary,
}

/// Form of an external program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramForm {
    /// Source text.
    Text(Language),
    /// Compiled code.
    Image(BinaryFormat),
    /// A host function.
    Host,
}

impl ProgramForm {
    /// Returns the name for display.
    pub const fn name(self) -> &'static str {
        match self {
            ProgramForm::Text(language) => language.name(),
            ProgramForm::Image(BinaryFormat::Cubin) => "a cubin",
            ProgramForm::Image(BinaryFormat::CodeObject) => "an AMD code object",
            ProgramForm::Image(BinaryFormat::SpirV) => "SPIR-V",
            ProgramForm::Image(BinaryFormat::MetalLibrary) => "a Metal library",
            ProgramForm::Host => "a function on the CPU",
        }
    }

    /// Joins the names of several forms, without duplicates.
    pub fn list(forms: &[ProgramForm]) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in forms.iter().map(|form| form.name()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
    }

    /// Returns true if both are the same form, ignoring the compute capability of PTX.
    pub fn is_like(self, other: ProgramForm) -> bool {
        let ptx = |form| matches!(form, ProgramForm::Text(Language::Ptx { .. }));
        self == other || (ptx(self) && ptx(other))
    }
}

impl Program {
    /// Returns the name of the entry point.
    pub fn entry(&self) -> &str {
        match self {
            Program::Ir(kernel) => &kernel.name,
            Program::Text(text) | Program::Binary { text, .. } => &text.entry,
            Program::Image(image) => &image.entry,
            Program::Host(function) => &function.entry,
        }
    }

    /// Returns the form; `None` for kernel IR.
    pub fn form(&self) -> Option<ProgramForm> {
        match self {
            Program::Ir(_) => None,
            Program::Text(text) | Program::Binary { text, .. } => Some(ProgramForm::Text(text.language)),
            Program::Image(image) => Some(ProgramForm::Image(image.format)),
            Program::Host(_) => Some(ProgramForm::Host),
        }
    }

    /// Returns the error of a device that accepts only other forms.
    #[cold]
    pub fn rejected_by(&self, device: impl Display, takes: &[ProgramForm]) -> Error {
        let takes = ProgramForm::list(takes);
        let entry = self.entry();
        Error::unsupported(match self.form() {
            Some(form) => format!("{device}: accepts {takes}; {entry} is {}", form.name()),
            None => format!("{device}: accepts {takes}, not the IR of kernel {entry}; render it first"),
        })
    }
}

/// Source text with its entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// Language of the source.
    pub language: Language,
    /// The source.
    pub source: String,
    /// Name of the entry point.
    pub entry: String,
    /// Parameters.
    pub signature: Signature,
}

/// Calling convention of an entry point.
///
/// Generated kernels (`hidden` true) take, for each parameter in order: for a buffer a pointer, the offset in elements and the length
/// in elements; for a scalar its value. The three global sizes follow. Offsets, lengths, sizes and index scalars are unsigned integers
/// of `index_bits` bits.
///
/// In PTX two unsigned 32-bit integers follow: the first work-group along the second and third axis. The grid is too narrow there for
/// some launches, which are split.
///
/// In WGSL all arguments other than buffers are 32-bit words of a uniform buffer, two words for a 64-bit value, followed by three such
/// work-group offsets and a zero. The uniform buffer is binding 0 of group 0; the kernel's buffers are the bindings from 1 on.
///
/// External source (`hidden` false) takes only pointers and scalars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Types of the kernel's parameters, in order.
    pub params: Vec<ParamType>,
    /// Bits of an index argument: 32 or 64.
    pub index_bits: u32,
    /// True if offsets, lengths and global sizes are also passed.
    pub hidden: bool,
}

/// Type of an entry point's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// A buffer with elements of this type. A region passed to it is aligned to their size.
    Buffer(DType),
    /// A scalar or an index.
    Scalar(Type),
}

impl Signature {
    /// Returns the signature of a generated kernel.
    pub fn of(kernel: &Kernel, index_bits: u32) -> Signature {
        let params = kernel.params.iter().map(|param| match param {
            Param::Scalar { ty, .. } => ParamType::Scalar(*ty),
            Param::Buffer(mem) => ParamType::Buffer(kernel.mem(*mem).dtype),
        });
        Signature { params: params.collect(), index_bits, hidden: true }
    }
}
