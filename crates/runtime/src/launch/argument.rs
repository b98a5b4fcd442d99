//! What a launch passes.

use panoply_ir::kernel::Access;
use panoply_ir::{DType, Element, Scalar};

use crate::memory::buffer::Buffer;
use crate::memory::storage::{Storage, Touch};
use crate::program::compiled_kernel::{CompiledKernel, ParameterKind};

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum LaunchArg<'a> {
    /// A number.
    Scalar(Scalar),
    /// A length or position.
    Index(u64),
    /// Elements to read.
    In(StorageView<'a>),
    /// Elements to write, or to read and write.
    InOut(StorageView<'a>),
}

/// A storage and what its bytes are.
#[derive(Clone, Copy, Debug)]
pub struct StorageView<'a> {
    /// The bytes.
    pub storage: &'a Storage,
    /// Their elements.
    pub dtype: DType,
}

impl<'a> LaunchArg<'a> {
    /// A storage to read. Typed buffers convert by `into`.
    pub fn read(storage: &'a Storage, dtype: DType) -> LaunchArg<'a> {
        LaunchArg::In(StorageView { storage, dtype })
    }

    /// A storage to write, or to read and write.
    pub fn write(storage: &'a Storage, dtype: DType) -> LaunchArg<'a> {
        LaunchArg::InOut(StorageView { storage, dtype })
    }

    /// A number of any element type.
    pub fn scalar(value: impl Into<Scalar>) -> LaunchArg<'static> {
        LaunchArg::Scalar(value.into())
    }

    pub(super) fn view(&self) -> Option<&StorageView<'a>> {
        match self {
            LaunchArg::In(view) | LaunchArg::InOut(view) => Some(view),
            LaunchArg::Scalar(_) | LaunchArg::Index(_) => None,
        }
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for LaunchArg<'a> {
    fn from(buffer: &'a Buffer<T>) -> LaunchArg<'a> {
        LaunchArg::read(buffer.storage(), T::DTYPE)
    }
}

impl<'a, T: Element> From<&'a mut Buffer<T>> for LaunchArg<'a> {
    fn from(buffer: &'a mut Buffer<T>) -> LaunchArg<'a> {
        LaunchArg::write(buffer.storage(), T::DTYPE)
    }
}

impl From<Scalar> for LaunchArg<'_> {
    fn from(value: Scalar) -> Self {
        LaunchArg::Scalar(value)
    }
}

impl From<usize> for LaunchArg<'_> {
    fn from(value: usize) -> Self {
        LaunchArg::Index(value as u64)
    }
}

macro_rules! from_scalar {
    ($($ty:ty),*) => {$(
        impl From<$ty> for LaunchArg<'_> {
            fn from(value: $ty) -> Self {
                LaunchArg::Scalar(value.into())
            }
        }
    )*};
}

from_scalar!(bool, i8, i16, i32, i64, u8, u16, u32, u64, panoply_ir::f16, panoply_ir::bf16, f32, f64);

/// What a launch does to each buffer it is given; the kernel says which it writes.
pub(super) fn touches<'a>(
    prepared: &'a CompiledKernel,
    args: &'a [LaunchArg<'a>],
) -> impl Iterator<Item = Touch<'a>> + Clone + 'a {
    prepared.params().iter().zip(args).filter_map(|(param, arg)| match (param.kind, arg.view()) {
        (ParameterKind::Buffer { access, .. }, Some(view)) => Some((view.storage, access)),
        (ParameterKind::Buffer { access: Access::In | Access::Out | Access::InOut, .. }, None)
        | (ParameterKind::Scalar(_) | ParameterKind::Index, _) => None,
    })
}
