//! Lowers collectives to shared memory, barriers and shuffles. A language needs only the last of these as a primitive,
//! and only if its device has subgroups.
//!
//! Any group size is supported. The order of combination depends only on the group size, so results are the same in
//! every run:
//!
//! * **reduce**: a tree. At each width w, from half of the next power of two down to 1, work-item l < w adds element l
//!   + w. Consecutive reductions that do not depend on each other are done together, and share their barriers;
//! * **scan**: Hillis and Steele, log₂ n rounds in which each work-item adds the element 1, 2, 4 … before it (W. D.
//!   Hillis, G. L. Steele: Data parallel algorithms, CACM 29(12), 1986);
//! * **broadcast**: one work-item writes, all read.
//!
//! Within a subgroup the same is done by shuffles (`subgroup.rs`). The last rounds of a group's reduction also use
//! shuffles, with the same pairs. If a subgroup is a single work-item, its collectives are trivial.
//!
//! The result is not verified: the result of a reduction is uniform, which cannot be recognized after a load from
//! shared memory. Uniformity holds because the original kernel was verified and its collectives are in uniform control
//! flow.

use std::collections::HashMap;

use panoply_ir::kernel::{
    Block, Builtin, CollectiveOp, Expr, ExprId, Guard, Kernel, Loc, LocalId, MemId, Memory, Op, Scope, Space, Stmt,
};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::target::Language;
use panoply_ir::{Alu, DType, Target, Type};

use super::walk::{KernelExt, live_exprs, map_block, rebuild, transitive_operands};

mod subgroup;

/// Returns true if [`expand`] would change the kernel.
pub(crate) fn applies(kernel: &Kernel) -> bool {
    let mut collectives = false;
    kernel.walk(&mut |stmt| collectives |= matches!(&stmt.op, Op::Collective { op, .. } if !stays(*op)));
    let numbers = [Builtin::SubgroupLane, Builtin::SubgroupSize].map(Expr::Builtin);
    collectives || live_exprs(kernel).into_iter().any(|id| numbers.contains(&kernel.exprs.get(id)))
}

/// Returns true if the target supports a collective directly. After [`super::expand_mma`] only supported matrix
/// products remain.
fn stays(op: CollectiveOp) -> bool {
    matches!(op, CollectiveOp::Mma(_))
}

/// Maximum number of reductions that share their barriers; each has a separate array in shared memory.
const MAX_JOINED: usize = 16;

/// Returns the kernel without collectives except matrix products and 32-bit shuffles. The kernel must have been
/// verified; the result might not verify, see the module documentation.
pub(crate) fn expand(mut kernel: Kernel, target: &Target) -> Kernel {
    let Some(group) = kernel.group_size else { return kernel };
    let subgroup = target.subgroup_of(kernel.group_size);
    let mut body = std::mem::take(&mut kernel.body);
    number_subgroup(&mut kernel, &mut body, subgroup);
    let id = linear_id(&mut kernel, group);
    let local = kernel.new_local("item", Type::Index, false);
    let lane = kernel.expr(Expr::Local(local));
    let items = group.iter().product();
    let room = room(&kernel, target, items, subgroup);
    let mut expander = Expander { kernel, target, lane, items, subgroup, room, scratch: HashMap::new() };
    let mut body = expander.block(body);
    body.insert(0, Stmt { op: Op::Let { local, value: id }, at: Loc::default() });
    Kernel { body, ..expander.kernel }
}

/// Returns the bytes of shared memory not used by a kernel. In WGSL its shuffles can need some of them.
fn room(kernel: &Kernel, target: &Target, items: u32, subgroup: u32) -> u64 {
    let bytes = |mem: &Memory| match mem.space {
        Space::Shared(len) => u64::from(len) * target.shared_elem_bytes(mem.dtype),
        Space::Buffer(_) | Space::Private(_) => 0,
    };
    let shuffles = if target.language == Language::Wgsl && subgroup > 1 { 4 * u64::from(items) } else { 0 };
    u64::from(target.shared_bytes).saturating_sub(kernel.mems.iter().map(bytes).sum::<u64>() + shuffles)
}

