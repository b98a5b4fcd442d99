//! Facts about integers at one point of a kernel.
//!
//! There are two types of facts: intervals of expressions, and inequalities `a ≤ b + c` between **terms** (expressions,
//! lengths of buffers, zero) with a constant c. Both are about mathematical values: an expression is decomposed, such
//! as `i + 1` into the term i and 1, only where its interval shows that it does not wrap. A proof of `i < len` is a
//! path of inequalities from i to the length whose constants sum to less than 0.
//!
//! A fact about an expression is invalidated by an assignment to a local that it reads. Nothing is ever learned about a
//! value loaded from memory, including read-only buffers: another handle to the same bytes can write them, and a back
//! end can load them again at each use. Facts that hold for every value of the type (an interval, a remainder) remain
//! valid.

use std::cell::RefCell;
use std::collections::HashMap;

use panoply_ir::kernel::{Expr, ExprId, Kernel, LocalId, MemId, Space};
use panoply_ir::{Alu, Type};

use super::effects::ExprDeps;
use super::ranges::{MAX_SIZE, Range, range};

/// Subject of an inequality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    Zero,
    Len(MemId),
    Expr(ExprId),
}

/// The inequality `from ≤ to + slack`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Inequality {
    from: Term,
    to: Term,
    slack: i128,
}

/// The facts that hold at one point.
pub(crate) struct Facts<'k> {
    kernel: &'k Kernel,
    deps: &'k ExprDeps,
    inequalities: Vec<Inequality>,
    /// Intervals narrower than those implied by the expressions themselves.
    narrowed: HashMap<ExprId, Range>,
    /// Intervals of leaves: for immutable locals from their value, for mutable locals from all their values, for others
    /// from the launch if it is known.
    leaves: HashMap<Expr, Range>,
    /// Intervals computed since the last change.
    found: RefCell<RangeCache>,
}

/// Intervals by expression. Incrementing the epoch discards all of them.
#[derive(Default)]
struct RangeCache {
    epoch: u32,
    ranges: Vec<(u32, Option<Range>)>,
}

impl RangeCache {
    /// Creates an empty cache for a number of expressions.
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
            deps: self.deps,
            inequalities: self.inequalities.clone(),
            narrowed: self.narrowed.clone(),
            leaves: self.leaves.clone(),
            found: RangeCache::nothing(self.kernel.exprs.len()),
        }
    }
}

/// Maximum number of terms visited by a proof.
const EFFORT: usize = 48;

impl<'k> Facts<'k> {
    /// Creates facts from the intervals of leaves only.
    pub fn new(kernel: &'k Kernel, deps: &'k ExprDeps, leaves: HashMap<Expr, Range>) -> Facts<'k> {
        let (inequalities, narrowed, found) = (Vec::new(), HashMap::new(), RangeCache::nothing(kernel.exprs.len()));
        Facts { kernel, deps, inequalities, narrowed, leaves, found }
    }

    // Queries.

    /// Returns the interval of an integer expression; `None` for other types.
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

    /// Returns true if `first`, `first` + 1, … `first` + `lanes` - 1 are proven to be in bounds of a memory.
    pub fn is_inside(&self, first: ExprId, lanes: u8, mem: MemId) -> bool {
        let len = match self.kernel.mem(mem).space {
            Space::Buffer(_) => (Term::Len(mem), 0),
            Space::Shared(len) | Space::Private(len) => (Term::Zero, len as i128),
        };
        let whole = (Term::Expr(first), 0);
        [self.parts(first), whole].into_iter().any(|(term, plus)| self.is_at_most((term, plus + lanes as i128), len))
    }

    /// Returns the value of a condition if it is proven.
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

    /// Returns true if an expression reads a mutable local.
    pub fn depends_on(&self, id: ExprId, local: LocalId) -> bool {
        self.deps.locals(id).contains(&local)
    }

    /// Returns true if nothing can be learned about an expression, because its memory can be written between two loads.
    fn is_volatile(&self, id: ExprId) -> bool {
        self.deps.is_loaded(id)
    }

    /// Decomposes an expression into a term and an added constant.
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
                (Some(whole), Some(range)) if !ty.is_bool() && whole.contains(range) => self.parts(x),
                _ => (Term::Expr(id), 0),
            },
            _ => (Term::Expr(id), 0),
        }
    }

    /// Returns true if an expression plus a constant does not wrap in a type.
    fn fits(&self, x: ExprId, by: i128, ty: Type) -> bool {
        match (self.range(x), Range::of_type(ty)) {
            (Some(x), Some(whole)) => whole.contains(Range { lo: x.lo + by, hi: x.hi + by }),
            _ => false,
        }
    }

    fn term_range(&self, term: Term) -> Range {
        match term {
            Term::Zero => Range::singleton(0),
            Term::Len(mem) => self.leaves.get(&Expr::Len(mem)).copied().unwrap_or(Range { lo: 0, hi: MAX_SIZE }),
            Term::Expr(id) => self.range(id).unwrap_or(Range { lo: -MAX_SIZE - 1, hi: MAX_SIZE * 2 + 1 }),
        }
    }

    /// Returns true if `a + p ≤ b + q` follows from the known facts.
    fn is_at_most(&self, (a, p): (Term, i128), (b, q): (Term, i128)) -> bool {
        let (wanted, least) = (q - p, self.term_range(b).lo);
        // Terms that are upper bounds of `a`, each with an added constant. A term is visited again if a smaller
        // constant is found.
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

    /// Calls `f` with upper bounds of a term, each with an added constant.
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
                    // For a zero divisor the remainder is the dividend, so a remainder is below the divisor only if
                    // that is positive.
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
                if whole.contains(Range { lo: x.lo - y.hi, hi: x.hi - y.lo }) {
                    part(args[0], -y.lo);
                }
            }
            Alu::Add => {
                let (Some(x), Some(y), Some(whole)) =
                    (self.range(args[0]), self.range(args[1]), Range::of_type(exprs.ty(id)))
                else {
                    return;
                };
                if whole.contains(Range { lo: x.lo + y.lo, hi: x.hi + y.hi }) {
                    part(args[0], y.hi);
                    part(args[1], x.hi);
                }
            }
            _ => {}
        }
    }

    // Updates.

    /// Records that a condition holds from here on, or does not.
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

    /// Records that a comparison of integers holds, or does not.
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

    /// Records `x ≤ y + slack`, as mathematical values.
    pub fn at_most(&mut self, x: ExprId, y: ExprId, slack: i128) {
        if self.is_volatile(x) || self.is_volatile(y) {
            return;
        }
        if let (Some(low), Some(high)) = (self.range(x), self.range(y)) {
            self.narrow(x, Range { lo: low.lo, hi: low.hi.min(high.hi + slack) });
            self.narrow(y, Range { lo: high.lo.max(low.lo - slack), hi: high.hi });
        }
        // Record the decomposed terms, with the narrower intervals, and also the undecomposed ones, because later
        // queries can contain either.
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

    /// Sets the interval of an integer local.
    pub fn local(&mut self, local: LocalId, range: Range) {
        self.leaves.insert(Expr::Local(local), range);
        self.found.borrow_mut().epoch += 1;
    }

    /// Invalidates facts about locals that are assigned here.
    pub fn invalidate(&mut self, changed: &[LocalId]) {
        if changed.is_empty() {
            return;
        }
        let deps = self.deps;
        let dies = |id: ExprId| deps.locals(id).iter().any(|local| changed.contains(local));
        let term_dies = |term: Term| matches!(term, Term::Expr(id) if dies(id));
        // Preserve consequences of inequalities that connect through an invalidated term.
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
