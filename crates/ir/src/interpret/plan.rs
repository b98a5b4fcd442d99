//! The body of a kernel with the expressions that each statement evaluates, operands first.

use crate::kernel::*;

/// A kernel's body, prepared for the interpreter.
pub(super) struct Plan<'k> {
    pub(super) body: Vec<CompiledStmt<'k>>,
    /// Offset of each expression's lanes in a work-item's values.
    pub(super) offsets: Vec<usize>,
    /// Total number of lanes of all expressions.
    pub(super) lanes: usize,
}

/// A statement.
pub(super) struct CompiledStmt<'k> {
    pub(super) stmt: &'k Stmt,
    /// Expressions that the statement names, in order.
    pub(super) roots: Vec<ExprId>,
    /// All expressions that it evaluates, each once, operands first.
    pub(super) exprs: Vec<ExprId>,
    /// Nested blocks.
    pub(super) blocks: Vec<Vec<CompiledStmt<'k>>>,
}

impl<'k> Plan<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Plan<'k> {
        let mut offsets = Vec::with_capacity(kernel.exprs.len());
        let mut lanes = 0;
        for (_, _, ty) in kernel.exprs.iter() {
            offsets.push(lanes);
            lanes += ty.lanes() as usize;
        }
        Plan { body: steps(kernel, &kernel.body), offsets, lanes }
    }
}

fn steps<'k>(kernel: &'k Kernel, block: &'k Block) -> Vec<CompiledStmt<'k>> {
    let step = |stmt: &'k Stmt| {
        let roots = stmt.op.operands();
        let blocks = stmt.op.blocks().into_iter().map(|block| steps(kernel, block)).collect();
        CompiledStmt { stmt, exprs: below(kernel, &roots), roots, blocks }
    };
    block.iter().map(step).collect()
}

fn below(kernel: &Kernel, roots: &[ExprId]) -> Vec<ExprId> {
    let mut found = std::collections::BTreeSet::new();
    let mut pending = roots.to_vec();
    while let Some(id) = pending.pop() {
        if found.insert(id) {
            pending.extend(kernel.exprs.get(id).operands().iter());
        }
    }
    found.into_iter().collect()
}
