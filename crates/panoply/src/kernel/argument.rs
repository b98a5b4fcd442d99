//! The launch that a kernel's function prepares. Not part of the public interface.

use panoply_ir::Result;
use panoply_ir::dtype::Element;
use panoply_ir::kernel::Kernel;
pub use panoply_runtime::{AsBuffer, AsBufferMut};
use panoply_runtime::{Launch, LaunchArg};

use super::number::{KernelConstant, KernelValue};

/// A number.
pub fn scalar<T: KernelValue>(value: T) -> LaunchArg<'static> {
    match value.to_constant() {
        KernelConstant::Element(scalar) => LaunchArg::Scalar(scalar),
        KernelConstant::Index(index) => LaunchArg::Index(index),
    }
}

/// A buffer to read.
pub fn read<T: Element>(buffer: &(impl AsBuffer<T> + ?Sized)) -> LaunchArg<'_> {
    buffer.as_buffer().into()
}

/// A buffer to read and write.
pub fn write<T: Element>(buffer: &mut (impl AsBufferMut<T> + ?Sized)) -> LaunchArg<'_> {
    buffer.as_buffer_mut().into()
}

/// The launch.
#[track_caller]
pub fn launch(build: fn() -> Result<Kernel>, args: Vec<LaunchArg<'_>>) -> Launch<'_> {
    Launch::new(build, args)
}
