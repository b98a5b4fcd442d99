//! Expands transcendental functions to arithmetic, for languages whose built-in functions are too inaccurate, and
//! conversions to 16-bit floats that languages would round twice.
//!
//! The result consists of sums, products, fused multiply-adds, quotients, square roots, roundings, comparisons,
//! selections and bit operations. It is within 2 ULP for every f32 and 4 ULP for f64, as the numeric contract requires,
//! with the same bits on every device. There are no branches and no tables in memory, so the functions work on vectors
//! and inside any expression; the price is that every evaluation pays for rare cases, above all the reduction of huge
//! angles.
//!
//! Methods, polynomials and error bounds are those of `math` in the crate `cpu`, where the sources are named and every
//! f32 was tested; this is the same algorithm over expressions, with fused multiply-adds. Only the reduction of f32
//! angles differs: it uses integers.

mod double;
mod payne_hanek;
mod pow;
mod round_to_odd;
mod single;
mod value;

use std::collections::HashMap;

use panoply_ir::alu::Math as Function;
use panoply_ir::kernel::{Expr, ExprId, Kernel};
use panoply_ir::{Alu, DType, Type};

use super::walk::{KernelExt, live_exprs, map_block};
use value::{Math, V};

/// Expands transcendental functions and conversions that round twice. The result verifies if the kernel did.
pub(crate) fn expand(kernel: Kernel) -> Kernel {
    expand_some(kernel, Alu::is_transcendental)
}

/// Expands only the functions that OpenCL drivers compute too inaccurately: a tanh that stays an ulp below 1 up to
/// infinity would have a nonzero gradient there.
pub(crate) fn expand_for_opencl(kernel: Kernel) -> Kernel {
    expand_some(kernel, |op| op == Alu::Math(Function::Tanh))
}

fn expand_some(kernel: Kernel, wanted: impl Fn(Alu) -> bool) -> Kernel {
    let live = live_exprs(&kernel);
    let is_wanted = |id: &ExprId| {
        let expr = kernel.exprs.get(*id);
        matches!(expr, Expr::Alu(op, _) if wanted(op))
            || matches!(expr, Expr::Cast(to, x) if round_to_odd::rounds_twice(kernel.exprs.ty(x), to))
    };
    if !live.iter().any(is_wanted) {
        return kernel;
    }
    let math = Math::new(kernel);
    let mut made: HashMap<ExprId, ExprId> = HashMap::new();
    for id in live {
        let expr = math.expr(id).map_operands(|operand| made[&operand]);
        let new = match expr {
            Expr::Alu(op, args) if wanted(op) => function(op, args.iter().map(|arg| math.value(*arg)).collect()),
            Expr::Cast(to, x) if round_to_odd::rounds_twice(math.value(x).ty(), to) => {
                round_to_odd::cast(math.value(x), to)
            }
            other => math.add(other).id,
        };
        made.insert(id, new);
    }
    let mut kernel = math.finish();
    let mut body = std::mem::take(&mut kernel.body);
    map_block(&mut body, &mut |id| made[&id]);
    Kernel { body, ..kernel }
}

/// Expands a function of operands; 16-bit floats are computed in f32.
fn function(op: Alu, args: Vec<V<'_>>) -> ExprId {
    let ty = args[0].ty();
    let dtype = ty.dtype().expect("a transcendental function has float operands");
    if dtype == DType::F64 {
        return double(op, &args).id;
    }
    let single_args: Vec<V<'_>> = args.iter().map(|arg| arg.cast(DType::F32)).collect();
    single(op, &single_args).cast(dtype).id
}

fn single<'m>(op: Alu, args: &[V<'m>]) -> V<'m> {
    let x = args[0];
    let Alu::Math(function) = op else { return pow::pow(x, args[1], single::log2_sum, single::exp2_sum) };
    match function {
        Function::Exp => single::exp(x),
        Function::Exp2 => single::exp2(x),
        Function::Expm1 => single::expm1(x),
        Function::Log => single::ln(x),
        Function::Log2 => single::log2(x),
        Function::Log1p => single::log1p(x),
        Function::Sin => single::sin(x),
        Function::Cos => single::cos(x),
        Function::Tan => single::tan(x),
        Function::Atan => single::atan(x),
        Function::Tanh => single::tanh(x),
        Function::Erf => single::erf(x),
    }
}

fn double<'m>(op: Alu, args: &[V<'m>]) -> V<'m> {
    let x = args[0];
    let Alu::Math(function) = op else { return pow::pow(x, args[1], double::log2_sum, double::exp2_sum) };
    match function {
        Function::Exp => double::exp(x),
        Function::Exp2 => double::exp2(x),
        Function::Expm1 => double::expm1(x),
        Function::Log => double::ln(x),
        Function::Log2 => double::log2(x),
        Function::Log1p => double::log1p(x),
        Function::Sin => double::sin(x),
        Function::Cos => double::cos(x),
        Function::Tan => double::tan(x),
        Function::Atan => double::atan(x),
        Function::Tanh => double::tanh(x),
        Function::Erf => double::erf(x),
    }
}

/// Returns the type with another element type and the same lanes.
fn like(ty: Type, dtype: DType) -> Type {
    ty.with_dtype(dtype)
}

#[cfg(test)]
mod tests;
