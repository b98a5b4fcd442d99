//! What is known about integers at one place of a kernel.
//!
//! Two kinds of knowledge: an interval for an expression, and inequalities `a ≤ b + c` between **terms** (expressions,
//! lengths of buffers, zero) with a constant c. Both speak of true values: an expression is taken apart, `i + 1` into the
//! term i and 1, only where its interval shows that it does not wrap. A proof of `i < len` is a path of inequalities from i
//! to the length whose constants add up to less than 0.
//!
//! Knowledge about an expression dies with an assignment to a local it mentions. Nothing is ever learnt about a value that comes from
//! memory, a read-only buffer included: another handle to the same bytes may write them, and a back end may read them again at each
//! use. What holds for every value of its type (an interval, a remainder) is known of it all the same.

use std::cell::RefCell;
use std::collections::HashMap;

use panoply_ir::kernel::{Expr, ExprId, Kernel, LocalId, MemId, Space};
use panoply_ir::{Alu, Type};

use super::effects::ExprDeps;
use super::ranges::{MOST, Range, range};

/// What an inequality is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    Zero,
    Len(MemId),
    Expr(ExprId),
}

/// `from ≤ to + slack`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Inequality {
    from: Term,
    to: Term,
    slack: i128,
}

/// What is known at one place.
pub(crate) struct Facts<'k> {
    kernel: &'k Kernel,
    mentions: &'k ExprDeps,
    inequalities: Vec<Inequality>,
    /// Intervals narrower than what the expressions themselves allow.
    narrowed: HashMap<ExprId, Range>,
    /// Intervals of leaves: of immutable locals from their value, of mutable ones from all their values, of others from the
    /// launch if it is known.
    leaves: HashMap<Expr, Range>,
    /// Intervals found since the last change.
    found: RefCell<RangeCache>,
}

/// Intervals by expression. Forgetting all is counting up.
#[derive(Default)]
struct RangeCache {
    epoch: u32,
    ranges: Vec<(u32, Option<Range>)>,
}

impl RangeCache {
    /// Nothing yet, for so many expressions.
    fn nothing(exprs: usize) -> RefCell<RangeCache> {
        RefCell::new(RangeCache { epoch: 1, ranges: vec![(0, None); exprs] })
    }

    fn has(&self, id: ExprId) -> bool {
        self.ranges[id.index()].0 == self.epoch
    }
}

impl Clone for Facts<'_> {
    fn clone(&self) -> Self {
        Facts {
            kernel: self.kernel,
            mentions: self.mentions,
            inequalities: self.inequalities.clone(),
            narrowed: self.narrowed.clone(),
            leaves: self.leaves.clone(),
            found: RangeCache::nothing(self.kernel.exprs.len()),
        }
    }
}

/// How many terms a proof may pass.
const EFFORT: usize = 48;

