//! What a device is given to run.

use std::fmt::Display;
use std::sync::Arc;

use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::target::Language;
use panoply_ir::{DType, Error, Type, Verified};

use crate::host::HostFunction;

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
    /// Code that a compiler outside Panoply made.
    Image(Image),
    /// A function of the host's, where the host is the device.
    Host(HostFunction),
}

/// Code that a compiler outside Panoply made. What is wrong with it the driver finds, or nobody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What it is.
    pub format: BinaryFormat,
    /// The code.
    pub bytes: Arc<[u8]>,
    /// The function to launch.
    pub entry: String,
    /// Its arguments.
    pub signature: Signature,
}

/// A kind of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryFormat {
    /// Machine code for one architecture of NVIDIA's, or several in one fat binary.
    Cubin,
    /// Machine code for one architecture of AMD's.
    CodeObject,
    /// SPIR-V: of the Kernel flavour for OpenCL, of the Shader flavour for Vulkan.
    SpirV,
    /// A Metal library.
    MetalLibrary,
}

/// What a program from outside can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramForm {
    /// Text.
    Text(Language),
    /// Compiled code.
    Image(BinaryFormat),
    /// A function of the host's.
    Host,
}

impl ProgramForm {
    /// The name in a sentence.
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

    /// Several in a sentence, each name once.
    pub fn list(forms: &[ProgramForm]) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in forms.iter().map(|form| form.name()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
    }

    /// Whether it is the same but for the devices that it was made for.
    pub fn is_like(self, other: ProgramForm) -> bool {
        let ptx = |form| matches!(form, ProgramForm::Text(Language::Ptx { .. }));
        self == other || (ptx(self) && ptx(other))
    }
}

impl Program {
    /// The function to launch.
    pub fn entry(&self) -> &str {
        match self {
            Program::Ir(kernel) => &kernel.name,
            Program::Text(text) | Program::Binary { text, .. } => &text.entry,
            Program::Image(image) => &image.entry,
            Program::Host(function) => &function.entry,
        }
    }

    /// What it is; none for a kernel itself.
    pub fn form(&self) -> Option<ProgramForm> {
        match self {
            Program::Ir(_) => None,
            Program::Text(text) | Program::Binary { text, .. } => Some(ProgramForm::Text(text.language)),
            Program::Image(image) => Some(ProgramForm::Image(image.format)),
            Program::Host(_) => Some(ProgramForm::Host),
        }
    }

    /// The answer of a device that takes programs in other forms.
    #[cold]
    pub fn rejected_by(&self, device: impl Display, takes: &[ProgramForm]) -> Error {
        let takes = ProgramForm::list(takes);
        let entry = self.entry();
        Error::unsupported(match self.form() {
            Some(form) => format!("{device}: takes {takes}; {entry} is {}", form.name()),
            None => format!("{device}: takes {takes}, not the kernel {entry} itself; render it first"),
        })
    }
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
