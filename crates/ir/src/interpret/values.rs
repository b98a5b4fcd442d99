//! Evaluation of a statement's expressions for one work-item, and the reports to the observer.

use super::group::{WorkGroup, element};
use super::plan::CompiledStmt;
use super::{AccessKind, Launch, Observer, Overflow, scalar};
use crate::alu::Alu;
use crate::dtype::{Scalar, Type};
use crate::error::Result;
use crate::kernel::*;

impl<O: Observer> WorkGroup<'_, '_, O> {
    /// Returns the lanes of an expression, as evaluated for the current work-item.
    pub(super) fn lanes(&self, id: ExprId) -> &[u64] {
        &self.values[self.launch.plan.offsets[id.index()]..][..self.launch.kernel.exprs.ty(id).lanes() as usize]
    }

    pub(super) fn set_local(&mut self, local: LocalId, item: usize, value: ExprId) {
        let lanes = self.launch.kernel.exprs.ty(value).lanes() as usize;
        let offset = self.launch.plan.offsets[value.index()];
        self.locals[local.index()][item * lanes..][..lanes].copy_from_slice(&self.values[offset..][..lanes]);
    }

    /// Evaluates all expressions that a statement needs for one work-item.
    pub(super) fn evaluate(&mut self, step: &CompiledStmt<'_>, item: usize) -> Result<()> {
        for id in &step.exprs {
            for lane in 0..self.launch.kernel.exprs.ty(*id).lanes() as usize {
                let bits = self.lane(*id, lane, item);
                self.values[self.launch.plan.offsets[id.index()] + lane] = bits;
            }
        }
        if O::WATCHES { self.observe(step, item) } else { Ok(()) }
    }

    fn lane(&self, id: ExprId, lane: usize, item: usize) -> u64 {
        let kernel = self.launch.kernel;
        let operand = |id: ExprId, lane: usize| {
            let bits = self.values[self.launch.plan.offsets[id.index()] + lane];
            Scalar { dtype: element(kernel.exprs.ty(id)), bits }
        };
        match kernel.exprs.get(id) {
            Expr::Const(value) => value.bits,
            Expr::Index(value) => value,
            Expr::Param(position) => self.launch.scalars[position as usize],
            Expr::Local(local) => self.locals[local.index()][item * kernel.local(local).ty.lanes() as usize + lane],
            Expr::Builtin(builtin) => self.builtin(builtin, item),
            Expr::Len(mem) => self.len(mem),
            Expr::Load { mem, index, .. } => {
                let element = operand(index, 0).bits.checked_add(lane as u64);
                let cell = self.cell(mem, element, item);
                cell.map_or(0, |cell| self.stores[mem.index()].get(kernel.mem(mem).dtype, cell))
            }
            Expr::Alu(op, args) => {
                let operands: Vec<Scalar> = args.iter().map(|arg| operand(*arg, lane)).collect();
                scalar::alu(op, &operands).bits
            }
            Expr::Cast(ty, value) => scalar::cast(element(ty), operand(value, lane)).bits,
            Expr::Bitcast(ty, value) => scalar::bitcast(element(ty), operand(value, lane)).bits,
            Expr::Splat(value, _) => operand(value, 0).bits,
            Expr::Extract(value, from) => operand(value, from as usize).bits,
        }
    }

    fn builtin(&self, builtin: Builtin, item: usize) -> u64 {
        let Launch { grid, group, .. } = self.launch;
        let global = self.items[item].global;
        match builtin {
            Builtin::GlobalId(axis) => global[axis as usize],
            Builtin::LocalId(axis) => global[axis as usize] % group[axis as usize] as u64,
            Builtin::GroupId(axis) => self.id[axis as usize],
            Builtin::GlobalSize(axis) => grid[axis as usize],
            Builtin::GroupSize(axis) => group[axis as usize] as u64,
            Builtin::GroupCount(axis) => self.launch.group_counts()[axis as usize],
            Builtin::SubgroupLane => (item % self.launch.subgroup) as u64,
            Builtin::SubgroupSize => self.launch.subgroup as u64,
        }
    }

    /// Reports the loads and the index arithmetic that the source would execute.
    fn observe(&mut self, step: &CompiledStmt<'_>, item: usize) -> Result<()> {
        self.mark_demanded(step);
        let exprs = &self.launch.kernel.exprs;
        for id in &step.exprs {
            let demanded = self.demanded[id.index()];
            match exprs.get(*id) {
                Expr::Load { mem, index, lanes, guard } if demanded || guard != Guard::Checked => {
                    let first = self.lanes(index)[0];
                    for lane in 0..lanes as u64 {
                        self.touch(AccessKind::Load, mem, first.checked_add(lane), item, step.stmt.at)?;
                    }
                }
                Expr::Alu(op, args) if demanded && exprs.ty(*id) == Type::Index => {
                    let operands = [self.lanes(args[0])[0], args.get(1).map_or(0, |arg| self.lanes(*arg)[0])];
                    if overflows(op, operands) {
                        let overflow = Overflow { op, operands, item: self.items[item], at: step.stmt.at };
                        self.observer.overflow(overflow)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn mark_demanded(&mut self, step: &CompiledStmt<'_>) {
        let exprs = &self.launch.kernel.exprs;
        step.exprs.iter().for_each(|id| self.demanded[id.index()] = false);
        step.roots.iter().for_each(|id| self.demanded[id.index()] = true);
        for id in step.exprs.iter().rev() {
            if !self.demanded[id.index()] {
                continue;
            }
            let scalar = exprs.ty(*id).lanes() == 1;
            let expr = exprs.get(*id);
            let operands = expr.operands();
            let is_true = |id: ExprId| self.values[self.launch.plan.offsets[id.index()]] != 0;
            let taken: &[ExprId] = match expr {
                Expr::Alu(Alu::Select, _) if scalar && is_true(operands[0]) => &operands[..2],
                Expr::Alu(Alu::Select, _) if scalar => &[operands[0], operands[2]],
                Expr::Alu(Alu::And, _) if exprs.ty(*id) == Type::BOOL && !is_true(operands[0]) => &operands[..1],
                Expr::Alu(Alu::Or, _) if exprs.ty(*id) == Type::BOOL && is_true(operands[0]) => &operands[..1],
                _ => &operands,
            };
            taken.iter().for_each(|operand| self.demanded[operand.index()] = true);
        }
    }
}

/// Returns true if Rust would panic for the operation on `usize`.
fn overflows(op: Alu, [a, b]: [u64; 2]) -> bool {
    match op {
        Alu::Neg => a != 0,
        Alu::Add => a.checked_add(b).is_none(),
        Alu::Sub => a < b,
        Alu::Mul => a.checked_mul(b).is_none(),
        Alu::Div | Alu::Rem => b == 0,
        Alu::Shl | Alu::Shr => b >= 64,
        Alu::Not | Alu::Abs | Alu::PopCount | Alu::Min | Alu::Max | Alu::And | Alu::Or | Alu::Xor | Alu::Select => {
            false
        }
        Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc => false,
        Alu::Pow | Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne | Alu::Fma => false,
    }
}
