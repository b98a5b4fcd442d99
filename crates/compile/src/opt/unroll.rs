//! Fully unrolls short loops with constant bounds, inner loops first.
//!
//! Each iteration becomes a copy of the body with a constant counter and separate locals. A loop with `break` or
//! `continue` is not unrolled, nor is one whose copies would exceed [`MAX_WORK`].

use std::collections::HashMap;

use panoply_ir::kernel::{Block, Expr, ExprId, Kernel, Op};
use panoply_ir::target::Language;
use panoply_ir::{Alu, Scalar, Type};

use super::Context;
use super::clone::BlockCloner;
use super::walk::{KernelExt, transitive_operands, visit};

/// Returns the maximum iterations of a loop that is unrolled. The CPU's vector machine, which executes the IR directly,
/// runs loop control once for a block of work-items, at negligible cost: unrolling gains only constant folding there.
fn max_iterations(language: Language) -> i128 {
    match language {
        Language::Ir => 4,
        Language::OpenClC
        | Language::Hip
        | Language::Ptx { .. }
        | Language::Wgsl
        | Language::SpirV
        | Language::CudaC
        | Language::Msl => 16,
    }
}

/// Maximum work of all copies, counted in statements and in the operations they evaluate.
const MAX_WORK: usize = 512;

/// Work counted for a math function in WGSL without f64, where it is expanded to arithmetic: a dozen fused multiply-adds, each some eighty
/// operations if the device has none. Ten consecutive `exp` took SwiftShader half a minute. Targets with f64 count a
/// function as one: lavapipe, which has f64 and fused multiply-adds, does not finish compiling one loop of them inside
/// another.
const SHADER_MATH_WORK: usize = 64;

/// Runs the pass.
pub(super) fn run(mut kernel: Kernel, context: &mut Context<'_>) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let mut unroller = Unroller { kernel, context };
    let body = unroller.block(body);
    Kernel { body, ..unroller.kernel }
}

/// State of the pass.
struct Unroller<'c, 't> {
    kernel: Kernel,
    context: &'c mut Context<'t>,
}

impl Unroller<'_, '_> {
    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for mut stmt in block {
            for inner in stmt.op.blocks_mut() {
                *inner = self.block(std::mem::take(inner));
            }
            match self.iterations(&stmt.op) {
                Some(iterations) if self.context.fuel.spend() => self.unroll(&stmt.op, &iterations, &mut out),
                _ => out.push(stmt),
            }
        }
        out
    }

    /// Returns the counter's values if the statement is a loop worth unrolling.
    fn iterations(&self, op: &Op) -> Option<Vec<i128>> {
        let Op::For { start, end, step, body, .. } = op else { return None };
        let (start, end, step) = (self.constant(*start)?, self.constant(*end)?, self.constant(*step)?);
        let iterations = (end - start + step - 1).div_euclid(step);
        if !(1..=max_iterations(self.context.target.language)).contains(&iterations) || leaves_early(body) {
            return None;
        }
        (self.work(body) * iterations as usize <= MAX_WORK)
            .then(|| (0..iterations).map(|iteration| start + iteration * step).collect())
    }

    fn constant(&self, id: ExprId) -> Option<i128> {
        match self.kernel.exprs.get(id) {
            Expr::Index(value) => Some(value as i128),
            Expr::Const(value) => Some(value.to_i128()),
            _ => None,
        }
    }

    /// Returns the work of one iteration, in the unit of [`MAX_WORK`].
    fn work(&self, body: &Block) -> usize {
        let mut work = 0;
        let target = self.context.target;
        let expands_math = target.language == Language::Wgsl && !target.f64;
        let count = |id: &ExprId| match self.kernel.exprs.get(*id) {
            Expr::Alu(Alu::Math(_) | Alu::Pow, _) if expands_math => SHADER_MATH_WORK,
            _ => 1,
        };
        visit(body, &mut |op| {
            work += 1 + transitive_operands(&self.kernel, &op.operands()).iter().map(count).sum::<usize>()
        });
        work
    }

    /// Appends a copy of a loop's body for each value of its counter.
    fn unroll(&mut self, op: &Op, iterations: &[i128], out: &mut Block) {
        let Op::For { counter, body, .. } = op else { unreachable!("only loops are unrolled") };
        let ty = self.kernel.local(*counter).ty;
        let read = self.kernel.expr(Expr::Local(*counter));
        for (iteration, value) in iterations.iter().enumerate() {
            let value = match ty.dtype() {
                None => self.kernel.index(*value as u64),
                Some(dtype) => self.kernel.expr(Expr::Const(Scalar::from_i128(dtype, *value))),
            };
            debug_assert!(matches!(ty, Type::Index | Type::Scalar(_)));
            let mut cloner = BlockCloner::replacing(HashMap::from([(read, value)]));
            // The first copy can keep the body's own locals.
            let mut body = body.clone();
            cloner.rewrite(&mut self.kernel, &mut body, iteration > 0);
            out.append(&mut body);
        }
    }
}

/// Returns true if a block contains a `break` or `continue` of the enclosing loop.
fn leaves_early(block: &Block) -> bool {
    block.iter().any(|stmt| match &stmt.op {
        Op::Break | Op::Continue => true,
        Op::If { then, otherwise, .. } => leaves_early(then) || leaves_early(otherwise),
        // A break or continue in a nested loop belongs to that loop.
        Op::For { .. } | Op::While { .. } => false,
        Op::Let { .. }
        | Op::Assign { .. }
        | Op::Store { .. }
        | Op::Atomic { .. }
        | Op::Collective { .. }
        | Op::Barrier
        | Op::Return => false,
    })
}