/// Replaces the subgroup size, and the lane id in a subgroup of a single work-item, by constants.
fn number_subgroup(kernel: &mut Kernel, body: &mut Block, subgroup: u32) {
    let mut known = HashMap::new();
    let size = kernel.expr(Expr::Builtin(Builtin::SubgroupSize));
    known.insert(size, kernel.index(subgroup as u64));
    if subgroup == 1 {
        let lane = kernel.expr(Expr::Builtin(Builtin::SubgroupLane));
        known.insert(lane, kernel.index(0));
    }
    map_block(body, &mut |id| rebuild(kernel, id, &mut known));
}

/// Returns `x + size.x * (y + size.y * z)`, without axes of length 1.
pub(crate) fn linear_id(kernel: &mut Kernel, group: [u32; 3]) -> ExprId {
    let mut id = None;
    for axis in (0..3).rev().filter(|axis| group[*axis] > 1) {
        let own = kernel.expr(Expr::Builtin(Builtin::LocalId(axis as u8)));
        id = Some(match id {
            None => own,
            Some(outer) => {
                let size = kernel.index(group[axis] as u64);
                let rows = kernel.alu(Alu::Mul, &[outer, size]);
                kernel.alu(Alu::Add, &[own, rows])
            }
        });
    }
    id.unwrap_or_else(|| kernel.index(0))
}

struct Expander<'t> {
    kernel: Kernel,
    target: &'t Target,
    /// Linear id of the work-item in the group.
    lane: ExprId,
    items: u32,
    /// Work-items of a full subgroup.
    subgroup: u32,
    /// Bytes of shared memory not used by the kernel itself.
    room: u64,
    /// Arrays of `items` elements of each type used by collectives; collectives other than reductions use the first.
    scratch: HashMap<DType, Vec<MemId>>,
}

/// A group reduction to be done together with others.
struct PendingReduction {
    op: ReduceOp,
    value: ExprId,
    /// Its array in shared memory.
    array: MemId,
    result: LocalId,
    at: Loc,
}

