//! Uniformity analysis: for each expression, whether it is uniform over the lanes of a block, a linear function of
//! their coordinates, or varying; and which branches and loops diverge.
//!
//! The two questions depend on each other: a local is varying if it is assigned where only some lanes go. The result is
//! the least fixed point, found by walking the kernel until nothing changes.
//!
//! A [`LaneSet`] is the set of lanes on which a statement runs, named by the statement that created it. A local's
//! **home** is the lane set whose lanes all need its value; an assignment in a smaller lane set must preserve the
//! values of the other lanes.

use std::collections::{HashMap, HashSet};

use panoply_ir::kernel::{Block, Builtin, CollectiveOp, Expr, ExprId, Kernel, LocalId, MemId, Op, Scope, Space, Stmt};
use panoply_ir::{Alu, DType, Type};

use crate::vm::program::TileShape;

/// The uniformity of a value over the lanes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneUniformity {
    /// Not yet computed.
    Unknown,
    /// The same for all lanes.
    Uniform,
    /// A 64-bit integer that is a linear function of the coordinates; strides are known constants or uniform (`None`).
    Affine([Option<u64>; 3]),
    /// Anything else.
    Varying,
}

impl LaneUniformity {
    /// Returns the least general uniformity that covers both.
    fn join(self, other: LaneUniformity) -> LaneUniformity {
        match (self, other) {
            (LaneUniformity::Unknown, shape) | (shape, LaneUniformity::Unknown) => shape,
            (a, b) if a == b && !matches!(a, LaneUniformity::Affine(strides) if strides.contains(&None)) => a,
            _ => LaneUniformity::Varying,
        }
    }

    fn is_varying(self) -> bool {
        !matches!(self, LaneUniformity::Unknown | LaneUniformity::Uniform)
    }
}

/// A set of lanes, named by the statement that creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneSet {
    /// All lanes.
    Body,
    /// Lanes for which a condition holds.
    Then(usize),
    /// Lanes for which a condition does not hold.
    Otherwise(usize),
    /// Lanes still in a loop.
    Live(usize),
    /// Lanes still in the current iteration of a loop.
    Iteration(usize),
}

/// Divergence of a loop's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopFacts {
    /// True if lanes leave the loop at different times.
    pub divergent_break: bool,
    /// True if lanes leave an iteration at different times.
    pub divergent_continue: bool,
}

/// The mutable locals and memories that a value depends on, as bit sets by index modulo 64. Two may share a bit, so at
/// worst a cached value is invalidated too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    locals: u64,
    mems: u64,
}

impl Reads {
    /// A dependence on a local.
    pub fn local(local: LocalId) -> Reads {
        Reads { locals: 1 << (local.index() % 64), mems: 0 }
    }

    /// A dependence on a memory.
    pub fn mem(mem: MemId) -> Reads {
        Reads { locals: 0, mems: 1 << (mem.index() % 64) }
    }

    /// Returns true if the sets intersect.
    pub fn meets(self, other: Reads) -> bool {
        self.locals & other.locals != 0 || self.mems & other.mems != 0
    }

    fn with(self, other: Reads) -> Reads {
        Reads { locals: self.locals | other.locals, mems: self.mems | other.mems }
    }
}

impl UniformityInfo {
    /// Returns true if a value depends only on the launch, the work-item and immutable locals.
    pub fn is_stable(&self, id: ExprId) -> bool {
        self.reads[id.index()] == Reads::default()
    }
}

/// The results of the uniformity analysis of a kernel.
pub struct UniformityInfo {
    /// Uniformity, by expression.
    pub exprs: Vec<LaneUniformity>,
    /// Uniformity, by local.
    pub locals: Vec<LaneUniformity>,
    /// The lane set whose lanes all need the local's value, by local.
    pub homes: Vec<LaneSet>,
    /// The mutable locals and memories it reads, by expression.
    pub reads: Vec<Reads>,
    /// Number of mentions in expressions and statements, by expression.
    pub uses: Vec<u32>,
    /// Divergence of loops, by statement number.
    pub loops: HashMap<usize, LoopFacts>,
    /// True if the kernel writes to it, by memory.
    pub written: Vec<bool>,
    /// Locals whose home is the loop with this statement number.
    only_in: HashMap<LocalId, usize>,
}

