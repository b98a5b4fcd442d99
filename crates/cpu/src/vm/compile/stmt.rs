//! Statements without nested blocks: locals, stores, atomics and collectives.

use panoply_ir::DType;
use panoply_ir::kernel::{AtomicOp, Block, CollectiveOp, ExprId, Guard, LocalId, MemId, Op, ReduceOp, Scope, Space};

use super::lanes::{Destination, slot_of};
use super::state::{LocalState, LocalValue, MemoryOperand, State, Value};
use super::uniformity::{LaneSet, LaneUniformity, Reads};
use crate::vm::lane::{Lane, Round};
use crate::vm::program::{At, Atomic, Collective, IndexOp, Instr, Slot, Src, known};

impl State<'_> {
    /// Compiles the statements of a block.
    pub fn block(&mut self, block: &Block, place: LaneSet) {
        for stmt in block {
            let number = self.number;
            self.number += 1;
            match &stmt.op {
                Op::Let { local, value } => self.declare(*local, *value),
                Op::Assign { local, value } => {
                    self.assign(*local, *value, place);
                    self.forget(Reads::local(*local));
                }
                Op::Store { mem, index, value, guard } => {
                    self.store(*mem, *index, *value, *guard);
                    self.forget(Reads::mem(*mem));
                }
                Op::Atomic { op, mem, index, value, expected, old, guard } => {
                    self.atomic(*op, *mem, [Some(*index), Some(*value), *expected], *old, *guard);
                    self.forget(Reads::mem(*mem));
                }
                Op::Collective { op, scope, value, result } => self.collective(*op, *scope, *value, *result),
                // The lanes of a block run in lockstep, so all have arrived.
                Op::Barrier => {}
                Op::If { condition, then, otherwise } => self.branch(number, *condition, then, otherwise, place),
                Op::For { counter, start, end, step, body } => {
                    self.count(number, *counter, [*start, *end, *step], body, place);
                }
                Op::While { condition, body } => self.repeat(number, *condition, body, place),
                Op::Break => self.break_loop(),
                Op::Continue => self.continue_loop(),
                Op::Return => self.leave_body(),
            }
        }
    }

    fn elements(&self, local: LocalId) -> u8 {
        self.kernel.local(local).ty.lanes()
    }

    fn declare(&mut self, local: LocalId, value: ExprId) {
        let held = (0..self.elements(local)).map(|element| self.first_value(local, value, element)).collect();
        self.bind(local, held);
    }

    /// Declares a local in this scope.
    pub fn bind(&mut self, local: LocalId, held: Vec<LocalValue>) {
        self.forget(Reads::local(local));
        self.locals[local.index()] = Some(LocalState { level: self.level(), held });
    }

    fn first_value(&mut self, local: LocalId, value: ExprId, element: u8) -> LocalValue {
        let mutable = self.kernel.local(local).mutable;
        let bytes = Lane::of(self.kernel.local(local).ty).0.bytes();
        match self.facts.locals[local.index()] {
            LaneUniformity::Uniform => {
                let value = self.uniform(value, element);
                LocalValue::Slot(if mutable || value.borrowed { self.copied_slot(value) } else { slot_of(value) })
            }
            LaneUniformity::Affine(_) => {
                let mut affine = self.affine(value);
                if mutable || !self.facts.is_stable(value) {
                    affine.base = self.copied_slot(Value::slot(affine.base));
                }
                LocalValue::Affine(affine)
            }
            LaneUniformity::Varying | LaneUniformity::Unknown if mutable => {
                let dst = self.register(bytes);
                self.produce(value, element, Destination::Local { dst, merge: false });
                LocalValue::Lanes(Value { borrowed: true, ..Value::of(dst) })
            }
            LaneUniformity::Varying | LaneUniformity::Unknown => {
                let value = self.operand(value, element);
                LocalValue::Lanes(self.settled(value, bytes))
            }
        }
    }

    /// Returns a value that later assignments and stores do not change, copying it if necessary.
    pub fn settled(&mut self, value: Value, bytes: usize) -> Value {
        let changes = value.from.is_some_and(|from| self.facts.written[from.mem.index()]);
        match (value.src.is_lanes(), value.borrowed || changes) {
            (_, false) => value,
            (true, true) => self.copied(value, bytes),
            (false, true) => Value::slot(self.copied_slot(value)),
        }
    }

    fn copied_slot(&mut self, value: Value) -> Slot {
        let dst = self.slot();
        self.emit(Instr::Index { op: IndexOp::Move, dst, a: slot_of(value), b: known::ZERO });
        dst
    }

    fn assign(&mut self, local: LocalId, value: ExprId, place: LaneSet) {
        let held = self.locals[local.index()].as_ref().expect("verified: declared before use").held.clone();
        let merge = self.facts.homes[local.index()] != place;
        if let [held] = held[..] {
            return self.assign_element(held, value, merge);
        }
        // An element of the new value may depend on any element of the old one.
        let bytes = Lane::of(self.kernel.local(local).ty).0.bytes();
        let values: Vec<Value> = (0..held.len() as u8)
            .map(|element| {
                let value = self.operand(value, element);
                self.settled(value, bytes)
            })
            .collect();
        for (held, value) in held.into_iter().zip(values) {
            match held {
                LocalValue::Slot(dst) => self.move_slot(dst, value),
                LocalValue::Lanes(dst) => {
                    self.place(value, bytes, Destination::Local { dst: dst.src, merge });
                }
                LocalValue::Affine(_) => unreachable!("vectors are not affine"),
            }
        }
    }

    fn assign_element(&mut self, held: LocalValue, value: ExprId, merge: bool) {
        match held {
            LocalValue::Slot(dst) => {
                let value = self.uniform(value, 0);
                self.move_slot(dst, value);
            }
            LocalValue::Affine(dst) => {
                let base = self.affine(value).base;
                self.move_slot(dst.base, Value::slot(base));
            }
            LocalValue::Lanes(dst) => self.produce(value, 0, Destination::Local { dst: dst.src, merge }),
        }
    }

    fn move_slot(&mut self, dst: Slot, value: Value) {
        self.emit(Instr::Index { op: IndexOp::Move, dst, a: slot_of(value), b: known::ZERO });
    }

    fn store(&mut self, mem: MemId, index: ExprId, value: ExprId, guard: Guard) {
        let lanes = self.kernel.exprs.ty(value).lanes();
        if lanes == 1 {
            return self.store_element(mem, index, value, guard);
        }
        let bytes = self.kernel.mem(mem).dtype.bytes();
        // All elements are computed before the first is written.
        let values: Vec<Value> = (0..lanes)
            .map(|element| {
                let value = self.operand(value, element);
                let value = self.narrowed(mem, value);
                if value.from.is_some() { self.copied(value, bytes) } else { value }
            })
            .collect();
        let at = self.element_of(mem, index);
        for (element, value) in values.into_iter().enumerate() {
            let access = self.access(mem, element as u8, guard);
            self.emit(Instr::Store { access, at, value: value.src });
        }
    }

    fn store_element(&mut self, mem: MemId, index: ExprId, value: ExprId, guard: Guard) {
        let dtype = self.kernel.mem(mem).dtype;
        let access = self.access(mem, 0, guard);
        let private = matches!(self.kernel.mem(mem).space, Space::Private(_));
        let at = self.element_of(mem, index);
        match at {
            // All lanes write one element; the last one wins.
            At::Affine(_) if self.shape(index) == LaneUniformity::Uniform && !private => {
                let value = self.operand(value, 0);
                let value = self.narrowed(mem, value);
                self.emit(Instr::Store { access, at, value: value.src });
            }
            At::Affine(affine) => {
                let sink = Destination::Memory { access, at: affine, source: MemoryOperand { mem, index, offset: 0 } };
                match Lane::of_dtype(dtype).1 {
                    Round::None => self.produce(value, 0, sink),
                    round => {
                        let value = self.operand(value, 0);
                        self.narrow_into(round, value, sink);
                    }
                }
            }
            At::Lanes(_) => {
                let value = self.operand(value, 0);
                let value = self.narrowed(mem, value);
                self.emit(Instr::Store { access, at, value: value.src });
            }
        }
    }

    /// Converts a value to the memory's representation.
    fn narrowed(&mut self, mem: MemId, value: Value) -> Value {
        match Lane::of_dtype(self.kernel.mem(mem).dtype).1 {
            Round::None => value,
            round => self.narrow_into(round, value, Destination::Fresh),
        }
    }

    fn atomic(&mut self, op: AtomicOp, mem: MemId, operands: [Option<ExprId>; 3], old: Option<LocalId>, guard: Guard) {
        let [index, value, expected] = operands.map(|id| id.map_or(Src::NONE, |id| self.operand(id, 0).src));
        let lane = Lane::of_dtype(self.kernel.mem(mem).dtype).0;
        let result = old.map(|_| self.register(lane.bytes()));
        let access = self.access(mem, 0, guard);
        self.emit(Instr::Atomic(Box::new(Atomic { op, access, lane, index, value, expected, old: result })));
        if let (Some(local), Some(result)) = (old, result) {
            self.bind(local, vec![LocalValue::Lanes(Value::of(result))]);
        }
    }

    fn collective(&mut self, op: CollectiveOp, scope: Scope, value: ExprId, result: LocalId) {
        let (lane, round) = Lane::of(self.kernel.exprs.ty(value));
        if scope == Scope::Subgroup {
            return self.alone(op, value, result);
        }
        let identity = match op {
            CollectiveOp::Reduce(by) | CollectiveOp::InclusiveScan(by) | CollectiveOp::ExclusiveScan(by) => {
                self.identity(by, value)
            }
            CollectiveOp::Broadcast(_) | CollectiveOp::Shuffle(_) | CollectiveOp::Mma(_) => 0,
        };
        let value = self.operand(value, 0).src;
        let (dst, held) = match op {
            CollectiveOp::Reduce(_) | CollectiveOp::Broadcast(_) => {
                let slot = self.slot();
                (Src::slot(slot), LocalValue::Slot(slot))
            }
            CollectiveOp::InclusiveScan(_)
            | CollectiveOp::ExclusiveScan(_)
            | CollectiveOp::Shuffle(_)
            | CollectiveOp::Mma(_) => {
                let dst = self.register(lane.bytes());
                (dst, LocalValue::Lanes(Value::of(dst)))
            }
        };
        let reduce = if let CollectiveOp::Reduce(by) = op { Some((self.ops.reduce)(by, lane, round)) } else { None };
        self.emit(Instr::Collective(Box::new(Collective { op, lane, round, identity, reduce, value, result: dst })));
        self.bind(result, vec![held]);
    }

    /// Compiles a collective over a subgroup, which is one work-item.
    fn alone(&mut self, op: CollectiveOp, value: ExprId, result: LocalId) {
        match op {
            CollectiveOp::Reduce(_)
            | CollectiveOp::InclusiveScan(_)
            | CollectiveOp::Broadcast(_)
            | CollectiveOp::Shuffle(_) => {
                let held = self.first_value(result, value, 0);
                self.bind(result, vec![held]);
            }
            CollectiveOp::ExclusiveScan(reduce) => {
                let bits = self.identity(reduce, value);
                let slot = self.constant(bits);
                self.bind(result, vec![LocalValue::Slot(slot)]);
            }
            CollectiveOp::Mma(_) => unreachable!("kernels with matrix products are rejected"),
        }
    }

    /// Returns the bits of the identity element in lane representation.
    fn identity(&self, by: ReduceOp, value: ExprId) -> u64 {
        let ty = self.kernel.exprs.ty(value);
        let identity = by.identity(ty.dtype().unwrap_or(DType::U64));
        match Lane::of(ty).1 {
            Round::None => identity.bits,
            Round::F16 | Round::BF16 => u64::from((identity.to_f64() as f32).to_bits()),
        }
    }
}
