//! Dependencies of expressions, and side effects of blocks.

use panoply_ir::Alu;
use panoply_ir::kernel::{Access, Block, Expr, ExprId, Kernel, LocalId, MemId, Op, Space};

use super::walk::visit;

/// For every expression of a kernel: the mutable state it depends on, and its cost.
pub(crate) struct ExprDeps {
    locals: Vec<Vec<LocalId>>,
    mems: Vec<Vec<MemId>>,
    costs: Vec<Cost>,
    /// True if the value is loaded from memory.
    loaded: Vec<bool>,
}

/// Approximate cost of an expression, in simple operations.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Cost of its most expensive operation.
    max_op: u32,
    /// Cost of all operations, counted as a tree.
    total: u32,
}

/// Cost from which an operation is expensive: a load, a division, or a transcendental function.
const EXPENSIVE: u32 = 4;

impl ExprDeps {
    pub fn of(kernel: &Kernel) -> ExprDeps {
        ExprDeps::with_loaded_locals(kernel, &loaded_locals(kernel))
    }

    /// Analyzes a kernel whose body is stored elsewhere, given its [`loaded_locals`]. Locals created since then are
    /// assumed to be loaded.
    pub fn with_loaded_locals(kernel: &Kernel, loaded_locals: &[bool]) -> ExprDeps {
        let mut deps = ExprDeps { locals: Vec::new(), mems: Vec::new(), costs: Vec::new(), loaded: Vec::new() };
        for (id, expr, _) in kernel.exprs.iter() {
            let (mut locals, mut mems) = (Vec::new(), Vec::new());
            let own = own_cost(kernel, id);
            let mut cost = Cost { max_op: own, total: own };
            match expr {
                Expr::Local(local) => locals.push(local),
                Expr::Load { mem, .. } if kernel.mem(mem).space != Space::Buffer(Access::In) => mems.push(mem),
                _ => {}
            }
            for operand in expr.operands().iter() {
                locals.extend(&deps.locals[operand.index()]);
                mems.extend(&deps.mems[operand.index()]);
                let operand = deps.costs[operand.index()];
                cost.max_op = cost.max_op.max(operand.max_op);
                cost.total = cost.total.saturating_add(operand.total);
            }
            let loaded_local = |local: LocalId| loaded_locals.get(local.index()).copied().unwrap_or(true);
            let loaded = matches!(expr, Expr::Load { .. })
                || matches!(expr, Expr::Local(local) if loaded_local(local))
                || expr.operands().iter().any(|operand| deps.loaded[operand.index()]);
            deps.loaded.push(loaded);
            locals.sort_unstable();
            locals.dedup();
            mems.sort_unstable();
            mems.dedup();
            deps.locals.push(locals);
            deps.mems.push(mems);
            deps.costs.push(cost);
        }
        deps
    }

    /// Returns the number of analyzed expressions; expressions created later are not included.
    pub fn len(&self) -> usize {
        self.costs.len()
    }

    /// Returns the locals an expression reads.
    pub fn locals(&self, id: ExprId) -> &[LocalId] {
        &self.locals[id.index()]
    }

    /// Returns the memories an expression reads that can be written during the launch.
    pub fn mems(&self, id: ExprId) -> &[MemId] {
        &self.mems[id.index()]
    }

    /// Returns true if an expression's value is loaded from memory, directly or through immutable locals. A back end
    /// can load it again wherever the value is used, and another launch or work-item can have written the memory in
    /// between, so a comparison of the value proves nothing about a later use.
    pub fn is_loaded(&self, id: ExprId) -> bool {
        self.loaded[id.index()]
    }

    /// Returns true if an expression is worth storing in a local. Cheap index arithmetic is not: executors advance
    /// affine addresses themselves, and recognize them better in their original form.
    pub fn is_worth_a_local(&self, kernel: &Kernel, id: ExprId) -> bool {
        let cost = self.costs[id.index()];
        let is_plain = matches!(kernel.exprs.get(id), Expr::Splat(..) | Expr::Extract(..));
        let is_index = kernel.exprs.ty(id) == panoply_ir::Type::Index;
        !is_plain && (cost.max_op >= EXPENSIVE || !is_index && cost.total >= 2)
    }
}

