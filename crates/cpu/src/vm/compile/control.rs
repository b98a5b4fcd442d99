//! Branches and loops.
//!
//! Uniform control flow becomes jumps; divergent control flow becomes masks: a branch runs on the lanes that take it,
//! and a loop on the lanes that have not left it. A condition that compares an affine index with a uniform value keeps
//! a range of lanes, which costs nothing if the range is all of them.

use panoply_ir::kernel::{Block, Builtin, Expr, ExprId, LocalId, Op, Space};
use panoply_ir::{Alu, DType, Type};

use super::lanes::{Destination, slot_of};
use super::state::{LocalValue, OpenLoop, Region, State, Value};
use super::uniformity::{LaneSet, LaneUniformity, LoopFacts, is_linear_type};
use crate::vm::lane::{Lane, Round};
use crate::vm::program::{Affine, Compare, Condition, IndexOp, Instr, Mask, Range, Slot, Target, known};

impl State<'_> {
    /// Compiles `if`.
    pub fn branch(&mut self, number: usize, condition: ExprId, then: &Block, otherwise: &Block, place: LaneSet) {
        if self.shape(condition) == LaneUniformity::Uniform {
            return self.jump_over(condition, then, otherwise, place);
        }
        if otherwise.is_empty() && self.is_first_of_group(condition) && self.stores_alike(then) {
            return self.block(then, LaneSet::Then(number));
        }
        let outer = self.region();
        let taken = self.mask();
        let rest = self.split(condition, outer.mask, taken, !otherwise.is_empty());
        self.begin();
        self.run_on(taken, then, LaneSet::Then(number));
        if let Some(rest) = rest {
            self.forget_all();
            self.run_on(rest, otherwise, LaneSet::Otherwise(number));
        }
        self.emit(Instr::Enter { mask: outer.mask, if_empty: outer.end });
        self.end();
        self.forget_all();
    }

    /// Returns true if a condition certainly holds for one lane of the region: the first lane of a group from which no
    /// lane has returned.
    fn is_first_of_group(&self, condition: ExprId) -> bool {
        let Expr::Alu(Alu::Eq, args) = self.kernel.exprs.get(condition) else { return false };
        let [left, right] = [0, 1].map(|at| self.kernel.exprs.get(args[at]));
        let first = left == Expr::Builtin(Builtin::LocalId(0)) && right == Expr::Index(0);
        let mut leaves = false;
        if first {
            self.kernel.walk(&mut |stmt| leaves |= matches!(stmt.op, Op::Return));
        }
        first && !leaves && self.region().mask == Mask::ROOT
    }

    /// Returns true if a block has the same effect on any one lane as on all: it stores uniform values at uniform indices.
    fn stores_alike(&self, block: &Block) -> bool {
        block.iter().all(|stmt| match &stmt.op {
            Op::Store { mem, index, value, .. } => {
                let shared = matches!(self.kernel.mem(*mem).space, Space::Buffer(_));
                shared && [index, value].into_iter().all(|id| self.shape(*id) == LaneUniformity::Uniform)
            }
            _ => false,
        })
    }

    /// Compiles a branch with a uniform condition.
    fn jump_over(&mut self, condition: ExprId, then: &Block, otherwise: &Block, place: LaneSet) {
        let condition = self.uniform_slot(condition);
        let (beyond_then, end) = (self.label(), self.label());
        self.begin();
        self.emit(Instr::Branch { condition, otherwise: beyond_then });
        self.begin();
        self.block(then, place);
        self.end();
        if !otherwise.is_empty() {
            self.emit(Instr::Jump(end));
            self.forget_all();
        }
        self.emit(Instr::Label(beyond_then));
        if !otherwise.is_empty() {
            self.begin();
            self.block(otherwise, place);
            self.end();
            self.emit(Instr::Label(end));
        }
        self.end();
        self.forget_all();
    }

    /// Compiles a block for the lanes of a mask.
    fn run_on(&mut self, mask: Mask, block: &Block, place: LaneSet) {
        let end = self.label();
        self.emit(Instr::Enter { mask, if_empty: end });
        self.begin();
        self.regions.push(Region { mask, end });
        self.block(block, place);
        self.regions.pop();
        self.end();
        self.emit(Instr::Label(end));
    }

    /// Narrows `taken` to the lanes of a mask for which a condition holds, and returns a mask of the other lanes if
    /// `others` is true. `taken` may be `from`.
    fn split(&mut self, condition: ExprId, from: Mask, taken: Mask, others: bool) -> Option<Mask> {
        let holding = self.terms(condition, true);
        let failing = self.terms(condition, false);
        if holding.len() == 1 && failing.len() > 1 {
            let rest = self.mask();
            self.narrow(from, rest, &failing);
            self.emit(Instr::MaskAndNot { from, take: rest, to: taken });
            return Some(rest);
        }
        self.narrow(from, taken, &holding);
        others.then(|| {
            let rest = self.mask();
            self.emit(Instr::MaskAndNot { from, take: taken, to: rest });
            rest
        })
    }

    /// Splits a condition into terms: the condition equals `holds` if and only if every returned expression has its returned value.
    fn terms(&self, condition: ExprId, holds: bool) -> Vec<(ExprId, bool)> {
        let (alu, args) = match self.kernel.exprs.get(condition) {
            Expr::Alu(alu, args) => (alu, args),
            _ => return vec![(condition, holds)],
        };
        let of_bools = self.kernel.exprs.ty(condition) == Type::BOOL;
        match (alu, holds) {
            (Alu::Not, _) if of_bools => self.terms(args[0], !holds),
            (Alu::And, true) | (Alu::Or, false) if of_bools => {
                let mut terms = self.terms(args[0], holds);
                terms.extend(self.terms(args[1], holds));
                terms
            }
            _ => vec![(condition, holds)],
        }
    }

    fn narrow(&mut self, from: Mask, to: Mask, terms: &[(ExprId, bool)]) {
        let mut conditions: Vec<Condition> = Vec::new();
        for (term, holds) in terms {
            // Converting bools to a mask costs more than combining bools.
            if let (Some(Condition::Lanes { value, holds: true }), true) = (conditions.last_mut(), *holds)
                && let Some(both) = self.where_(Value::of(*value), *term)
            {
                *value = both.src;
                continue;
            }
            let condition = self.condition(*term, *holds);
            match (conditions.last_mut(), condition) {
                (Some(Condition::Lanes { value: a, holds: was }), Condition::Lanes { value: b, holds })
                    if *was == holds =>
                {
                    let alu = if holds { Alu::And } else { Alu::Or };
                    let both = vec![Value::of(*a), Value::of(b)];
                    *a = self.alu(alu, Lane::Bool, Round::None, both, Destination::Fresh).src;
                }
                _ => conditions.push(condition),
            }
        }
        let mut from = from;
        for when in conditions {
            self.emit(Instr::Narrow { from, to, when });
            from = to;
        }
    }

    fn condition(&mut self, term: ExprId, holds: bool) -> Condition {
        if let Some(range) = self.range(term, holds) {
            return Condition::Range(range);
        }
        match self.shape(term) {
            LaneUniformity::Uniform => Condition::Uniform { value: self.uniform_slot(term), holds },
            LaneUniformity::Affine(_) | LaneUniformity::Varying | LaneUniformity::Unknown => {
                Condition::Lanes { value: self.lanes(term, 0).src, holds }
            }
        }
    }

    /// Returns the comparison of an affine index with a uniform value that an expression is, if it is one.
    pub fn range(&mut self, term: ExprId, holds: bool) -> Option<Range> {
        let Expr::Alu(alu, args) = self.kernel.exprs.get(term) else { return None };
        let [a, b] = args[..] else { return None };
        let ty = self.kernel.exprs.ty(a);
        if !is_linear_type(ty) {
            return None;
        }
        let (linear, bound, swapped) = match (self.shape(a), self.shape(b)) {
            (LaneUniformity::Affine(_), LaneUniformity::Uniform) => (a, b, false),
            (LaneUniformity::Uniform, LaneUniformity::Affine(_)) => (b, a, true),
            _ => return None,
        };
        let compare = match (alu, swapped) {
            (Alu::Lt, false) => Compare::Lt,
            (Alu::Lt, true) => Compare::Gt,
            (Alu::Le, false) => Compare::Le,
            (Alu::Le, true) => Compare::Ge,
            (Alu::Eq, _) => Compare::Eq,
            (Alu::Ne, _) => Compare::Ne,
            _ => return None,
        };
        let compare = if holds { compare } else { compare.inverse() };
        let (at, bound) = (self.affine(linear), self.uniform_slot(bound));
        Some(Range { at, compare, bound, signed: ty == Type::Scalar(DType::I64) })
    }

    // Loops.

    fn loop_facts(&self, number: usize) -> LoopFacts {
        self.facts.loops.get(&number).copied().unwrap_or_default()
    }

    /// Compiles `while`.
    pub fn repeat(&mut self, number: usize, condition: ExprId, body: &Block, place: LaneSet) {
        let facts = self.loop_facts(number);
        let live = self.begin_loop(facts);
        let (head, open) = (self.label(), self.open_loop(facts));
        self.begin();
        let place = self.live_region(live, number, &open, place);
        self.emit(Instr::LoopBegin);
        self.emit(Instr::Label(head));
        self.begin();
        if self.shape(condition) == LaneUniformity::Uniform {
            let condition = self.uniform_slot(condition);
            self.emit(Instr::Branch { condition, otherwise: open.exit });
        } else {
            let mask = self.region().mask;
            self.split(condition, mask, mask, false);
            self.emit(Instr::Enter { mask, if_empty: open.exit });
        }
        self.iteration(number, open, body, place);
        self.return_to_live(live, &open);
        self.emit(Instr::Jump(head));
        self.finish_loop(live, &open);
    }

    /// Compiles `for`.
    pub fn count(&mut self, number: usize, counter: LocalId, range: [ExprId; 3], body: &Block, place: LaneSet) {
        let [start, end, step] = range;
        let ty = self.kernel.local(counter).ty;
        let lane = Lane::of(ty).0;
        let bounds = Bounds { lane, end: self.bound(end), step: self.step(step, lane) };
        match self.facts.locals[counter.index()] {
            LaneUniformity::Uniform if !bounds.end.src.is_lanes() => {
                let start = self.uniform_slot(start);
                let slot = self.counter_slot(start);
                self.count_together(number, counter, slot, bounds, body, place);
            }
            LaneUniformity::Uniform => {
                let start = self.uniform_slot(start);
                let slot = self.counter_slot(start);
                self.count_apart(number, counter, LocalValue::Slot(slot), bounds, body, place);
            }
            LaneUniformity::Affine(_) => {
                let affine = self.affine(start);
                let base = self.counter_slot(affine.base);
                let held = LocalValue::Affine(Affine { base, ..affine });
                self.count_apart(number, counter, held, bounds, body, place);
            }
            LaneUniformity::Varying | LaneUniformity::Unknown => {
                let start = self.operand(start, 0);
                let lanes = self.copied(start, lane.bytes());
                self.count_apart(number, counter, LocalValue::Lanes(lanes), bounds, body, place);
            }
        }
    }

    /// Evaluates a bound of a loop once.
    fn bound(&mut self, id: ExprId) -> Value {
        let bytes = Lane::of(self.kernel.exprs.ty(id)).0.bytes();
        let value = self.operand(id, 0);
        self.settled(value, bytes)
    }

    /// Evaluates the step of a loop, clamped to at least 1 so that a step of 0 does not cause an endless loop.
    fn step(&mut self, id: ExprId, lane: Lane) -> Value {
        let step = self.bound(id);
        let one = self.constant(1);
        match step.src.is_lanes() {
            true => self.alu(Alu::Max, lane, Round::None, vec![step, Value::slot(one)], Destination::Fresh),
            false if self.known(slot_of(step)).is_some() => step,
            false => Value::slot(self.compute(self.level(), Alu::Max, lane, Round::None, &[slot_of(step), one])),
        }
    }

    fn counter_slot(&mut self, start: Slot) -> Slot {
        let counter = self.slot();
        self.emit(Instr::Index { op: IndexOp::Move, dst: counter, a: start, b: known::ZERO });
        counter
    }

    /// Compiles a loop with one uniform counter; lanes may still leave at different times.
    fn count_together(
        &mut self,
        number: usize,
        local: LocalId,
        counter: Slot,
        bounds: Bounds,
        body: &Block,
        place: LaneSet,
    ) {
        let facts = self.loop_facts(number);
        let Bounds { lane, end, step } = bounds;
        let (end, step) = (slot_of(end), slot_of(step));
        let live = self.begin_loop(facts);
        let (head, open) = (self.label(), self.open_loop(facts));
        self.begin();
        self.emit(Instr::LoopTest { counter, end, lane, exit: open.exit });
        self.emit(Instr::LoopBegin);
        self.emit(Instr::Label(head));
        self.begin();
        let place = self.live_region(live, number, &open, place);
        self.bind(local, vec![LocalValue::Slot(counter)]);
        self.iteration(number, open, body, place);
        self.return_to_live(live, &open);
        self.emit(Instr::Next { counter, end, step, lane, back: head });
        self.finish_loop(live, &open);
    }

    /// Compiles a loop in which lanes have their own counters or ends.
    fn count_apart(
        &mut self,
        number: usize,
        local: LocalId,
        counter: LocalValue,
        bounds: Bounds,
        body: &Block,
        place: LaneSet,
    ) {
        let facts = LoopFacts { divergent_break: true, ..self.loop_facts(number) };
        let live = self.begin_loop(facts);
        let (head, open) = (self.label(), self.open_loop(facts));
        let mask = live.expect("lanes leave at different times");
        self.keep_below(mask, counter, bounds);
        self.begin();
        self.emit(Instr::LoopBegin);
        self.emit(Instr::Label(head));
        self.begin();
        let place = self.live_region(live, number, &open, place);
        self.bind(local, vec![counter]);
        self.iteration(number, open, body, place);
        self.return_to_live(live, &open);
        self.advance(mask, counter, bounds);
        self.emit(Instr::Jump(head));
        self.finish_loop(live, &open);
    }

    /// Keeps the lanes whose counter is below its end.
    fn keep_below(&mut self, mask: Mask, counter: LocalValue, bounds: Bounds) {
        let signed = bounds.lane == Lane::I64;
        if let (LocalValue::Affine(at), false) = (counter, bounds.end.src.is_lanes()) {
            let when = Condition::Range(Range { at, compare: Compare::Lt, bound: slot_of(bounds.end), signed });
            self.emit(Instr::Narrow { from: mask, to: mask, when });
        } else {
            let counter = self.counter_value(counter);
            let below = self.alu(Alu::Lt, bounds.lane, Round::None, vec![counter, bounds.end], Destination::Fresh);
            self.emit(Instr::Narrow { from: mask, to: mask, when: Condition::Lanes { value: below.src, holds: true } });
        }
    }

    /// Keeps the lanes whose next counter is below its end, and advances their counters. Comparing the remaining
    /// distance with the step avoids overflow.
    fn advance(&mut self, mask: Mask, counter: LocalValue, bounds: Bounds) {
        let Bounds { lane, end, step } = bounds;
        let unsigned = lane.unsigned();
        match (counter, end.src.is_lanes()) {
            (LocalValue::Affine(at), false) if lane == Lane::U64 => {
                let level = self.level();
                let bound = self.index(level, IndexOp::SaturatingSub, slot_of(end), slot_of(step));
                let when = Condition::Range(Range { at, compare: Compare::Lt, bound, signed: false });
                self.emit(Instr::Narrow { from: mask, to: mask, when });
            }
            _ => {
                let now = self.counter_value(counter);
                let fresh = Destination::Fresh;
                let left = self.alu(Alu::Sub, unsigned, Round::None, vec![end, now], fresh);
                let more = self.alu(Alu::Lt, unsigned, Round::None, vec![step, left], fresh);
                let when = Condition::Lanes { value: more.src, holds: true };
                self.emit(Instr::Narrow { from: mask, to: mask, when });
            }
        }
        match counter {
            LocalValue::Slot(slot) => {
                let next = self.compute(self.level(), Alu::Add, unsigned, Round::None, &[slot, slot_of(step)]);
                self.emit(Instr::Index { op: IndexOp::Move, dst: slot, a: next, b: known::ZERO });
            }
            LocalValue::Affine(at) => {
                self.emit(Instr::Index { op: IndexOp::Add, dst: at.base, a: at.base, b: slot_of(step) });
            }
            LocalValue::Lanes(lanes) => {
                let sink = Destination::Local { dst: lanes.src, merge: false };
                self.alu(Alu::Add, unsigned, Round::None, vec![lanes, step], sink);
            }
        }
    }

    fn counter_value(&mut self, counter: LocalValue) -> Value {
        match counter {
            LocalValue::Slot(slot) => Value::slot(slot),
            LocalValue::Lanes(value) => value,
            LocalValue::Affine(at) => {
                let dst = self.register(8);
                self.emit(Instr::Iota { dst, at });
                Value::of(dst)
            }
        }
    }

    /// Creates the mask of a loop that lanes leave at different times.
    fn begin_loop(&mut self, facts: LoopFacts) -> Option<Mask> {
        let from = self.region().mask;
        facts.divergent_break.then(|| {
            let to = self.mask();
            self.emit(Instr::CopyMask { from, to });
            to
        })
    }

    fn open_loop(&mut self, facts: LoopFacts) -> OpenLoop {
        // Values changed by the previous iteration must be reloaded.
        self.forget_all();
        let outside = self.regions.len();
        let around_iteration = outside + usize::from(facts.divergent_break);
        let inside = around_iteration + usize::from(facts.divergent_continue);
        OpenLoop {
            exit: self.label(),
            next: self.label(),
            outside,
            around_iteration,
            inside,
            divergent_continue: facts.divergent_continue,
        }
    }

    fn live_region(&mut self, live: Option<Mask>, number: usize, open: &OpenLoop, place: LaneSet) -> LaneSet {
        let Some(mask) = live else { return place };
        self.emit(Instr::Enter { mask, if_empty: open.exit });
        self.regions.push(Region { mask, end: open.next });
        LaneSet::Live(number)
    }

    /// Compiles the body for one iteration.
    fn iteration(&mut self, number: usize, open: OpenLoop, body: &Block, place: LaneSet) {
        let mut place = place;
        if open.divergent_continue {
            let (from, to) = (self.region().mask, self.mask());
            self.emit(Instr::CopyMask { from, to });
            self.emit(Instr::Enter { mask: to, if_empty: open.next });
            self.regions.push(Region { mask: to, end: open.next });
            place = LaneSet::Iteration(number);
        }
        self.loops.push(open);
        self.block(body, place);
        self.loops.pop();
        if open.divergent_continue {
            self.regions.pop();
        }
        self.emit(Instr::Label(open.next));
        let around = self.region();
        if open.divergent_continue && open.around_iteration == open.outside {
            self.emit(Instr::Enter { mask: around.mask, if_empty: around.end });
        }
    }

    /// Makes the loop's mask the current one again, if an instruction of the iteration changed the current mask.
    fn return_to_live(&mut self, live: Option<Mask>, open: &OpenLoop) {
        let parts = |instr: &Instr| matches!(instr, Instr::Enter { mask, .. } if Some(*mask) != live);
        let leaves = |instr: &Instr| matches!(instr, Instr::Leave(_));
        let iteration = &self.open[self.level()].code;
        if let Some(mask) = live
            && iteration.iter().any(|instr| parts(instr) || leaves(instr))
        {
            self.emit(Instr::Enter { mask, if_empty: open.exit });
        }
    }

    fn finish_loop(&mut self, live: Option<Mask>, open: &OpenLoop) {
        if live.is_some() {
            self.regions.pop();
        }
        self.end();
        self.emit(Instr::LoopEnd);
        self.emit(Instr::Label(open.exit));
        if live.is_some() {
            let around = self.region();
            self.emit(Instr::Enter { mask: around.mask, if_empty: around.end });
        }
        self.end();
        self.forget_all();
    }

    /// Compiles `break`.
    pub fn break_loop(&mut self) {
        let open = *self.loops.last().expect("verified: break is inside a loop");
        self.leave(open.inside, open.outside, open.divergent_continue, open.exit);
    }

    /// Compiles `continue`.
    pub fn continue_loop(&mut self) {
        let open = *self.loops.last().expect("verified: continue is inside a loop");
        self.leave(open.inside, open.around_iteration, open.divergent_continue, open.next);
    }

    /// Compiles `return`.
    pub fn leave_body(&mut self) {
        let all: Vec<Mask> = self.regions.iter().map(|region| region.mask).collect();
        if all.len() == 1 {
            let end = self.regions[0].end;
            self.emit(Instr::Jump(end));
        } else {
            self.part(all);
        }
    }

    /// Makes the current lanes leave an iteration: by a jump if they are all of its lanes.
    fn leave(&mut self, inside: usize, keep: usize, parted: bool, to: Target) {
        if self.regions.len() == inside && !parted {
            self.emit(Instr::Jump(to));
        } else {
            let masks = self.regions[keep..].iter().map(|region| region.mask).collect();
            self.part(masks);
        }
    }

    fn part(&mut self, masks: Vec<Mask>) {
        self.emit(Instr::Leave(masks.into_boxed_slice()));
        let end = self.region().end;
        self.emit(Instr::Jump(end));
    }
}

/// The end and step of a counting loop.
#[derive(Clone, Copy)]
struct Bounds {
    lane: Lane,
    end: Value,
    step: Value,
}

impl Compare {
    /// Returns the negated comparison.
    fn inverse(self) -> Compare {
        match self {
            Compare::Lt => Compare::Ge,
            Compare::Le => Compare::Gt,
            Compare::Gt => Compare::Le,
            Compare::Ge => Compare::Lt,
            Compare::Eq => Compare::Ne,
            Compare::Ne => Compare::Eq,
        }
    }
}
