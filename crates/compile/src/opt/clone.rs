//! Clones statements with expressions replaced and locals renamed.

use std::collections::HashMap;

use panoply_ir::kernel::{Block, Expr, ExprId, Kernel, LocalId, Op, Stmt};

use super::walk::{KernelExt, map_operands, rebuild};

/// State of one clone operation.
pub(super) struct Copy {
    made: HashMap<ExprId, ExprId>,
    locals: HashMap<LocalId, LocalId>,
}

impl Copy {
    /// Creates a clone operation that replaces expressions.
    pub fn replacing(made: HashMap<ExprId, ExprId>) -> Copy {
        Copy { made, locals: HashMap::new() }
    }

    /// Rewrites a clone of a block. `rename` creates new locals, which is required for every copy but one.
    pub fn block(&mut self, kernel: &mut Kernel, block: &mut Block, rename: bool) {
        for Stmt { op, .. } in block {
            map_operands(op, |id| rebuild(kernel, id, &mut self.made));
            if rename && let Some(local) = op.introduces() {
                self.rename(kernel, local);
            }
            let renamed = |local: &mut LocalId| {
                if let Some(new) = self.locals.get(local) {
                    *local = *new;
                }
            };
            match op {
                Op::Let { local, .. } | Op::Assign { local, .. } | Op::For { counter: local, .. } => renamed(local),
                Op::Collective { result, .. } => renamed(result),
                Op::Atomic { old: Some(old), .. } => renamed(old),
                Op::Atomic { old: None, .. } | Op::Store { .. } | Op::Barrier | Op::If { .. } | Op::While { .. } => {}
                Op::Break | Op::Continue | Op::Return => {}
            }
            op.blocks_mut().into_iter().for_each(|inner| self.block(kernel, inner, rename));
        }
    }

    /// Creates a new local for one introduced in the body. Its reads come later and have not been rebuilt yet.
    fn rename(&mut self, kernel: &mut Kernel, local: LocalId) {
        let known = kernel.local(local).clone();
        let new = kernel.new_local(&known.name, known.ty, known.mutable);
        self.locals.insert(local, new);
        let (old_read, new_read) = (kernel.expr(Expr::Local(local)), kernel.expr(Expr::Local(new)));
        self.made.insert(old_read, new_read);
    }
}
