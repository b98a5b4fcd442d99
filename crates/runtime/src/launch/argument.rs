//! Arguments of a launch.

use panoply_ir::kernel::Access;
use panoply_ir::{DType, Element, Scalar};

use crate::memory::buffer::Buffer;
use crate::memory::storage::{Storage, StorageAccess};
use crate::program::compiled_kernel::{CompiledKernel, ParameterKind};

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum LaunchArg<'a> {
    /// A scalar.
    Scalar(Scalar),
    /// An index value: a length or position.
    Index(u64),
    /// A buffer to read.
    In(StorageView<'a>),
    /// A buffer to write, or to read and write.
    InOut(StorageView<'a>),
}

/// A storage with an element type.
#[derive(Clone, Copy, Debug)]
pub struct StorageView<'a> {
    /// The bytes.
    pub storage: &'a Storage,
    /// Element type.
    pub dtype: DType,
}

impl<'a> LaunchArg<'a> {
    /// Passes a storage to read. Typed buffers convert by `into`.
    pub fn read(storage: &'a Storage, dtype: DType) -> LaunchArg<'a> {
        LaunchArg::In(StorageView { storage, dtype })
    }

    /// Passes a storage to write, or to read and write.
    pub fn write(storage: &'a Storage, dtype: DType) -> LaunchArg<'a> {
        LaunchArg::InOut(StorageView { storage, dtype })
    }

    /// Passes a scalar of any element type.
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

/// Returns the kernel's access to each buffer among the arguments.
pub(super) fn accesses<'a>(
    prepared: &'a CompiledKernel,
    args: &'a [LaunchArg<'a>],
) -> impl Iterator<Item = StorageAccess<'a>> + Clone + 'a {
    prepared.params().iter().zip(args).filter_map(|(param, arg)| match (param.kind, arg.view()) {
        (ParameterKind::Buffer { access, .. }, Some(view)) => Some((view.storage, access)),
        (ParameterKind::Buffer { access: Access::In | Access::Out | Access::InOut, .. }, None)
        | (ParameterKind::Scalar(_) | ParameterKind::Index, _) => None,
    })
}
