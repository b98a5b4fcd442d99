//! Common subexpression elimination across statements.
//!
//! An expression is evaluated at its statement, so equal expressions of two statements have equal values only if none
//! of their dependencies changed in between: no assignment to a local they read, no write to a memory they read, and no
//! barrier (which makes writes of other work-items visible). The first statement gets a `let` before it, or already is
//! one. The other statements read the local if the first dominates them, that is, it is in the same block or in an
//! enclosing one.
//!
//! Within one statement there is nothing to do, because equal expressions are one node.

use std::collections::{HashMap, HashSet};

use panoply_ir::kernel::{Block, Expr, ExprId, Kernel, LocalId, MemId, Op, Space, Stmt};

use super::Context;
use super::effects::{Effects, ExprDeps};
use super::walk::{KernelExt, map_operands, rebuild};

/// Runs the pass.
pub(super) fn run(mut kernel: Kernel, context: &mut Context<'_>) -> Kernel {
    let deps = ExprDeps::of(&kernel);
    let mut finder = CseAnalysis {
        kernel: &kernel,
        deps: &deps,
        scopes: Vec::new(),
        clock: 0,
        locals: vec![0; kernel.locals.len()],
        mems: vec![0; kernel.mems.len()],
        number: 0,
        groups: Vec::new(),
        repeats: HashMap::new(),
    };
    finder.block(&kernel.body);
    let (groups, repeats) = (finder.groups, finder.repeats);
    let mut body = std::mem::take(&mut kernel.body);
    let mut sharer = CseRewriter { kernel, context, groups, repeats, number: 0, shared: HashMap::new() };
    body = sharer.block(body);
    Kernel { body, ..sharer.kernel }
}

/// Number of a statement in preorder.
type Number = usize;

/// An expression that several statements evaluate to the same value.
#[derive(Clone, Copy)]
struct EquivalenceClass {
    expr: ExprId,
    /// First statement that evaluates it.
    first: Number,
}

/// First occurrence of an expression in a block.
struct Occurrence {
    /// Time of the last change of its dependencies.
    since: u64,
    by: Number,
    /// Index of its equivalence class, after the second occurrence.
    group: Option<usize>,
}

struct CseAnalysis<'k> {
    kernel: &'k Kernel,
    deps: &'k ExprDeps,
    /// Occurrences in each open block.
    scopes: Vec<HashMap<ExprId, Occurrence>>,
    /// Number of changes so far.
    clock: u64,
    /// Time of each local's last change.
    locals: Vec<u64>,
    /// Time of each memory's last change.
    mems: Vec<u64>,
    number: Number,
    groups: Vec<EquivalenceClass>,
    /// Equivalence classes whose value each statement reads instead of computing it.
    repeats: HashMap<Number, Vec<usize>>,
}