/// Runs the analysis.
pub fn analyze(kernel: &Kernel, cover: TileShape) -> UniformityInfo {
    let mut facts = UniformityInfo {
        exprs: vec![LaneUniformity::Unknown; kernel.exprs.len()],
        locals: vec![LaneUniformity::Unknown; kernel.locals.len()],
        homes: vec![LaneSet::Body; kernel.locals.len()],
        reads: reads(kernel),
        uses: uses(kernel),
        loops: HashMap::new(),
        written: written(kernel),
        only_in: HashMap::new(),
    };
    let mut number = 0;
    only_in_loops(kernel, &kernel.body, &mut number, &mut facts.only_in);
    loop {
        for (id, expr, ty) in kernel.exprs.iter() {
            facts.exprs[id.index()] = shape(kernel, cover, &facts, expr, ty);
        }
        let mut walk =
            Walk { kernel, facts: &mut facts, number: 0, place: LaneSet::Body, loops: Vec::new(), changed: false };
        walk.block(&kernel.body);
        if !walk.changed {
            return facts;
        }
    }
}

fn shape(kernel: &Kernel, cover: TileShape, facts: &UniformityInfo, expr: Expr, ty: Type) -> LaneUniformity {
    let of = |id: ExprId| facts.exprs[id.index()];
    match expr {
        Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Len(_) => LaneUniformity::Uniform,
        Expr::Local(local) => facts.locals[local.index()],
        Expr::Builtin(Builtin::GlobalId(axis) | Builtin::LocalId(axis)) => {
            if cover.varies(axis) {
                LaneUniformity::Affine(std::array::from_fn(|d| Some(u64::from(d == axis as usize))))
            } else {
                LaneUniformity::Uniform
            }
        }
        Expr::Builtin(_) => LaneUniformity::Uniform,
        Expr::Load { mem, index, .. } => match (kernel.mem(mem).space, of(index)) {
            (_, LaneUniformity::Unknown) => LaneUniformity::Unknown,
            (Space::Buffer(_) | Space::Shared(_), LaneUniformity::Uniform) => LaneUniformity::Uniform,
            _ => LaneUniformity::Varying,
        },
        Expr::Alu(alu, ref args) => {
            if args.iter().any(|arg| of(*arg) == LaneUniformity::Unknown) {
                LaneUniformity::Unknown
            } else if args.iter().all(|arg| of(*arg) == LaneUniformity::Uniform) {
                LaneUniformity::Uniform
            } else if is_linear_type(ty) {
                linear(kernel, alu, args, of)
            } else {
                LaneUniformity::Varying
            }
        }
        Expr::Cast(to, value) | Expr::Bitcast(to, value) => match of(value) {
            LaneUniformity::Affine(_) if !is_linear_type(to) => LaneUniformity::Varying,
            shape => shape,
        },
        Expr::Splat(value, _) | Expr::Extract(value, _) => match of(value) {
            LaneUniformity::Affine(_) => LaneUniformity::Varying,
            shape => shape,
        },
    }
}

/// Returns true if arithmetic of a type wraps at 64 bits, so that linear functions stay linear.
pub fn is_linear_type(ty: Type) -> bool {
    matches!(ty, Type::Index | Type::Scalar(DType::U64 | DType::I64))
}

/// Returns the uniformity of an operation with at least one operand that is not uniform.
fn linear(kernel: &Kernel, alu: Alu, args: &[ExprId], of: impl Fn(ExprId) -> LaneUniformity) -> LaneUniformity {
    let strides = |id: ExprId| match of(id) {
        LaneUniformity::Affine(strides) => Some(strides),
        LaneUniformity::Uniform => Some([Some(0); 3]),
        LaneUniformity::Unknown | LaneUniformity::Varying => None,
    };
    let both = |f: fn(u64, u64) -> u64| match (strides(args[0]), strides(args[1])) {
        (Some(a), Some(b)) => Some(std::array::from_fn(|d| Some(f(a[d]?, b[d]?)))),
        _ => None,
    };
    let scaled = |id: ExprId, factor: Option<u64>| {
        strides(id).map(|strides| {
            strides.map(|stride| match (stride, factor) {
                (Some(0), _) => Some(0),
                (stride, factor) => Some(stride?.wrapping_mul(factor?)),
            })
        })
    };
    let strides = match alu {
        Alu::Add => both(u64::wrapping_add),
        Alu::Sub => both(u64::wrapping_sub),
        Alu::Neg => scaled(args[0], Some(u64::MAX)),
        Alu::Mul if of(args[1]) == LaneUniformity::Uniform => scaled(args[0], constant(kernel, args[1])),
        Alu::Mul if of(args[0]) == LaneUniformity::Uniform => scaled(args[1], constant(kernel, args[0])),
        Alu::Shl if of(args[1]) == LaneUniformity::Uniform => {
            scaled(args[0], constant(kernel, args[1]).map(|by| 1u64.wrapping_shl(by as u32)))
        }
        _ => None,
    };
    match strides {
        Some(strides) if strides == [Some(0); 3] => LaneUniformity::Uniform,
        Some(strides) => LaneUniformity::Affine(strides),
        None => LaneUniformity::Varying,
    }
}

