//! Traversal and rewriting of kernels.

use std::collections::HashMap;

use panoply_ir::kernel::{Args, Block, Expr, ExprId, Guard, Kernel, Local, LocalId, MemId, Op, Space};
use panoply_ir::verify::typing::type_of;
use panoply_ir::{Alu, Type};

/// Returns the expressions that statements need, operands before users.
pub(crate) fn live_exprs(kernel: &Kernel) -> Vec<ExprId> {
    let mut needed = vec![false; kernel.exprs.len()];
    kernel.walk(&mut |stmt| stmt.op.operands().iter().for_each(|id| needed[id.index()] = true));
    // Operands have smaller ids, so one descending pass reaches everything.
    for at in (0..needed.len()).rev() {
        if needed[at] {
            kernel.exprs.get(ExprId(at as u32)).operands().iter().for_each(|id| needed[id.index()] = true);
        }
    }
    (0..needed.len()).filter(|at| needed[*at]).map(|at| ExprId(at as u32)).collect()
}

/// Returns some expressions and all their direct and indirect operands, operands before users.
pub(crate) fn transitive_operands(kernel: &Kernel, roots: &[ExprId]) -> Vec<ExprId> {
    let mut found = std::collections::BTreeSet::new();
    let mut pending = roots.to_vec();
    while let Some(id) = pending.pop() {
        if found.insert(id) {
            pending.extend(kernel.exprs.get(id).operands().iter());
        }
    }
    found.into_iter().collect()
}

/// Returns an expression with subexpressions replaced according to `made`, which also caches the other results.
pub(crate) fn rebuild(kernel: &mut Kernel, root: ExprId, made: &mut HashMap<ExprId, ExprId>) -> ExprId {
    let mut pending = vec![root];
    while let Some(id) = pending.last().copied() {
        if made.contains_key(&id) {
            pending.pop();
            continue;
        }
        let expr = kernel.exprs.get(id);
        let before = pending.len();
        pending.extend(expr.operands().iter().filter(|operand| !made.contains_key(operand)));
        if pending.len() == before {
            let new = kernel.expr(expr.map_operands(|operand| made[&operand]));
            made.insert(id, new);
        }
    }
    made[&root]
}

/// Replaces the expressions that a statement itself evaluates, without nested blocks.
pub(crate) fn map_operands(op: &mut Op, mut f: impl FnMut(ExprId) -> ExprId) {
    let mut each = |id: &mut ExprId| *id = f(*id);
    match op {
        Op::Let { value, .. } | Op::Assign { value, .. } => each(value),
        Op::Collective { op, value, .. } => {
            each(value);
            op.operands_mut().into_iter().for_each(each);
        }
        Op::Store { index, value, .. } => {
            each(index);
            each(value);
        }
        Op::Atomic { index, value, expected, .. } => {
            each(index);
            each(value);
            expected.iter_mut().for_each(each);
        }
        Op::If { condition, .. } | Op::While { condition, .. } => each(condition),
        Op::For { start, end, step, .. } => {
            each(start);
            each(end);
            each(step);
        }
        Op::Barrier | Op::Break | Op::Continue | Op::Return => {}
    }
}

/// Replaces every expression that the statements of a block and of nested blocks evaluate.
pub(crate) fn map_block(block: &mut Block, f: &mut impl FnMut(ExprId) -> ExprId) {
    for stmt in block {
        map_operands(&mut stmt.op, &mut *f);
        stmt.op.blocks_mut().into_iter().for_each(|inner| map_block(inner, f));
    }
}

/// Calls `f` for every statement of a block and of nested blocks, outer ones first.
pub(crate) fn visit<'b>(block: &'b Block, f: &mut impl FnMut(&'b Op)) {
    for stmt in block {
        f(&stmt.op);
        stmt.op.blocks().into_iter().for_each(|inner| visit(inner, f));
    }
}

/// Returns true if nothing in the same block runs after a statement.
pub(crate) fn leaves(op: &Op) -> bool {
    match op {
        Op::Break | Op::Continue | Op::Return => true,
        Op::If { then, otherwise, .. } => {
            let exits = |block: &Block| block.last().is_some_and(|stmt| leaves(&stmt.op));
            exits(then) && exits(otherwise)
        }
        Op::Let { .. }
        | Op::Assign { .. }
        | Op::Store { .. }
        | Op::Atomic { .. }
        | Op::Collective { .. }
        | Op::Barrier
        | Op::For { .. }
        | Op::While { .. } => false,
    }
}

/// Returns the guard, or [`Guard::Checked`] if it claims a proof for a constant index out of bounds of an array.
/// Unreachable code can contain such claims when its index is already constant but its condition is not yet; the
/// verifier rejects them.
fn checked_guard(kernel: &Kernel, mem: MemId, index: ExprId, lanes: u8, guard: Guard) -> Guard {
    match (kernel.mem(mem).space, kernel.exprs.get(index)) {
        (Space::Shared(len) | Space::Private(len), Expr::Index(first))
            if guard == Guard::Proven && first.saturating_add(lanes as u64) > len as u64 =>
        {
            Guard::Checked
        }
        _ => guard,
    }
}

/// Replaces invalid proven guards of statements; see [`checked_guard`].
pub(crate) fn recheck_guards(kernel: &mut Kernel) {
    fn block(kernel: &Kernel, stmts: &mut Block) {
        for stmt in stmts {
            match &mut stmt.op {
                Op::Store { mem, index, value, guard } => {
                    *guard = checked_guard(kernel, *mem, *index, kernel.exprs.ty(*value).lanes(), *guard);
                }
                Op::Atomic { mem, index, guard, .. } => *guard = checked_guard(kernel, *mem, *index, 1, *guard),
                _ => {}
            }
            stmt.op.blocks_mut().into_iter().for_each(|inner| block(kernel, inner));
        }
    }
    let mut body = std::mem::take(&mut kernel.body);
    block(kernel, &mut body);
    kernel.body = body;
}

/// Construction of expressions and locals. Passes build only well-typed expressions; an ill-typed one is a bug of the
/// pass.
pub(crate) trait KernelExt {
    /// Adds an expression whose operands exist, and returns its id.
    fn expr(&mut self, expr: Expr) -> ExprId;

    /// Adds a local.
    fn new_local(&mut self, name: &str, ty: Type, mutable: bool) -> LocalId;

    /// Adds an operation.
    fn alu(&mut self, op: Alu, operands: &[ExprId]) -> ExprId {
        self.expr(Expr::Alu(op, Args::new(operands)))
    }

    /// Adds a constant index.
    fn index(&mut self, value: u64) -> ExprId {
        self.expr(Expr::Index(value))
    }
}

impl KernelExt for Kernel {
    fn expr(&mut self, expr: Expr) -> ExprId {
        let expr = match expr {
            Expr::Load { mem, index, lanes, guard } => {
                Expr::Load { mem, index, lanes, guard: checked_guard(self, mem, index, lanes, guard) }
            }
            other => other,
        };
        let ty =
            type_of(self, expr).unwrap_or_else(|why| panic!("a pass built the ill-typed expression {expr:?}: {why}"));
        self.exprs.intern(expr, ty)
    }

    fn new_local(&mut self, name: &str, ty: Type, mutable: bool) -> LocalId {
        self.locals.push(Local { name: name.to_string(), ty, mutable });
        LocalId(self.locals.len() as u32 - 1)
    }
}
