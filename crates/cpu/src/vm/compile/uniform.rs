//! Uniform values, and linear functions of the coordinates: arithmetic on slots.
//!
//! Values that depend only on the launch are computed once per launch, values that depend on the block once per block,
//! and values that depend on immutable locals where the innermost of these is declared. Nothing here can fault, so code
//! may be hoisted above conditions and run where no lane would have executed it.

use panoply_host::isa::VecFn;
use panoply_ir::kernel::{Access as Use, Builtin, Expr, ExprId, Guard, LocalId, Space};
use panoply_ir::{Alu, DType, Type};

use super::state::{LocalValue, State, Value};
use super::uniformity::LaneUniformity;
use crate::vm::lane::{Lane, Round};
use crate::vm::ops::alu::Mode;
use crate::vm::program::{Access, Affine, IndexOp, Instr, LoopOp, Mem, Slot, Src, TileShape, VectorLoop, known};

impl State<'_> {
    /// Returns the uniformity of an expression.
    pub fn shape(&self, id: ExprId) -> LaneUniformity {
        self.facts.exprs[id.index()]
    }

    /// Returns an element of a uniform expression as a slot, with a flag if a mutable local may change it.
    pub fn uniform(&mut self, id: ExprId, element: u8) -> Value {
        if let Some(value) = self.remembered(id, element) {
            return value;
        }
        let level = self.level_of(id);
        let value = self.make_uniform(id, element, level);
        self.remember(id, element, level, value);
        value
    }

    /// Returns the slot of a scalar uniform expression.
    pub fn uniform_slot(&mut self, id: ExprId) -> Slot {
        Slot(self.uniform(id, 0).src.at)
    }

    /// Looks up a cached value of the current statement or of an enclosing scope.
    pub fn remembered(&self, id: ExprId, element: u8) -> Option<Value> {
        let key = (id, element);
        if self.facts.is_stable(id) {
            self.open.iter().rev().find_map(|scope| scope.values.get(&key)).copied()
        } else {
            self.unstable_values.get(&key).copied()
        }
    }

    /// Caches a value for the rest of the statement or scope.
    pub fn remember(&mut self, id: ExprId, element: u8, level: usize, value: Value) {
        let key = (id, element);
        if self.facts.is_stable(id) {
            self.open[level].values.insert(key, value);
        } else {
            self.unstable_values.insert(key, value);
        }
    }

    /// Returns the scope in which a uniform or affine expression is computed: the outermost one in which all operands
    /// are available.
    pub fn level_of(&mut self, id: ExprId) -> usize {
        if !self.facts.is_stable(id) {
            return self.level();
        }
        if let Some(level) = self.levels[id.index()] {
            return level;
        }
        let expr = self.kernel.exprs.get(id);
        let level = match expr {
            Expr::Local(local) => self.locals[local.index()].as_ref().expect("verified: declared before use").level,
            Expr::Builtin(Builtin::GlobalId(_) | Builtin::LocalId(_) | Builtin::GroupId(_)) => 1,
            _ => expr.operands().iter().map(|operand| self.level_of(*operand)).max().unwrap_or(0),
        };
        self.levels[id.index()] = Some(level);
        level
    }

    fn make_uniform(&mut self, id: ExprId, element: u8, level: usize) -> Value {
        let ty = self.kernel.exprs.ty(id);
        let round = Lane::of(ty).1;
        match self.kernel.exprs.get(id) {
            Expr::Const(scalar) => {
                let bits = match round {
                    Round::None => scalar.bits,
                    Round::F16 | Round::BF16 => u64::from((scalar.to_f64() as f32).to_bits()),
                };
                Value::slot(self.constant(bits))
            }
            Expr::Index(value) => Value::slot(self.constant(value)),
            Expr::Param(position) => Value::slot(self.param(position as usize, ty)),
            Expr::Len(mem) => Value::slot(self.length(mem.index())),
            Expr::Local(local) => self.uniform_local(local, element),
            Expr::Builtin(builtin) => Value::slot(self.builtin(builtin)),
            Expr::Load { mem, index, lanes: _, guard } => {
                let index = self.uniform_slot(index);
                Value::slot(self.load_slot(mem.index(), index, element, guard))
            }
            Expr::Alu(alu, args) => {
                let operands: Vec<Slot> = args.iter().map(|arg| self.base(*arg, element)).collect();
                let operand_lane = Lane::of(self.kernel.exprs.ty(*args.last().expect("one to three operands"))).0;
                Value::slot(self.compute(level, alu, operand_lane, round, &operands))
            }
            Expr::Cast(to, value) => {
                let from = self.kernel.exprs.ty(value);
                let slot = self.base(value, element);
                Value::slot(self.cast_slot(level, from, to, slot))
            }
            Expr::Bitcast(to, value) => {
                let from = self.kernel.exprs.ty(value);
                let slot = self.base(value, element);
                Value::slot(self.bitcast_slot(level, from, to, slot))
            }
            Expr::Splat(value, _) => self.uniform(value, 0),
            Expr::Extract(value, lane) => self.uniform(value, lane),
        }
    }

    /// Returns the slot of a scalar, or of the base of an affine index.
    fn base(&mut self, id: ExprId, element: u8) -> Slot {
        match self.shape(id) {
            LaneUniformity::Affine(_) => self.affine(id).base,
            LaneUniformity::Unknown | LaneUniformity::Uniform | LaneUniformity::Varying => {
                Slot(self.uniform(id, element).src.at)
            }
        }
    }

    fn uniform_local(&mut self, local: LocalId, element: u8) -> Value {
        let state = self.locals[local.index()].as_ref().expect("verified: declared before use");
        match state.held[element as usize] {
            LocalValue::Slot(slot) => Value { borrowed: self.kernel.local(local).mutable, ..Value::slot(slot) },
            LocalValue::Affine(_) | LocalValue::Lanes(_) => unreachable!("a uniform local is held in a slot"),
        }
    }

    fn param(&mut self, position: usize, ty: Type) -> Slot {
        if self.params.len() <= position {
            self.params.resize(position + 1, None);
        }
        if let Some((slot, _)) = self.params[position] {
            return slot;
        }
        let slot = self.slot();
        self.params[position] = Some((slot, Lane::of(ty).1));
        slot
    }

    fn length(&mut self, mem: usize) -> Slot {
        match self.kernel.mems[mem].space {
            Space::Shared(len) | Space::Private(len) => self.constant(u64::from(len)),
            Space::Buffer(Use::In | Use::Out | Use::InOut) => {
                if let Some(slot) = self.lengths[mem] {
                    return slot;
                }
                let slot = self.slot();
                self.lengths[mem] = Some(slot);
                slot
            }
        }
    }

    fn builtin(&mut self, builtin: Builtin) -> Slot {
        let known = |first: u32, axis: u8| Slot(first + u32::from(axis));
        match builtin {
            Builtin::GlobalId(axis) => known(known::GLOBAL, axis),
            Builtin::GroupId(axis) => known(known::GROUP, axis),
            Builtin::GlobalSize(axis) => known(known::SIZE, axis),
            Builtin::GroupCount(axis) => known(known::GROUPS, axis),
            // Local ids that vary are affine; along the other axes a group has one work-item.
            Builtin::LocalId(_) | Builtin::SubgroupLane => known::ZERO,
            Builtin::GroupSize(axis) => match self.cover {
                TileShape::Group(group) => self.constant(u64::from(group[axis as usize])),
                TileShape::Row | TileShape::Tile2d | TileShape::Tile3d => self.constant(1),
            },
            Builtin::SubgroupSize => self.constant(1),
        }
    }

    fn load_slot(&mut self, mem: usize, index: Slot, offset: u8, guard: Guard) -> Slot {
        let dtype = self.kernel.mems[mem].dtype;
        let (_, round) = Lane::of_dtype(dtype);
        let dst = self.slot();
        let access = Access { mem: Mem(mem as u32), bytes: dtype.bytes() as u8, offset, guard };
        self.emit(Instr::Load { dst, access, index });
        if dtype == DType::Bool {
            // The host may have written any byte.
            return self.compute(self.level(), Alu::Ne, Lane::Bool, Round::None, &[dst, known::ZERO]);
        }
        match (self.ops.widen)(round) {
            None => dst,
            Some(f) => self.scalar(self.level(), f, LoopOp::Widen(round), &[dst]),
        }
    }

    /// Emits index arithmetic at a level, with constant folding.
    pub fn index(&mut self, level: usize, op: IndexOp, a: Slot, b: Slot) -> Slot {
        match (op, self.known(a), self.known(b)) {
            (_, Some(a), Some(b)) => return self.constant(op.eval(a, b)),
            (IndexOp::Add, None, Some(0)) | (IndexOp::Sub, None, Some(0)) | (IndexOp::Mul, None, Some(1)) => return a,
            (IndexOp::Add, Some(0), None) | (IndexOp::Mul, Some(1), None) => return b,
            (IndexOp::Mul, Some(0), None) | (IndexOp::Mul, None, Some(0)) => return known::ZERO,
            _ => {}
        }
        let dst = self.slot();
        self.emit_at(level, Instr::Index { op, dst, a, b });
        dst
    }

    /// Emits a loop on one lane in slots.
    pub fn scalar(&mut self, level: usize, f: VecFn, what: LoopOp, args: &[Slot]) -> Slot {
        let dst = self.slot();
        let mut sources = [Src::NONE; 3];
        sources.iter_mut().zip(args).for_each(|(source, slot)| *source = Src::slot(*slot));
        self.emit_at(
            level,
            Instr::Scalar(VectorLoop { f, dst: Src::slot(dst), args: sources, what, may_overcompute: false }),
        );
        dst
    }

    /// Emits an operation on slots. `lane` is the lane type of the operands, `round` the rounding of the result.
    pub fn compute(&mut self, level: usize, alu: Alu, lane: Lane, round: Round, args: &[Slot]) -> Slot {
        if lane == Lane::U64
            && let (Some(op), [a, b]) = (index_op(alu), args)
        {
            return self.index(level, op, *a, *b);
        }
        let mode = [Mode::V, Mode::Vv, Mode::Vvv][args.len() - 1];
        let f = (self.ops.alu)(alu, lane, mode).expect("every operation has a loop for lane operands");
        let result = self.scalar(level, f, LoopOp::Alu(alu, lane), args);
        self.round_slot(level, if alu.is_comparison() { Round::None } else { round_after(alu, round) }, result)
    }

    fn round_slot(&mut self, level: usize, round: Round, slot: Slot) -> Slot {
        match (self.ops.round)(round) {
            None => slot,
            Some(f) => self.scalar(level, f, LoopOp::Round(round), &[slot]),
        }
    }

    fn cast_slot(&mut self, level: usize, from: Type, to: Type, slot: Slot) -> Slot {
        let (from, to) = (Lane::of(from), Lane::of(to));
        let mut slot = slot;
        for step in cast_steps(from, to) {
            slot = match step {
                CastStep::NonZero(lane) => {
                    let zero = known::ZERO;
                    self.compute(level, Alu::Ne, lane, Round::None, &[slot, zero])
                }
                CastStep::Lane(from, to) => match (self.ops.cast)(from, to) {
                    Some(f) => self.scalar(level, f, LoopOp::Cast(from, to), &[slot]),
                    None => slot,
                },
                CastStep::Odd(lane) => {
                    let f = (self.ops.odd)(lane).expect("only types wider than f32 are rounded to odd");
                    self.scalar(level, f, LoopOp::Odd(lane), &[slot])
                }
                CastStep::Round(round) => self.round_slot(level, round, slot),
            };
        }
        slot
    }

    fn bitcast_slot(&mut self, level: usize, from: Type, to: Type, slot: Slot) -> Slot {
        let (from, to) = (Lane::of(from).1, Lane::of(to).1);
        let bits = match (self.ops.narrow)(from) {
            Some(f) if from != to => self.scalar(level, f, LoopOp::Narrow(from), &[slot]),
            _ => slot,
        };
        match (self.ops.widen)(to) {
            Some(f) if from != to => self.scalar(level, f, LoopOp::Widen(to), &[bits]),
            _ => bits,
        }
    }

    /// Returns the linear function of an affine expression.
    pub fn affine(&mut self, id: ExprId) -> Affine {
        let stable = self.facts.is_stable(id);
        let found = if stable {
            self.open.iter().rev().find_map(|scope| scope.affines.get(&id)).copied()
        } else {
            self.unstable_affines.get(&id).copied()
        };
        if let Some(affine) = found {
            return affine;
        }
        let level = self.level_of(id);
        let affine = self.make_affine(id, level);
        if stable {
            self.open[level].affines.insert(id, affine);
        } else {
            self.unstable_affines.insert(id, affine);
        }
        affine
    }

    fn make_affine(&mut self, id: ExprId, level: usize) -> Affine {
        if self.shape(id) == LaneUniformity::Uniform {
            return Affine { base: self.uniform_slot(id), strides: [known::ZERO; 3] };
        }
        match self.kernel.exprs.get(id) {
            Expr::Builtin(Builtin::GlobalId(axis)) => self.coordinate(Slot(known::GLOBAL + u32::from(axis)), axis),
            Expr::Builtin(Builtin::LocalId(axis)) => self.coordinate(known::ZERO, axis),
            Expr::Local(local) => {
                let state = self.locals[local.index()].as_ref().expect("verified: declared before use");
                match state.held[0] {
                    LocalValue::Affine(affine) => affine,
                    LocalValue::Slot(_) | LocalValue::Lanes(_) => {
                        unreachable!("an affine local is stored as base and strides")
                    }
                }
            }
            Expr::Cast(_, value) | Expr::Bitcast(_, value) => self.affine(value),
            Expr::Alu(alu, args) => {
                let a = self.affine(args[0]);
                match alu {
                    Alu::Neg => self.map_affine(|state, x| state.index(level, IndexOp::Sub, known::ZERO, x), a),
                    Alu::Add | Alu::Sub => {
                        let b = self.affine(args[1]);
                        let op = if alu == Alu::Add { IndexOp::Add } else { IndexOp::Sub };
                        let base = self.index(level, op, a.base, b.base);
                        let strides = std::array::from_fn(|d| self.index(level, op, a.strides[d], b.strides[d]));
                        Affine { base, strides }
                    }
                    Alu::Mul => {
                        let (linear, factor) = if self.shape(args[1]) == LaneUniformity::Uniform {
                            (args[0], args[1])
                        } else {
                            (args[1], args[0])
                        };
                        let (linear, factor) = (self.affine(linear), self.uniform_slot(factor));
                        self.map_affine(|state, x| state.index(level, IndexOp::Mul, x, factor), linear)
                    }
                    Alu::Shl => {
                        let by = self.uniform_slot(args[1]);
                        self.map_affine(|state, x| state.index(level, IndexOp::Shl, x, by), a)
                    }
                    _ => unreachable!("no other operation is linear"),
                }
            }
            _ => unreachable!("no other expression is affine"),
        }
    }

    fn coordinate(&mut self, base: Slot, axis: u8) -> Affine {
        let one = self.constant(1);
        let strides = std::array::from_fn(|d| if d == axis as usize { one } else { known::ZERO });
        Affine { base, strides }
    }

    fn map_affine(&mut self, mut f: impl FnMut(&mut Self, Slot) -> Slot, affine: Affine) -> Affine {
        Affine { base: f(self, affine.base), strides: affine.strides.map(|stride| f(self, stride)) }
    }
}

