//! Clones blocks with expressions replaced and locals renamed, for passes that duplicate code (unrolling, loop versioning).

use std::collections::HashMap;

use panoply_ir::kernel::{Block, Expr, ExprId, Kernel, LocalId, Op, Stmt};

use super::walk::{KernelExt, map_operands, rebuild};

/// Rewrites one clone of a block, like LLVM's `CloneBasicBlock` with its value map.
pub(super) struct BlockCloner {
    /// Replacement of each expression, given or already built.
    value_map: HashMap<ExprId, ExprId>,
    /// New local of each renamed one.
    locals: HashMap<LocalId, LocalId>,
}

impl BlockCloner {
    /// Creates a cloner that replaces the keys of a map by its values, in all expressions that contain them.
    pub fn replacing(value_map: HashMap<ExprId, ExprId>) -> BlockCloner {
        BlockCloner { value_map, locals: HashMap::new() }
    }

    /// Rewrites a block in place. With `rename` the locals that it introduces become new ones; only one copy of a block can
    /// keep them.
    pub fn rewrite(&mut self, kernel: &mut Kernel, block: &mut Block, rename: bool) {
        for Stmt { op, .. } in block {
            map_operands(op, |id| rebuild(kernel, id, &mut self.value_map));
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
            op.blocks_mut().into_iter().for_each(|inner| self.rewrite(kernel, inner, rename));
        }
    }

    /// Creates a new local for one that the block introduces, and maps its reads. They follow in the block, so none has been
    /// rebuilt yet.
    fn rename(&mut self, kernel: &mut Kernel, local: LocalId) {
        let known = kernel.local(local).clone();
        let new = kernel.new_local(&known.name, known.ty, known.mutable);
        self.locals.insert(local, new);
        let (old_read, new_read) = (kernel.expr(Expr::Local(local)), kernel.expr(Expr::Local(new)));
        self.value_map.insert(old_read, new_read);
    }
}
