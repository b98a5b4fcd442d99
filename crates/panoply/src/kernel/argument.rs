//! Arguments and launches as the generated code of `#[kernel]` creates them. Not part of the public interface.

use panoply_ir::Result;
use panoply_ir::dtype::Element;
use panoply_ir::kernel::Kernel;
pub use panoply_runtime::{AsBuffer, AsBufferMut};
use panoply_runtime::{Launch, LaunchArg};

use super::number::{KernelConstant, KernelValue};

/// Returns the launch argument of a scalar parameter.
pub fn scalar<T: KernelValue>(value: T) -> LaunchArg<'static> {
    match value.to_constant() {
        KernelConstant::Element(scalar) => LaunchArg::Scalar(scalar),
        KernelConstant::Index(index) => LaunchArg::Index(index),
    }
}

/// Returns the launch argument of a buffer that the kernel reads.
pub fn read<T: Element>(buffer: &(impl AsBuffer<T> + ?Sized)) -> LaunchArg<'_> {
    buffer.as_buffer().into()
}

/// Returns the launch argument of a buffer that the kernel reads and writes.
pub fn write<T: Element>(buffer: &mut (impl AsBufferMut<T> + ?Sized)) -> LaunchArg<'_> {
    buffer.as_buffer_mut().into()
}

/// Returns a launch of the kernel that `build` builds.
#[track_caller]
pub fn launch(build: fn() -> Result<Kernel>, args: Vec<LaunchArg<'_>>) -> Launch<'_> {
    Launch::new(build, args)
}
