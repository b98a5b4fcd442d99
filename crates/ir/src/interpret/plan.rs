//! The body with, beside each statement, the expressions it evaluates, operands first.

use crate::kernel::*;

/// A kernel's body, ready to be stepped through.
pub(super) struct Plan<'k> {
    pub(super) body: Vec<CompiledStmt<'k>>,
    /// Where each expression's lanes lie in a work-item's values.
    pub(super) offsets: Vec<usize>,
    /// How many lanes all expressions have together.
    pub(super) lanes: usize,
}

/// One statement.
pub(super) struct CompiledStmt<'k> {
    pub(super) stmt: &'k Stmt,
    /// What it names, in order.
    pub(super) roots: Vec<ExprId>,
    /// All that it evaluates, each once, operands first.
    pub(super) exprs: Vec<ExprId>,
    /// The blocks inside.
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
