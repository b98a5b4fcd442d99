//! Varying values: loops over registers and memory.
//!
//! A value is computed into a [`Destination`]: a fresh register, the register of a mutable local, or memory. The last
//! loop of an expression writes there directly unless something still reads what it would overwrite.

use panoply_host::isa::VecFn;
use panoply_ir::kernel::{Expr, ExprId, Guard, MemId, Space};
use panoply_ir::{Alu, DType, Type};

use super::state::{LocalValue, MemoryOperand, State, Value};
use super::uniform::{CastStep, cast_steps, round_after};
use super::uniformity::{LaneUniformity, constant};
use crate::vm::lane::{Lane, Round};
use crate::vm::ops::alu::Mode;
use crate::vm::ops::memory::Move;
use crate::vm::ops::pair::Pair;
use crate::vm::program::{Access, Affine, At, Instr, Kind, LoopOp, Mem, Slot, Src, VectorLoop, known};

/// Destination of a value.
#[derive(Clone, Copy, Debug)]
pub enum Destination {
    /// Any location.
    Fresh,
    /// The register of a mutable local.
    Local {
        /// The register.
        dst: Src,
        /// True if the values of inactive lanes must be preserved.
        merge: bool,
    },
    /// Memory.
    Memory {
        /// The access.
        access: Access,
        /// The element indices.
        at: Affine,
        /// The same location in a form that compares with operands.
        source: MemoryOperand,
    },
}

/// A loop call to be emitted.
struct Call {
    f: VecFn,
    what: LoopOp,
    args: Vec<Value>,
    /// Bytes of a lane of the result.
    bytes: usize,
    /// The position of an operand and the loop that updates that operand in place.
    update: Option<(usize, VecFn)>,
}

