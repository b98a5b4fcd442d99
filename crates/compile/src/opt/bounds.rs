//! Bounds check elimination: accesses that are proven to be in bounds lose their guard.
//!
//! Proofs are derived from conditions around an access, bounds of loop counters, and intervals of ids in groups of
//! fixed size (see [`super::facts`]). The lengths of two buffers are known to be equal only where the program compared
//! them. A condition decided by the same facts becomes a constant.

use std::collections::HashMap;

use panoply_ir::Scalar;
use panoply_ir::kernel::{Block, Expr, ExprId, Guard, Kernel, Op};

use super::Context;
use super::range_dataflow::{Leaves, walk};
use super::walk::{KernelExt, map_operands, transitive_operands};

/// Runs the pass.
pub(super) fn run(mut kernel: Kernel, context: &mut Context<'_>) -> Kernel {
    let mut found = Vec::new();
    walk(&kernel, &Leaves::new(), &mut |facts, stmt| {
        let mut proofs = Proofs::default();
        for id in transitive_operands(&kernel, &stmt.op.operands()) {
            match kernel.exprs.get(id) {
                Expr::Load { mem, index, lanes, guard: Guard::Checked } if facts.is_inside(index, lanes, mem) => {
                    proofs.exprs.insert(id, Proof::Inside);
                }
                Expr::Alu(..) if kernel.exprs.ty(id) == panoply_ir::Type::BOOL => {
                    if let Some(truth) = facts.truth(id) {
                        proofs.exprs.insert(id, Proof::Truth(truth));
                    }
                }
                _ => {}
            }
        }
        proofs.access = match &stmt.op {
            Op::Store { mem, index, value, guard: Guard::Checked } => {
                facts.is_inside(*index, kernel.exprs.ty(*value).lanes(), *mem)
            }
            Op::Atomic { mem, index, guard: Guard::Checked, .. } => facts.is_inside(*index, 1, *mem),
            _ => false,
        };
        found.push(proofs);
    });
    let mut body = std::mem::take(&mut kernel.body);
    let mut applier = Applier { kernel, context, found: found.into_iter() };
    applier.block(&mut body);
    Kernel { body, ..applier.kernel }
}

/// Facts proven about a statement, in the order of [`walk`].
#[derive(Default)]
struct Proofs {
    exprs: HashMap<ExprId, Proof>,
    /// True if the statement's own access is in bounds.
    access: bool,
}

enum Proof {
    Inside,
    Truth(bool),
}

struct Applier<'c, 't, I> {
    kernel: Kernel,
    context: &'c mut Context<'t>,
    found: I,
}

impl<I: Iterator<Item = Proofs>> Applier<'_, '_, I> {
    fn block(&mut self, block: &mut Block) {
        for stmt in block {
            let proofs = self.found.next().expect("every statement was visited");
            if !proofs.exprs.is_empty() {
                self.operands(&mut stmt.op, &proofs.exprs);
            }
            if let Op::Store { guard, .. } | Op::Atomic { guard, .. } = &mut stmt.op
                && proofs.access
                && self.context.fuel.spend()
            {
                *guard = Guard::Proven;
            }
            stmt.op.blocks_mut().into_iter().for_each(|inner| self.block(inner));
        }
    }

    fn operands(&mut self, op: &mut Op, proofs: &HashMap<ExprId, Proof>) {
        let mut made: HashMap<ExprId, ExprId> = HashMap::new();
        for id in transitive_operands(&self.kernel, &op.operands()) {
            let expr = self.kernel.exprs.get(id).map_operands(|operand| made[&operand]);
            let better = match (proofs.get(&id), expr) {
                (Some(Proof::Inside), Expr::Load { mem, index, lanes, .. }) => {
                    Some(Expr::Load { mem, index, lanes, guard: Guard::Proven })
                }
                (Some(Proof::Truth(truth)), _) => Some(Expr::Const(Scalar::from(*truth))),
                _ => None,
            };
            let expr = match better {
                Some(better) if self.context.fuel.spend() => better,
                _ => expr,
            };
            made.insert(id, self.kernel.expr(expr));
        }
        map_operands(op, |id| made[&id]);
    }
}
