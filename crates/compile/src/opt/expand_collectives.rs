//! Collectives through shared memory, barriers and shuffles: all a language needs to have is the last, if its device has
//! subgroups.
//!
//! Any group size works, and the order of combination depends on it alone, so results are the same in every run:
//!
//! * **reduce**: a tree. At each width w, from half of the next power of two down to 1, work-item l < w takes in l + w;
//! * **scan**: Hillis and Steele, log₂ n rounds in which each work-item takes in the one 1, 2, 4 … before it (W. D. Hillis,
//!   G. L. Steele: Data parallel algorithms, CACM 29(12), 1986);
//! * **broadcast**: one writes, all read.
//!
//! Within a subgroup the same is done by shuffles (`subgroup.rs`), and the last rounds of a group's reduction are, which take
//! the same pairs. Where a subgroup is a single work-item its collectives are trivial.
//!
//! The result is not verified: what a reduction gives is uniform, which cannot be seen once it is read from shared memory.
//! It holds because the kernel before was verified and the place of a collective is uniform.

use std::collections::HashMap;

use panoply_ir::kernel::{
    Block, Builtin, CollectiveOp, Expr, ExprId, Guard, Kernel, Loc, LocalId, MemId, Memory, Op, Scope, Space, Stmt,
};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{Alu, DType, Type};

use super::walk::{Grow, live, map_block, rebuild};

mod subgroup;

/// Whether [`expand`] would change the kernel.
pub(crate) fn applies(kernel: &Kernel) -> bool {
    let mut collectives = false;
    kernel.walk(&mut |stmt| collectives |= matches!(&stmt.op, Op::Collective { op, .. } if !stays(*op)));
    let numbers = [Builtin::SubgroupLane, Builtin::SubgroupSize].map(Expr::Builtin);
    collectives || live(kernel).into_iter().any(|id| numbers.contains(&kernel.exprs.get(id)))
}

/// Whether a collective is what the target has itself: [`super::expand_mma`] has left only such products.
fn stays(op: CollectiveOp) -> bool {
    matches!(op, CollectiveOp::Mma(_))
}

/// The kernel without collectives but products of matrices and shuffles of 32 bits, on a device where it has subgroups of this many work-items. It must
/// have been verified; see above for what that no longer shows.
pub(crate) fn expand(mut kernel: Kernel, subgroup: u32) -> Kernel {
    let Some(group) = kernel.group else { return kernel };
    let mut body = std::mem::take(&mut kernel.body);
    number_subgroup(&mut kernel, &mut body, subgroup);
    let id = linear_id(&mut kernel, group);
    let local = kernel.new_local("item", Type::Index, false);
    let lane = kernel.expr(Expr::Local(local));
    let items = group.iter().product();
    let mut expander = Expander { kernel, lane, items, subgroup, scratch: HashMap::new() };
    let mut body = expander.block(body);
    body.insert(0, Stmt { op: Op::Let { local, value: id }, at: Loc::default() });
    Kernel { body, ..expander.kernel }
}

/// Puts numbers where the kernel asks for the size of a subgroup, or for the lane in one of a single work-item.
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

/// `x + size.x * (y + size.y * z)`, without the axes of a single work-item.
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

struct Expander {
    kernel: Kernel,
    /// Which work-item of the group this is.
    lane: ExprId,
    items: u32,
    /// Work-items of a whole subgroup.
    subgroup: u32,
    /// The array of `items` elements of each type that collectives go through.
    scratch: HashMap<DType, MemId>,
}

impl Expander {
    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for mut stmt in block {
            for inner in stmt.op.blocks_mut() {
                *inner = self.block(std::mem::take(inner));
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
                    if scope == Scope::Group && !writer.is_one_subgroup(op) {
                        // The scratch may be written again from here on.
                        writer.push(Op::Barrier);
                    }
                }
                _ => out.push(stmt),
            }
        }
        out
    }

    fn scratch(&mut self, dtype: DType) -> MemId {
        let (kernel, items) = (&mut self.kernel, self.items);
        *self.scratch.entry(dtype).or_insert_with(|| {
            kernel.mems.push(Memory { name: "scratch".into(), dtype, space: Space::Shared(items) });
            MemId(kernel.mems.len() as u32 - 1)
        })
    }
}

/// Writes the statements of one collective.
struct Writer<'e> {
    expander: &'e mut Expander,
    at: Loc,
    out: &'e mut Block,
}

