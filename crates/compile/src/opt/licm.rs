//! Loop-invariant code motion: hoists loop-invariant expressions out of loops.
//!
//! Inner loops come first, so that expressions hoisted out of one loop can be hoisted out of the next. Only expressions
//! worth a local are hoisted, and only those evaluated directly in the body or its condition: expressions under an `if`
//! might not be needed. A hoisted expression can be evaluated where it was not evaluated before. All expressions are
//! pure, and every load is guarded again, because the proof or promise that it is in bounds can depend on the loop.

use std::collections::HashMap;

use panoply_ir::kernel::{Block, Expr, ExprId, Guard, Kernel, Op, Stmt};

use super::Context;
use super::effects::{Effects, ExprDeps};
use super::walk::{KernelExt, map_block, map_operands, rebuild};

/// Runs the pass.
pub(super) fn run(mut kernel: Kernel, context: &mut Context<'_>) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let mut hoister = LoopHoister { kernel, context };
    let body = hoister.block(body);
    Kernel { body, ..hoister.kernel }
}

struct LoopHoister<'c, 't> {
    kernel: Kernel,
    context: &'c mut Context<'t>,
}

impl LoopHoister<'_, '_> {
    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for mut stmt in block {
            for inner in stmt.op.blocks_mut() {
                *inner = self.block(std::mem::take(inner));
            }
            if let Op::For { .. } | Op::While { .. } = stmt.op {
                self.lighten(&mut stmt, &mut out);
            }
            out.push(stmt);
        }
        out
    }

    /// Hoists invariant expressions out of a loop, to the end of `out`.
    fn lighten(&mut self, stmt: &mut Stmt, out: &mut Block) {
        let deps = ExprDeps::of(&self.kernel);
        let invariant = self.invariant(&stmt.op, &deps);
        let mut made = HashMap::new();
        for id in invariant {
            if !self.context.fuel.spend() {
                break;
            }
            // Previously hoisted expressions can be part of it.
            let value = rebuild(&mut self.kernel, id, &mut made);
            let value = self.guarded(value);
            let local = self.kernel.new_local("fixed", self.kernel.exprs.ty(id), false);
            out.push(Stmt { op: Op::Let { local, value }, at: stmt.at });
            let read = self.kernel.expr(Expr::Local(local));
            made.insert(id, read);
        }
        if made.is_empty() {
            return;
        }
        if let Op::While { .. } = stmt.op {
            map_operands(&mut stmt.op, |id| rebuild(&mut self.kernel, id, &mut made));
        }
        for inner in stmt.op.blocks_mut() {
            map_block(inner, &mut |id| rebuild(&mut self.kernel, id, &mut made));
        }
    }

    /// Returns the largest loop-invariant expressions directly in a loop that are worth a local, operands first.
    fn invariant(&self, op: &Op, deps: &ExprDeps) -> Vec<ExprId> {
        let effects = op.blocks().into_iter().fold(Effects::of_op(op), |mut all, block| {
            let inner = Effects::of_block(block);
            all.locals.extend(inner.locals);
            all.mems.extend(inner.mems);
            all.synchronizes |= inner.synchronizes;
            all
        });
        let mut pending = if let Op::While { condition, .. } = op { vec![*condition] } else { Vec::new() };
        let direct = op.blocks().into_iter().flatten();
        // A nested `while` evaluates its condition in its own iterations.
        pending.extend(direct.filter(|stmt| !matches!(stmt.op, Op::While { .. })).flat_map(|stmt| stmt.op.operands()));
        let mut found = Vec::new();
        let mut seen = vec![false; self.kernel.exprs.len()];
        while let Some(id) = pending.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            if !effects.preserves(&self.kernel, deps, id) {
                pending.extend(self.kernel.exprs.get(id).operands().iter());
            } else if deps.is_worth_a_local(&self.kernel, id) {
                found.push(id);
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns the expression with every load guarded.
    fn guarded(&mut self, root: ExprId) -> ExprId {
        let mut made: HashMap<ExprId, ExprId> = HashMap::new();
        for id in super::walk::transitive_operands(&self.kernel, &[root]) {
            let expr = match self.kernel.exprs.get(id).map_operands(|operand| made[&operand]) {
                Expr::Load { mem, index, lanes, guard: Guard::Proven | Guard::Unchecked } => {
                    Expr::Load { mem, index, lanes, guard: Guard::Checked }
                }
                other => other,
            };
            made.insert(id, self.kernel.expr(expr));
        }
        made[&root]
    }
}
