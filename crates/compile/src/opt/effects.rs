//! What an expression's value depends on besides its operands, and what a block changes.

use panoply_ir::Alu;
use panoply_ir::kernel::{Access, Block, Expr, ExprId, Kernel, LocalId, MemId, Op, Space};

use super::walk::visit;

/// For every expression of a kernel, what it mentions that may change, and what it costs.
pub(crate) struct ExprDeps {
    locals: Vec<Vec<LocalId>>,
    mems: Vec<Vec<MemId>>,
    costs: Vec<Cost>,
    /// Whether its value comes from memory.
    loaded: Vec<bool>,
}

/// About how much work an expression is, in simple operations.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Of its dearest operation.
    dearest: u32,
    /// Of all, as a tree.
    total: u32,
}

/// From here on an operation is dear: a read, a division, anything transcendental.
const DEAR: u32 = 4;

impl ExprDeps {
    pub fn of(kernel: &Kernel) -> ExprDeps {
        ExprDeps::knowing(kernel, &loaded_locals(kernel))
    }

    /// The same of a kernel whose body is elsewhere, given its [`loaded_locals`]. Locals that were made since are taken for loaded.
    pub fn knowing(kernel: &Kernel, loaded_locals: &[bool]) -> ExprDeps {
        let mut mentions = ExprDeps { locals: Vec::new(), mems: Vec::new(), costs: Vec::new(), loaded: Vec::new() };
        for (id, expr, _) in kernel.exprs.iter() {
            let (mut locals, mut mems) = (Vec::new(), Vec::new());
            let own = own_cost(kernel, id);
            let mut cost = Cost { dearest: own, total: own };
            match expr {
                Expr::Local(local) => locals.push(local),
                Expr::Load { mem, .. } if kernel.mem(mem).space != Space::Buffer(Access::In) => mems.push(mem),
                _ => {}
            }
            for operand in expr.operands().iter() {
                locals.extend(&mentions.locals[operand.index()]);
                mems.extend(&mentions.mems[operand.index()]);
                let operand = mentions.costs[operand.index()];
                cost.dearest = cost.dearest.max(operand.dearest);
                cost.total = cost.total.saturating_add(operand.total);
            }
            let loaded_local = |local: LocalId| loaded_locals.get(local.index()).copied().unwrap_or(true);
            let loaded = matches!(expr, Expr::Load { .. })
                || matches!(expr, Expr::Local(local) if loaded_local(local))
                || expr.operands().iter().any(|operand| mentions.loaded[operand.index()]);
            mentions.loaded.push(loaded);
            locals.sort_unstable();
            locals.dedup();
            mems.sort_unstable();
            mems.dedup();
            mentions.locals.push(locals);
            mentions.mems.push(mems);
            mentions.costs.push(cost);
        }
        mentions
    }

    /// How many expressions it knows: those made later are not among them.
    pub fn len(&self) -> usize {
        self.costs.len()
    }

    /// The locals an expression reads.
    pub fn locals(&self, id: ExprId) -> &[LocalId] {
        &self.locals[id.index()]
    }

    /// The memories an expression reads that somebody may write.
    pub fn mems(&self, id: ExprId) -> &[MemId] {
        &self.mems[id.index()]
    }

    /// Whether an expression's value comes from memory, directly or by way of immutable locals. A back end may read that memory again
    /// wherever the value is used, and another launch or another work-item may have written it in between, so a comparison of
    /// the value proves nothing about a later use.
    pub fn is_loaded(&self, id: ExprId) -> bool {
        self.loaded[id.index()]
    }

    /// Whether an expression is worth a local. Cheap index arithmetic is not: executors advance affine addresses themselves,
    /// and see through them better as they stand.
    pub fn is_worth_a_local(&self, kernel: &Kernel, id: ExprId) -> bool {
        let cost = self.costs[id.index()];
        let is_plain = matches!(kernel.exprs.get(id), Expr::Splat(..) | Expr::Extract(..));
        let is_index = kernel.exprs.ty(id) == panoply_ir::Type::Index;
        !is_plain && (cost.dearest >= DEAR || !is_index && cost.total >= 2)
    }
}

/// For every local whether it is immutable and its value comes from memory: see [`ExprDeps::is_loaded`]. A mutable local has a variable of
/// its own, which holds what was read once.
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
        Expr::Load { .. } => DEAR,
        Expr::Alu(op, _) => match op {
            Alu::Math(_) | Alu::Pow => 16,
            Alu::Div | Alu::Rem | Alu::Sqrt => DEAR,
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

/// What a block changes for expressions evaluated after some of it has run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    /// Locals that are assigned or introduced.
    pub locals: Vec<LocalId>,
    /// Memories that are written.
    pub mems: Vec<MemId>,
    /// Whether other work-items' writes become visible.
    pub synchronizes: bool,
}

impl Effects {
    /// What one statement changes, blocks inside aside.
    pub fn of_op(op: &Op) -> Effects {
        let mut effects = Effects::default();
        effects.add(op);
        effects
    }

    /// What a block changes, with the blocks inside.
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

    /// Whether an expression means the same before and after.
    pub fn preserves(&self, kernel: &Kernel, mentions: &ExprDeps, id: ExprId) -> bool {
        let others_write = |mem: &MemId| self.synchronizes && !matches!(kernel.mem(*mem).space, Space::Private(_));
        !mentions.locals(id).iter().any(|local| self.locals.contains(local))
            && !mentions.mems(id).iter().any(|mem| self.mems.contains(mem) || others_write(mem))
    }
}
