//! Determines if the counter of a counting loop can overflow.

use panoply_ir::kernel::{Expr, ExprId, Kernel};
use panoply_ir::{Alu, DType, Type};

/// Returns true if `step` plus a counter below `end` always fits the counter's type, given the index type.
pub(super) fn never_wraps(kernel: &Kernel, index: DType, end: ExprId, step: ExprId) -> bool {
    let exprs = &kernel.exprs;
    let most = |id| most(kernel, index, id);
    match (exprs.get(step), exprs.ty(end).dtype()) {
        (Expr::Index(1), _) => true,
        (Expr::Const(step), _) if step.to_i128() == 1 => true,
        (_, None) => most(end) + most(step) <= if index == DType::U32 { 1 << 32 } else { 1 << 64 },
        (_, Some(dtype)) => {
            let bits = dtype.bits() - u32::from(dtype.is_signed());
            most(end) + most(step) <= 1 << bits
        }
    }
}

/// Returns an upper bound of an integer expression, derived from its operands only. With 32-bit indices all lengths,
/// sizes and index arguments are below 2³¹; with 64-bit indices below 2⁶³.
fn most(kernel: &Kernel, index: DType, id: ExprId) -> i128 {
    let launch = if index == DType::U32 { 1 << 31 } else { 1 << 63 };
    let exprs = &kernel.exprs;
    match (exprs.get(id), exprs.ty(id)) {
        (Expr::Index(value), _) => value as i128,
        (Expr::Const(value), _) => value.to_i128(),
        (Expr::Param(_) | Expr::Len(_) | Expr::Builtin(_), Type::Index) => launch,
        (Expr::Alu(Alu::Min, args), _) => most(kernel, index, args[0]).min(most(kernel, index, args[1])),
        (_, Type::Index) => i128::from(u64::MAX),
        (_, ty) => 1 << ty.dtype().map_or(64, DType::bits),
    }
}
