//! Loop versioning: a loop becomes two versions, one without guards and the original, selected by a condition before it that
//! all accesses are in bounds (LLVM's inductive range check elimination).

use std::collections::HashMap;

use panoply_ir::Alu;
use panoply_ir::kernel::{Access, Block, Expr, ExprId, Guard, Kernel, MemId, Op, Space, Stmt};

use crate::opt::Fuel;
use crate::opt::clone::BlockCloner;
use crate::opt::effects::{Effects, ExprDeps};
use crate::opt::walk::{KernelExt, map_block, rebuild, transitive_operands, visit};

/// Maximum number of accesses checked before a loop.
const MAX_ACCESSES: usize = 6;

/// Maximum work of a loop that is duplicated, counted in statements and in the operations they evaluate.
const MAX_WORK: usize = 192;

/// Maximum number of subexpressions of an index that are visited.
const MAX_VISITS: u32 = 32;

/// Limit of loop bounds, strides and bases in the fast version, so that `stride × counter + base` does not wrap a 64-bit index
/// and each factor fits a 32-bit one.
const MAX_FACTOR: u64 = (1 << 31) - 1;

/// Versions the loops of a block where it is profitable. `loaded` is the result of [`loaded_locals`] for the kernel.
///
/// [`loaded_locals`]: crate::opt::effects::loaded_locals
pub(super) fn version_loops(kernel: &mut Kernel, block: &mut Block, loaded: &[bool], fuel: &mut Fuel) {
    for stmt in block {
        let Some(plan) = plan(kernel, &stmt.op, loaded) else { continue };
        if fuel.spend() {
            version_loop(kernel, stmt, plan);
        }
    }
}

/// An index `stride × counter + base` with loop-invariant stride and base; `None` means 0.
#[derive(Clone, Copy, Default)]
struct StridedIndex {
    stride: Option<ExprId>,
    base: Option<ExprId>,
}

/// The guards that the fast version of a loop omits.
struct VersionedLoop {
    /// Memory and index of each access, and the decomposition of the index.
    accesses: Vec<(MemId, ExprId, StridedIndex)>,
}

/// Returns the guards that a loop can omit if it is worth versioning: an innermost loop with step 1, whose body is short and
/// does not synchronize.
fn plan(kernel: &mut Kernel, op: &Op, loaded: &[bool]) -> Option<VersionedLoop> {
    let Op::For { counter, end, step, body, .. } = op else { return None };
    let by_one = kernel.exprs.get(*step) == Expr::Index(1);
    let mut work = 0;
    let mut simple = by_one;
    let mut found: Vec<(MemId, ExprId)> = Vec::new();
    visit(body, &mut |op| {
        let evaluated = transitive_operands(kernel, &op.operands());
        work += 1 + evaluated.len();
        simple &= !matches!(op, Op::For { .. } | Op::While { .. } | Op::Barrier | Op::Collective { .. });
        for id in evaluated {
            if let Expr::Load { mem, index, lanes: 1, guard: Guard::Checked } = kernel.exprs.get(id) {
                found.push((mem, index));
            }
        }
        if let Op::Store { mem, index, value, guard: Guard::Checked } = op
            && kernel.exprs.ty(*value).lanes() == 1
        {
            found.push((*mem, *index));
        }
    });
    found.sort_unstable();
    found.dedup();
    if !simple || work > MAX_WORK || found.is_empty() {
        return None;
    }
    let mut effects = Effects::of_block(body);
    effects.locals.push(*counter);
    let deps = ExprDeps::with_loaded_locals(kernel, loaded);
    if deps.is_loaded(*end) {
        return None;
    }
    let counter_read = kernel.expr(Expr::Local(*counter));
    let strided = |kernel: &mut Kernel, index| {
        let mut decomposer =
            Decomposer { kernel, deps: &deps, effects: &effects, counter: counter_read, visits: MAX_VISITS };
        decomposer.decompose(index)
    };
    let mut accesses: Vec<_> =
        found.into_iter().filter_map(|(mem, index)| Some((mem, index, strided(kernel, index)?))).collect();
    // Loop-invariant accesses are left to invariant code motion.
    accesses.retain(|(_, _, strided)| strided.stride.is_some());
    (1..=MAX_ACCESSES).contains(&accesses.len()).then_some(VersionedLoop { accesses })
}

/// Decomposes the indices of one loop into stride and base.
struct Decomposer<'d> {
    kernel: &'d mut Kernel,
    deps: &'d ExprDeps,
    effects: &'d Effects,
    /// Expression that reads the loop's counter.
    counter: ExprId,
    /// Remaining number of visits; shared subexpressions are visited once per path.
    visits: u32,
}

