//! Validation of a launch's arguments before they reach the device.
//!
//! Requirements that depend on the kernel alone (work-group size, shared memory, types, bindings) were checked when it was compiled.

use panoply_device::{Arg, Dispatch};
use panoply_ir::kernel::{Access, MAX_LAUNCH_SIZE};
use panoply_ir::{Error, Result, Scalar};

use super::argument::{LaunchArg, StorageView};
use super::grid::Grid;
use super::split_grid;
use crate::device::Device;
use crate::program::compiled_kernel::{CompiledKernel, Parameter, ParameterKind};

/// Returns the validated dispatch, or an error for the first mistake.
pub(super) fn dispatch(
    device: &Device,
    prepared: &CompiledKernel,
    grid: Grid,
    args: &[LaunchArg<'_>],
) -> Result<Dispatch> {
    if !prepared.is_for(device.raw()) {
        let message = format!("{prepared:?} cannot be launched on {device}; compile it there");
        return Err(Error::mistake(message));
    }
    if args.len() != prepared.params().len() {
        return Err(wrong_count(prepared, args.len()));
    }
    check_grid(device, prepared, grid)?;
    let mut checked = Vec::with_capacity(args.len());
    for (position, (param, arg)) in prepared.params().iter().zip(args).enumerate() {
        checked.push(argument(device, prepared, position, param, arg)?);
    }
    check_aliases(prepared, args)?;
    let (group, parts) = split_grid::split_grid(device, prepared, grid.0, &checked)?;
    Ok(Dispatch { program: prepared.program(grid.0, &checked)?, grid: grid.0, group_size: group, args: checked, parts })
}

fn check_grid(device: &Device, prepared: &CompiledKernel, grid: Grid) -> Result<()> {
    let name = prepared.name();
    if grid.0.contains(&0) {
        return Err(Error::mistake(format!(
            "kernel {name}: a grid of {grid} has no work-items; launch at least one along each axis"
        )));
    }
    // Work-groups at the edge extend beyond the grid, and their work-items count as well.
    let group = prepared.group_size().unwrap_or([1; 3]).map(u64::from);
    let items = (0..3)
        .try_fold(1u64, |items, axis| items.checked_mul(grid.0[axis].checked_next_multiple_of(group[axis].max(1))?));
    let too_many = items.is_none_or(|items| items > MAX_LAUNCH_SIZE);
    let limit = prepared.index_limit();
    if too_many || (limit < u64::MAX && grid.0.iter().any(|axis| *axis >= limit)) {
        return Err(Error::mistake(format!(
            "kernel {name}: a grid of {grid} exceeds the index range of {device}; launch it in parts"
        )));
    }
    Ok(())
}

fn argument(
    device: &Device,
    prepared: &CompiledKernel,
    position: usize,
    param: &Parameter,
    arg: &LaunchArg<'_>,
) -> Result<Arg> {
    match (param.kind, arg) {
        (ParameterKind::Scalar(dtype), LaunchArg::Scalar(value)) if value.dtype == dtype => Ok(Arg::Scalar(*value)),
        (ParameterKind::Index, LaunchArg::Index(value)) if *value < prepared.index_limit() => Ok(Arg::Index(*value)),
        (ParameterKind::Index, LaunchArg::Index(value)) => Err(too_long(device, prepared, param, *value)),
        (ParameterKind::Buffer { access: Access::In, .. }, LaunchArg::In(view) | LaunchArg::InOut(view))
        | (ParameterKind::Buffer { .. }, LaunchArg::InOut(view)) => buffer(device, prepared, position, param, view),
        (ParameterKind::Buffer { .. }, LaunchArg::In(_)) => Err(Error::mistake(format!(
            "{} is written, but was passed as read-only; pass `&mut {}`",
            which(prepared, position, param),
            param.name
        ))),
        (ParameterKind::Scalar(_) | ParameterKind::Index | ParameterKind::Buffer { .. }, _) => {
            Err(wrong_type(prepared, position, param, arg))
        }
    }
}

fn buffer(
    device: &Device,
    prepared: &CompiledKernel,
    position: usize,
    param: &Parameter,
    view: &StorageView<'_>,
) -> Result<Arg> {
    let StorageView { storage, dtype } = *view;
    if param_dtype(param) != Some(dtype) {
        return Err(wrong_type(prepared, position, param, &LaunchArg::In(*view)));
    }
    if storage.device() != device {
        return Err(Error::mistake(format!(
            "{} is on {}, but the launch is on {device}; copy it with `.to(&device)`",
            which(prepared, position, param),
            storage.device()
        )));
    }
    let size = dtype.bytes() as u64;
    let (bytes, offset) = (storage.bytes(), storage.offset());
    if bytes % size != 0 || offset % size != 0 {
        return Err(Error::mistake(format!(
            "{} has {bytes} bytes at offset {offset}, not a whole number of aligned {dtype} elements of {size} bytes",
            which(prepared, position, param)
        )));
    }
    if (offset + bytes) / size >= prepared.index_limit() {
        return Err(too_long(device, prepared, param, (offset + bytes) / size));
    }
    Ok(Arg::Buffer(storage.region()))
}

/// Checks that a written buffer overlaps no other argument.
fn check_aliases(prepared: &CompiledKernel, args: &[LaunchArg<'_>]) -> Result<()> {
    for (position, arg) in args.iter().enumerate() {
        let LaunchArg::InOut(written) = arg else { continue };
        for (other, view) in args.iter().enumerate().filter_map(|(other, arg)| Some((other, arg.view()?))) {
            if other != position && written.storage.overlaps(view.storage) {
                let params = prepared.params();
                return Err(Error::mistake(format!(
                    "kernel {}: {} is written and shares bytes with {}; pass a copy of one",
                    prepared.name(),
                    params[position].name,
                    params[other].name
                )));
            }
        }
    }
    Ok(())
}

/// Returns a description such as `kernel saxpy: argument 3 (y)`.
fn which(prepared: &CompiledKernel, position: usize, param: &Parameter) -> String {
    format!("kernel {}: argument {} ({})", prepared.name(), position + 1, param.name)
}

fn param_dtype(param: &Parameter) -> Option<panoply_ir::DType> {
    match param.kind {
        ParameterKind::Scalar(dtype) | ParameterKind::Buffer { dtype, .. } => Some(dtype),
        ParameterKind::Index => None,
    }
}

#[cold]
fn wrong_count(prepared: &CompiledKernel, given: usize) -> Error {
    let params: Vec<String> = prepared.params().iter().map(ToString::to_string).collect();
    let (name, wanted) = (prepared.name(), params.len());
    let plural = if wanted == 1 { "" } else { "s" };
    Error::mistake(format!("kernel {name} takes {wanted} argument{plural} ({}), not {given}", params.join(", ")))
}

#[cold]
fn wrong_type(prepared: &CompiledKernel, position: usize, param: &Parameter, arg: &LaunchArg<'_>) -> Error {
    let wanted = match param.kind {
        ParameterKind::Scalar(dtype) => format!("a {dtype}"),
        ParameterKind::Index => "an index".to_string(),
        ParameterKind::Buffer { dtype, .. } => format!("a buffer of {dtype}"),
    };
    let given = match arg {
        LaunchArg::Scalar(Scalar { dtype, .. }) => format!("a {dtype}"),
        LaunchArg::Index(_) => "an index".to_string(),
        LaunchArg::In(view) | LaunchArg::InOut(view) => format!("a buffer of {}", view.dtype),
    };
    Error::mistake(format!("{} is {wanted}, not {given}; convert it", which(prepared, position, param)))
}

#[cold]
fn too_long(device: &Device, prepared: &CompiledKernel, param: &Parameter, value: u64) -> Error {
    Error::unsupported(format!(
        "kernel {}: {} reaches {value}, but the index limit of {device} is {}; launch it in parts",
        prepared.name(),
        param.name,
        prepared.index_limit() - 1
    ))
}
