//! Type checking of expressions: recomputes the type of each.

use super::{broken, tables::legal};
use crate::dtype::{DType, Type};
use crate::error::Result;
use crate::kernel::*;

/// Checks every expression of the arena, used or not.
pub(super) fn check(kernel: &Kernel) -> Result<()> {
    for (id, expr, ty) in kernel.exprs.iter() {
        let wrong = |message: String| broken(kernel, Loc::default(), format!("expression {}: {message}", id.0));
        if let Some(operand) = expr.operands().iter().find(|operand| **operand >= id) {
            return Err(wrong(format!("operand {} does not come before it", operand.0)));
        }
        let computed = type_of(kernel, expr).map_err(wrong)?;
        if computed != ty {
            return Err(wrong(format!("it is {computed}, not {ty}")));
        }
    }
    Ok(())
}

/// Returns the type of an expression, whose operands must be in the kernel's arena.
///
/// # Errors
/// The violated typing rule.
pub fn type_of(kernel: &Kernel, expr: Expr) -> Result<Type, String> {
    let ty = |id: ExprId| kernel.exprs.ty(id);
    match expr {
        Expr::Const(value) => {
            let bits = value.dtype.bits();
            if bits < 64 && value.bits >> bits != 0 {
                return Err(format!("{:#x} has more bits than a {}", value.bits, value.dtype));
            }
            Ok(Type::Scalar(value.dtype))
        }
        Expr::Index(_) => Ok(Type::Index),
        Expr::Param(position) => match kernel.params.get(position as usize) {
            Some(Param::Scalar { ty, .. }) => Ok(*ty),
            Some(Param::Buffer(mem)) => Err(format!("{} is a buffer and has no value", name_of(kernel, *mem)?)),
            None => Err(format!("unknown parameter {position}; there are {}", kernel.params.len())),
        },
        Expr::Local(local) => match kernel.locals.get(local.index()) {
            Some(local) => Ok(local.ty),
            None => Err(format!("unknown local {}; there are {}", local.0, kernel.locals.len())),
        },
        Expr::Builtin(builtin) => builtin_type(kernel, builtin),
        Expr::Len(mem) => name_of(kernel, mem).map(|_| Type::Index),
        Expr::Load { mem, index, lanes, guard } => {
            let name = name_of(kernel, mem)?;
            let memory = kernel.mem(mem);
            if memory.space == Space::Buffer(Access::Out) {
                return Err(format!("{name} is write-only and cannot be read; make it an InOut buffer"));
            }
            if ty(index) != Type::Index {
                return Err(format!("{name} is indexed with {}, not an index", ty(index)));
            }
            proven(kernel, mem, index, lanes, guard)?;
            vector(memory.dtype, lanes)
        }
        Expr::Alu(op, args) => {
            let types: Vec<Type> = args.iter().map(|arg| ty(*arg)).collect();
            op.result_type(&types)
        }
        Expr::Cast(to, value) if to.lanes() == ty(value).lanes() && legal(to) => Ok(to),
        Expr::Cast(to, value) => Err(format!("a {} cannot be cast to {to}: the lanes differ", ty(value))),
        Expr::Bitcast(to, value) => {
            let shape = |ty: Type| ty.dtype().map(|dtype| (dtype.bits(), ty.lanes()));
            if shape(to).is_none() || shape(to) != shape(ty(value)) || !legal(to) {
                return Err(format!("the bits of a {} cannot be read as {to}: the widths differ", ty(value)));
            }
            Ok(to)
        }
        Expr::Splat(value, lanes) => match ty(value) {
            Type::Scalar(dtype) if lanes > 1 => vector(dtype, lanes),
            other => Err(format!("{other} cannot be broadcast to {lanes} lanes")),
        },
        Expr::Extract(value, lane) => match ty(value) {
            Type::Vector(dtype, lanes) if lane < lanes => Ok(Type::Scalar(dtype)),
            other => Err(format!("{other} has no lane {lane}")),
        },
    }
}

/// Rejects a proven access with a constant index that is out of bounds of an array.
pub(super) fn proven(kernel: &Kernel, mem: MemId, index: ExprId, lanes: u8, guard: Guard) -> Result<(), String> {
    let memory = kernel.mem(mem);
    let len = match memory.space {
        Space::Shared(len) | Space::Private(len) => len as u64,
        Space::Buffer(_) => return Ok(()),
    };
    match kernel.exprs.get(index) {
        Expr::Index(first) if guard == Guard::Proven && first.saturating_add(lanes as u64) > len => {
            Err(format!("index {first} is claimed to be proven, but {} has {len} elements", memory.name))
        }
        _ => Ok(()),
    }
}

/// Returns the name of a memory, if it exists.
pub(super) fn name_of(kernel: &Kernel, mem: MemId) -> Result<&str, String> {
    match kernel.mems.get(mem.index()) {
        Some(memory) => Ok(&memory.name),
        None => Err(format!("unknown memory {}; there are {}", mem.0, kernel.mems.len())),
    }
}

fn vector(dtype: DType, lanes: u8) -> Result<Type, String> {
    let ty = if lanes == 1 { Type::Scalar(dtype) } else { Type::Vector(dtype, lanes) };
    if legal(ty) { Ok(ty) } else { Err(format!("{lanes} lanes; a vector has 2, 4, 8 or 16")) }
}

fn builtin_type(kernel: &Kernel, builtin: Builtin) -> Result<Type, String> {
    let (name, axis, needs_group) = match builtin {
        Builtin::GlobalId(axis) => ("global id", axis, false),
        Builtin::GlobalSize(axis) => ("global size", axis, false),
        Builtin::LocalId(axis) => ("local id", axis, true),
        Builtin::GroupId(axis) => ("group id", axis, true),
        Builtin::GroupSize(axis) => ("group size", axis, true),
        Builtin::GroupCount(axis) => ("group count", axis, true),
        Builtin::SubgroupLane => ("subgroup lane", 0, true),
        Builtin::SubgroupSize => ("subgroup size", 0, true),
    };
    if axis > 2 {
        return Err(format!("{name} along axis {axis}; axes are 0, 1 and 2"));
    }
    if needs_group && kernel.group_size.is_none() {
        return Err(format!("the {name} in a kernel without a group size; fix one"));
    }
    Ok(Type::Index)
}