/// Returns the bits of a constant integer.
pub fn constant(kernel: &Kernel, id: ExprId) -> Option<u64> {
    match kernel.exprs.get(id) {
        Expr::Index(value) => Some(value),
        Expr::Const(scalar) => Some(scalar.bits),
        _ => None,
    }
}

fn reads(kernel: &Kernel) -> Vec<Reads> {
    let mut reads: Vec<Reads> = Vec::with_capacity(kernel.exprs.len());
    for (_, expr, _) in kernel.exprs.iter() {
        let own = match expr {
            Expr::Load { mem, .. } => Reads::mem(mem),
            Expr::Local(local) if kernel.local(local).mutable => Reads::local(local),
            _ => Reads::default(),
        };
        reads.push(expr.operands().iter().fold(own, |sum, operand| sum.with(reads[operand.index()])));
    }
    reads
}

fn uses(kernel: &Kernel) -> Vec<u32> {
    let mut uses = vec![0; kernel.exprs.len()];
    for (_, expr, _) in kernel.exprs.iter() {
        expr.operands().iter().for_each(|operand| uses[operand.index()] += 1);
    }
    kernel.walk(&mut |stmt| stmt.op.operands().into_iter().for_each(|operand| uses[operand.index()] += 1));
    uses
}

fn written(kernel: &Kernel) -> Vec<bool> {
    let mut written = vec![false; kernel.mems.len()];
    kernel.walk(&mut |stmt| match &stmt.op {
        Op::Store { mem, .. } | Op::Atomic { mem, .. } => written[mem.index()] = true,
        _ => {}
    });
    written
}

/// Finds locals whose only uses after their `let` are inside one loop that follows it in the same block, so that their
/// final values are not read outside that loop. Numbers statements as [`Walk`] does.
fn only_in_loops(kernel: &Kernel, block: &Block, number: &mut usize, found: &mut HashMap<LocalId, usize>) {
    let mut declared: HashMap<LocalId, Vec<Option<usize>>> = HashMap::new();
    for stmt in block {
        let this = *number;
        *number += 1;
        let used = locals_used(kernel, stmt);
        let is_loop = matches!(stmt.op, Op::For { .. } | Op::While { .. });
        for (local, uses) in &mut declared {
            if used.contains(local) {
                uses.push(is_loop.then_some(this));
            }
        }
        for inner in stmt.op.blocks() {
            only_in_loops(kernel, inner, number, found);
        }
        if let Op::Let { local, .. } = stmt.op {
            declared.insert(local, Vec::new());
        }
    }
    for (local, uses) in declared {
        if let [Some(number)] = uses[..] {
            found.insert(local, number);
        }
    }
}

/// Returns the locals that a statement or a nested one reads or assigns.
fn locals_used(kernel: &Kernel, stmt: &Stmt) -> HashSet<LocalId> {
    fn expr(kernel: &Kernel, id: ExprId, used: &mut HashSet<LocalId>, seen: &mut HashSet<ExprId>) {
        if !seen.insert(id) {
            return;
        }
        let node = kernel.exprs.get(id);
        if let Expr::Local(local) = node {
            used.insert(local);
        }
        node.operands().iter().for_each(|operand| expr(kernel, *operand, used, seen));
    }
    fn visit(kernel: &Kernel, stmt: &Stmt, used: &mut HashSet<LocalId>, seen: &mut HashSet<ExprId>) {
        if let Op::Assign { local, .. } = stmt.op {
            used.insert(local);
        }
        stmt.op.operands().into_iter().for_each(|operand| expr(kernel, operand, used, seen));
        stmt.op.blocks().into_iter().flatten().for_each(|inner| visit(kernel, inner, used, seen));
    }
    let mut used = HashSet::new();
    visit(kernel, stmt, &mut used, &mut HashSet::new());
    used
}

