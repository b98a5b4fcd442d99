//! Rules for casts and bitcasts. An index is treated as u64; where it is narrower, the values in a launch give the same
//! results.

use panoply_ir::interpret::scalar;
use panoply_ir::kernel::{Expr, ExprId};
use panoply_ir::{DType, Type};

use super::Folder;

impl Folder<'_> {
    pub(super) fn cast(&mut self, ty: Type, x: ExprId) -> Option<ExprId> {
        if self.ty(x) == ty {
            return Some(x);
        }
        let to = element(ty);
        if let Some(value) = self.constant(x) {
            return Some(self.literal(ty, scalar::cast(to, value)));
        }
        let Expr::Cast(_, inner) = self.get(x) else { return None };
        let (from, by_way_of) = (element(self.ty(inner)), element(self.ty(x)));
        (is_skippable(from, by_way_of, to)).then(|| self.make(Expr::Cast(ty, inner)))
    }

    pub(super) fn bitcast(&mut self, ty: Type, x: ExprId) -> Option<ExprId> {
        if self.ty(x) == ty {
            return Some(x);
        }
        if let Some(value) = self.constant(x) {
            return Some(self.literal(ty, scalar::bitcast(element(ty), value)));
        }
        let Expr::Bitcast(_, inner) = self.get(x) else { return None };
        Some(self.make(Expr::Bitcast(ty, inner)))
    }
}

fn element(ty: Type) -> DType {
    ty.dtype().unwrap_or(DType::U64)
}

/// Returns true if `from as by_way_of as to` equals `from as to`.
fn is_skippable(from: DType, by_way_of: DType, to: DType) -> bool {
    // A bool can be converted through integers as 0 and 1, but a conversion through bool cannot be skipped.
    let lossless = contains(by_way_of, from);
    if by_way_of == DType::Bool || to == DType::Bool && !lossless {
        return false;
    }
    match (from.is_float(), by_way_of.is_float(), to.is_float()) {
        // For integers only, the low bits determine the result.
        (false, false, false) => lossless || to.bits() <= by_way_of.bits(),
        // An exact intermediate float: the original integer must not saturate in the result type.
        (false, true, false) => lossless && (to == DType::Bool || contains(to, from)),
        _ => lossless,
    }
}

/// Returns true if every value of one type is a value of the other.
fn contains(outer: DType, inner: DType) -> bool {
    // Returns the bits of integers that a type represents exactly: for a float its significand.
    let exact = |dtype: DType| match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        DType::F64 => 53,
        _ => dtype.bits() - u32::from(dtype.is_signed()),
    };
    match (outer.is_float(), inner.is_float()) {
        (true, true) => outer == inner || outer == DType::F64 || outer == DType::F32 && inner != DType::F64,
        (false, true) => false,
        (true, false) => exact(outer) >= inner.bits(),
        (false, false) => (outer.is_signed() || !inner.is_signed()) && exact(outer) >= exact(inner),
    }
}
