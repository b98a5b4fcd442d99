//! Uniformity analysis: values and program points that are the same for all work-items of a work-group.
//!
//! A value is **uniform** if all work-items of a work-group that evaluate it at one point, in the same iterations of the enclosing
//! loops, get
//! the same. A program point is uniform if all work-items of a work-group reach it or none. The rules are those of WGSL:
//!
//! - Global and local ids are divergent along each axis on which a work-group is wider than 1. So are the subgroup lane, loads from shared,
//!   private or writable memory, results of atomics, and results of scans and of subgroup collectives.
//! - Constants, parameters, lengths, sizes, group ids, loads from a read-only buffer at a uniform index, and reductions and
//!   broadcasts over a
//!   work-group are uniform. So is everything computed from them.
//! - A mutable local that is assigned a divergent value, or at a divergent point, is divergent everywhere.
//! - A divergent condition makes the blocks that it guards divergent. A break, continue or return at a divergent point makes divergent the
//!   rest of its loop body, its loop body, and everything after it, because the work-items that left are missing there.
//!
//! Everything starts as uniform. The analysis iterates to a fixed point.

use super::{Verified, broken};
use crate::error::Result;
use crate::kernel::*;

/// The divergent values of a kernel.
#[derive(Clone, Debug)]
pub struct Uniformity {
    locals: Vec<bool>,
    exprs: Vec<bool>,
}

impl Uniformity {
    /// Analyzes a kernel. Without a fixed size, a work-group is assumed to be wide along every axis.
    pub fn of(kernel: &Verified<Kernel>) -> Uniformity {
        let analysis = Analysis::run(kernel);
        Uniformity { locals: analysis.locals, exprs: analysis.exprs }
    }

    /// Returns true if a local is uniform.
    pub fn local(&self, local: LocalId) -> bool {
        !self.locals[local.index()]
    }

    /// Returns true if an expression is uniform.
    pub fn expr(&self, expr: ExprId) -> bool {
        !self.exprs[expr.index()]
    }
}

/// Checks that barriers and collectives are at uniform points.
pub(super) fn check(kernel: &Kernel) -> Result<()> {
    let mut meets = false;
    kernel.walk(&mut |stmt| meets |= matches!(stmt.op, Op::Barrier | Op::Collective { .. }));
    if !meets || kernel.unchecked {
        return Ok(());
    }
    match Analysis::run(kernel).violation {
        None => Ok(()),
        Some(violation) => {
            let message = format!("{} in control flow that differs between work-items of a group", violation.what);
            let error = broken(kernel, violation.at, message);
            let cause = kernel.place(violation.cause).unwrap_or_else(|| "an unknown line".to_string());
            let remedy = "move it out, or make the condition uniform (for example with a broadcast)";
            Err(error.note(format!("control flow diverges since {cause}; {remedy}")))
        }
    }
}

/// Location where control flow diverged; `None` where all work-items are together.
type Flow = Option<Loc>;

/// Divergent points at which work-items left a block early.
#[derive(Clone, Copy, Default)]
struct Exits {
    /// Left for the end of the innermost loop.
    broke: Flow,
    /// Left for its next iteration.
    continued: Flow,
    /// Returned.
    returned: Flow,
}

impl Exits {
    fn join(&mut self, other: Exits) {
        self.broke = self.broke.or(other.broke);
        self.continued = self.continued.or(other.continued);
        self.returned = self.returned.or(other.returned);
    }

    fn any(self) -> Flow {
        self.broke.or(self.continued).or(self.returned)
    }
}

struct Violation {
    what: &'static str,
    at: Loc,
    cause: Loc,
}

struct Analysis<'k> {
    kernel: &'k Kernel,
    /// True if a local is divergent.
    locals: Vec<bool>,
    /// True if an expression is divergent, given the current locals.
    exprs: Vec<bool>,
    /// For each loop, in order of appearance, the reason why later iterations lack work-items.
    loops: Vec<Flow>,
    next_loop: usize,
    changed: bool,
    violation: Option<Violation>,
}

