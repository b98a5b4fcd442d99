//! Alignment analysis: the largest power of two known to divide each integer expression (LLVM's known trailing zeros).
//!
//! Renderers use it to emit vector accesses. Wrapping sums, differences and products preserve divisibility by powers of two,
//! so no intervals are needed. The alignment of a local is the minimum over all values assigned to it, computed as a fixed point from the most
//! optimistic assumption.

use panoply_ir::kernel::{Expr, ExprId, Kernel, Op};
use panoply_ir::{Alu, Type};

/// Largest exponent distinguished: no access needs an alignment of more than 16 elements.
const MAX_EXPONENT: u32 = 4;

/// For each expression, the exponent of a power of two that divides it, at most [`MAX_EXPONENT`].
pub(crate) struct KnownAlignment(Vec<u32>);

impl KnownAlignment {
    /// Analyzes a kernel's expressions.
    pub fn of(kernel: &Kernel) -> KnownAlignment {
        let mut locals = vec![MAX_EXPONENT; kernel.locals.len()];
        loop {
            let exprs = exponents(kernel, &locals);
            let mut after = locals.clone();
            kernel.walk(&mut |stmt| {
                let (local, exponent) = match &stmt.op {
                    Op::Let { local, value } | Op::Assign { local, value } => (local, exprs[value.index()]),
                    Op::For { counter, start, step, .. } => (counter, exprs[start.index()].min(exprs[step.index()])),
                    Op::Atomic { old: Some(local), .. } | Op::Collective { result: local, .. } => (local, 0),
                    _ => return,
                };
                after[local.index()] = after[local.index()].min(exponent);
            });
            if after == locals {
                return KnownAlignment(exprs);
            }
            locals = after;
        }
    }

    /// Returns true if an expression is known to be a multiple of `power`, a power of two up to 16.
    pub fn is_multiple_of(&self, id: ExprId, power: u32) -> bool {
        self.0[id.index()] >= power.ilog2()
    }
}

/// Returns the exponent of every expression, given those of locals.
fn exponents(kernel: &Kernel, locals: &[u32]) -> Vec<u32> {
    let exprs = &kernel.exprs;
    let mut known: Vec<u32> = Vec::with_capacity(exprs.len());
    for at in 0..exprs.len() {
        let id = ExprId(at as u32);
        let of = |id: ExprId| known[id.index()];
        let constant = |value: i128| value.trailing_zeros().min(MAX_EXPONENT);
        let exponent = match exprs.get(id) {
            _ if !is_integer(exprs.ty(id)) => 0,
            Expr::Index(value) => constant(value.into()),
            Expr::Const(value) => constant(value.to_i128()),
            Expr::Local(local) => locals[local.index()],
            Expr::Cast(_, x) if is_integer(exprs.ty(x)) => of(x),
            Expr::Alu(op, args) => match op {
                Alu::Add | Alu::Sub | Alu::Or | Alu::Xor | Alu::Min | Alu::Max | Alu::Rem => {
                    of(args[0]).min(of(args[1]))
                }
                Alu::Mul => (of(args[0]) + of(args[1])).min(MAX_EXPONENT),
                Alu::And => of(args[0]).max(of(args[1])),
                Alu::Shl => of(args[0]),
                Alu::Select => of(args[1]).min(of(args[2])),
                _ => 0,
            },
            _ => 0,
        };
        known.push(exponent);
    }
    known
}

/// Returns true for scalar integer types.
fn is_integer(ty: Type) -> bool {
    ty.is_int() && ty.lanes() == 1
}

#[cfg(test)]
mod tests {
    use panoply_ir::kernel::Op;
    use panoply_ir::{text, verify::verify};

    use super::KnownAlignment;

    /// Returns true if the index of a kernel's only store is known to be a multiple of four.
    fn stores_at_fours(body: &str) -> bool {
        let source = format!("kernel k(x: &mut [f32], y: &[f32], n: index) {{ {body} }}");
        let kernel = verify(text::parse(&source).expect("parses")).expect("verifies");
        let mut found = None;
        kernel.walk(&mut |stmt| {
            if let Op::Store { index, .. } = stmt.op {
                found = Some(KnownAlignment::of(&kernel).is_multiple_of(index, 4));
            }
        });
        found.expect("the kernel has a store")
    }

    #[test]
    fn sums_and_products_of_fours() {
        for index in ["mul(n, 4)", "add(mul(n, 68), 64)", "mul(mul(n, 2), 6)", "shl(mul(n, 4), 1)", "and(n, 12)"] {
            assert!(stores_at_fours(&format!("x[{index}] = y[0]")), "{index}");
        }
        for index in ["n", "mul(n, 2)", "add(mul(n, 4), 2)", "mul(n, 3)", "div(mul(n, 8), 2)", "shr(mul(n, 4), 1)"] {
            assert!(!stores_at_fours(&format!("x[{index}] = y[0]")), "{index}");
        }
        assert!(!stores_at_fours("x[cast<index>(y[0])] = y[0]"), "a cast from a float has no known alignment");
    }

    #[test]
    fn locals_have_the_alignment_of_all_their_values() {
        let counted = |start: u64, step: u64| {
            stores_at_fours(&format!(
                "let mut last: index = 0\n for at: index in {start}..64 step {step} {{ last = add(last, at) }}\n x[last] = y[0]"
            ))
        };
        assert!(counted(0, 4) && counted(16, 8));
        assert!(!counted(2, 4) && !counted(0, 6));
    }
}
