//! Counts of a kernel's floating-point operations, derived from its IR, for profiles.
//!
//! Arithmetic with a float result counts once per lane, a fused multiply-add twice, a function such as `exp` once. Comparisons, selects
//! and conversions do not count. A statement computes shared subexpressions once. Conditions without an else branch count as true, and
//! loops as if they never end early.

use crate::alu::Alu;
use crate::kernel::{Block, CollectiveOp, Expr, ExprId, Exprs, Kernel, Mma, Op};
use crate::routine::Routine;

/// Returns the operations of one work-item; `None` if the number of iterations of a loop depends on the launch or on data.
pub fn per_item(kernel: &Kernel) -> Option<u64> {
    block(&kernel.exprs, &kernel.body)
}

/// Returns the operations of a routine; `None` if it is not float arithmetic.
pub fn of(routine: &Routine) -> Option<u64> {
    let times =
        |factors: &[usize]| factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor as u64));
    match routine {
        Routine::Gemm(gemm) if gemm.dtype.is_float() => times(&[2, gemm.batch, gemm.m, gemm.n, gemm.k]),
        Routine::QuantizedMatmul(of) => times(&[2, of.m, of.n, of.k]),
        Routine::ExpertMatmul(of) => times(&[2, of.m, of.used, of.n, of.k]),
        // Lengths are data.
        Routine::CachedAttention(_) => None,
        Routine::Conv(conv) | Routine::ConvBackwardData(conv) | Routine::ConvBackwardFilter(conv) => {
            let ([a, b, c], [d, e, f]) = (conv.sizes(), conv.positions());
            times(&[2, conv.batch, conv.groups, conv.inputs, conv.outputs, a, b, c, d, e, f])
        }
        // Only the products: the exponentials of the scores are few in comparison.
        Routine::Attention(of) => times(&[2, of.batch, of.heads, of.scores(), of.width.saturating_add(of.depth)]),
        // The scores again, their gradient from the values, and the gradient of each operand.
        Routine::AttentionBackward(of) => times(&[
            2,
            of.batch,
            of.heads,
            of.scores(),
            of.width.saturating_mul(3).saturating_add(of.depth.saturating_mul(2)),
        ]),
        Routine::SolveTriangular(of) => times(&[of.batch, of.size, of.size, of.columns]),
        Routine::Cholesky(of) => times(&[of.batch, of.size, of.size, of.size]).map(|cube| cube / 3),
        Routine::Lu(of) => times(&[2, of.batch, of.size, of.size, of.size]).map(|cube| cube / 3),
        // The reflections and their product each take 2 · rows · columns² - 2/3 · columns³.
        Routine::Qr(of) => {
            let square = times(&[4, of.batch, of.columns, of.columns])?;
            square.checked_mul(of.rows.saturating_mul(3).saturating_sub(of.columns) as u64).map(|sum| sum / 3)
        }
        // Reduction to tridiagonal form, 4/3 · size³, its eigenvectors, about the same, and applying the reflections to them, 2 · size³.
        Routine::Eigh(of) => times(&[14, of.batch, of.size, of.size, of.size]).map(|cube| cube / 3),
        Routine::Gemm(_) | Routine::MaxPoolBackward(_) | Routine::Sort(_) | Routine::Scatter(_) => None,
        Routine::Fourier(of) => of.flops(),
    }
}

fn block(exprs: &Exprs, stmts: &Block) -> Option<u64> {
    stmts.iter().try_fold(0u64, |sum, stmt| {
        let own = expressions(exprs, &stmt.op.operands());
        let inside = match &stmt.op {
            Op::If { then, otherwise, .. } => block(exprs, then)?.max(block(exprs, otherwise)?),
            Op::For { start, end, step, body, .. } => match block(exprs, body)? {
                0 => 0,
                each => each.checked_mul(iterations(exprs, *start, *end, *step)?)?,
            },
            Op::While { condition, body } => match block(exprs, body)? + expressions(exprs, &[*condition]) {
                0 => 0,
                _ => return None,
            },
            Op::Collective { op: CollectiveOp::Mma(_), .. } => u64::from(2 * Mma::K) * u64::from(Mma::ELEMENTS),
            Op::Collective { value, .. } => u64::from(exprs.ty(*value).is_float()),
            Op::Let { .. } | Op::Assign { .. } | Op::Store { .. } | Op::Atomic { .. } => 0,
            Op::Barrier | Op::Break | Op::Continue | Op::Return => 0,
        };
        sum.checked_add(own)?.checked_add(inside)
    })
}

/// Counts the operations of some expressions, each shared expression once.
fn expressions(exprs: &Exprs, roots: &[ExprId]) -> u64 {
    let (mut pending, mut seen, mut sum) = (roots.to_vec(), Vec::new(), 0);
    while let Some(id) = pending.pop() {
        if seen.contains(&id) {
            continue;
        }
        seen.push(id);
        let expr = exprs.get(id);
        pending.extend(expr.operands().iter());
        sum += match expr {
            Expr::Alu(Alu::Select, _) => 0,
            Expr::Alu(op, _) if exprs.ty(id).is_float() => {
                (1 + u64::from(op == Alu::Fma)) * u64::from(exprs.ty(id).lanes())
            }
            Expr::Alu(..) | Expr::Cast(..) | Expr::Bitcast(..) | Expr::Splat(..) | Expr::Extract(..) => 0,
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Builtin(_) | Expr::Len(_) => 0,
            Expr::Local(_) | Expr::Load { .. } => 0,
        };
    }
    sum
}

fn iterations(exprs: &Exprs, start: ExprId, end: ExprId, step: ExprId) -> Option<u64> {
    let number = |id| match exprs.get(id) {
        Expr::Index(value) => Some(value),
        Expr::Const(value) if exprs.ty(id).is_int() => u64::try_from(value.to_i128()).ok(),
        _ => None,
    };
    let (start, end, step) = (number(start)?, number(end)?, number(step)?);
    Some(end.saturating_sub(start).div_ceil(step.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    fn counted(body: &str) -> Option<u64> {
        per_item(&parse(&format!("kernel k(x: &[f32], y: &mut [f32], n: index) {{\n{body}\n}}\n")).expect("it parses"))
    }

    #[test]
    fn float_arithmetic_is_counted() {
        let at = "global_id.x";
        assert_eq!(counted(&format!("y[{at}] = add(mul(x[{at}], 2.0f32), x[add({at}, 1)])")), Some(2));
        assert_eq!(counted(&format!("y[{at}] = fma(x[{at}], 2.0f32, exp(x[{at}]))")), Some(3));
        assert_eq!(counted(&format!("y[{at}] = select(lt(x[{at}], 0.0f32), x[{at}], 1.0f32)")), Some(0));
    }

    #[test]
    fn loops_with_constant_bounds_are_counted() {
        let body = "y[k] = mul(x[k], x[k])";
        assert_eq!(counted(&format!("for k: index in 3..10 step 2 {{\n{body}\n}}")), Some(4));
        assert_eq!(counted(&format!("for k: index in 0..n {{\n{body}\n}}")), None);
        assert_eq!(counted("for k: index in 0..n {\ny[k] = x[k]\n}"), Some(0));
        assert_eq!(counted(&format!("for k: index in 0..8 {{\nif lt(k, n) {{\n{body}\n}}\n}}")), Some(8));
    }
}
