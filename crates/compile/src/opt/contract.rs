//! Contraction: fuses a multiplication and an addition into one operation with a single rounding.
//!
//! Contraction changes bits, so it is not one of [`super::PASSES`]: lowering applies it if the user allowed it and the
//! target has the operation.

use std::collections::HashMap;

use panoply_ir::kernel::{Args, Expr, ExprId, Kernel};
use panoply_ir::target::Language;
use panoply_ir::{Alu, DType, MathMode, Target};

use super::walk::{KernelExt, map_block, transitive_operands};

/// Returns true if the target has a fused multiply-add.
pub(crate) fn fuses(target: &Target) -> bool {
    target.language != Language::Wgsl
}

/// Returns true if multiply-adds are fused in sums of products.
pub(crate) fn in_sums(target: &Target, math_mode: MathMode) -> bool {
    match math_mode {
        MathMode::Exact => false,
        MathMode::Standard => true,
        MathMode::Fast => fuses(target),
    }
}

/// Contracts every addition of a product in f32 or f64.
pub(crate) fn contract(mut kernel: Kernel) -> Kernel {
    let mut body = std::mem::take(&mut kernel.body);
    let mut made: HashMap<ExprId, ExprId> = HashMap::new();
    map_block(&mut body, &mut |root| {
        for id in transitive_operands(&kernel, &[root]) {
            if !made.contains_key(&id) {
                let expr = kernel.exprs.get(id).map_operands(|operand| made[&operand]);
                let expr = fused(&kernel, expr).unwrap_or(expr);
                let new = kernel.expr(expr);
                made.insert(id, new);
            }
        }
        made[&root]
    });
    Kernel { body, ..kernel }
}

fn fused(kernel: &Kernel, expr: Expr) -> Option<Expr> {
    let Expr::Alu(Alu::Add, sum) = expr else { return None };
    let [x, y] = sum[..] else { return None };
    if !matches!(kernel.exprs.ty(x).dtype(), Some(DType::F32 | DType::F64)) {
        return None;
    }
    let with = |product: ExprId, other: ExprId| match kernel.exprs.get(product) {
        Expr::Alu(Alu::Mul, factors) => Some(Expr::Alu(Alu::Fma, Args::new(&[factors[0], factors[1], other]))),
        _ => None,
    };
    with(y, x).or_else(|| with(x, y))
}