impl State<'_> {
    /// Returns a value as an operand: a slot if it is uniform, lanes otherwise.
    pub fn operand(&mut self, id: ExprId, element: u8) -> Value {
        match self.shape(id) {
            LaneUniformity::Uniform => self.uniform(id, element),
            LaneUniformity::Affine(_) | LaneUniformity::Varying | LaneUniformity::Unknown => self.lanes(id, element),
        }
    }

    /// Returns a value as lanes.
    pub fn lanes(&mut self, id: ExprId, element: u8) -> Value {
        if let Some(value) = self.remembered(id, element) {
            return if value.src.is_lanes() { value } else { self.splat(value, self.bytes_of(id)) };
        }
        let value = self.make_lanes(id, element, Destination::Fresh);
        // Lanes occupy a register, so they are kept only for the scope that first needed them.
        self.remember(id, element, self.level(), value);
        value
    }

    /// Computes a value into a destination.
    pub fn produce(&mut self, id: ExprId, element: u8, sink: Destination) {
        let known = self.remembered(id, element);
        let value = match (self.shape(id), known) {
            (_, Some(value)) => value,
            (LaneUniformity::Uniform, None) => self.uniform(id, element),
            (LaneUniformity::Affine(_) | LaneUniformity::Varying | LaneUniformity::Unknown, None) => {
                self.make_lanes(id, element, sink);
                return;
            }
        };
        let bytes = self.bytes_of(id);
        self.place(value, bytes, sink);
    }

    fn bytes_of(&self, id: ExprId) -> usize {
        Lane::of(self.kernel.exprs.ty(id)).0.bytes()
    }

    /// Computes a value, with the last loop writing into the sink. For [`Destination::Memory`] the element has the
    /// width of the lane.
    fn make_lanes(&mut self, id: ExprId, element: u8, sink: Destination) -> Value {
        let ty = self.kernel.exprs.ty(id);
        let (lane, round) = Lane::of(ty);
        match self.kernel.exprs.get(id) {
            _ if matches!(self.shape(id), LaneUniformity::Affine(_)) => {
                let at = self.affine(id);
                let dst = self.register(8);
                self.emit(Instr::Iota { dst, at });
                self.place(Value::of(dst), 8, sink)
            }
            Expr::Local(local) => {
                let state = self.locals[local.index()].as_ref().expect("verified: declared before use");
                let value = match state.held[element as usize] {
                    LocalValue::Lanes(value) => value,
                    LocalValue::Slot(slot) => Value::slot(slot),
                    LocalValue::Affine(_) => unreachable!("an affine local has an affine shape"),
                };
                self.place(value, lane.bytes(), sink)
            }
            Expr::Load { mem, index, lanes: _, guard } => self.load(mem, index, element, guard, sink),
            Expr::Alu(alu, args) => {
                if let Some(range) = self.range(id, true) {
                    let dst = self.register(1);
                    self.emit(Instr::Compare { dst, range });
                    return self.place(Value::of(dst), 1, sink);
                }
                if let Some((pair, args)) = self.pair(id, alu, &args) {
                    return self.call_pair(pair, &args, element, lane, sink);
                }
                let operands: Vec<Value> = args.iter().map(|arg| self.operand(*arg, element)).collect();
                let operand_lane = Lane::of(self.kernel.exprs.ty(*args.last().expect("one to three operands"))).0;
                let round = if alu.is_comparison() { Round::None } else { round_after(alu, round) };
                self.alu(alu, operand_lane, round, operands, sink)
            }
            Expr::Cast(to, value) => {
                if let Some(whole) = self.halved(to, value) {
                    return self.call_pair(Pair::High, &[whole], element, Lane::U32, sink);
                }
                let steps = cast_steps(Lane::of(self.kernel.exprs.ty(value)), Lane::of(to));
                let value = self.operand(value, element);
                self.cast(steps, value, lane.bytes(), sink)
            }
            Expr::Bitcast(_, value) => {
                let from = Lane::of(self.kernel.exprs.ty(value)).1;
                let value = self.operand(value, element);
                self.bitcast(from, round, value, lane.bytes(), sink)
            }
            Expr::Splat(value, _) => {
                let value = self.operand(value, 0);
                self.place(value, lane.bytes(), sink)
            }
            Expr::Extract(value, from) => {
                let value = self.operand(value, from);
                self.place(value, lane.bytes(), sink)
            }
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Builtin(_) | Expr::Len(_) => {
                unreachable!("uniform or affine")
            }
        }
    }

    /// Returns the fused pair of operations that an expression forms with one of its operands, if that operand has no other use.
    fn pair(&self, id: ExprId, outer: Alu, args: &[ExprId]) -> Option<(Pair, Vec<ExprId>)> {
        let &[left, right] = args else { return None };
        // A comparison uses the lane type of its operands.
        let (lane, round) = Lane::of(self.kernel.exprs.ty(if outer.is_comparison() { left } else { id }));
        if outer == Alu::Mul && lane == Lane::U64 {
            let (a, b) = (self.widened(left)?, self.widened(right)?);
            return Some((Pair::WideMul, vec![a, b]));
        }
        let is_float = |lane| matches!(lane, Lane::F32 | Lane::F64);
        if (outer, left) == (Alu::Mul, right) && is_float(lane) && round == Round::None {
            return Some((Pair::Square, vec![left]));
        }
        let lane_of = |id: ExprId| Lane::of(self.kernel.exprs.ty(id)).0;
        let fits = |pair: Pair, args: &[ExprId]| match pair {
            Pair::XorXor => matches!(lane, Lane::I32 | Lane::U32 | Lane::I64 | Lane::U64),
            Pair::AndLt | Pair::AndLe => is_float(lane_of(args[1])) || lane_of(args[1]).bytes() == 4,
            _ => is_float(lane) && round == Round::None,
        };
        let found = [(right, left, true), (left, right, false)].into_iter().filter_map(|(operand, other, is_right)| {
            let Expr::Alu(inner, args) = self.kernel.exprs.get(operand) else { return None };
            let pair = Pair::of(inner, outer, is_right)?;
            let alone = self.facts.uses[operand.index()] == 1 && self.shape(operand) != LaneUniformity::Uniform;
            let args = match pair {
                Pair::AndLt | Pair::AndLe => [other, args[0], args[1]],
                _ => [args[0], args[1], other],
            };
            (alone && fits(pair, &args)).then(|| (pair, args.to_vec()))
        });
        // Fusing a product always saves a loop; a sum may itself be fused with a product.
        found.min_by_key(|(pair, _)| matches!(pair, Pair::AddAdd | Pair::SubAdd))
    }

    /// Computes the conjunction of `bools` and a comparison that has no other use, in one loop. `None` if there is no such loop.
    pub fn where_(&mut self, bools: Value, comparison: ExprId) -> Option<Value> {
        let Expr::Alu(alu, args) = self.kernel.exprs.get(comparison) else { return None };
        let pair = Pair::of(alu, Alu::And, false)?;
        let lane = Lane::of(self.kernel.exprs.ty(args[0])).0;
        let alone = self.facts.uses[comparison.index()] == 1 && self.shape(comparison) == LaneUniformity::Varying;
        if !alone || (self.ops.pair)(pair, lane, Mode::Vvv).is_none() || self.range(comparison, true).is_some() {
            return None;
        }
        let operands = [args[0], args[1]].map(|arg| self.operand(arg, 0));
        let operands = [bools, operands[0], operands[1]].to_vec();
        let call = self.select_loop(LoopOp::Pair(pair, lane), lane, operands, Destination::Fresh, 1);
        Some(self.call(call, Destination::Fresh))
    }

    /// Returns the u32 that a u64 expression is widened from; for a constant below 2^32 the constant itself.
    fn widened(&self, id: ExprId) -> Option<ExprId> {
        match self.kernel.exprs.get(id) {
            Expr::Cast(_, value) if self.kernel.exprs.ty(value) == Type::Scalar(DType::U32) => Some(value),
            Expr::Const(scalar) if scalar.bits <= u64::from(u32::MAX) => Some(id),
            _ => None,
        }
    }

    /// Returns the u64 whose upper half a conversion takes.
    fn halved(&self, to: Type, value: ExprId) -> Option<ExprId> {
        let Expr::Alu(Alu::Shr, args) = self.kernel.exprs.get(value) else { return None };
        let is = |ty, dtype| ty == Type::Scalar(dtype);
        let upper = is(to, DType::U32) && is(self.kernel.exprs.ty(value), DType::U64);
        (upper && constant(self.kernel, args[1]) == Some(32)).then_some(args[0])
    }

    /// Calls the loop of a fused pair. `lane` is the lane type of the result.
    fn call_pair(&mut self, pair: Pair, args: &[ExprId], element: u8, lane: Lane, sink: Destination) -> Value {
        let operands: Vec<Value> = args.iter().map(|arg| self.operand(*arg, element)).collect();
        let operand_lane = match pair {
            Pair::WideMul => Lane::U32,
            Pair::High => Lane::U64,
            Pair::AddLt | Pair::AddLe => Lane::of(self.kernel.exprs.ty(args[0])).0,
            Pair::AndLt | Pair::AndLe => Lane::of(self.kernel.exprs.ty(args[1])).0,
            Pair::MulAdd | Pair::MulSub | Pair::SubMul | Pair::AddAdd | Pair::SubAdd | Pair::XorXor => lane,
            Pair::Square => lane,
        };
        let call = self.select_loop(LoopOp::Pair(pair, operand_lane), operand_lane, operands, sink, lane.bytes());
        self.call(call, sink)
    }

    /// Computes an operation and the rounding of its result. `lane` is the lane type of the operands (for `Select`, of the values).
    pub fn alu(&mut self, alu: Alu, lane: Lane, round: Round, operands: Vec<Value>, sink: Destination) -> Value {
        let first = if round == Round::None { sink } else { Destination::Fresh };
        let bytes = if alu.is_comparison() { 1 } else { lane.bytes() };
        let call = self.select_loop(LoopOp::Alu(alu, lane), lane, operands, first, bytes);
        let value = self.call(call, first);
        match (self.ops.round)(round) {
            None => value,
            Some(f) => {
                let call = Call { f, what: LoopOp::Round(round), args: vec![value], bytes, update: None };
                self.call(call, sink)
            }
        }
    }

    /// Selects the loop for the operands' modes (uniform or lanes). If there is none, broadcasts uniform operands to lanes.
    fn select_loop(&mut self, what: LoopOp, lane: Lane, mut args: Vec<Value>, sink: Destination, bytes: usize) -> Call {
        let ops = self.ops;
        let find = |mode: Mode| match what {
            LoopOp::Alu(alu, _) => (ops.alu)(alu, lane, mode),
            LoopOp::Pair(pair, _) => (ops.pair)(pair, lane, mode),
            LoopOp::Cast(..)
            | LoopOp::Odd(_)
            | LoopOp::Round(_)
            | LoopOp::Widen(_)
            | LoopOp::Narrow(_)
            | LoopOp::Copy
            | LoopOp::Splat => None,
        };
        let commutative = match what {
            LoopOp::Alu(alu, _) => alu.is_commutative() || alu == Alu::Fma,
            LoopOp::Pair(pair, _) => pair.is_commutative(),
            LoopOp::Cast(..)
            | LoopOp::Odd(_)
            | LoopOp::Round(_)
            | LoopOp::Widen(_)
            | LoopOp::Narrow(_)
            | LoopOp::Copy
            | LoopOp::Splat => false,
        };
        let swap = match args[..] {
            [a, b] => commutative && (!a.src.is_lanes() || (!wants(sink, &a) && wants(sink, &b))),
            [a, b, _] => {
                commutative && b.src.is_lanes() && (!a.src.is_lanes() || (!wants(sink, &a) && wants(sink, &b)))
            }
            _ => false,
        };
        if swap {
            args.swap(0, 1);
        }
        let f = loop {
            let mode = mode_of(&args);
            if let Some(f) = mode.and_then(find) {
                break f;
            }
            let position =
                args.iter().position(|arg| !arg.src.is_lanes()).expect("every operation has a loop for lane operands");
            let condition = matches!(what, LoopOp::Alu(Alu::Select, _) | LoopOp::Pair(Pair::AndLt | Pair::AndLe, _));
            let is_condition = condition && position == 0;
            args[position] = self.splat(args[position], if is_condition { 1 } else { lane.bytes() });
        };
        let wanted = |position: usize| args.get(position).is_some_and(|arg| wants(sink, arg));
        let update = match mode_of(&args) {
            Some(Mode::Vv) if wanted(0) => Some((0, Mode::Iv)),
            Some(Mode::Vs) if wanted(0) => Some((0, Mode::Is)),
            Some(Mode::Vvv) if wanted(2) => Some((2, Mode::Vvi)),
            Some(Mode::Vsv) if wanted(2) => Some((2, Mode::Vsi)),
            Some(Mode::Vvv) if wanted(0) => Some((0, Mode::Ivv)),
            Some(Mode::Vvs) if wanted(0) => Some((0, Mode::Ivs)),
            _ => None,
        };
        let update = update.and_then(|(position, mode)| find(mode).map(|f| (position, f)));
        Call { f, what, args, bytes, update }
    }

    fn cast(&mut self, steps: Vec<CastStep>, value: Value, bytes: usize, sink: Destination) -> Value {
        let Some((last, before)) = steps.split_last() else {
            return self.place(value, bytes, sink);
        };
        let value = before.iter().fold(value, |value, step| self.cast_step(*step, value, Destination::Fresh));
        self.cast_step(*last, value, sink)
    }

    fn cast_step(&mut self, step: CastStep, value: Value, sink: Destination) -> Value {
        let (f, what, bytes) = match step {
            CastStep::NonZero(lane) => {
                let zero = Value::slot(known::ZERO);
                return self.alu(Alu::Ne, lane, Round::None, vec![value, zero], sink);
            }
            CastStep::Lane(from, to) => match (self.ops.cast)(from, to) {
                Some(f) => (f, LoopOp::Cast(from, to), to.bytes()),
                None => return self.place(value, to.bytes(), sink),
            },
            CastStep::Odd(lane) => {
                let f = (self.ops.odd)(lane).expect("only types wider than f32 are rounded to odd");
                (f, LoopOp::Odd(lane), 4)
            }
            CastStep::Round(round) => {
                let f = (self.ops.round)(round).expect("only roundings that can change a value are steps");
                (f, LoopOp::Round(round), 4)
            }
        };
        self.call(Call { f, what, args: vec![value], bytes, update: None }, sink)
    }

    fn bitcast(&mut self, from: Round, to: Round, value: Value, bytes: usize, sink: Destination) -> Value {
        let narrow = (self.ops.narrow)(from).filter(|_| from != to);
        let widen = (self.ops.widen)(to).filter(|_| from != to);
        let value = match narrow {
            None => value,
            Some(f) => {
                let call = Call { f, what: LoopOp::Narrow(from), args: vec![value], bytes: 2, update: None };
                let sink = if widen.is_none() { sink } else { Destination::Fresh };
                self.call(call, sink)
            }
        };
        match widen {
            Some(f) => self.call(Call { f, what: LoopOp::Widen(to), args: vec![value], bytes: 4, update: None }, sink),
            None if narrow.is_some() => value,
            None => self.place(value, bytes, sink),
        }
    }

    // Memory.

    /// Converts a value to the 16-bit floats stored in memory.
    pub fn narrow_into(&mut self, round: Round, value: Value, sink: Destination) -> Value {
        let f = (self.ops.narrow)(round).expect("only 16-bit floats are narrowed");
        let what = LoopOp::Narrow(round);
        if value.src.is_lanes() {
            return self.call(Call { f, what, args: vec![value], bytes: 2, update: None }, sink);
        }
        let slot = self.scalar(self.level(), f, what, &[slot_of(value)]);
        self.place(Value::slot(slot), 2, sink)
    }

    /// Creates an access to a memory.
    pub fn access(&self, mem: MemId, offset: u8, guard: Guard) -> Access {
        Access { mem: Mem(mem.0), bytes: self.kernel.mem(mem).dtype.bytes() as u8, offset, guard }
    }

    fn load(&mut self, mem: MemId, index: ExprId, element: u8, guard: Guard, sink: Destination) -> Value {
        let dtype = self.kernel.mem(mem).dtype;
        let access = self.access(mem, element, guard);
        let bytes = dtype.bytes();
        let raw = match self.element_of(mem, index) {
            At::Affine(at) => {
                let (cell, temp) = (self.slot(), self.spare_register(bytes));
                self.emit(Instr::Stream { cell, access, at, temp });
                let src = Src { kind: Kind::Cell, step: bytes as u8, at: cell.0 };
                Value { src, from: Some(MemoryOperand { mem, index, offset: element }), borrowed: false }
            }
            At::Lanes(index) => {
                let dst = self.register(bytes);
                self.emit(Instr::Gather { dst, access, index });
                Value::of(dst)
            }
        };
        let (_, round) = Lane::of_dtype(dtype);
        match (self.ops.widen)(round) {
            Some(f) => self.call(Call { f, what: LoopOp::Widen(round), args: vec![raw], bytes: 4, update: None }, sink),
            // The host may have written any byte.
            None if dtype == DType::Bool => self.cast_step(CastStep::NonZero(Lane::U8), raw, sink),
            None => self.place(raw, bytes, sink),
        }
    }

    /// Returns the element index of each lane: a linear function if the index is one and the memory is not private, or
    /// if it is uniform.
    pub fn element_of(&mut self, mem: MemId, index: ExprId) -> At {
        let private = matches!(self.kernel.mem(mem).space, Space::Private(_));
        match self.shape(index) {
            LaneUniformity::Uniform => At::Affine(self.affine(index)),
            LaneUniformity::Affine(_) if !private => At::Affine(self.affine(index)),
            LaneUniformity::Affine(_) | LaneUniformity::Varying | LaneUniformity::Unknown => {
                At::Lanes(self.lanes(index, 0).src)
            }
        }
    }

    // Sinks.

    /// Moves a value to its destination.
    pub fn place(&mut self, value: Value, bytes: usize, sink: Destination) -> Value {
        if matches!(sink, Destination::Fresh) {
            return value;
        }
        let call = self.moved(value, bytes);
        self.call(call, sink)
    }

    /// Copies a value to a new register.
    pub fn copied(&mut self, value: Value, bytes: usize) -> Value {
        let call = self.moved(value, bytes);
        self.call(call, Destination::Fresh)
    }

    /// Broadcasts a value to every lane of a register.
    pub fn splat(&mut self, value: Value, bytes: usize) -> Value {
        debug_assert!(!value.src.is_lanes(), "only uniform values are broadcast");
        self.copied(value, bytes)
    }

    fn moved(&self, value: Value, bytes: usize) -> Call {
        let (how, what) = if value.src.is_lanes() { (Move::Copy, LoopOp::Copy) } else { (Move::Splat, LoopOp::Splat) };
        Call { f: (self.ops.memory)(how, bytes), what, args: vec![value], bytes, update: None }
    }

    /// Emits a loop that writes to a sink.
    fn call(&mut self, call: Call, sink: Destination) -> Value {
        match sink {
            Destination::Fresh => {
                let dst = self.register(call.bytes);
                self.emit(Instr::Vector(call.work(dst)));
                Value::of(dst)
            }
            Destination::Local { dst, merge } => {
                self.call_for_local(call, dst, merge);
                Value { borrowed: true, ..Value::of(dst) }
            }
            Destination::Memory { access, at, source } => {
                self.call_for_memory(call, access, at, source);
                Value::of(Src::NONE)
            }
        }
    }

    fn call_for_local(&mut self, call: Call, dst: Src, merge: bool) {
        let overlaps = call.args.iter().filter(|arg| arg.src == dst).count();
        let direct = match call.update {
            None if overlaps == 0 => Some(call.f),
            Some((_, f)) if overlaps == 1 => Some(f),
            _ => None,
        };
        let work = call.work(dst);
        match direct {
            Some(f) if !merge => self.emit(Instr::Vector(VectorLoop { f, ..work })),
            _ if merge => {
                let temp = self.spare_register(call.bytes);
                self.emit(Instr::Merge { work, direct, temp });
            }
            _ => {
                let temp = self.register(call.bytes);
                self.emit(Instr::Vector(call.work(temp)));
                let copy = self.moved(Value::of(temp), call.bytes);
                self.emit(Instr::Vector(copy.work(dst)));
            }
        }
    }

    fn call_for_memory(&mut self, call: Call, access: Access, at: Affine, source: MemoryOperand) {
        let reads: Vec<MemoryOperand> =
            call.args.iter().filter_map(|arg| arg.from).filter(|from| from.mem == source.mem).collect();
        let update = match (&reads[..], call.update) {
            ([], _) => None,
            ([only], Some((operand, f))) if *only == source => Some((operand as u8, f)),
            _ => {
                // A lane would overwrite an element that another lane has yet to read.
                let dst = self.register(call.bytes);
                self.emit(Instr::Vector(call.work(dst)));
                self.emit(Instr::Store { access, at: At::Affine(at), value: dst });
                return;
            }
        };
        let (cell, temp) = (self.slot(), self.spare_register(call.bytes));
        self.emit(Instr::PrepareStore { cell, access, at, temp });
        let work = call.work(Src { kind: Kind::Cell, step: call.bytes as u8, at: cell.0 });
        self.emit(match update {
            None => Instr::Vector(work),
            Some((operand, direct)) => Instr::Update { work, direct, operand },
        });
        self.emit(Instr::CommitStore { cell, access, at, temp });
    }
}