impl Expander<'_> {
    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        let mut pending: Vec<PendingReduction> = Vec::new();
        for mut stmt in block {
            for inner in stmt.op.blocks_mut() {
                *inner = self.block(std::mem::take(inner));
            }
            match stmt.op {
                Op::Collective { op: CollectiveOp::Reduce(op), scope: Scope::Group, value, result }
                    if !self.is_one_subgroup() =>
                {
                    if !self.can_join(&pending, value) {
                        self.reduce(std::mem::take(&mut pending), &mut out);
                    }
                    let array = self.scratch(self.dtype(value), self.count_of_type(&pending, value));
                    pending.push(PendingReduction { op, value, array, result, at: stmt.at });
                    continue;
                }
                _ => self.reduce(std::mem::take(&mut pending), &mut out),
            }
            match stmt.op {
                Op::Collective { op, scope, value, result } if !stays(op) => {
                    let mut writer = Writer { expander: self, at: stmt.at, out: &mut out };
                    let value = match scope {
                        Scope::Group => writer.group(op, value),
                        Scope::Subgroup if writer.expander.subgroup > 1 => writer.subgroup(op, value),
                        Scope::Subgroup => writer.alone(op, value),
                    };
                    writer.push(Op::Let { local: result, value });
                    if scope == Scope::Group && !matches!(op, CollectiveOp::Reduce(_)) {
                        // The scratch array can be written again from here on.
                        writer.push(Op::Barrier);
                    }
                }
                _ => out.push(stmt),
            }
        }
        self.reduce(pending, &mut out);
        out
    }

    /// Returns true if the reduction of a value can be done together with the pending ones.
    fn can_join(&self, pending: &[PendingReduction], value: ExprId) -> bool {
        let dtype = self.dtype(value);
        let is_there = self.scratch.get(&dtype).is_some_and(|arrays| arrays.len() > self.count_of_type(pending, value));
        let is_result = |local: LocalId| pending.iter().any(|one| one.result == local);
        let waits = |id: &ExprId| matches!(self.kernel.exprs.get(*id), Expr::Local(local) if is_result(local));
        pending.len() < MAX_JOINED
            && (is_there || self.scratch_bytes(dtype) <= self.room)
            && !transitive_operands(&self.kernel, &[value]).iter().any(waits)
    }

    /// Returns the number of pending reductions with the type of a value.
    fn count_of_type(&self, pending: &[PendingReduction], value: ExprId) -> usize {
        pending.iter().filter(|one| self.dtype(one.value) == self.dtype(value)).count()
    }

    /// Emits pending group reductions together.
    fn reduce(&mut self, pending: Vec<PendingReduction>, out: &mut Block) {
        let Some(first) = pending.first() else { return };
        let mut writer = Writer { expander: self, at: first.at, out };
        writer.reduce(&pending);
        let start = writer.kernel().index(0);
        for PendingReduction { array, result, at, .. } in pending {
            writer.at = at;
            let value = writer.load(array, start, Guard::Proven);
            writer.push(Op::Let { local: result, value });
        }
        // The scratch arrays can be written again from here on.
        writer.push(Op::Barrier);
    }

    fn dtype(&self, value: ExprId) -> DType {
        self.kernel.exprs.ty(value).dtype().expect("a collective's operand has an element type")
    }

    /// Returns the array of a type with this number, creating it if needed.
    fn scratch(&mut self, dtype: DType, number: usize) -> MemId {
        let bytes = self.scratch_bytes(dtype);
        let (kernel, items) = (&mut self.kernel, self.items);
        let arrays = self.scratch.entry(dtype).or_default();
        while arrays.len() <= number {
            kernel.mems.push(Memory { name: "scratch".into(), dtype, space: Space::Shared(items) });
            arrays.push(MemId(kernel.mems.len() as u32 - 1));
            self.room = self.room.saturating_sub(bytes);
        }
        arrays[number]
    }

    fn scratch_bytes(&self, dtype: DType) -> u64 {
        self.target.shared_elem_bytes(dtype) * u64::from(self.items)
    }
}

/// Emits the statements of one collective.
struct Writer<'e, 't> {
    expander: &'e mut Expander<'t>,
    at: Loc,
    out: &'e mut Block,
}

impl Writer<'_, '_> {
    fn push(&mut self, op: Op) {
        self.out.push(Stmt { op, at: self.at });
    }

    fn kernel(&mut self) -> &mut Kernel {
        &mut self.expander.kernel
    }

    /// Returns the result of a collective of one work-item.
    fn alone(&mut self, op: CollectiveOp, value: ExprId) -> ExprId {
        match op {
            CollectiveOp::Reduce(_)
            | CollectiveOp::InclusiveScan(_)
            | CollectiveOp::Broadcast(_)
            | CollectiveOp::Shuffle(_) => value,
            CollectiveOp::ExclusiveScan(op) => self.identity(op, value),
            CollectiveOp::Mma(_) => unreachable!("matrix products are not expanded"),
        }
    }

    fn identity(&mut self, op: ReduceOp, value: ExprId) -> ExprId {
        let dtype = self.expander.dtype(value);
        self.kernel().expr(Expr::Const(op.identity(dtype)))
    }

