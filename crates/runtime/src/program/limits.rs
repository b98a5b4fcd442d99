//! Checks a kernel's requirements against the device's limits before compilation.

use std::collections::BTreeSet;

use panoply_device::DeviceInfo;
use panoply_ir::kernel::{ExprId, Kernel, Param, Space};
use panoply_ir::{DType, Error, Result, Target, Type};

use super::external_kernel::ExternalKernel;
use crate::byte_size::human;

/// Returns an error that names the first requirement that the device does not meet, and a remedy.
pub(crate) fn check(kernel: &Kernel, target: &Target, info: &DeviceInfo) -> Result<()> {
    let (name, device) = (&kernel.name, info.device_string());
    if let Some(group) = kernel.group_size {
        check_group(name, group, target, &device)?;
    }
    let shared = kernel.shared_bytes();
    if shared > target.shared_bytes as u64 {
        return Err(Error::unsupported(format!(
            "kernel {name}: a group needs {} of shared memory, {device} has {}; make the shared arrays smaller",
            human(shared),
            human(target.shared_bytes as u64)
        )));
    }
    check_private(kernel, target, &device)?;
    let bindings = kernel.params.iter().filter(|param| matches!(param, Param::Buffer(_))).count();
    check_bindings(name, bindings, target, &device)?;
    check_types(kernel, target, info)
}

/// Like [`check`], for an external kernel, of which only the work-group size and the parameters are known.
pub(crate) fn check_external(kernel: &ExternalKernel, target: &Target, info: &DeviceInfo) -> Result<()> {
    let (name, device) = (&kernel.name, info.device_string());
    if kernel.group.contains(&0) {
        let [x, y, z] = kernel.group;
        return Err(Error::mistake(format!(
            "kernel {name}: a group of {x}×{y}×{z} has no work-items; give at least one along each axis"
        )));
    }
    if name.is_empty() || name.contains('\0') {
        return Err(Error::mistake(format!("a kernel cannot be called {name:?}; give the name of its entry point")));
    }
    kernel.check_texts()?;
    check_group(name, kernel.group, target, &device)?;
    let bindings = kernel.params.iter().filter(|param| param.access().is_some()).count();
    check_bindings(name, bindings, target, &device)
}

/// Checks the private arrays of a work-group. A kernel without a fixed size can run with one work-item per group.
fn check_private(kernel: &Kernel, target: &Target, device: &str) -> Result<()> {
    let private = kernel.private_bytes();
    let items: u64 = kernel.group_size.map_or(1, |group| group.iter().map(|&items| u64::from(items)).product());
    let wanted = private.saturating_mul(items);
    if wanted <= target.private_bytes {
        return Ok(());
    }
    let smaller = if items > 1 { "make the arrays or the group smaller" } else { "make the arrays smaller" };
    Err(Error::unsupported(format!(
        "kernel {}: private arrays take {} per work-item and {} per group of {items}, but {device} has {} per group; {smaller}",
        kernel.name,
        human(private),
        human(wanted),
        human(target.private_bytes)
    )))
}

fn check_bindings(name: &str, bindings: usize, target: &Target, device: &str) -> Result<()> {
    if bindings > target.max_bindings as usize {
        return Err(Error::unsupported(format!(
            "kernel {name}: takes {bindings} buffers, {device} can bind {}; split the kernel or join buffers",
            target.max_bindings
        )));
    }
    Ok(())
}

fn check_group(name: &str, group: [u32; 3], target: &Target, device: &str) -> Result<()> {
    let [x, y, z] = group;
    let items: u64 = group.iter().map(|&items| items as u64).product();
    if items > target.max_group_items as u64 {
        return Err(Error::unsupported(format!(
            "kernel {name}: a group of {x}×{y}×{z} has {items} work-items, {device} allows {}; use a smaller group",
            target.max_group_items
        )));
    }
    let too_long = (0..3).find(|&axis| group[axis] > target.max_group[axis]);
    let Some(axis) = too_long else { return Ok(()) };
    Err(Error::unsupported(format!(
        "kernel {name}: a group of {x}×{y}×{z} is {} work-items along axis {axis}, {device} allows {}; use a smaller group",
        group[axis], target.max_group[axis]
    )))
}

/// Checks that the device supports the 64-bit types. f16 and bf16 never fail: they can always be stored, and their arithmetic is
/// emulated.
fn check_types(kernel: &Kernel, target: &Target, info: &DeviceInfo) -> Result<()> {
    for (dtype, instead) in [(DType::F64, "f32"), (DType::I64, "i32"), (DType::U64, "u32")]
        .into_iter()
        .filter(|(dtype, _)| !target.computes(*dtype))
    {
        let Some(user) = user_of(kernel, dtype) else { continue };
        return Err(Error::unsupported(format!(
            "kernel {}: {user} is {dtype}, which {} ({}) does not have; use {instead} or another device",
            kernel.name,
            info.device_string(),
            info.name
        )));
    }
    Ok(())
}

/// Returns the name of the first parameter, array or variable of this type, as shown to the user.
fn user_of(kernel: &Kernel, dtype: DType) -> Option<String> {
    let is = |ty: Type| ty.dtype() == Some(dtype);
    let scalar = kernel.params.iter().find_map(|param| match param {
        Param::Scalar { name, ty } => is(*ty).then(|| name.clone()),
        Param::Buffer(_) => None,
    });
    let mem = || {
        kernel.mems.iter().find(|mem| mem.dtype == dtype).map(|mem| match mem.space {
            Space::Buffer(_) => mem.name.clone(),
            Space::Shared(_) => format!("shared array {}", mem.name),
            Space::Private(_) => format!("array {}", mem.name),
        })
    };
    let local = || kernel.locals.iter().find(|local| is(local.ty)).map(|local| local.name.clone());
    let value = || reached(kernel).into_iter().any(|expr| is(kernel.exprs.ty(expr))).then(|| "a value".to_string());
    scalar.or_else(mem).or_else(local).or_else(value)
}

/// Returns the expressions that statements evaluate; the builder can leave unused ones.
fn reached(kernel: &Kernel) -> BTreeSet<ExprId> {
    let mut reached = BTreeSet::new();
    let mut open = Vec::new();
    kernel.walk(&mut |stmt| open.extend(stmt.op.operands()));
    while let Some(expr) = open.pop() {
        if reached.insert(expr) {
            open.extend(kernel.exprs.get(expr).operands().iter());
        }
    }
    reached
}
