//! Execution of one work-group: its work-items, their locals, and the effects of statements.

use super::memory::Store;
use super::plan::CompiledStmt;
use super::{Access, AccessKind, Divergence, Launch, Observer, WorkItem, scalar};
use crate::alu::Alu;
use crate::dtype::{DType, Scalar, Type};
use crate::error::{Error, Result};
use crate::kernel::*;

/// The active work-items.
pub(super) type Mask = Vec<bool>;

pub(super) struct WorkGroup<'l, 'a, O> {
    pub(super) launch: &'l Launch<'l>,
    pub(super) observer: &'l mut O,
    /// All memories, by id.
    pub(super) stores: Vec<Store<'a>>,
    /// Lanes of every local for each work-item.
    pub(super) locals: Vec<Vec<u64>>,
    /// Lanes of the expressions that one work-item evaluates for one statement.
    pub(super) values: Vec<u64>,
    /// True for the expressions that the source would evaluate.
    pub(super) demanded: Vec<bool>,
    /// For each enclosing loop, the work-items that broke out of it and those that wait for its next iteration.
    loops: Vec<LoopExits>,
    pub(super) id: [u64; 3],
    pub(super) items: Vec<WorkItem>,
}

struct LoopExits {
    broken: Mask,
    continued: Mask,
}

fn none(mask: &Mask) -> bool {
    !mask.contains(&true)
}

/// Returns the indices of the active work-items.
fn present(mask: &Mask) -> Vec<usize> {
    mask.iter().enumerate().filter(|(_, there)| **there).map(|(item, _)| item).collect()
}

fn join(mask: &mut Mask, others: &Mask) {
    mask.iter_mut().zip(others).for_each(|(there, other)| *there |= *other);
}

/// Returns the element type of a type; indices are u64.
pub(super) fn element(ty: Type) -> DType {
    ty.dtype().unwrap_or(DType::U64)
}

impl<'l, 'a, O: Observer> WorkGroup<'l, 'a, O> {
    pub(super) fn new(launch: &'l Launch<'l>, stores: Vec<Store<'a>>, observer: &'l mut O) -> Self {
        let items: usize = launch.group.iter().map(|size| *size as usize).product();
        let locals = launch.kernel.locals.iter().map(|local| vec![0; items * local.ty.lanes() as usize]).collect();
        WorkGroup {
            launch,
            observer,
            stores,
            locals,
            values: vec![0; launch.plan.lanes],
            demanded: vec![false; launch.plan.offsets.len()],
            loops: Vec::new(),
            id: [0; 3],
            items: Vec::new(),
        }
    }

    /// Runs one work-group from start to end.
    pub(super) fn run(&mut self, id: [u64; 3]) -> Result<()> {
        let Launch { kernel, plan, grid, group, .. } = *self.launch;
        let counts = self.launch.group_counts();
        let number = id[0] + counts[0] * (id[1] + counts[1] * id[2]);
        self.id = id;
        self.items.clear();
        let first: [u64; 3] = std::array::from_fn(|axis| id[axis] * group[axis] as u64);
        for z in 0..group[2] as u64 {
            for y in 0..group[1] as u64 {
                for x in 0..group[0] as u64 {
                    let global = [first[0] + x, first[1] + y, first[2] + z];
                    self.items.push(WorkItem { global, local: self.items.len() as u32, group: number });
                }
            }
        }
        for (memory, store) in kernel.mems.iter().zip(&mut self.stores) {
            store.scramble(memory.dtype);
        }
        self.observer.group(number)?;
        let inside = |item: &WorkItem| kernel.group_size.is_some() || (0..3).all(|axis| item.global[axis] < grid[axis]);
        let mut mask = self.items.iter().map(inside).collect();
        self.block(&plan.body, &mut mask)
    }

