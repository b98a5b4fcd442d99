//! Reduction of a failing random kernel to a minimal one.

use super::Case;
use crate::dtype::{DType, Scalar, Type};
use crate::kernel::{Block, Expr, ExprId, Kernel, Op};
use crate::verify::verify_rules;

impl Case {
    /// Shrinks a failing case until no statement can be removed and no value simplified. The result can depend on undefined behavior that
    /// random kernels avoid, such as the bits of a NaN; check this before blaming a compiler.
    pub fn shrink(self, fails: impl Fn(&Case) -> bool) -> Case {
        let (mut case, mut position) = (self, 0);
        loop {
            let mut statements = 0;
            case.kernel.walk(&mut |_| statements += 1);
            if position >= statements {
                return case;
            }
            // Later statements first: earlier ones declare the locals that they use.
            match case.smaller(statements - 1 - position, &fails) {
                Some(smaller) => case = smaller,
                None => position += 1,
            }
        }
    }

    /// Returns the case without a statement, or with a simpler one, if it still fails.
    fn smaller(&self, number: usize, fails: impl Fn(&Case) -> bool) -> Option<Case> {
        let failing = |kernel: Kernel| {
            let smaller = Case { kernel: verify_rules(kernel).ok()?, ..self.clone() };
            // A loop that lost its exit condition must not be accepted.
            smaller.interpret(1).ok()?;
            fails(&smaller).then_some(smaller)
        };
        let without = |whole: bool| {
            let mut kernel = self.kernel.clone().into_inner();
            let removed = remove(&mut kernel.body, &mut { number }, whole)?;
            (!self.counts_iterations(&removed)).then_some(kernel).and_then(failing)
        };
        [true, false].into_iter().find_map(without).or_else(|| {
            let mut kernel = self.kernel.clone().into_inner();
            let value = *value_of(nth(&mut kernel.body, &mut { number })?)?;
            simpler(&mut kernel, value).into_iter().find_map(|value| {
                let mut kernel = kernel.clone();
                let statement = nth(&mut kernel.body, &mut { number })?;
                if self.counts_iterations(statement) {
                    return None;
                }
                *value_of(statement)? = value;
                failing(kernel)
            })
        })
    }

    /// Returns true if a loop would not end without the statement.
    fn counts_iterations(&self, op: &Op) -> bool {
        matches!(op, Op::Assign { local, .. } | Op::Let { local, .. } if self.kernel.local(*local).name == "iteration")
    }
}

/// Returns replacements of a value, the simplest first: 0, then subexpressions of the same type.
fn simpler(kernel: &mut Kernel, value: ExprId) -> Vec<ExprId> {
    let ty = kernel.exprs.ty(value);
    if kernel.exprs.get(value).operands().iter().next().is_none() {
        return Vec::new();
    }
    let zero = match ty {
        Type::Index => Some(kernel.exprs.intern(Expr::Index(0), ty)),
        Type::Scalar(dtype) => Some(kernel.exprs.intern(Expr::Const(zero(dtype)), ty)),
        Type::Vector(dtype, lanes) => {
            let zero = kernel.exprs.intern(Expr::Const(zero(dtype)), Type::Scalar(dtype));
            Some(kernel.exprs.intern(Expr::Splat(zero, lanes), ty))
        }
    };
    let mut parts = std::collections::BTreeSet::new();
    let mut pending = vec![value];
    while let Some(id) = pending.pop() {
        pending.extend(kernel.exprs.get(id).operands().iter().filter(|part| parts.insert(**part)).copied());
    }
    let alike = parts.into_iter().filter(|part| kernel.exprs.ty(*part) == ty);
    zero.into_iter().filter(|zero| *zero != value).chain(alike).collect()
}

fn zero(dtype: DType) -> Scalar {
    Scalar::from_i128(dtype, 0)
}

/// Returns the statement's value if it affects neither control flow nor the accessed location.
fn value_of(op: &mut Op) -> Option<&mut ExprId> {
    match op {
        Op::Let { value, .. }
        | Op::Assign { value, .. }
        | Op::Store { value, .. }
        | Op::Collective { value, .. }
        | Op::Atomic { value, .. } => Some(value),
        Op::Barrier | Op::If { .. } | Op::For { .. } | Op::While { .. } | Op::Break | Op::Continue | Op::Return => None,
    }
}

/// Returns a statement by its number in the order of [`Kernel::walk`].
fn nth<'b>(block: &'b mut Block, number: &mut usize) -> Option<&'b mut Op> {
    for stmt in block {
        if *number == 0 {
            return Some(&mut stmt.op);
        }
        *number -= 1;
        if let Some(op) = stmt.op.blocks_mut().into_iter().find_map(|block| nth(block, number)) {
            return Some(op);
        }
    }
    None
}

/// Removes a statement by its number. Unless `whole`, the blocks of an `if` or `while` stay in its place.
fn remove(block: &mut Block, number: &mut usize, whole: bool) -> Option<Op> {
    for at in 0..block.len() {
        if *number == 0 {
            let mut stmt = block.remove(at);
            let kept = match &stmt.op {
                Op::If { .. } | Op::While { .. } if !whole => stmt.op.blocks_mut().into_iter().flat_map(std::mem::take),
                _ => return Some(stmt.op),
            };
            block.splice(at..at, kept.collect::<Vec<_>>());
            return Some(stmt.op);
        }
        *number -= 1;
        if let Some(op) = block[at].op.blocks_mut().into_iter().find_map(|block| remove(block, number, whole)) {
            return Some(op);
        }
    }
    None
}
