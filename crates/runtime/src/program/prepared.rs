//! A kernel ready to launch on a device.

use std::fmt;
use std::sync::Arc;

use panoply_device::{Device as RawDevice, ProgramId};
use panoply_ir::kernel::{Access, Expr, Guard, Kernel, Op, Param, Space};
use panoply_ir::{DType, Type};

/// A kernel ready to launch on a device. The last to hold it lets the device forget it.
pub struct Prepared {
    raw: Arc<dyn RawDevice>,
    name: Arc<str>,
    params: Vec<Parameter>,
    group: Option<[u32; 3]>,
    unchecked: bool,
    program: ProgramId,
    index_bits: u32,
}

/// What a launch passes in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the kernel.
    pub name: String,
    /// What it takes.
    pub kind: ParameterKind,
}

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A number.
    Scalar(DType),
    /// A length or position.
    Index,
    /// Elements on the device.
    Buffer {
        /// Their type.
        dtype: DType,
        /// What the kernel does to them.
        access: Access,
    },
}

impl Prepared {
    pub(super) fn new(raw: Arc<dyn RawDevice>, kernel: &Kernel, program: ProgramId, index_bits: u32) -> Prepared {
        let params = kernel.params.iter().map(|param| parameter(kernel, param)).collect();
        let (name, group) = (kernel.name.as_str().into(), kernel.group);
        Prepared { raw, name, params, group, unchecked: is_unchecked(kernel), program, index_bits }
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a launch passes, in order.
    pub fn params(&self) -> &[Parameter] {
        &self.params
    }

    /// The group size the kernel fixes, if it does.
    pub fn group(&self) -> Option<[u32; 3]> {
        self.group
    }

    /// Whether the author answers for bounds or uniformity, so that launching it is unsafe.
    pub fn is_unchecked(&self) -> bool {
        self.unchecked
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn program(&self) -> ProgramId {
        self.program
    }

    /// Lengths, sizes and index arguments of a launch must be below this.
    pub(crate) fn index_limit(&self) -> u64 {
        if self.index_bits < 64 { 1 << (self.index_bits - 1) } else { u64::MAX }
    }

    pub(crate) fn is_for(&self, raw: &Arc<dyn RawDevice>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.raw), Arc::as_ptr(raw))
    }
}

fn parameter(kernel: &Kernel, param: &Param) -> Parameter {
    match param {
        Param::Scalar { name, ty } => {
            let kind = ty.dtype().map_or(ParameterKind::Index, ParameterKind::Scalar);
            Parameter { name: name.clone(), kind }
        }
        Param::Buffer(mem) => {
            let mem = kernel.mem(*mem);
            let access = match mem.space {
                Space::Buffer(access) => access,
                Space::Shared(_) | Space::Private(_) => unreachable!("a verified kernel's parameters are buffers"),
            };
            Parameter { name: mem.name.clone(), kind: ParameterKind::Buffer { dtype: mem.dtype, access } }
        }
    }
}

fn is_unchecked(kernel: &Kernel) -> bool {
    let loads = || kernel.exprs.iter().any(|(_, expr, _)| matches!(expr, Expr::Load { guard: Guard::Unchecked, .. }));
    let mut stores = false;
    kernel.walk(&mut |stmt| {
        let (Op::Store { guard, .. } | Op::Atomic { guard, .. }) = &stmt.op else { return };
        stores |= *guard == Guard::Unchecked;
    });
    kernel.unchecked || stores || loads()
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.raw.release(self.program);
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ParameterKind::Scalar(dtype) => write!(f, "{}: {dtype}", self.name),
            ParameterKind::Index => write!(f, "{}: {}", self.name, Type::Index),
            ParameterKind::Buffer { dtype, access: Access::In } => write!(f, "{}: &[{dtype}]", self.name),
            ParameterKind::Buffer { dtype, access: Access::Out | Access::InOut } => {
                write!(f, "{}: &mut [{dtype}]", self.name)
            }
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<String> = self.params.iter().map(ToString::to_string).collect();
        write!(f, "kernel {}({}) on {}", self.name, params.join(", "), self.raw.info().spelling())
    }
}
