//! Merges the guards at the end of a block into one.

use std::collections::HashMap;

use panoply_ir::Alu;
use panoply_ir::kernel::{Block, Expr, ExprId, Guard, Kernel, LocalId, MemId, Op, Stmt};

use crate::opt::Fuel;
use crate::opt::effects::{Effects, ExprDeps};
use crate::opt::walk::{KernelExt, rebuild, transitive_operands};

/// One element of a memory.
type Element = (MemId, ExprId);

/// Moves the end of a block under `if index < len` if it only performs guarded stores to that element, and also loads
/// it or stores it twice.
pub(super) fn guard(kernel: &mut Kernel, block: &mut Block, loaded: &[bool], fuel: &mut Fuel) {
    let Some((start, element)) = find(kernel, block, loaded) else { return };
    if !fuel.spend() {
        return;
    }
    let at = block[start].at;
    let mut then = block.split_off(start);
    let (mem, index) = element;
    for stmt in &mut then {
        lift(kernel, stmt, element);
    }
    let len = kernel.expr(Expr::Len(mem));
    let condition = kernel.alu(Alu::Lt, &[index, len]);
    block.push(Stmt { op: Op::If { condition, then, otherwise: Block::new() }, at });
}

/// Returns the start of the statements at the end of a block that serve a single element, if merging their guards is
/// profitable.
fn find(kernel: &Kernel, block: &Block, loaded: &[bool]) -> Option<(usize, Element)> {
    let mut element = None;
    let mut start = block.len();
    for (at, stmt) in block.iter().enumerate().rev() {
        match stmt.op {
            Op::Store { mem, index, guard: Guard::Checked, value } if kernel.exprs.ty(value).lanes() == 1 => {
                if *element.get_or_insert((mem, index)) != (mem, index) {
                    break;
                }
            }
            Op::Let { .. } | Op::Assign { .. } => {}
            _ => break,
        }
        start = at;
    }
    let (mem, index) = element?;
    let deps = ExprDeps::with_loaded_locals(kernel, loaded);
    // The guard is evaluated before these statements, so they must not change the index.
    let before = |at: usize| !Effects::of_op(&block[at].op).preserves(kernel, &deps, index);
    let start = (start..block.len()).rev().find(|at| before(*at)).map_or(start, |at| at + 1);
    let end = &block[start..];
    let uses: usize = end.iter().map(|stmt| accesses(kernel, stmt, (mem, index))).sum();
    // A loaded index could have changed after the guard.
    let only = end.iter().all(|stmt| stays_inside(end, &stmt.op)) && !deps.is_loaded(index);
    (only && uses > 1).then_some((start, (mem, index)))
}

/// Counts the guarded accesses of a statement to an element.
fn accesses(kernel: &Kernel, stmt: &Stmt, element: Element) -> usize {
    let loads =
        transitive_operands(kernel, &stmt.op.operands()).into_iter().filter(|id| is_load(kernel, *id, element)).count();
    loads + usize::from(matches!(stmt.op, Op::Store { .. }))
}

fn is_load(kernel: &Kernel, id: ExprId, (of, at): Element) -> bool {
    matches!(kernel.exprs.get(id), Expr::Load { mem, index, lanes: 1, guard: Guard::Checked } if (mem, index) == (of, at))
}

/// Returns true if a statement assigns only locals introduced by these statements.
fn stays_inside(stmts: &[Stmt], op: &Op) -> bool {
    let introduced = |local: LocalId| stmts.iter().any(|stmt| stmt.op.introduces() == Some(local));
    match op {
        Op::Assign { local, .. } => introduced(*local),
        _ => true,
    }
}

/// Removes the guards of accesses to an element.
fn lift(kernel: &mut Kernel, stmt: &mut Stmt, element: Element) {
    let mut made = HashMap::new();
    for id in transitive_operands(kernel, &stmt.op.operands()) {
        if is_load(kernel, id, element) {
            let (mem, index) = element;
            made.insert(id, kernel.expr(Expr::Load { mem, index, lanes: 1, guard: Guard::Proven }));
        }
    }
    crate::opt::walk::map_operands(&mut stmt.op, |id| rebuild(kernel, id, &mut made));
    if let Op::Store { guard, .. } = &mut stmt.op {
        *guard = Guard::Proven;
    }
}
