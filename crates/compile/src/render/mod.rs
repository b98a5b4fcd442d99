//! Renders kernel IR as source text.
//!
//! One renderer serves the entire C family, with one table per language ([`c_dialect::CDialect`]): the renderer
//! implements the semantics of operations, the table their spelling ([`opencl`], [`hip`]). WGSL has a separate renderer
//! ([`wgsl`]). The assembly languages share the evaluation of expressions ([`assembler`]: [`ptx`], [`spirv`]). All of
//! them preserve the semantics of the IR exactly, on every device:
//!
//! * **Floats**: no contraction, no reassociation; `Min` and `Max` propagate NaN. f16 and bf16 values are held in f32
//!   registers and rounded after every operation, so results are bit-identical with and without native arithmetic.
//!   Compilers fuse the widening and rounding into a native operation where that is equivalent.
//! * **Integers** wrap (they are computed unsigned), shifts use the amount modulo the width, division by zero is
//!   defined, casts from float saturate.
//! * **Memory**: guarded loads return zero out of bounds, guarded stores are skipped. A bool is a byte; f16 and bf16
//!   are stored as their bits in a 16-bit integer.
//! * **Vectors** are rendered as scalars per lane; only loads and stores are vector instructions.
//!
//! An expression used twice in a statement, or a long one, becomes a temporary: the text grows with the number of
//! nodes, not of paths. Entry points take the arguments described by `Signature` in the crate `device`. Every name that
//! comes from the kernel ends in an underscore, or in an underscore and digits, unlike all keywords and library
//! functions of these languages.

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

/// A kernel rendered as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedSource {
    /// Text of the complete program.
    pub source: String,
    /// Name of the entry point.
    pub entry: String,
    /// Bits of every index argument, and of index arithmetic: 32 or 64.
    pub index_bits: u32,
}

/// Options of rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Bits of indices: 32 or 64. With 32, every length, size and index argument of the launch must be below 2³¹, and
    /// every index expression must fit in 32 bits; [`crate::opt::index_width::index_bits`] determines this for a
    /// launch.
    pub index_bits: u32,
}

impl Options {
    /// Returns options that are valid for every launch: 64-bit indices. For a device without 64-bit integers it returns
    /// 32-bit indices, and each launch must be checked with [`crate::opt::index_width::index_bits`].
    pub fn of(target: &Target) -> Options {
        Options { index_bits: if target.int64 { 64 } else { 32 } }
    }
}

/// Renders a kernel in the target's language, valid for every launch. Expands collectives if necessary.
///
/// # Errors
///
/// Returns an unsupported error if the device lacks a type or resources that the kernel needs, or has no text format.
pub fn render(kernel: &Verified<Kernel>, target: &Target) -> Result<GeneratedSource> {
    render_with(kernel, target, &Options::of(target))
}

/// Renders a kernel in the target's language like [`render`], with options.
///
/// # Errors
///
/// Returns an unsupported error if the device lacks a type or resources that the kernel needs, or has no text format.
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
            "kernel {}: {} executes the kernel IR directly and has no text format; use a device with a text format, such as opencl",
            kernel.name, target.name
        ))),
        Language::CudaC | Language::Msl => Err(Error::unsupported(format!(
            "kernel {}: rendering as {} is not supported; render PTX or WGSL instead",
            kernel.name,
            target.language.name()
        ))),
    }
}
