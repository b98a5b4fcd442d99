//! Conversion of a verified kernel into the form that a device accepts.

use std::sync::Arc;

use panoply_compile::opt::{self, index_width};
use panoply_compile::render::{self, GeneratedSource};
use panoply_device::{DeviceInfo, Program, Signature, SourceText};
use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::target::Language;
use panoply_ir::{Result, Target, Verified};

/// Form of a kernel that a device accepts.
pub(super) enum Form {
    /// The kernel's IR, valid for every launch.
    Ir(Arc<Verified<Kernel>>),
    /// A kernel rendered as source text once the index width of a launch is known.
    Text(Box<Verified<Kernel>>),
}

pub(super) fn form(kernel: &Arc<Verified<Kernel>>, target: &Target, info: &DeviceInfo) -> Form {
    if wants_original(info) {
        return Form::Ir(kernel.clone());
    }
    let optimized = opt::optimize((**kernel).clone(), target, &opt::Options::default());
    if target.language == Language::Ir { Form::Ir(Arc::new(optimized)) } else { Form::Text(Box::new(optimized)) }
}

/// Returns true for `cpu:checked`, which looks for the author's errors and so runs the kernel as written, with all guards.
fn wants_original(info: &DeviceInfo) -> bool {
    info.variant.as_deref() == Some("checked")
}

/// Returns a program that is valid for every launch, without caching.
pub(super) fn program(kernel: &Arc<Verified<Kernel>>, target: &Target, info: &DeviceInfo) -> Result<Program> {
    match form(kernel, target, info) {
        Form::Ir(kernel) => Ok(Program::Ir(kernel)),
        Form::Text(kernel) => text(&kernel, target, render::Options::of(target).index_bits),
    }
}

/// Renders the kernel with 32-bit or 64-bit indices.
pub(super) fn text(kernel: &Verified<Kernel>, target: &Target, index_bits: u32) -> Result<Program> {
    let GeneratedSource { source, entry, index_bits } =
        render::render_with(kernel, target, &render::Options { index_bits })?;
    let signature = Signature::of(kernel, index_bits);
    Ok(Program::Text(SourceText { language: target.language, source, entry, signature }))
}

/// Returns the index width that most launches of a kernel need, estimated from a small launch.
pub(super) fn likely_bits(kernel: &Verified<Kernel>, target: &Target) -> u32 {
    const FEW: u64 = 1024;
    let args = kernel.params.iter().map(|param| match param {
        Param::Buffer(_) => FEW,
        Param::Scalar { .. } => 1,
    });
    let launch = index_width::Launch { grid: [FEW, 1, 1], args: args.collect() };
    if target.int64 { index_width::index_bits(kernel, &launch) } else { 32 }
}