    /// Returns the result of a group collective, which can be read until the next barrier.
    fn group(&mut self, op: CollectiveOp, value: ExprId) -> ExprId {
        if let CollectiveOp::Reduce(op) = op {
            return self.reduce_subgroup(op, value);
        }
        let scratch = self.expander.scratch(self.expander.dtype(value), 0);
        match op {
            CollectiveOp::Reduce(_) => unreachable!("reductions of larger groups are collected as pending reductions"),
            CollectiveOp::InclusiveScan(op) => {
                let scan = self.scan(op, scratch, value);
                self.kernel().expr(Expr::Local(scan))
            }
            CollectiveOp::ExclusiveScan(op) => {
                let scan = self.scan(op, scratch, value);
                self.exclusive(op, scratch, scan)
            }
            CollectiveOp::Broadcast(from) => self.broadcast(from, scratch, value),
            CollectiveOp::Shuffle(_) => unreachable!("the verifier permits shuffles only in subgroups"),
            CollectiveOp::Mma(_) => unreachable!("matrix products are not expanded"),
        }
    }

    fn load(&mut self, mem: MemId, index: ExprId, guard: Guard) -> ExprId {
        self.kernel().expr(Expr::Load { mem, index, lanes: 1, guard })
    }

    fn store(&mut self, mem: MemId, index: ExprId, value: ExprId) {
        self.push(Op::Store { mem, index, value, guard: Guard::Proven });
    }

    fn when(&mut self, condition: ExprId, ops: impl IntoIterator<Item = Op>) {
        let then = ops.into_iter().map(|op| Stmt { op, at: self.at }).collect();
        self.push(Op::If { condition, then, otherwise: Block::new() });
    }

    /// Stores the results of reductions at the start of their arrays, where they can be read until the next barrier.
    fn reduce(&mut self, pending: &[PendingReduction]) {
        let (lane, items) = (self.expander.lane, self.expander.items);
        let set = |mem: MemId, index: ExprId, value: ExprId| Op::Store { mem, index, value, guard: Guard::Proven };
        pending.iter().for_each(|one| self.push(set(one.array, lane, one.value)));
        self.push(Op::Barrier);
        // Full subgroups do the last rounds among themselves. All subgroups take part, but only the result of the first
        // counts.
        let shuffled = if self.whole_subgroups() { self.expander.subgroup } else { 1 };
        let mut width = items.next_power_of_two() / 2;
        while width >= shuffled {
            let bound = self.kernel().index(width.min(items - width) as u64);
            let takes = self.kernel().alu(Alu::Lt, &[lane, bound]);
            let distance = self.kernel().index(width as u64);
            let other = self.kernel().alu(Alu::Add, &[lane, distance]);
            let mut round = Vec::with_capacity(pending.len());
            for PendingReduction { op, array, .. } in pending {
                let [mine, theirs] = [lane, other].map(|index| self.load(*array, index, Guard::Proven));
                round.push(set(*array, lane, self.kernel().alu(op.alu(), &[mine, theirs])));
            }
            self.when(takes, round);
            self.push(Op::Barrier);
            width /= 2;
        }
        let first = self.kernel().index(0);
        if shuffled > 1 {
            let mut last = Vec::with_capacity(pending.len());
            for PendingReduction { op, array, .. } in pending {
                let partial = self.load(*array, lane, Guard::Proven);
                last.push(set(*array, first, self.reduce_subgroup(*op, partial)));
            }
            let leads = self.kernel().alu(Alu::Eq, &[lane, first]);
            self.when(leads, last);
            self.push(Op::Barrier);
        }
    }

    /// Returns an inclusive scan in a local. Afterwards no work-item reads the scratch array any more.
    fn scan(&mut self, op: ReduceOp, scratch: MemId, value: ExprId) -> LocalId {
        let (lane, items) = (self.expander.lane, self.expander.items);
        let ty: Type = self.kernel().exprs.ty(value);
        let scan = self.kernel().new_local("scan", ty, true);
        self.push(Op::Let { local: scan, value });
        let current = self.kernel().expr(Expr::Local(scan));
        let mut distance = 1;
        while distance < items {
            self.store(scratch, lane, current);
            self.push(Op::Barrier);
            let distance_expr = self.kernel().index(distance as u64);
            let takes = self.kernel().alu(Alu::Le, &[distance_expr, lane]);
            let other = self.kernel().alu(Alu::Sub, &[lane, distance_expr]);
            let before = self.load(scratch, other, Guard::Proven);
            let both = self.kernel().alu(op.alu(), &[before, current]);
            self.when(takes, [Op::Assign { local: scan, value: both }]);
            self.push(Op::Barrier);
            distance *= 2;
        }
        scan
    }

