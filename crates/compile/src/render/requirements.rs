//! Checks that a device supports a kernel, before rendering.

use panoply_ir::kernel::{ExprId, Kernel, Param, Space};
use panoply_ir::{DType, Error, Result, Target, Type};

use crate::opt::walk::live_exprs;

/// Returns an unsupported error if a kernel needs a type, group size, shared memory or bindings that the device lacks.
pub(super) fn check(kernel: &Kernel, target: &Target, index_bits: u32) -> Result<()> {
    if index_bits == 64 && !target.int64 {
        let remedy = "use 32-bit indices";
        return Err(lacks(kernel, target, "64-bit indices", remedy));
    }
    let live = live_exprs(kernel);
    for dtype in [DType::F64, DType::I64, DType::U64] {
        if !target.computes(dtype) && uses(kernel, &live, dtype) {
            let remedy = if dtype == DType::F64 { "compute in f32" } else { "compute in 32 bits" };
            return Err(lacks(kernel, target, dtype.name(), &format!("{remedy}, or choose another device")));
        }
    }
    sizes(kernel, target)
}

/// Returns true if a type is used anywhere in a kernel, given the expressions its statements need.
pub(super) fn uses(kernel: &Kernel, live: &[ExprId], dtype: DType) -> bool {
    let scalar = |param: &Param| matches!(param, Param::Scalar { ty: Type::Scalar(of), .. } if *of == dtype);
    kernel.mems.iter().any(|mem| mem.dtype == dtype)
        || kernel.params.iter().any(scalar)
        || live.iter().any(|id| kernel.exprs.ty(*id).dtype() == Some(dtype))
}

fn lacks(kernel: &Kernel, target: &Target, what: &str, remedy: &str) -> Error {
    Error::unsupported(format!("kernel {} needs {what}, which {} does not have; {remedy}", kernel.name, target.name))
}

fn sizes(kernel: &Kernel, target: &Target) -> Result<()> {
    let too_large = |what: String, limit: String| {
        Err(Error::unsupported(format!("kernel {} has {what}, {} allows {limit}", kernel.name, target.name)))
    };
    if let Some(group) = kernel.group_size {
        let items: u64 = group.iter().map(|size| *size as u64).product();
        if items > target.max_group_items as u64 {
            return too_large(format!("groups of {items} work-items"), format!("{} at most", target.max_group_items));
        }
        if let Some(axis) = (0..3).find(|axis| group[*axis] > target.max_group[*axis]) {
            let limit = format!("{} at most", target.max_group[axis]);
            return too_large(format!("groups of {} along axis {axis}", group[axis]), limit);
        }
    }
    if kernel.shared_bytes() > target.shared_bytes as u64 {
        let limit = format!("{} at most; use smaller shared arrays or groups", target.shared_bytes);
        return too_large(format!("{} bytes of shared memory", kernel.shared_bytes()), limit);
    }
    let buffers = kernel.mems.iter().filter(|mem| matches!(mem.space, Space::Buffer(_))).count();
    if buffers > target.max_bindings as usize {
        return too_large(format!("{buffers} buffers"), format!("{} at most; split the kernel", target.max_bindings));
    }
    Ok(())
}
