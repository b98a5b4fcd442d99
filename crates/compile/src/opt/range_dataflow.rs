//! Forward dataflow analysis of [`Facts`] through a kernel's statements.
//!
//! A branch learns its condition; statements after a branch that always exits learn the opposite. A loop invalidates
//! facts about locals that its body assigns before it learns its condition or the bounds of its counter.

use std::collections::HashMap;

use panoply_ir::kernel::{Block, Expr, ExprId, Kernel, LocalId, Op, Stmt};

use super::effects::ExprDeps;
use super::facts::Facts;
use super::ranges::Range;
use super::walk::{leaves, visit};

/// Number of rounds in which intervals of mutable locals can grow before they are widened.
const ROUNDS: usize = 4;

/// Intervals of leaves.
pub(crate) type Leaves = HashMap<Expr, Range>;

/// Calls `f` for every statement, outer ones first, with the facts that hold when it evaluates its expressions.
/// `launch` contains known intervals of parameters, lengths and launch builtins.
pub(crate) fn walk(kernel: &Kernel, launch: &Leaves, f: &mut dyn FnMut(&Facts<'_>, &Stmt)) {
    let deps = ExprDeps::of(kernel);
    let mut leaves = mutable_ranges(kernel, &deps, launch);
    leaves.extend(launch);
    walk_knowing(kernel, &deps, leaves, f);
}

fn walk_knowing(kernel: &Kernel, deps: &ExprDeps, leaves: Leaves, f: &mut dyn FnMut(&Facts<'_>, &Stmt)) {
    let reads = kernel.exprs.iter().filter_map(|(id, expr, _)| match expr {
        Expr::Local(local) => Some((local, id)),
        _ => None,
    });
    let mut facts = Facts::new(kernel, deps, leaves);
    Walker { kernel, reads: reads.collect(), f }.block(&kernel.body, &mut facts);
}

/// Returns an interval for each mutable integer local that contains all its values. It is the smallest one that
/// contains the first value and, as long as all locals stay in their intervals, every assigned value.
fn mutable_ranges(kernel: &Kernel, deps: &ExprDeps, launch: &Leaves) -> Leaves {
    let given = |assumed: &Leaves, later: bool| {
        let mut leaves = launch.clone();
        leaves.extend(assumed);
        given(kernel, deps, leaves, later)
    };
    let mut known = given(&Leaves::new(), false);
    for round in 0.. {
        let mut grown = false;
        for (local, range) in given(&known, true) {
            let known = known.entry(local).or_insert(range);
            if !known.contains(range) {
                grown = true;
                let Expr::Local(of) = local else { unreachable!("only locals are assigned") };
                let whole = Range::of_type(kernel.local(of).ty).expect("only integers have intervals");
                let joined = known.join(range);
                // A bound that still moves is widened to the type's; the other can be kept.
                *known = Range {
                    lo: if round >= ROUNDS && joined.lo < known.lo { whole.lo } else { joined.lo },
                    hi: if round >= ROUNDS && joined.hi > known.hi { whole.hi } else { joined.hi },
                };
            }
        }
        if !grown {
            break;
        }
    }
    // Widened bounds are narrowed again where a condition limits them: a sound assumption gives a sound result.
    for _ in 0..2 {
        known = given(&known, true);
    }
    known
}

/// Returns the intervals of values given to mutable integer locals, initially and, if `later`, by assignments, under
/// the assumed intervals.
fn given(kernel: &Kernel, deps: &ExprDeps, assumed: Leaves, later: bool) -> Leaves {
    let mut given = Leaves::new();
    walk_knowing(kernel, deps, assumed, &mut |facts, stmt| {
        let (local, value) = match stmt.op {
            Op::Let { local, value } => (local, Some(value)),
            Op::Assign { local, value } if later => (local, Some(value)),
            Op::Atomic { old: Some(local), .. } | Op::Collective { result: local, .. } => (local, None),
            _ => return,
        };
        let local_type = kernel.local(local).ty;
        let range = value.map_or_else(|| Range::of_type(local_type), |value| facts.range(value));
        let Some(range) = range.filter(|_| kernel.local(local).mutable) else { return };
        given.entry(Expr::Local(local)).and_modify(|so_far| *so_far = so_far.join(range)).or_insert(range);
    });
    given
}

struct Walker<'k, 'f> {
    kernel: &'k Kernel,
    /// Expression that reads each local, if there is one.
    reads: HashMap<LocalId, ExprId>,
    f: &'f mut dyn FnMut(&Facts<'_>, &Stmt),
}

impl Walker<'_, '_> {
    /// Processes a block; `facts` then holds what is known at its end.
    fn block(&mut self, block: &Block, facts: &mut Facts<'_>) {
        block.iter().for_each(|stmt| self.statement(stmt, facts));
    }

    fn statement(&mut self, stmt: &Stmt, facts: &mut Facts<'_>) {
        match &stmt.op {
            Op::While { condition, body } => return self.repeated(stmt, *condition, body, facts),
            Op::Let { .. }
            | Op::Assign { .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Collective { .. }
            | Op::Barrier
            | Op::If { .. }
            | Op::For { .. }
            | Op::Break
            | Op::Continue
            | Op::Return => (self.f)(facts, stmt),
        }
        match &stmt.op {
            Op::Let { local, value } => self.introduce(*local, *value, facts),
            Op::Assign { local, value } => {
                facts.invalidate(&[*local]);
                self.equal(*local, *value, facts);
            }
            Op::If { condition, then, otherwise } => self.branch(*condition, then, otherwise, facts),
            Op::For { counter, start, end, step, body } => self.counted(*counter, [*start, *end, *step], body, facts),
            Op::While { .. } => unreachable!("it was visited above"),
            Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Collective { .. }
            | Op::Barrier
            | Op::Break
            | Op::Continue
            | Op::Return => {}
        }
    }

    fn introduce(&mut self, local: LocalId, value: ExprId, facts: &mut Facts<'_>) {
        if !self.kernel.local(local).mutable
            && let Some(range) = facts.range(value)
        {
            facts.local(local, range);
        }
        self.equal(local, value, facts);
    }

    /// Records that a local was just assigned a value.
    fn equal(&mut self, local: LocalId, value: ExprId, facts: &mut Facts<'_>) {
        let Some(read) = self.reads.get(&local).copied() else { return };
        if self.kernel.local(local).ty.is_int()
            && self.kernel.local(local).ty.lanes() == 1
            && !facts.depends_on(value, local)
        {
            facts.at_most(read, value, 0);
            facts.at_most(value, read, 0);
        }
    }

    fn branch(&mut self, condition: ExprId, then: &Block, otherwise: &Block, facts: &mut Facts<'_>) {
        let (mut when, mut unless) = (facts.clone(), facts.clone());
        when.assume(condition, true);
        unless.assume(condition, false);
        self.block(then, &mut when);
        self.block(otherwise, &mut unless);
        let left = |block: &Block| block.last().is_some_and(|stmt| leaves(&stmt.op));
        match (left(then), left(otherwise)) {
            (true, _) => *facts = unless,
            (false, true) => *facts = when,
            (false, false) => {
                facts.invalidate(&assigned(then));
                facts.invalidate(&assigned(otherwise));
            }
        }
    }

    fn counted(&mut self, counter: LocalId, [start, end, step]: [ExprId; 3], body: &Block, facts: &mut Facts<'_>) {
        let mut inside = facts.clone();
        if let (Some(first), Some(end), Some(step)) = (facts.range(start), facts.range(end), facts.range(step)) {
            let exact = first.lo == first.hi && step.lo == step.hi && step.lo > 0;
            let beyond = if exact { (end.hi - 1 - first.lo).rem_euclid(step.lo) } else { 0 };
            inside.local(counter, Range { lo: first.lo, hi: end.hi - 1 - beyond });
        }
        if let Some(read) = self.reads.get(&counter).copied() {
            inside.at_most(start, read, 0);
            inside.at_most(read, end, -1);
        }
        // Bounds are evaluated once: operands of the counter's comparison can change afterwards.
        inside.invalidate(&assigned(body));
        facts.invalidate(&assigned(body));
        self.block(body, &mut inside);
    }

    fn repeated(&mut self, stmt: &Stmt, condition: ExprId, body: &Block, facts: &mut Facts<'_>) {
        facts.invalidate(&assigned(body));
        (self.f)(facts, stmt);
        let mut inside = facts.clone();
        inside.assume(condition, true);
        self.block(body, &mut inside);
        if !breaks(body) {
            facts.assume(condition, false);
        }
    }
}

/// Returns the locals that a block assigns.
fn assigned(block: &Block) -> Vec<LocalId> {
    let mut locals = Vec::new();
    visit(block, &mut |op| {
        if let Op::Assign { local, .. } = op {
            locals.push(*local);
        }
    });
    locals
}

/// Returns true if a block can exit the enclosing loop by a break.
fn breaks(block: &Block) -> bool {
    block.iter().any(|stmt| match &stmt.op {
        Op::Break => true,
        Op::If { then, otherwise, .. } => breaks(then) || breaks(otherwise),
        _ => false,
    })
}