    fn block(&mut self, block: &[CompiledStmt<'_>], mask: &mut Mask) -> Result<()> {
        for step in block {
            if none(mask) {
                break;
            }
            self.step(step, mask)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &CompiledStmt<'_>, mask: &mut Mask) -> Result<()> {
        let at = step.stmt.at;
        match &step.stmt.op {
            Op::Let { local, value } | Op::Assign { local, value } => {
                for item in present(mask) {
                    self.evaluate(step, item)?;
                    self.set_local(*local, item, *value);
                }
            }
            Op::Store { mem, index, value, .. } => self.store(step, mask, *mem, *index, *value)?,
            Op::Atomic { .. } => self.atomic(step, mask)?,
            Op::Collective { op, scope, value, result } => {
                self.meet(mask, at)?;
                match op {
                    CollectiveOp::Mma(mma) => self.multiply(step, mask, mma, *value, *result)?,
                    _ => self.collective(step, mask, *op, *scope, *value, *result)?,
                }
            }
            Op::Barrier => {
                self.meet(mask, at)?;
                self.observer.barrier(at)?;
            }
            Op::If { condition, .. } => {
                let mut then = self.holds(step, mask, *condition)?;
                let mut otherwise: Mask = mask.iter().zip(&then).map(|(there, then)| *there && !then).collect();
                self.block(&step.blocks[0], &mut then)?;
                self.block(&step.blocks[1], &mut otherwise)?;
                join(&mut then, &otherwise);
                *mask = then;
            }
            Op::For { counter, start, end, step: by, .. } => {
                self.count(step, mask, *counter, [*start, *end, *by])?;
            }
            Op::While { condition, .. } => self.repeat(step, mask, *condition)?,
            Op::Break | Op::Continue => {
                let left = self.loops.last_mut().expect("the verifier requires an enclosing loop");
                let leaving = if step.stmt.op == Op::Break { &mut left.broken } else { &mut left.continued };
                join(leaving, mask);
                mask.fill(false);
            }
            Op::Return => mask.fill(false),
        }
        Ok(())
    }

    // Loops.

    fn repeat(&mut self, step: &CompiledStmt<'_>, mask: &mut Mask, condition: ExprId) -> Result<()> {
        let mut done = vec![false; mask.len()];
        let mut active = std::mem::take(mask);
        while !none(&active) {
            let holds = self.holds(step, &active, condition)?;
            done.iter_mut().zip(&active).zip(&holds).for_each(|((done, there), holds)| *done |= *there && !holds);
            active = holds;
            self.iteration(step, &mut active, &mut done)?;
        }
        *mask = done;
        Ok(())
    }

    fn count(&mut self, step: &CompiledStmt<'_>, mask: &mut Mask, counter: LocalId, range: [ExprId; 3]) -> Result<()> {
        let dtype = element(self.launch.kernel.local(counter).ty);
        let mut next = vec![0_i128; mask.len()];
        let (mut end, mut by) = (next.clone(), next.clone());
        for item in present(mask) {
            self.evaluate(step, item)?;
            let value =
                |id: ExprId| Scalar { dtype, bits: self.values[self.launch.plan.offsets[id.index()]] }.to_i128();
            (next[item], end[item], by[item]) = (value(range[0]), value(range[1]), value(range[2]));
            if by[item] < 1 {
                let error = format!("kernel {}: a loop with step {}", self.launch.kernel.name, by[item]);
                let place = self.launch.kernel.place(step.stmt.at).unwrap_or_default();
                return Err(Error::mistake(error + "; the step must be at least 1").note(place));
            }
        }
        let mut done = vec![false; mask.len()];
        let mut active = std::mem::take(mask);
        while !none(&active) {
            for item in present(&active) {
                if next[item] >= end[item] {
                    (active[item], done[item]) = (false, true);
                } else {
                    self.locals[counter.index()][item] = Scalar::from_i128(dtype, next[item]).bits;
                    next[item] += by[item];
                }
            }
            self.iteration(step, &mut active, &mut done)?;
        }
        *mask = done;
        Ok(())
    }

    /// Runs one iteration. Afterwards `active` contains the work-items that continue, and `done` those that left the loop.
    fn iteration(&mut self, step: &CompiledStmt<'_>, active: &mut Mask, done: &mut Mask) -> Result<()> {
        if none(active) {
            return Ok(());
        }
        self.observer.iteration(step.stmt.at)?;
        self.loops.push(LoopExits { broken: vec![false; done.len()], continued: vec![false; done.len()] });
        let outcome = self.block(&step.blocks[0], active);
        let left = self.loops.pop().expect("pushed above");
        join(active, &left.continued);
        join(done, &left.broken);
        outcome
    }

    fn holds(&mut self, step: &CompiledStmt<'_>, mask: &Mask, condition: ExprId) -> Result<Mask> {
        let mut holds = vec![false; mask.len()];
        for item in present(mask) {
            self.evaluate(step, item)?;
            holds[item] = self.lanes(condition)[0] != 0;
        }
        Ok(holds)
    }

    // Effects.

    fn store(&mut self, step: &CompiledStmt<'_>, mask: &Mask, mem: MemId, index: ExprId, value: ExprId) -> Result<()> {
        let mut writes = Vec::new();
        for item in present(mask) {
            self.evaluate(step, item)?;
            writes.push((item, self.lanes(index)[0], self.lanes(value).to_vec()));
        }
        for (item, first, lanes) in writes {
            for (lane, bits) in lanes.into_iter().enumerate() {
                let cell = self.touch(AccessKind::Store, mem, first.checked_add(lane as u64), item, step.stmt.at)?;
                if let Some(cell) = cell {
                    self.stores[mem.index()].set(self.launch.kernel.mem(mem).dtype, cell, bits);
                }
            }
        }
        Ok(())
    }

    fn atomic(&mut self, step: &CompiledStmt<'_>, mask: &Mask) -> Result<()> {
        let Op::Atomic { op, mem, index, value, expected, old, .. } = &step.stmt.op else { return Ok(()) };
        let dtype = self.launch.kernel.mem(*mem).dtype;
        for item in present(mask) {
            self.evaluate(step, item)?;
            let operand = Scalar { dtype, bits: self.lanes(*value)[0] };
            let expected = expected.map(|expected| self.lanes(expected)[0]);
            let cell = self.touch(AccessKind::Atomic, *mem, Some(self.lanes(*index)[0]), item, step.stmt.at)?;
            let before = cell.map_or(0, |cell| self.stores[mem.index()].get(dtype, cell));
            let before = Scalar { dtype, bits: before };
            let after = match op {
                AtomicOp::Add => scalar::alu(Alu::Add, &[before, operand]),
                AtomicOp::Min => scalar::alu(Alu::Min, &[before, operand]),
                AtomicOp::Max => scalar::alu(Alu::Max, &[before, operand]),
                AtomicOp::Exchange => operand,
                AtomicOp::CompareExchange if expected == Some(before.bits) => operand,
                AtomicOp::CompareExchange => before,
            };
            if let Some(cell) = cell {
                self.stores[mem.index()].set(dtype, cell, after.bits);
            }
            if let Some(old) = old {
                self.locals[old.index()][item] = before.bits;
            }
        }
        Ok(())
    }

    fn collective(
        &mut self,
        step: &CompiledStmt<'_>,
        mask: &Mask,
        op: CollectiveOp,
        scope: Scope,
        value: ExprId,
        result: LocalId,
    ) -> Result<()> {
        let dtype = element(self.launch.kernel.exprs.ty(value));
        let (mut given, mut wanted) = (vec![None; mask.len()], vec![0; mask.len()]);
        for item in present(mask) {
            self.evaluate(step, item)?;
            given[item] = Some(Scalar { dtype, bits: self.lanes(value)[0] });
            if let CollectiveOp::Shuffle(lane) = op {
                wanted[item] = usize::try_from(self.lanes(lane)[0]).unwrap_or(usize::MAX);
            }
        }
        let together = match scope {
            Scope::Group => mask.len(),
            Scope::Subgroup => self.launch.subgroup,
        };
        for first in (0..mask.len()).step_by(together) {
            let them = first..mask.len().min(first + together);
            let results = combine(op, dtype, &given[them.clone()], &wanted[them]);
            for (item, combined) in (first..).zip(results) {
                if mask[item] {
                    self.locals[result.index()][item] = combined.bits;
                }
            }
        }
        Ok(())
    }

    /// Reports a divergence if not all work-items are active.
    fn meet(&mut self, mask: &Mask, at: Loc) -> Result<()> {
        let came = mask.iter().position(|there| *there);
        let missing = mask.iter().position(|there| !there);
        let (Some(came), Some(missing)) = (came, missing) else { return Ok(()) };
        let arrived = mask.iter().filter(|there| **there).count();
        let witnesses = [self.items[came], self.items[missing]];
        self.observer.diverged(Divergence { arrived, items: mask.len(), witnesses, at })
    }

    /// Reports an access and returns the cell of the element, if it is in bounds.
    pub(super) fn touch(
        &mut self,
        touch: AccessKind,
        mem: MemId,
        element: Option<u64>,
        item: usize,
        at: Loc,
    ) -> Result<Option<usize>> {
        let len = self.len(mem);
        if O::WATCHES {
            self.observer.access(Access { touch, mem, element, len, item: self.items[item], at })?;
        }
        Ok(self.cell(mem, element, item))
    }

    pub(super) fn cell(&self, mem: MemId, element: Option<u64>, item: usize) -> Option<usize> {
        let len = self.len(mem);
        let element = element.filter(|element| *element < len)?;
        Some(match self.launch.kernel.mem(mem).space {
            Space::Buffer(_) | Space::Shared(_) => element as usize,
            Space::Private(len) => item * len as usize + element as usize,
        })
    }

    pub(super) fn len(&self, mem: MemId) -> u64 {
        let memory = self.launch.kernel.mem(mem);
        match memory.space {
            Space::Buffer(_) => (self.stores[mem.index()].bytes() / memory.dtype.bytes()) as u64,
            Space::Shared(len) | Space::Private(len) => len as u64,
        }
    }
}

/// Returns the result of each work-item in the scope; inactive ones have no value.
fn combine(op: CollectiveOp, dtype: DType, given: &[Option<Scalar>], wanted: &[usize]) -> Vec<Scalar> {
    let absent = Scalar { dtype, bits: 0 };
    let mut results = Vec::with_capacity(given.len());
    match op {
        CollectiveOp::Broadcast(from) => {
            let value = given.get(from as usize).copied().flatten();
            results.resize(given.len(), value.unwrap_or(absent));
        }
        CollectiveOp::Shuffle(_) => {
            let theirs = given.iter().zip(wanted).map(|(own, lane)| given.get(*lane).copied().flatten().or(*own));
            results.extend(theirs.map(|value| value.unwrap_or(absent)));
        }
        CollectiveOp::Mma(_) => unreachable!("matrix products are handled separately"),
        CollectiveOp::Reduce(reduce) => results.resize(given.len(), halved(reduce, dtype, given)),
        CollectiveOp::InclusiveScan(reduce) | CollectiveOp::ExclusiveScan(reduce) => {
            let mut so_far = reduce.identity(dtype);
            for value in given {
                let before = so_far;
                if let Some(value) = value {
                    so_far = scalar::alu(reduce.alu(), &[so_far, *value]);
                }
                results.push(if matches!(op, CollectiveOp::ExclusiveScan(_)) { before } else { so_far });
            }
        }
    }
    results
}

/// Reduces all values in the order of [`CollectiveOp::Reduce`]; inactive work-items contribute the identity.
fn halved(op: ReduceOp, dtype: DType, given: &[Option<Scalar>]) -> Scalar {
    let mut values: Vec<Scalar> = given.iter().map(|value| value.unwrap_or(op.identity(dtype))).collect();
    let mut width = values.len().next_power_of_two() / 2;
    while width > 0 {
        let (kept, taken) = values.split_at_mut(width);
        kept.iter_mut().zip(&*taken).for_each(|(kept, taken)| *kept = scalar::alu(op.alu(), &[*kept, *taken]));
        values.truncate(width);
        width /= 2;
    }
    values[0]
}
