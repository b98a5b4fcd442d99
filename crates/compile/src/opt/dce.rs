//! Dead code elimination.
//!
//! Removes, until nothing changes: unreachable statements (after a return, in the dead branch of a constant condition,
//! in a loop without iterations), unused values (locals, and stores to shared and private arrays that are never read),
//! and empty blocks. A `while` remains even if it is empty, because it might not terminate.
//!
//! Finally the expression arena and the tables are rebuilt without unused entries ([`compact`]). This uses no fuel,
//! because it does not affect execution.

mod compact;

use std::collections::HashMap;

use panoply_ir::Alu;
use panoply_ir::kernel::{Block, Expr, ExprId, Kernel, LocalId, MemId, Op, Space, Stmt};

use super::walk::{KernelExt, leaves, transitive_operands, visit};
use super::{Context, Fuel};

/// Runs the pass.
pub(super) fn run(mut kernel: Kernel, context: &mut Context<'_>) -> Kernel {
    loop {
        let body = std::mem::take(&mut kernel.body);
        let mut sweeper =
            DeadCodeSweeper { live: Liveness::of(&kernel, &body), kernel, fuel: &mut context.fuel, changed: false };
        let body = sweeper.block(body, Tail::Body);
        let changed = sweeper.changed;
        kernel = Kernel { body, ..sweeper.kernel };
        if !changed {
            return compact::compact(kernel);
        }
    }
}

/// Locals and memories that live expressions read. An expression is live if a side effect or the control flow depends on it.
struct Liveness {
    locals: Vec<bool>,
    mems: Vec<bool>,
    /// Locals that any statement reads or assigns, even if only to compute unused values. Until these statements are
    /// removed, which uses fuel, the locals must exist.
    named: Vec<bool>,
}

/// Local or array to which a statement without other effects writes; its operands are live only if the destination is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Destination {
    Local(LocalId),
    Mem(MemId),
}

impl Liveness {
    fn of(kernel: &Kernel, body: &Block) -> Liveness {
        let no_locals = vec![false; kernel.locals.len()];
        let is_buffer = |space: Space| matches!(space, Space::Buffer(_));
        let mut live = Liveness {
            locals: no_locals.clone(),
            mems: kernel.mems.iter().map(|mem| is_buffer(mem.space)).collect(),
            named: no_locals,
        };
        let mut everything = Vec::new();
        let mut pending = Vec::new();
        let mut waiting: HashMap<Destination, Vec<ExprId>> = HashMap::new();
        visit(body, &mut |op| {
            let destination = match op {
                Op::Let { local, .. } => Some(Destination::Local(*local)),
                Op::Assign { local, .. } => {
                    live.named[local.index()] = true;
                    Some(Destination::Local(*local))
                }
                Op::Store { mem, .. } if !is_buffer(kernel.mem(*mem).space) => Some(Destination::Mem(*mem)),
                Op::Collective { result, .. } => Some(Destination::Local(*result)),
                _ => None,
            };
            everything.extend(op.operands());
            match destination {
                Some(destination) => waiting.entry(destination).or_default().extend(op.operands()),
                None => pending.extend(op.operands()),
            }
            if let Op::Atomic { mem, .. } = op {
                live.mems[mem.index()] = true;
            }
        });
        for at in 0..kernel.mems.len() {
            if live.mems[at] {
                pending.extend(waiting.remove(&Destination::Mem(MemId(at as u32))).unwrap_or_default());
            }
        }
        live.mark(kernel, pending, waiting);
        for id in transitive_operands(kernel, &everything) {
            if let Expr::Local(local) = kernel.exprs.get(id) {
                live.named[local.index()] = true;
            }
        }
        live
    }

    /// Marks everything on which the live expressions `pending` depend. `waiting` has the operands of the statements that write
    /// a destination, which become live with it.
    fn mark(&mut self, kernel: &Kernel, mut pending: Vec<ExprId>, mut waiting: HashMap<Destination, Vec<ExprId>>) {
        let mut seen = vec![false; kernel.exprs.len()];
        while let Some(id) = pending.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let expr = kernel.exprs.get(id);
            pending.extend(expr.operands().iter());
            let destination = match expr {
                Expr::Local(local) => {
                    self.locals[local.index()] = true;
                    Destination::Local(local)
                }
                Expr::Load { mem, .. } => {
                    self.mems[mem.index()] = true;
                    Destination::Mem(mem)
                }
                _ => continue,
            };
            pending.extend(waiting.remove(&destination).unwrap_or_default());
        }
    }
}

/// Control flow after the end of a block.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    /// The end of the kernel.
    Body,
    /// The next iteration of a loop.
    Loop,
    /// Any other continuation.
    Other,
}

