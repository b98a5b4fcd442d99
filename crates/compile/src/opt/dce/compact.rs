//! Removes unused entries of a kernel's tables.

use std::collections::HashMap;

use panoply_ir::kernel::{Block, Expr, ExprId, Exprs, Kernel, Local, LocalId, MemId, Memory, Op, Space};

use crate::opt::walk::{live_exprs, map_operands, visit};

/// Returns the same kernel with minimal tables. Buffers stay, because they are parameters.
pub(super) fn compact(mut kernel: Kernel) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let (mut locals, mut mems) = (vec![false; kernel.locals.len()], vec![false; kernel.mems.len()]);
    visit(&body, &mut |op| {
        op.introduces().into_iter().for_each(|local| locals[local.index()] = true);
        if let Op::Store { mem, .. } | Op::Atomic { mem, .. } = op {
            mems[mem.index()] = true;
        }
    });
    kernel.body = body;
    let live = live_exprs(&kernel);
    for id in &live {
        if let Expr::Load { mem, .. } | Expr::Len(mem) = kernel.exprs.get(*id) {
            mems[mem.index()] = true;
        }
    }
    for (mem, used) in kernel.mems.iter().zip(&mut mems) {
        *used |= matches!(mem.space, Space::Buffer(_));
    }
    let tables = Tables { locals: numbers(&locals), mems: numbers(&mems) };
    let (exprs, new_ids) = tables.exprs(&kernel, &live);
    kernel.exprs = exprs;
    kernel.locals = kept::<Local>(std::mem::take(&mut kernel.locals), &locals);
    kernel.mems = kept::<Memory>(std::mem::take(&mut kernel.mems), &mems);
    tables.block(&mut kernel.body, &new_ids);
    kernel
}

/// Returns the new number of each entry that is kept; numbers of other entries are meaningless.
fn numbers(keep: &[bool]) -> Vec<u32> {
    let before = keep.iter().scan(0, |count, keep| {
        *count += u32::from(*keep);
        Some(*count - u32::from(*keep))
    });
    before.collect()
}

fn kept<T>(table: Vec<T>, keep: &[bool]) -> Vec<T> {
    table.into_iter().zip(keep).filter(|(_, keep)| **keep).map(|(entry, _)| entry).collect()
}

struct Tables {
    locals: Vec<u32>,
    mems: Vec<u32>,
}

impl Tables {
    fn local(&self, id: LocalId) -> LocalId {
        LocalId(self.locals[id.index()])
    }

    fn mem(&self, id: MemId) -> MemId {
        MemId(self.mems[id.index()])
    }

    fn exprs(&self, kernel: &Kernel, live: &[ExprId]) -> (Exprs, HashMap<ExprId, ExprId>) {
        let (mut exprs, mut new_ids) = (Exprs::default(), HashMap::new());
        for id in live {
            let expr = match kernel.exprs.get(*id).map_operands(|operand| new_ids[&operand]) {
                Expr::Local(local) => Expr::Local(self.local(local)),
                Expr::Len(mem) => Expr::Len(self.mem(mem)),
                Expr::Load { mem, index, lanes, guard } => Expr::Load { mem: self.mem(mem), index, lanes, guard },
                other => other,
            };
            new_ids.insert(*id, exprs.intern(expr, kernel.exprs.ty(*id)));
        }
        (exprs, new_ids)
    }

    fn block(&self, block: &mut Block, new_ids: &HashMap<ExprId, ExprId>) {
        for stmt in block {
            map_operands(&mut stmt.op, |id| new_ids[&id]);
            match &mut stmt.op {
                Op::Let { local, .. } | Op::Assign { local, .. } | Op::For { counter: local, .. } => {
                    *local = self.local(*local);
                }
                Op::Collective { result, .. } => *result = self.local(*result),
                Op::Store { mem, .. } => *mem = self.mem(*mem),
                Op::Atomic { mem, old, .. } => {
                    *mem = self.mem(*mem);
                    *old = old.map(|old| self.local(old));
                }
                Op::Barrier | Op::If { .. } | Op::While { .. } | Op::Break | Op::Continue | Op::Return => {}
            }
            stmt.op.blocks_mut().into_iter().for_each(|inner| self.block(inner, new_ids));
        }
    }
}