/// Returns for every local whether it is immutable and its value is loaded from memory; see [`ExprDeps::is_loaded`]. A
/// mutable local is a separate variable, which holds the value that was loaded once.
pub(crate) fn loaded_locals(kernel: &Kernel) -> Vec<bool> {
    let mut values: Vec<Option<ExprId>> = vec![None; kernel.locals.len()];
    visit(&kernel.body, &mut |op| {
        if let Op::Let { local, value } = op
            && !kernel.local(*local).mutable
        {
            values[local.index()] = Some(*value);
        }
    });
    let mut loaded = vec![false; kernel.locals.len()];
    let mut known: Vec<Option<bool>> = vec![None; kernel.exprs.len()];
    let given: Vec<(usize, ExprId)> =
        values.iter().enumerate().filter_map(|(local, value)| Some((local, (*value)?))).collect();
    for (local, value) in given {
        let mut pending = vec![value];
        while let Some(id) = pending.last().copied() {
            let expr = kernel.exprs.get(id);
            let mut needs = expr.operands().to_vec();
            if let Expr::Local(local) = expr {
                needs.extend(values[local.index()]);
            }
            match (known[id.index()], needs.iter().find(|need| known[need.index()].is_none())) {
                (Some(_), _) => {
                    pending.pop();
                }
                (None, Some(need)) => pending.push(*need),
                (None, None) => {
                    let reads = matches!(expr, Expr::Load { .. });
                    known[id.index()] = Some(reads || needs.iter().any(|need| known[need.index()] == Some(true)));
                }
            }
        }
        loaded[local] = known[value.index()] == Some(true);
    }
    loaded
}

fn own_cost(kernel: &Kernel, id: ExprId) -> u32 {
    match kernel.exprs.get(id) {
        Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Local(_) | Expr::Builtin(_) | Expr::Len(_) => 0,
        Expr::Splat(..) | Expr::Extract(..) | Expr::Bitcast(..) => 0,
        Expr::Cast(..) => 1,
        Expr::Load { .. } => EXPENSIVE,
        Expr::Alu(op, _) => match op {
            Alu::Math(_) | Alu::Pow => 16,
            Alu::Div | Alu::Rem | Alu::Sqrt => EXPENSIVE,
            Alu::Neg
            | Alu::Not
            | Alu::Abs
            | Alu::PopCount
            | Alu::Floor
            | Alu::Ceil
            | Alu::Round
            | Alu::Trunc
            | Alu::Add
            | Alu::Sub => 1,
            Alu::Mul
            | Alu::Min
            | Alu::Max
            | Alu::And
            | Alu::Or
            | Alu::Xor
            | Alu::Shl
            | Alu::Shr
            | Alu::Lt
            | Alu::Le => 1,
            Alu::Eq | Alu::Ne | Alu::Select | Alu::Fma => 1,
        },
    }
}

/// State changed by a block, for expressions evaluated after part of it has run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    /// Locals that are assigned or introduced.
    pub locals: Vec<LocalId>,
    /// Memories that are written.
    pub mems: Vec<MemId>,
    /// True if writes of other work-items become visible.
    pub synchronizes: bool,
}

impl Effects {
    /// Returns the effects of one statement, without nested blocks.
    pub fn of_op(op: &Op) -> Effects {
        let mut effects = Effects::default();
        effects.add(op);
        effects
    }

    /// Returns the effects of a block, including nested blocks.
    pub fn of_block(block: &Block) -> Effects {
        let mut effects = Effects::default();
        visit(block, &mut |op| effects.add(op));
        effects
    }

    fn add(&mut self, op: &Op) {
        self.locals.extend(op.introduces());
        match op {
            Op::Assign { local, .. } => self.locals.push(*local),
            Op::Store { mem, .. } | Op::Atomic { mem, .. } => self.mems.push(*mem),
            Op::Barrier | Op::Collective { .. } => self.synchronizes = true,
            Op::Let { .. } | Op::If { .. } | Op::For { .. } | Op::While { .. } => {}
            Op::Break | Op::Continue | Op::Return => {}
        }
    }

    /// Returns true if an expression has the same value before and after.
    pub fn preserves(&self, kernel: &Kernel, deps: &ExprDeps, id: ExprId) -> bool {
        let others_write = |mem: &MemId| self.synchronizes && !matches!(kernel.mem(*mem).space, Space::Private(_));
        !deps.locals(id).iter().any(|local| self.locals.contains(local))
            && !deps.mems(id).iter().any(|mem| self.mems.contains(mem) || others_write(mem))
    }
}