/// Removes dead statements, given the liveness analysis of the entire kernel.
struct DeadCodeSweeper<'f> {
    kernel: Kernel,
    live: Liveness,
    fuel: &'f mut Fuel,
    changed: bool,
}

impl DeadCodeSweeper<'_> {
    /// Returns true if fuel permits a rewrite, and records the change.
    fn spend(&mut self) -> bool {
        let spent = self.fuel.spend();
        self.changed |= spent;
        spent
    }

    fn block(&mut self, block: Block, tail: Tail) -> Block {
        let mut out = Block::with_capacity(block.len());
        let last = block.len().saturating_sub(1);
        for (at, stmt) in block.into_iter().enumerate() {
            let inner = if at == last { tail } else { Tail::Other };
            self.statement(stmt, inner, &mut out);
        }
        if let Some(exit) = out.iter().position(|stmt| leaves(&stmt.op))
            && exit + 1 < out.len()
            && self.spend()
        {
            out.truncate(exit + 1);
        }
        let redundant = match out.last().map(|stmt| &stmt.op) {
            Some(Op::Return) => tail == Tail::Body,
            Some(Op::Continue) => tail == Tail::Loop,
            _ => false,
        };
        if redundant && self.spend() {
            out.pop();
        }
        out
    }

    /// Appends the remainder of a statement; `tail` is what follows it.
    fn statement(&mut self, stmt: Stmt, tail: Tail, out: &mut Block) {
        let at = stmt.at;
        let op = match stmt.op {
            Op::If { condition, then, otherwise } => {
                let (then, otherwise) = (self.block(then, tail), self.block(otherwise, tail));
                return self.branch(Stmt { op: Op::If { condition, then, otherwise }, at }, out);
            }
            Op::For { counter, start, end, step, body } => {
                Op::For { counter, start, end, step, body: self.block(body, Tail::Loop) }
            }
            Op::While { condition, body } => Op::While { condition, body: self.block(body, Tail::Loop) },
            op => op,
        };
        if self.is_dead(&op) && self.spend() {
            return;
        }
        let op = match op {
            Op::Atomic { op, mem, index, value, expected, old: Some(old), guard }
                if !self.live.named[old.index()] && self.spend() =>
            {
                Op::Atomic { op, mem, index, value, expected, old: None, guard }
            }
            op => op,
        };
        out.push(Stmt { op, at });
    }

    /// Returns true if removing a statement does not change the kernel's results.
    fn is_dead(&self, op: &Op) -> bool {
        match op {
            Op::Let { local, .. } | Op::Collective { result: local, .. } => !self.live.named[local.index()],
            Op::Assign { local, .. } => !self.live.locals[local.index()],
            Op::Store { mem, .. } => !self.live.mems[mem.index()],
            Op::For { start, end, body, .. } => body.is_empty() || self.never_iterates(*start, *end),
            Op::While { condition, .. } => self.const_bool(*condition) == Some(false),
            Op::Atomic { .. } | Op::Barrier | Op::If { .. } | Op::Break | Op::Continue | Op::Return => false,
        }
    }

    /// Returns the value of a constant condition.
    fn const_bool(&self, condition: ExprId) -> Option<bool> {
        match self.kernel.exprs.get(condition) {
            Expr::Const(value) => Some(value.is_true()),
            _ => None,
        }
    }

    fn never_iterates(&self, start: ExprId, end: ExprId) -> bool {
        match (self.kernel.exprs.get(start), self.kernel.exprs.get(end)) {
            (Expr::Index(start), Expr::Index(end)) => start >= end,
            (Expr::Const(start), Expr::Const(end)) => start.to_i128() >= end.to_i128(),
            _ => start == end,
        }
    }

    /// Simplifies a conditional whose blocks have been swept.
    fn branch(&mut self, stmt: Stmt, out: &mut Block) {
        let Op::If { condition, then, otherwise } = stmt.op else { unreachable!("only conditionals branch") };
        let keep = |condition, then, otherwise| Stmt { op: Op::If { condition, then, otherwise }, at: stmt.at };
        if then.is_empty() && otherwise.is_empty() && self.spend() {
            return;
        }
        match self.const_bool(condition) {
            // Locals of the block become visible to the following statements, which do not use them.
            Some(truth) if self.spend() => out.extend(if truth { then } else { otherwise }),
            _ if then.is_empty() && !otherwise.is_empty() && self.spend() => {
                let opposite = self.kernel.alu(Alu::Not, &[condition]);
                out.push(keep(opposite, otherwise, Block::new()));
            }
            _ => out.push(keep(condition, then, otherwise)),
        }
    }
}
