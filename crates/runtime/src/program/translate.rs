//! A verified kernel in the form a device takes.

use std::sync::Arc;

use panoply_compile::{opt, render};
use panoply_device::{Device as RawDevice, DeviceInfo, Program, Signature, SourceText};
use panoply_ir::kernel::Kernel;
use panoply_ir::target::Language;
use panoply_ir::{Result, Verified};

/// The program to hand to the device: the kernel itself, or text.
pub(super) fn translate(kernel: &Arc<Verified<Kernel>>, raw: &Arc<dyn RawDevice>) -> Result<Program> {
    let target = raw.target();
    if wants_original(raw.info()) {
        return Ok(Program::Ir(kernel.clone()));
    }
    let kernel = opt::optimize((**kernel).clone(), target, &opt::Options::default());
    if target.language == Language::Ir {
        return Ok(Program::Ir(Arc::new(kernel)));
    }
    let rendered = render::render(&kernel, target)?;
    let signature = Signature::of(&kernel, rendered.index_bits);
    let render::Rendered { source, entry, .. } = rendered;
    Ok(Program::Text(SourceText { language: target.language, source, entry, signature }))
}

/// `cpu:checked` looks for what the author got wrong, so it takes what the author wrote: no guard proven away.
fn wants_original(info: &DeviceInfo) -> bool {
    info.variant.as_deref() == Some("checked")
}