/// Returns the rounding an operation's result needs: none if the operation is exact on rounded operands.
pub fn round_after(alu: Alu, round: Round) -> Round {
    use Alu::*;
    match alu {
        Neg | Not | Abs | PopCount | Floor | Ceil | Round | Trunc | Min | Max | And | Or | Xor | Shl | Shr | Lt
        | Le | Eq | Ne | Select => self::Round::None,
        Math(_) | Sqrt | Add | Sub | Mul | Div | Rem | Pow | Fma => round,
    }
}

/// A step of a conversion.
#[derive(Clone, Copy, Debug)]
pub enum CastStep {
    /// To bool: true if nonzero.
    NonZero(Lane),
    /// From one lane type to another.
    Lane(Lane, Lane),
    /// To the f32 that double rounding turns into the correctly rounded 16-bit float (round to odd).
    Odd(Lane),
    /// To the values of a narrower float type.
    Round(Round),
}

/// Returns the steps of a conversion between types.
pub fn cast_steps(from: (Lane, Round), to: (Lane, Round)) -> Vec<CastStep> {
    let ((lane, from_round), (target, round)) = (from, to);
    if target == Lane::Bool {
        return if lane == Lane::Bool { vec![] } else { vec![CastStep::NonZero(lane)] };
    }
    if round == Round::None {
        return if lane == target { vec![] } else { vec![CastStep::Lane(lane, target)] };
    }
    match lane {
        Lane::F32 if from_round == round => vec![],
        Lane::F32 => vec![CastStep::Round(round)],
        // 16-bit floats are storage types: conversions from other types go through f32, but are rounded once.
        Lane::I32 | Lane::I64 | Lane::U32 | Lane::U64 | Lane::F64 => vec![CastStep::Odd(lane), CastStep::Round(round)],
        Lane::Bool | Lane::I8 | Lane::I16 | Lane::U8 | Lane::U16 => {
            vec![CastStep::Lane(lane, Lane::F32), CastStep::Round(round)]
        }
    }
}

fn index_op(alu: Alu) -> Option<IndexOp> {
    Some(match alu {
        Alu::Add => IndexOp::Add,
        Alu::Sub => IndexOp::Sub,
        Alu::Mul => IndexOp::Mul,
        Alu::Div => IndexOp::Div,
        Alu::Rem => IndexOp::Rem,
        Alu::Min => IndexOp::Min,
        Alu::Max => IndexOp::Max,
        Alu::And => IndexOp::And,
        Alu::Or => IndexOp::Or,
        Alu::Xor => IndexOp::Xor,
        Alu::Shl => IndexOp::Shl,
        Alu::Shr => IndexOp::Shr,
        Alu::Lt => IndexOp::Lt,
        Alu::Le => IndexOp::Le,
        Alu::Eq => IndexOp::Eq,
        Alu::Ne => IndexOp::Ne,
        _ => return None,
    })
}