struct Walk<'a> {
    kernel: &'a Kernel,
    facts: &'a mut UniformityInfo,
    number: usize,
    place: LaneSet,
    /// Open loops with the lane set of their iterations.
    loops: Vec<(usize, LaneSet)>,
    changed: bool,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block) {
        for stmt in block {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let number = self.number;
        self.number += 1;
        match &stmt.op {
            Op::Let { local, value } => {
                self.declare(*local);
                self.set(*local, self.of(*value));
            }
            Op::Assign { local, value } => {
                let home = self.facts.homes[local.index()];
                self.set(*local, if home == self.place { self.of(*value) } else { LaneUniformity::Varying });
            }
            Op::Atomic { old, .. } => {
                if let Some(old) = old {
                    self.declare(*old);
                    self.set(*old, LaneUniformity::Varying);
                }
            }
            Op::Collective { op, scope, value, result } => {
                self.declare(*result);
                self.set(*result, self.collective(*op, *scope, *value));
            }
            Op::If { condition, then, otherwise } => {
                let outer = self.place;
                let divergent = self.of(*condition).is_varying();
                self.place = if divergent { LaneSet::Then(number) } else { outer };
                self.block(then);
                self.place = if divergent { LaneSet::Otherwise(number) } else { outer };
                self.block(otherwise);
                self.place = outer;
            }
            Op::For { counter, start, end, step, body } => {
                let counter_shape = match (self.of(*start), self.of(*step)) {
                    (LaneUniformity::Unknown, _) | (_, LaneUniformity::Unknown) => LaneUniformity::Unknown,
                    (shape @ (LaneUniformity::Uniform | LaneUniformity::Affine(_)), LaneUniformity::Uniform) => shape,
                    _ => LaneUniformity::Varying,
                };
                let divergent = counter_shape.is_varying() || self.of(*end).is_varying();
                self.iterations(number, divergent, body, Some((*counter, counter_shape)));
            }
            Op::While { condition, body } => {
                let divergent = self.of(*condition).is_varying();
                self.iterations(number, divergent, body, None);
            }
            Op::Break => self.leave(|facts| facts.divergent_break = true),
            Op::Continue => self.leave(|facts| facts.divergent_continue = true),
            Op::Store { .. } | Op::Barrier | Op::Return => {}
        }
    }

    fn iterations(&mut self, number: usize, divergent: bool, body: &Block, counter: Option<(LocalId, LaneUniformity)>) {
        let outer = self.place;
        let known = self.facts.loops.get(&number).copied();
        let mut facts = known.unwrap_or_default();
        facts.divergent_break |= divergent;
        if known != Some(facts) {
            self.facts.loops.insert(number, facts);
            self.changed = true;
        }
        if facts.divergent_break {
            self.place = LaneSet::Live(number);
        }
        if facts.divergent_continue {
            self.place = LaneSet::Iteration(number);
        }
        if let Some((counter, shape)) = counter {
            self.declare(counter);
            self.set(counter, shape);
        }
        self.loops.push((number, self.place));
        self.block(body);
        self.loops.pop();
        self.place = outer;
    }

    /// Handles `break` or `continue`: if not all lanes of the iteration reach it, the loop diverges.
    fn leave(&mut self, mark: impl FnOnce(&mut LoopFacts)) {
        let (number, iteration) = *self.loops.last().expect("verified: break and continue are inside a loop");
        let facts = self.facts.loops.get_mut(&number).expect("open loops are known");
        // In the lane set of the iteration all lanes of the loop run together, unless some have already left the iteration.
        if iteration != self.place || facts.divergent_continue {
            let before = *facts;
            mark(facts);
            self.changed |= *facts != before;
        }
    }

    fn declare(&mut self, local: LocalId) {
        let home = match self.facts.only_in.get(&local) {
            Some(number) if self.facts.loops.get(number).is_some_and(|facts| facts.divergent_break) => {
                LaneSet::Live(*number)
            }
            _ => self.place,
        };
        if self.facts.homes[local.index()] != home {
            self.facts.homes[local.index()] = home;
            self.changed = true;
        }
    }

    fn set(&mut self, local: LocalId, shape: LaneUniformity) {
        let slot = &mut self.facts.locals[local.index()];
        let unknown_stride = matches!(shape, LaneUniformity::Affine(strides) if strides.contains(&None));
        let next = if !self.kernel.local(local).mutable {
            shape
        } else if unknown_stride {
            LaneUniformity::Varying
        } else {
            slot.join(shape)
        };
        if *slot != next {
            *slot = next;
            self.changed = true;
        }
    }

    fn collective(&self, op: CollectiveOp, scope: Scope, value: ExprId) -> LaneUniformity {
        match (scope, op) {
            // A subgroup is one work-item, so all but an exclusive scan return its own value.
            (Scope::Subgroup, CollectiveOp::ExclusiveScan(_)) => LaneUniformity::Uniform,
            (Scope::Subgroup, _) => self.of(value),
            (Scope::Group, CollectiveOp::Reduce(_) | CollectiveOp::Broadcast(_)) => LaneUniformity::Uniform,
            (
                Scope::Group,
                CollectiveOp::InclusiveScan(_)
                | CollectiveOp::ExclusiveScan(_)
                | CollectiveOp::Shuffle(_)
                | CollectiveOp::Mma(_),
            ) => LaneUniformity::Varying,
        }
    }

    fn of(&self, expr: ExprId) -> LaneUniformity {
        self.facts.exprs[expr.index()]
    }
}
