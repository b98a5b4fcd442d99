//! A verified kernel in the form a device takes.

use std::sync::Arc;

use panoply_compile::opt::{self, index_width};
use panoply_compile::render::{self, GeneratedSource};
use panoply_device::{DeviceInfo, Program, Signature, SourceText};
use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::target::Language;
use panoply_ir::{Result, Target, Verified};

/// What a device is given.
pub(super) enum Form {
    /// The kernel itself, right for every launch.
    Ir(Arc<Verified<Kernel>>),
    /// Text, rendered when it is known how wide its indices must be.
    Text(Box<Verified<Kernel>>),
}

pub(super) fn form(kernel: &Arc<Verified<Kernel>>, target: &Target, info: &DeviceInfo) -> Form {
    if wants_original(info) {
        return Form::Ir(kernel.clone());
    }
    let optimized = opt::optimize((**kernel).clone(), target, &opt::Options::default());
    if target.language == Language::Ir { Form::Ir(Arc::new(optimized)) } else { Form::Text(Box::new(optimized)) }
}

/// `cpu:checked` looks for what the author got wrong, so it takes what the author wrote: no guard proven away.
fn wants_original(info: &DeviceInfo) -> bool {
    info.variant.as_deref() == Some("checked")
}

/// The whole way at once, for who takes no part in caching: a program that is right for every launch.
pub(super) fn program(kernel: &Arc<Verified<Kernel>>, target: &Target, info: &DeviceInfo) -> Result<Program> {
    match form(kernel, target, info) {
        Form::Ir(kernel) => Ok(Program::Ir(kernel)),
        Form::Text(kernel) => text(&kernel, target, render::Options::of(target).index_bits),
    }
}

/// The text with indices of 32 or 64 bits.
pub(super) fn text(kernel: &Verified<Kernel>, target: &Target, index_bits: u32) -> Result<Program> {
    let GeneratedSource { source, entry, index_bits } =
        render::render_with(kernel, target, &render::Options { index_bits })?;
    let signature = Signature::of(kernel, index_bits);
    Ok(Program::Text(SourceText { language: target.language, source, entry, signature }))
}

/// The width of indices that most launches of a kernel will want, judged by a small one.
pub(super) fn likely_bits(kernel: &Verified<Kernel>, target: &Target) -> u32 {
    const FEW: u64 = 1024;
    let args = kernel.params.iter().map(|param| match param {
        Param::Buffer(_) => FEW,
        Param::Scalar { .. } => 1,
    });
    let launch = index_width::Launch { grid: [FEW, 1, 1], args: args.collect() };
    if target.int64 { index_width::index_bits(kernel, &launch) } else { 32 }
}