impl CseAnalysis<'_> {
    fn block(&mut self, block: &Block) {
        self.scopes.push(HashMap::new());
        for stmt in block {
            self.statement(&stmt.op);
        }
        self.scopes.pop();
    }

    fn statement(&mut self, op: &Op) {
        let number = self.number;
        self.number += 1;
        match op {
            Op::While { condition, body } => {
                self.change(&Effects::of_block(body));
                // The condition is evaluated in every iteration: it can read existing locals, but a `let` cannot
                // precede it.
                self.meet(number, &[*condition], false);
                self.block(body);
                self.change(&Effects::of_block(body));
            }
            Op::For { body, .. } => {
                self.meet(number, &op.operands(), true);
                self.change(&Effects::of_block(body));
                self.block(body);
                self.change(&Effects::of_block(body));
            }
            Op::If { then, otherwise, .. } => {
                self.meet(number, &op.operands(), true);
                let before = (self.locals.clone(), self.mems.clone());
                self.block(then);
                let after =
                    (std::mem::replace(&mut self.locals, before.0), std::mem::replace(&mut self.mems, before.1));
                self.block(otherwise);
                let join = |now: &mut Vec<u64>, then: Vec<u64>| {
                    now.iter_mut().zip(then).for_each(|(now, then)| *now = then.max(*now));
                };
                join(&mut self.locals, after.0);
                join(&mut self.mems, after.1);
            }
            Op::Let { .. }
            | Op::Assign { .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Collective { .. }
            | Op::Barrier
            | Op::Break
            | Op::Continue
            | Op::Return => {
                self.meet(number, &op.operands(), true);
                self.change(&Effects::of_op(op));
            }
        }
    }

    fn change(&mut self, effects: &Effects) {
        self.clock += 1;
        effects.locals.iter().for_each(|local| self.locals[local.index()] = self.clock);
        effects.mems.iter().for_each(|mem| self.mems[mem.index()] = self.clock);
        for (mem, changed) in self.kernel.mems.iter().zip(&mut self.mems) {
            if effects.synchronizes && !matches!(mem.space, Space::Private(_)) {
                *changed = self.clock;
            }
        }
    }

    /// Returns the time of the last change of an expression's dependencies. Equal times imply equal values, because
    /// every change has a distinct time.
    fn since(&self, id: ExprId) -> u64 {
        let locals = self.deps.locals(id).iter().map(|local: &LocalId| self.locals[local.index()]);
        let mems = self.deps.mems(id).iter().map(|mem: &MemId| self.mems[mem.index()]);
        locals.chain(mems).max().unwrap_or(0)
    }

    /// Records the expressions that a statement evaluates. Known expressions are repeats; the others can be shared
    /// later if a `let` can precede the statement (`first`).
    fn meet(&mut self, number: Number, roots: &[ExprId], first: bool) {
        let mut pending = roots.to_vec();
        let mut seen = HashSet::new();
        while let Some(id) = pending.pop() {
            if !self.deps.is_worth_a_local(self.kernel, id) {
                // Operands of cheap expressions are cheap too, except below operations that only move lanes.
                if let Expr::Splat(..) | Expr::Extract(..) = self.kernel.exprs.get(id) {
                    pending.extend(self.kernel.exprs.get(id).operands().iter());
                }
                continue;
            }
            if !seen.insert(id) {
                continue;
            }
            let since = self.since(id);
            let known = self
                .scopes
                .iter_mut()
                .rev()
                .find_map(|scope| scope.get_mut(&id))
                .filter(|occurrence| occurrence.since == since);
            match known {
                Some(occurrence) => {
                    let group = *occurrence.group.get_or_insert_with(|| {
                        self.groups.push(EquivalenceClass { expr: id, first: occurrence.by });
                        self.groups.len() - 1
                    });
                    self.repeats.entry(number).or_default().push(group);
                }
                None => {
                    if first {
                        let scope = self.scopes.last_mut().expect("a scope is open");
                        scope.insert(id, Occurrence { since, by: number, group: None });
                    }
                    pending.extend(self.kernel.exprs.get(id).operands().iter());
                }
            }
        }
    }
}

struct CseRewriter<'c, 't> {
    kernel: Kernel,
    context: &'c mut Context<'t>,
    groups: Vec<EquivalenceClass>,
    repeats: HashMap<Number, Vec<usize>>,
    number: Number,
    /// Local of each class that has one, as an expression.
    shared: HashMap<usize, ExprId>,
}

impl CseRewriter<'_, '_> {
    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for mut stmt in block {
            self.statement(&mut stmt, &mut out);
            for inner in stmt.op.blocks_mut() {
                *inner = self.block(std::mem::take(inner));
            }
            out.push(stmt);
        }
        out
    }

    fn statement(&mut self, stmt: &mut Stmt, out: &mut Block) {
        let number = self.number;
        self.number += 1;
        let mut made: HashMap<ExprId, ExprId> = HashMap::new();
        for group in self.repeats.remove(&number).unwrap_or_default() {
            if let Some(local) = self.shared.get(&group) {
                made.insert(self.groups[group].expr, *local);
            }
        }
        let mut first: Vec<usize> =
            (0..self.groups.len()).filter(|group| self.groups[*group].first == number).collect();
        first.sort_by_key(|group| self.groups[*group].expr);
        for group in first {
            self.share(group, stmt, &mut made, out);
        }
        if !made.is_empty() {
            map_operands(&mut stmt.op, |id| rebuild(&mut self.kernel, id, &mut made));
        }
    }

    /// Creates the local of a class at its first statement.
    fn share(&mut self, group: usize, stmt: &Stmt, made: &mut HashMap<ExprId, ExprId>, out: &mut Block) {
        if !self.context.fuel.spend() {
            return;
        }
        let id = self.groups[group].expr;
        let local = match stmt.op {
            Op::Let { local, value } if value == id && !self.kernel.local(local).mutable => local,
            _ => {
                let value = rebuild(&mut self.kernel, id, made);
                let local = self.kernel.new_local("common", self.kernel.exprs.ty(id), false);
                out.push(Stmt { op: Op::Let { local, value }, at: stmt.at });
                let read = self.kernel.expr(Expr::Local(local));
                made.insert(id, read);
                local
            }
        };
        let read = self.kernel.expr(Expr::Local(local));
        self.shared.insert(group, read);
    }
}