impl Writer<'_> {
    fn push(&mut self, op: Op) {
        self.out.push(Stmt { op, at: self.at });
    }

    fn kernel(&mut self) -> &mut Kernel {
        &mut self.expander.kernel
    }

    /// The result of a collective of one work-item.
    fn alone(&mut self, op: CollectiveOp, value: ExprId) -> ExprId {
        match op {
            CollectiveOp::Reduce(_)
            | CollectiveOp::InclusiveScan(_)
            | CollectiveOp::Broadcast(_)
            | CollectiveOp::Shuffle(_) => value,
            CollectiveOp::ExclusiveScan(op) => self.identity(op, value),
            CollectiveOp::Mma(_) => unreachable!("products stay"),
        }
    }

    fn identity(&mut self, op: ReduceOp, value: ExprId) -> ExprId {
        let dtype = self.kernel().exprs.ty(value).dtype().expect("a collective combines elements");
        self.kernel().expr(Expr::Const(op.identity(dtype)))
    }

    /// The result of a collective of the group, which may be read up to the next barrier.
    fn group(&mut self, op: CollectiveOp, value: ExprId) -> ExprId {
        if self.is_one_subgroup(op) {
            return self.subgroup(op, value);
        }
        let dtype = self.kernel().exprs.ty(value).dtype().expect("a collective combines elements");
        let scratch = self.expander.scratch(dtype);
        match op {
            CollectiveOp::Reduce(op) => self.reduce(op, scratch, value),
            CollectiveOp::InclusiveScan(op) => {
                let scan = self.scan(op, scratch, value);
                self.kernel().expr(Expr::Local(scan))
            }
            CollectiveOp::ExclusiveScan(op) => {
                let scan = self.scan(op, scratch, value);
                self.exclusive(op, scratch, scan)
            }
            CollectiveOp::Broadcast(from) => self.broadcast(from, scratch, value),
            CollectiveOp::Shuffle(_) => unreachable!("the verifier lets only subgroups shuffle"),
            CollectiveOp::Mma(_) => unreachable!("products stay"),
        }
    }

    fn load(&mut self, mem: MemId, index: ExprId, guard: Guard) -> ExprId {
        self.kernel().expr(Expr::Load { mem, index, lanes: 1, guard })
    }

    fn store(&mut self, mem: MemId, index: ExprId, value: ExprId) {
        self.push(Op::Store { mem, index, value, guard: Guard::Proven });
    }

    fn when(&mut self, condition: ExprId, op: Op) {
        let then = vec![Stmt { op, at: self.at }];
        self.push(Op::If { condition, then, otherwise: Block::new() });
    }

    fn reduce(&mut self, op: ReduceOp, scratch: MemId, value: ExprId) -> ExprId {
        let (lane, items) = (self.expander.lane, self.expander.items);
        self.store(scratch, lane, value);
        self.push(Op::Barrier);
        // Whole subgroups do the last rounds among themselves, all of them, though only the first one's result counts.
        let shuffled = if self.whole_subgroups() { self.expander.subgroup } else { 1 };
        let mut width = items.next_power_of_two() / 2;
        while width >= shuffled {
            let bound = self.kernel().index(width.min(items - width) as u64);
            let takes = self.kernel().alu(Alu::Lt, &[lane, bound]);
            let distance = self.kernel().index(width as u64);
            let other = self.kernel().alu(Alu::Add, &[lane, distance]);
            let (mine, theirs) = (self.load(scratch, lane, Guard::Proven), self.load(scratch, other, Guard::Proven));
            let both = self.kernel().alu(op.alu(), &[mine, theirs]);
            self.when(takes, Op::Store { mem: scratch, index: lane, value: both, guard: Guard::Proven });
            self.push(Op::Barrier);
            width /= 2;
        }
        let first = self.kernel().index(0);
        if shuffled > 1 {
            let partial = self.load(scratch, lane, Guard::Proven);
            let sum = self.reduce_subgroup(op, partial);
            let leads = self.kernel().alu(Alu::Eq, &[lane, first]);
            self.when(leads, Op::Store { mem: scratch, index: first, value: sum, guard: Guard::Proven });
            self.push(Op::Barrier);
        }
        self.load(scratch, first, Guard::Proven)
    }

    /// An inclusive scan, in a local. No work-item reads the scratch any more.
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
            self.when(takes, Op::Assign { local: scan, value: both });
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
        // The first has nobody before it; its guarded read is not used.
        let before = self.load(scratch, other, Guard::Checked);
        let identity = self.identity(op, current);
        self.kernel().alu(Alu::Select, &[first, identity, before])
    }

    fn broadcast(&mut self, from: u32, scratch: MemId, value: ExprId) -> ExprId {
        let lane = self.expander.lane;
        let (from, first) = (self.kernel().index(from as u64), self.kernel().index(0));
        let chosen = self.kernel().alu(Alu::Eq, &[lane, from]);
        self.when(chosen, Op::Store { mem: scratch, index: first, value, guard: Guard::Proven });
        self.push(Op::Barrier);
        self.load(scratch, first, Guard::Proven)
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::interpret::{Arg, run_in_subgroups};
    use panoply_ir::kernel::{CollectiveOp, Kernel, Op};
    use panoply_ir::{Verified, text, verify::verify};

    use super::expand;

    /// What both kernels leave of 96 numbers.
    fn results(kernel: &Verified<Kernel>, group: [u32; 3], subgroup: u32) -> Vec<u8> {
        let mut numbers: Vec<u8> = (0..96u32).flat_map(|i| (i * i % 17).to_ne_bytes()).collect();
        let args = &mut [Arg::Write(&mut numbers)];
        run_in_subgroups(kernel, [48, 2, 1], group, subgroup, args, &mut ()).expect("the kernel runs");
        numbers
    }

    /// In integers, where the order of combination does not show, and for every kind of group size.
    #[test]
    fn expansion_gives_what_the_interpreter_gives() {
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
            "subgroup_shuffle(add(cast<u32>(subgroup_lane()), mul(100u32, cast<u32>(subgroup_size()))), 0u32)",
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
                // What is read from shared memory no longer shows that it is uniform.
                let expanded = Kernel { unchecked: true, ..expand((*kernel).clone(), subgroup) };
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
}