impl Decomposer<'_> {
    /// Returns an index as stride and base; `None` if it is not affine in the counter, or if they depend on loaded values.
    fn decompose(&mut self, index: ExprId) -> Option<StridedIndex> {
        self.visits = self.visits.checked_sub(1)?;
        if index == self.counter {
            return Some(StridedIndex { stride: Some(self.kernel.index(1)), base: None });
        }
        let known = index.index() < self.deps.len();
        if known && self.effects.preserves(self.kernel, self.deps, index) {
            // A loaded value could differ between the comparison before the loop and the loop.
            return (!self.deps.is_loaded(index)).then_some(StridedIndex { stride: None, base: Some(index) });
        }
        let Expr::Alu(op @ (Alu::Add | Alu::Mul), args) = self.kernel.exprs.get(index) else { return None };
        let (left, right) = (self.decompose(args[0])?, self.decompose(args[1])?);
        if op == Alu::Add {
            let (stride, base) = (self.plus(left.stride, right.stride), self.plus(left.base, right.base));
            return Some(StridedIndex { stride, base });
        }
        let (strided, factor) = match (left.stride, right.stride) {
            (_, None) => (left, right.base?),
            (None, _) => (right, left.base?),
            _ => return None,
        };
        let mut times = |part: Option<ExprId>| part.map(|part| self.kernel.alu(Alu::Mul, &[part, factor]));
        Some(StridedIndex { stride: times(strided.stride), base: times(strided.base) })
    }

    fn plus(&mut self, a: Option<ExprId>, b: Option<ExprId>) -> Option<ExprId> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.kernel.alu(Alu::Add, &[a, b])),
            (a, b) => a.or(b),
        }
    }
}

/// Replaces a loop by both versions.
fn version_loop(kernel: &mut Kernel, stmt: &mut Stmt, plan: VersionedLoop) {
    let Op::For { start, end, .. } = stmt.op else { unreachable!("only counting loops are versioned") };
    let wrap = |op: Op| vec![Stmt { op, at: stmt.at }];
    let condition = all_in_bounds(kernel, end, &plan);
    let mut slow = wrap(stmt.op.clone());
    BlockCloner::replacing(HashMap::new()).rewrite(kernel, &mut slow, true);
    let mut fast = stmt.op.clone();
    if let Op::For { body, .. } = &mut fast {
        drop_guards(kernel, body, &plan);
    }
    let iterates = kernel.alu(Alu::Lt, &[start, end]);
    let either = Op::If { condition, then: wrap(fast), otherwise: slow };
    stmt.op = Op::If { condition: iterates, then: wrap(either), otherwise: Block::new() };
}

/// Returns the condition that every access of the last iteration is in bounds, assuming there is one. Accesses of
/// earlier iterations have smaller indices, because the condition also bounds limits, strides and bases so that nothing wraps.
fn all_in_bounds(kernel: &mut Kernel, end: ExprId, plan: &VersionedLoop) -> ExprId {
    let (one, limit) = (kernel.index(1), kernel.index(MAX_FACTOR));
    let last = kernel.alu(Alu::Sub, &[end, one]);
    let mut all = kernel.alu(Alu::Le, &[end, limit]);
    let mut also = |kernel: &mut Kernel, op: Alu, a: ExprId, b: ExprId| {
        let condition = kernel.alu(op, &[a, b]);
        all = kernel.alu(Alu::And, &[all, condition]);
    };
    for (mem, _, strided) in &plan.accesses {
        let mut index = last;
        if let Some(stride) = strided.stride.filter(|stride| *stride != one) {
            also(kernel, Alu::Le, stride, limit);
            index = kernel.alu(Alu::Mul, &[index, stride]);
        }
        if let Some(base) = strided.base {
            also(kernel, Alu::Le, base, limit);
            index = kernel.alu(Alu::Add, &[index, base]);
        }
        let len = kernel.expr(Expr::Len(*mem));
        also(kernel, Alu::Lt, index, len);
    }
    all
}

/// Removes the guards of the accesses in a loop's body.
fn drop_guards(kernel: &mut Kernel, body: &mut Block, plan: &VersionedLoop) {
    let mut value_map = HashMap::new();
    for (mem, index, _) in &plan.accesses {
        let load = |guard| Expr::Load { mem: *mem, index: *index, lanes: 1, guard };
        if kernel.mem(*mem).space != Space::Buffer(Access::Out) {
            let (guarded, proven) = (kernel.expr(load(Guard::Checked)), kernel.expr(load(Guard::Proven)));
            value_map.insert(guarded, proven);
        }
    }
    map_block(body, &mut |id| rebuild(kernel, id, &mut value_map));
    drop_store_guards(kernel, body, plan);
}

fn drop_store_guards(kernel: &Kernel, body: &mut Block, plan: &VersionedLoop) {
    for stmt in body {
        if let Op::Store { mem, index, value, guard } = &mut stmt.op
            && kernel.exprs.ty(*value).lanes() == 1
            && plan.accesses.iter().any(|(of, at, _)| (of, at) == (mem, index))
        {
            *guard = Guard::Proven;
        }
        stmt.op.blocks_mut().into_iter().for_each(|inner| drop_store_guards(kernel, inner, plan));
    }
}