impl Analysis<'_> {
    fn run(kernel: &Kernel) -> Analysis<'_> {
        let mut analysis = Analysis {
            kernel,
            locals: vec![false; kernel.locals.len()],
            exprs: Vec::new(),
            loops: Vec::new(),
            next_loop: 0,
            changed: true,
            violation: None,
        };
        while analysis.changed {
            analysis.changed = false;
            analysis.violation = None;
            analysis.next_loop = 0;
            analysis.expressions();
            analysis.block(&kernel.body, None);
        }
        analysis
    }

    fn expressions(&mut self) {
        self.exprs.clear();
        for (_, expr, _) in self.kernel.exprs.iter() {
            let differs = self.source_differs(expr) || expr.operands().iter().any(|operand| self.differs(*operand));
            self.exprs.push(differs);
        }
    }

    /// Returns true if an expression is divergent even with uniform operands.
    fn source_differs(&self, expr: Expr) -> bool {
        match expr {
            Expr::Local(local) => self.locals[local.index()],
            Expr::Builtin(Builtin::GlobalId(axis) | Builtin::LocalId(axis)) => {
                self.kernel.group_size.is_none_or(|group| group[axis as usize] > 1)
            }
            Expr::Builtin(Builtin::SubgroupLane) => true,
            Expr::Load { mem, .. } => self.kernel.mem(mem).space != Space::Buffer(Access::In),
            Expr::Builtin(
                Builtin::GroupId(_)
                | Builtin::GlobalSize(_)
                | Builtin::GroupSize(_)
                | Builtin::GroupCount(_)
                | Builtin::SubgroupSize,
            )
            | Expr::Const(_)
            | Expr::Index(_)
            | Expr::Param(_)
            | Expr::Len(_)
            | Expr::Alu(..)
            | Expr::Cast(..)
            | Expr::Bitcast(..)
            | Expr::Splat(..)
            | Expr::Extract(..) => false,
        }
    }

    fn differs(&self, expr: ExprId) -> bool {
        self.exprs[expr.index()]
    }

    fn mark(&mut self, local: LocalId, differs: bool) {
        let known = &mut self.locals[local.index()];
        self.changed |= differs && !*known;
        *known |= differs;
    }

    /// Analyzes a block that is entered with the given flow.
    fn block(&mut self, block: &Block, entered: Flow) -> Exits {
        let mut exits = Exits::default();
        for stmt in block {
            let flow = entered.or(exits.any());
            exits.join(self.statement(stmt, flow));
        }
        exits
    }

    fn statement(&mut self, stmt: &Stmt, flow: Flow) -> Exits {
        let none = Exits::default();
        match &stmt.op {
            Op::Let { local, value } => self.mark(*local, self.differs(*value)),
            Op::Assign { local, value } => self.mark(*local, flow.is_some() || self.differs(*value)),
            Op::Atomic { old: Some(old), .. } => self.mark(*old, true),
            Op::Collective { op, scope, result, .. } => {
                let same = matches!(op, CollectiveOp::Reduce(_) | CollectiveOp::Broadcast(_)) && *scope == Scope::Group;
                self.mark(*result, !same);
                self.meet("a collective", stmt.at, flow);
            }
            Op::Barrier => self.meet("a barrier", stmt.at, flow),
            Op::If { condition, then, otherwise } => {
                let inner = flow.or(self.differs(*condition).then_some(stmt.at));
                let mut exits = self.block(then, inner);
                exits.join(self.block(otherwise, inner));
                return exits;
            }
            Op::For { counter, start, end, step, body } => {
                let counter_differs = self.differs(*start) || self.differs(*step);
                self.mark(*counter, counter_differs);
                let iterations_differ = counter_differs || self.differs(*end);
                return self.repeated(body, flow.or(iterations_differ.then_some(stmt.at)));
            }
            Op::While { condition, body } => {
                return self.repeated(body, flow.or(self.differs(*condition).then_some(stmt.at)));
            }
            Op::Break => return Exits { broke: flow, ..none },
            Op::Continue => return Exits { continued: flow, ..none },
            Op::Return => return Exits { returned: flow, ..none },
            Op::Store { .. } | Op::Atomic { old: None, .. } => {}
        }
        none
    }

    fn repeated(&mut self, body: &Block, entered: Flow) -> Exits {
        let number = self.next_loop;
        self.next_loop += 1;
        if number == self.loops.len() {
            self.loops.push(None);
        }
        let exits = self.block(body, entered.or(self.loops[number]));
        let gone = exits.broke.or(exits.returned);
        if gone.is_some() && self.loops[number].is_none() {
            self.loops[number] = gone;
            self.changed = true;
        }
        Exits { returned: exits.returned, ..Exits::default() }
    }

    fn meet(&mut self, what: &'static str, at: Loc, flow: Flow) {
        if let (Some(cause), None) = (flow, &self.violation) {
            self.violation = Some(Violation { what, at, cause });
        }
    }
}