impl Call {
    fn work(&self, dst: Src) -> VectorLoop {
        let mut args = [Src::NONE; 3];
        args.iter_mut().zip(&self.args).for_each(|(arg, value)| *arg = value.src);
        VectorLoop { f: self.f, dst, args, what: self.what, may_overcompute: false }
    }
}

/// Returns true if the sink can be updated in place through this operand.
fn wants(sink: Destination, value: &Value) -> bool {
    match sink {
        Destination::Fresh => false,
        Destination::Local { dst, .. } => value.src == dst,
        Destination::Memory { source, .. } => value.from == Some(source),
    }
}

/// Returns the mode of the operands; `None` for modes for which no operation has a loop.
fn mode_of(args: &[Value]) -> Option<Mode> {
    let lanes: Vec<bool> = args.iter().map(|arg| arg.src.is_lanes()).collect();
    match lanes[..] {
        [true] => Some(Mode::V),
        [true, true] => Some(Mode::Vv),
        [true, false] => Some(Mode::Vs),
        [false, true] => Some(Mode::Sv),
        [true, true, true] => Some(Mode::Vvv),
        [true, true, false] => Some(Mode::Vvs),
        [true, false, true] => Some(Mode::Vsv),
        [true, false, false] => Some(Mode::Vss),
        _ => None,
    }
}

/// Returns the slot of a uniform value.
pub fn slot_of(value: Value) -> Slot {
    debug_assert!(!value.src.is_lanes(), "a uniform value is in a slot");
    Slot(value.src.at)
}