    fn exclusive(&mut self, op: ReduceOp, scratch: MemId, scan: LocalId) -> ExprId {
        let lane = self.expander.lane;
        let current = self.kernel().expr(Expr::Local(scan));
        self.store(scratch, lane, current);
        self.push(Op::Barrier);
        let (zero, one) = (self.kernel().index(0), self.kernel().index(1));
        let first = self.kernel().alu(Alu::Eq, &[lane, zero]);
        let other = self.kernel().alu(Alu::Sub, &[lane, one]);
        // The first work-item has no predecessor; its guarded load is not used.
        let before = self.load(scratch, other, Guard::Checked);
        let identity = self.identity(op, current);
        self.kernel().alu(Alu::Select, &[first, identity, before])
    }

    fn broadcast(&mut self, from: u32, scratch: MemId, value: ExprId) -> ExprId {
        let lane = self.expander.lane;
        let (from, first) = (self.kernel().index(from as u64), self.kernel().index(0));
        let chosen = self.kernel().alu(Alu::Eq, &[lane, from]);
        self.when(chosen, [Op::Store { mem: scratch, index: first, value, guard: Guard::Proven }]);
        self.push(Op::Barrier);
        self.load(scratch, first, Guard::Proven)
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::interpret::{Arg, run_in_subgroups};
    use panoply_ir::kernel::{CollectiveOp, Kernel, Op, Space};
    use panoply_ir::{Target, Verified, text};

    use super::expand;
    use crate::proven::verify;

    /// Returns the results of a kernel for 96 numbers.
    fn results(kernel: &Verified<Kernel>, group: [u32; 3], subgroup: u32) -> Vec<u8> {
        let mut numbers: Vec<u8> = (0..96u32).flat_map(|i| (i * i % 17).to_ne_bytes()).collect();
        let args = &mut [Arg::Write(&mut numbers)];
        run_in_subgroups(kernel, [48, 2, 1], group, subgroup, args, &mut ()).expect("the kernel runs");
        numbers
    }

    /// Uses integers, where the order of combination does not affect the result, and various group sizes.
    #[test]
    fn expansion_matches_interpreter() {
        let collectives = [
            "group_sum(x[i])",
            "group_min(x[i])",
            "group_inclusive_sum(x[i])",
            "group_exclusive_max(x[i])",
            "group_exclusive_prod(x[i])",
            "group_broadcast<0>(x[i])",
            "subgroup_exclusive_sum(x[i])",
            "subgroup_inclusive_min(x[i])",
            "subgroup_max(x[i])",
            "subgroup_broadcast<0>(x[i])",
            "subgroup_shuffle(x[i], x[i])",
            "subgroup_shuffle(add(cast<u32>(subgroup_lane_id()), mul(100u32, cast<u32>(subgroup_size()))), 0u32)",
        ];
        let groups = [[1, 1, 1], [2, 1, 1], [3, 2, 1], [8, 1, 1], [12, 2, 1], [7, 1, 3], [24, 2, 1], [16, 2, 1]];
        for (group, subgroup) in groups.into_iter().flat_map(|group| [1, 4, 8, 32].map(|size| (group, size))) {
            for collective in collectives {
                let [x, y, z] = group;
                let source = format!(
                    "kernel k(x: &mut [u32]) group({x}, {y}, {z}) {{
                        let i: index = add(global_id.x, mul(48, add(global_id.y, mul(2, global_id.z))))
                        let a: u32 = {collective}
                        let b: u32 = {collective}
                        x[i] = add(a, mul(b, 3u32))
                    }}"
                );
                let kernel = verify(text::parse(&source).expect("parses")).expect("verifies");
                // A value loaded from shared memory is not recognized as uniform.
                let expanded = Kernel { unchecked: true, ..expand((*kernel).clone(), &target(subgroup, 1 << 15)) };
                let text = expanded.to_string();
                expanded.walk(&mut |stmt| match &stmt.op {
                    Op::Collective { op, .. } => {
                        assert!(subgroup > 1 && matches!(op, CollectiveOp::Shuffle(_)), "{text}");
                    }
                    _ => assert!(!text.contains("subgroup_size")),
                });
                let expanded = verify(expanded).expect("the expansion verifies");
                let (want, have) = [&kernel, &expanded].map(|kernel| results(kernel, group, subgroup)).into();
                assert_eq!(want, have, "subgroups of {subgroup}: {source}\n{text}");
            }
        }
    }

    fn target(subgroup: u32, shared_bytes: u32) -> Target {
        Target { subgroup, shared_bytes, ..Target::cuda_minimum(80) }
    }

    /// Shared memory is counted in 32-bit words, including words for shuffles, as in the renderer.
    #[test]
    fn joint_reductions_fit_in_shared_memory() {
        let source = "kernel k(x: &mut [u8]) group(64, 1, 1) {
                let i: index = global_id.x
                let a: u8 = group_sum(x[i])
                let b: u8 = group_max(x[i])
                let c: u8 = group_min(x[i])
                let d: u8 = group_sum(mul(x[i], 3u8))
                x[i] = add(add(a, b), add(c, d))
            }";
        let kernel = verify(text::parse(source).expect("parses")).expect("verifies");
        for (subgroup, arrays) in [(1, 4), (8, 3)] {
            let target = Target { subgroup, shared_bytes: 1024, ..Target::webgpu_minimum() };
            let expanded = expand((*kernel).clone(), &target);
            let count = expanded.mems.iter().filter(|mem| matches!(mem.space, Space::Shared(_))).count();
            assert_eq!(count, arrays, "subgroups of {subgroup}: {expanded}");
        }
    }

    /// Three reductions together, then one that depends on the first; fewer together if shared memory is limited.
    #[test]
    fn independent_reductions_share_barriers() {
        let source = "kernel k(x: &mut [u32]) group(8, 2, 1) {
                let i: index = add(global_id.x, mul(48, global_id.y))
                let a: u32 = group_sum(x[i])
                let b: f32 = group_min(cast<f32>(x[i]))
                let c: u32 = group_max(x[i])
                let d: u32 = group_sum(mul(x[i], a))
                x[i] = add(add(a, cast<u32>(b)), add(c, d))
            }";
        let kernel = verify(text::parse(source).expect("parses")).expect("verifies");
        // 16 work-items need four rounds, with one barrier before and one after them, and one more after the last
        // shuffle. If there is no room for more reductions together, a later one reuses the memory of the first.
        for (subgroup, room, barriers) in [(1, 1 << 15, 12), (4, 1 << 15, 10), (1, 128, 18), (1, 0, 18)] {
            let expanded = Kernel { unchecked: true, ..expand((*kernel).clone(), &target(subgroup, room)) };
            let mut count = 0;
            expanded.walk(&mut |stmt| count += usize::from(matches!(stmt.op, Op::Barrier)));
            assert_eq!(count, barriers, "subgroups of {subgroup}, {room} bytes: {expanded}");
            let expanded = verify(expanded).expect("the expansion verifies");
            let (want, have) = [&kernel, &expanded].map(|kernel| results(kernel, [8, 2, 1], subgroup)).into();
            assert_eq!(want, have, "subgroups of {subgroup}, {room} bytes: {source}");
        }
    }
}