impl<'k> Facts<'k> {
    /// Nothing but what expressions themselves say, and what is known of leaves.
    pub fn new(kernel: &'k Kernel, mentions: &'k ExprDeps, leaves: HashMap<Expr, Range>) -> Facts<'k> {
        let (inequalities, narrowed, found) = (Vec::new(), HashMap::new(), RangeCache::nothing(kernel.exprs.len()));
        Facts { kernel, mentions, inequalities, narrowed, leaves, found }
    }

    // Asking.

    /// What an integer expression can be here; none for other types.
    pub fn range(&self, root: ExprId) -> Option<Range> {
        let mut found = self.found.borrow_mut();
        let mut pending = vec![root];
        while let Some(id) = pending.last().copied() {
            if found.has(id) {
                pending.pop();
                continue;
            }
            let operands = self.kernel.exprs.get(id).operands();
            let before = pending.len();
            pending.extend(operands.iter().filter(|operand| !found.has(**operand)));
            if pending.len() == before {
                let leaf = |expr: Expr| self.leaves.get(&expr).copied();
                let own = range(self.kernel, id, leaf, |operand| found.ranges[operand.index()].1);
                let narrowed = self.narrowed.get(&id);
                let met = own.map(|own| narrowed.map_or(own, |narrowed| own.meet(*narrowed)));
                found.ranges[id.index()] = (found.epoch, met);
            }
        }
        found.ranges[root.index()].1
    }

    /// Whether `first`, `first` + 1, … `first` + `lanes` - 1 are surely elements of a memory.
    pub fn is_inside(&self, first: ExprId, lanes: u8, mem: MemId) -> bool {
        let len = match self.kernel.mem(mem).space {
            Space::Buffer(_) => (Term::Len(mem), 0),
            Space::Shared(len) | Space::Private(len) => (Term::Zero, len as i128),
        };
        let whole = (Term::Expr(first), 0);
        [self.parts(first), whole].into_iter().any(|(term, plus)| self.is_at_most((term, plus + lanes as i128), len))
    }

    /// Whether a condition surely holds (or surely does not).
    pub fn truth(&self, condition: ExprId) -> Option<bool> {
        let Expr::Alu(op, args) = self.kernel.exprs.get(condition) else { return None };
        let integers = self.kernel.exprs.ty(args[0]).is_int() && self.kernel.exprs.ty(args[0]).lanes() == 1;
        if !integers || self.is_volatile(condition) {
            return None;
        }
        let below = |x: ExprId, y: ExprId, strictly: i128| {
            let (term, plus) = self.parts(x);
            self.is_at_most((term, plus + strictly), self.parts(y))
        };
        match op {
            Alu::Lt if below(args[0], args[1], 1) => Some(true),
            Alu::Lt if below(args[1], args[0], 0) => Some(false),
            Alu::Le if below(args[0], args[1], 0) => Some(true),
            Alu::Le if below(args[1], args[0], 1) => Some(false),
            Alu::Eq if below(args[0], args[1], 1) || below(args[1], args[0], 1) => Some(false),
            Alu::Ne if below(args[0], args[1], 1) || below(args[1], args[0], 1) => Some(true),
            _ => None,
        }
    }

    /// Whether an expression mentions a mutable local.
    pub fn mentions(&self, id: ExprId, local: LocalId) -> bool {
        self.mentions.locals(id).contains(&local)
    }

    /// Whether nothing may be learnt about an expression: what it is read from may be written between two reads.
    fn is_volatile(&self, id: ExprId) -> bool {
        self.mentions.is_loaded(id)
    }

    /// An expression as a term and a constant that is added to it.
    fn parts(&self, id: ExprId) -> (Term, i128) {
        let exprs = &self.kernel.exprs;
        match exprs.get(id) {
            Expr::Index(value) => (Term::Zero, value as i128),
            Expr::Const(value) => (Term::Zero, value.to_i128()),
            Expr::Len(mem) => match self.kernel.mem(mem).space {
                Space::Buffer(_) => (Term::Len(mem), 0),
                Space::Shared(len) | Space::Private(len) => (Term::Zero, len as i128),
            },
            Expr::Alu(op @ (Alu::Add | Alu::Sub), args) => {
                let by = match exprs.get(args[1]) {
                    Expr::Index(value) => value as i128,
                    Expr::Const(value) => value.to_i128(),
                    _ => return (Term::Expr(id), 0),
                };
                let by = if op == Alu::Sub { -by } else { by };
                if !self.fits(args[0], by, exprs.ty(id)) {
                    return (Term::Expr(id), 0);
                }
                let (term, plus) = self.parts(args[0]);
                (term, plus + by)
            }
            Expr::Cast(ty, x) => match (Range::of_type(ty), self.range(x)) {
                (Some(whole), Some(range)) if !ty.is_bool() && whole.has(range) => self.parts(x),
                _ => (Term::Expr(id), 0),
            },
            _ => (Term::Expr(id), 0),
        }
    }

    /// Whether an expression plus a number stays within a type.
    fn fits(&self, x: ExprId, by: i128, ty: Type) -> bool {
        match (self.range(x), Range::of_type(ty)) {
            (Some(x), Some(whole)) => whole.has(Range { lo: x.lo + by, hi: x.hi + by }),
            _ => false,
        }
    }

    fn term_range(&self, term: Term) -> Range {
        match term {
            Term::Zero => Range::just(0),
            Term::Len(mem) => self.leaves.get(&Expr::Len(mem)).copied().unwrap_or(Range { lo: 0, hi: MOST }),
            Term::Expr(id) => self.range(id).unwrap_or(Range { lo: -MOST - 1, hi: MOST * 2 + 1 }),
        }
    }

    /// Whether `a + p ≤ b + q` follows from what is known.
    fn is_at_most(&self, (a, p): (Term, i128), (b, q): (Term, i128)) -> bool {
        let (wanted, least) = (q - p, self.term_range(b).lo);
        // Terms that a is at most, each plus a constant; one that a better constant is found for is looked at again.
        let mut bounds: Vec<(Term, i128)> = vec![(a, 0)];
        let mut at = 0;
        while let Some((term, bound)) = bounds.get(at).copied().filter(|_| at < EFFORT) {
            at += 1;
            if term == b && bound <= wanted || bound + self.term_range(term).hi - least <= wanted {
                return true;
            }
            self.upper_bounds(term, &mut |next, slack| {
                let better = bound + slack;
                if !bounds.iter().any(|(known, constant)| *known == next && *constant <= better) {
                    bounds.push((next, better));
                }
            });
        }
        false
    }

    /// Calls `f` with terms that a term is at most, each plus a constant.
    fn upper_bounds(&self, term: Term, f: &mut impl FnMut(Term, i128)) {
        self.inequalities.iter().filter(|known| known.from == term).for_each(|known| f(known.to, known.slack));
        let Term::Expr(id) = term else { return };
        let mut part = |id: ExprId, slack: i128| {
            let (term, plus) = self.parts(id);
            f(term, plus + slack);
        };
        let exprs = &self.kernel.exprs;
        let natural = |id: ExprId| self.range(id).is_some_and(|range| range.lo >= 0);
        let Expr::Alu(op, args) = exprs.get(id) else {
            if let Expr::Local(_) | Expr::Cast(..) = exprs.get(id) {
                let (taken, plus) = self.parts(id);
                if taken != term {
                    f(taken, plus);
                }
            }
            return;
        };
        match op {
            Alu::Min => args.iter().for_each(|arg| part(*arg, 0)),
            Alu::Rem | Alu::And | Alu::Div | Alu::Shr if natural(args[0]) && natural(args[1]) => {
                part(args[0], 0);
                match op {
                    // By zero the dividend is the remainder, and a quotient is no less than its divisor.
                    Alu::Rem if self.range(args[1]).is_some_and(|range| range.lo > 0) => part(args[1], -1),
                    Alu::And => part(args[1], 0),
                    _ => {}
                }
            }
            Alu::Sub => {
                let (Some(x), Some(y), Some(whole)) =
                    (self.range(args[0]), self.range(args[1]), Range::of_type(exprs.ty(id)))
                else {
                    return;
                };
                if whole.has(Range { lo: x.lo - y.hi, hi: x.hi - y.lo }) {
                    part(args[0], -y.lo);
                }
            }
            Alu::Add => {
                let (Some(x), Some(y), Some(whole)) =
                    (self.range(args[0]), self.range(args[1]), Range::of_type(exprs.ty(id)))
                else {
                    return;
                };
                if whole.has(Range { lo: x.lo + y.lo, hi: x.hi + y.hi }) {
                    part(args[0], y.hi);
                    part(args[1], x.hi);
                }
            }
            _ => {}
        }
    }

    // Learning.

    /// A condition holds from here on (or does not).
    pub fn assume(&mut self, condition: ExprId, holds: bool) {
        let mut pending = vec![(condition, holds)];
        while let Some((id, holds)) = pending.pop() {
            let Expr::Alu(op, args) = self.kernel.exprs.get(id) else { continue };
            let ty = self.kernel.exprs.ty(args[0]);
            match (op, holds) {
                (Alu::Not, _) if ty.is_bool() => pending.push((args[0], !holds)),
                (Alu::And, true) | (Alu::Or, false) if ty.is_bool() => {
                    pending.extend(args.iter().map(|arg| (*arg, holds)));
                }
                _ if ty.is_int() && ty.lanes() == 1 => self.compare(op, &args, holds),
                _ => {}
            }
        }
    }

    /// A comparison of integers holds (or does not).
    fn compare(&mut self, op: Alu, args: &[ExprId], holds: bool) {
        match (op, holds, args) {
            (Alu::Lt, true, [x, y]) => self.at_most(*x, *y, -1),
            (Alu::Lt, false, [x, y]) => self.at_most(*y, *x, 0),
            (Alu::Le, true, [x, y]) => self.at_most(*x, *y, 0),
            (Alu::Le, false, [x, y]) => self.at_most(*y, *x, -1),
            (Alu::Eq, true, [x, y]) | (Alu::Ne, false, [x, y]) => {
                self.at_most(*x, *y, 0);
                self.at_most(*y, *x, 0);
            }
            _ => {}
        }
    }

    /// `x ≤ y + slack`, as true values.
    pub fn at_most(&mut self, x: ExprId, y: ExprId, slack: i128) {
        if self.is_volatile(x) || self.is_volatile(y) {
            return;
        }
        if let (Some(low), Some(high)) = (self.range(x), self.range(y)) {
            self.narrow(x, Range { lo: low.lo, hi: low.hi.min(high.hi + slack) });
            self.narrow(y, Range { lo: high.lo.max(low.lo - slack), hi: high.hi });
        }
        // Taken apart with the narrower intervals; and as they stand, for that is how they may be met again.
        let whole = |id: ExprId| (Term::Expr(id), 0);
        let mut sides = vec![(self.parts(x), self.parts(y))];
        sides.push((whole(x), self.parts(y)));
        sides.push((self.parts(x), whole(y)));
        for ((from, plus), (to, and)) in sides {
            let new = Inequality { from, to, slack: and + slack - plus };
            if from != to && !self.inequalities.contains(&new) {
                self.inequalities.push(new);
            }
        }
    }

    fn narrow(&mut self, id: ExprId, range: Range) {
        if range.lo > range.hi {
            return;
        }
        self.narrowed.insert(id, range);
        self.found.borrow_mut().epoch += 1;
    }

    /// What an integer local can be.
    pub fn local(&mut self, local: LocalId, range: Range) {
        self.leaves.insert(Expr::Local(local), range);
        self.found.borrow_mut().epoch += 1;
    }

    /// Locals may change here.
    pub fn invalidate(&mut self, changed: &[LocalId]) {
        if changed.is_empty() {
            return;
        }
        let mentions = self.mentions;
        let dies = |id: ExprId| mentions.locals(id).iter().any(|local| changed.contains(local));
        let term_dies = |term: Term| matches!(term, Term::Expr(id) if dies(id));
        // What was known by way of a dying term stays known without it.
        let (to, from): (Vec<_>, Vec<_>) = (
            self.inequalities.iter().filter(|known| term_dies(known.to) && !term_dies(known.from)).copied().collect(),
            self.inequalities.iter().filter(|known| term_dies(known.from) && !term_dies(known.to)).copied().collect(),
        );
        if to.len() * from.len() <= EFFORT {
            for low in &to {
                for high in from.iter().filter(|high| high.from == low.to && high.to != low.from) {
                    let slack = low.slack + high.slack;
                    self.inequalities.push(Inequality { from: low.from, to: high.to, slack });
                }
            }
        }
        self.inequalities.retain(|known| !term_dies(known.from) && !term_dies(known.to));
        self.narrowed.retain(|id, _| !dies(*id));
        self.found.borrow_mut().epoch += 1;
    }
}
