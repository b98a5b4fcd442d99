//! Kernel IR to source text.
//!
//! There is one renderer for the whole C family and one table per language ([`c_dialect::CDialect`]): the renderer knows what
//! an operation means, the table knows how a language spells it ([`opencl`], [`hip`]). WGSL has its own ([`wgsl`]), and so have
//! the languages of instructions, which evaluate expressions alike ([`assembler`]: [`ptx`], [`spirv`]). What all keep exactly as
//! the IR says, on every device:
//!
//! * **Floats**: no contraction, no reassociation; `Min` and `Max` keep NaN; f16 and bf16 values live in f32 registers and
//!   are rounded after every operation, so they agree bit for bit whether or not the device has such arithmetic. Compilers
//!   fuse the widening and the rounding into a native operation where that is the same.
//! * **Integers** wrap (they are computed unsigned), shifts take the amount modulo the width, division by zero is defined,
//!   casts from float saturate.
//! * **Memory**: guarded reads give zero beyond the length, guarded writes are dropped. A bool is a byte, f16 and bf16 are
//!   their bits in a 16-bit integer.
//! * **Vectors** are rendered as their lanes; only reads and writes are vector instructions.
//!
//! An expression used twice in a statement becomes a C temporary, and so does a long one: text grows with the number of
//! nodes, not of paths. Entry points take the arguments that `Signature` in the crate `device` describes. Every name that
//! comes from the kernel ends in an underscore or in one and digits, which no keyword or library function of the family does.

mod assembler;
mod c_dialect;
mod entry;
mod expr;
mod hip;
mod literal;
mod loop_overflow;
mod names;
mod opencl;
mod ops;
mod prelude;
mod ptx;
mod requirements;
mod spirv;
mod stmt;
mod wgsl;

use std::borrow::Cow;

use panoply_ir::kernel::Kernel;
use panoply_ir::target::Language;
use panoply_ir::{Error, Result, Target, Verified};

use crate::opt::{expand_collectives, expand_math, expand_mma};

/// A kernel as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedSource {
    /// The whole program.
    pub source: String,
    /// The function to launch.
    pub entry: String,
    /// Bits of every index argument, and of index arithmetic: 32 or 64.
    pub index_bits: u32,
}

/// What may be chosen about the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// 32 or 64. With 32, every length, size and index argument of the launch must be below 2³¹ and no index expression may
    /// leave 32 bits; [`crate::opt::index_width::index_bits`] decides that for a launch.
    pub index_bits: u32,
}

impl Options {
    /// The options that are right for every launch: 64-bit indices. A device without such integers gets 32-bit ones, and each
    /// launch there must be asked about first.
    pub fn of(target: &Target) -> Options {
        Options { index_bits: if target.int64 { 64 } else { 32 } }
    }
}

/// The kernel in the target's language, right for every launch.
///
/// Collectives are expanded on the way if they have not been. `Unsupported` if the device lacks a type or the room the
/// kernel needs, or takes no text at all.
pub fn render(kernel: &Verified<Kernel>, target: &Target) -> Result<GeneratedSource> {
    render_with(kernel, target, &Options::of(target))
}

/// The kernel in the target's language, with chosen options.
pub fn render_with(kernel: &Verified<Kernel>, target: &Target, options: &Options) -> Result<GeneratedSource> {
    let mut expanded = Cow::Borrowed(&**kernel);
    if expand_mma::applies(&expanded, target) {
        expanded = Cow::Owned(expand_mma::expand(expanded.into_owned(), target));
    }
    if expand_collectives::applies(&expanded) {
        expanded = Cow::Owned(expand_collectives::expand(expanded.into_owned(), target));
    }
    let kernel: &Kernel = &expanded;
    if target.language != Language::Ir {
        requirements::check(kernel, target, options.index_bits)?;
    }
    match target.language {
        Language::OpenClC => {
            let kernel = expand_math::expand_for_opencl(kernel.clone());
            Ok(entry::program(&kernel, target, &opencl::DIALECT, options.index_bits))
        }
        Language::Hip => {
            Ok(entry::program(&expand_math::expand(kernel.clone()), target, &hip::DIALECT, options.index_bits))
        }
        Language::Ptx { capability } => {
            Ok(ptx::program(&expand_math::expand(kernel.clone()), capability, options.index_bits))
        }
        Language::Wgsl => wgsl::program(&expand_math::expand(kernel.clone()), target, options.index_bits),
        Language::SpirV => {
            Ok(spirv::program(&expand_math::expand_for_opencl(kernel.clone()), target, options.index_bits))
        }
        Language::Ir => Err(Error::unsupported(format!(
            "kernel {}: {} takes the kernel itself, there is no text to render; ask for a text device such as opencl",
            kernel.name, target.name
        ))),
        Language::CudaC | Language::Msl => Err(Error::unsupported(format!(
            "kernel {}: nothing is rendered as {}; render PTX or WGSL instead",
            kernel.name,
            target.language.name()
        ))),
    }
}
