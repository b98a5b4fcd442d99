//! Constant folding and algebraic simplification.
//!
//! Every expression is rebuilt, operands first, through [`Folder::make`], which tries the rules for its operation:
//! [`integer`], [`float`], [`logic`] and [`conversion`]. A rule gives an equal expression that is cheaper or closer to
//! the canonical form: constants on the right, operands of commutative operations in the order of their ids. Every rule
//! is exact, which leaves few rules for floats (`x + 0` is not simplified: -0 + 0 is 0).
//!
//! An immutable local whose value is a leaf (a constant, a parameter, a launch builtin, a length, or another such
//! local) is replaced by it. A mutable local that is never assigned becomes immutable.

mod conversion;
mod float;
mod integer;
mod logic;

use std::collections::HashMap;

use panoply_ir::interpret::scalar;
use panoply_ir::kernel::{Args, Block, Builtin, Expr, ExprId, Kernel, LocalId, Op, Space};
use panoply_ir::{Alu, DType, Scalar, Type};

use super::walk::{KernelExt, map_operands, visit};
use super::{Context, Fuel};

/// Runs the pass.
pub(super) fn run(mut kernel: Kernel, context: &mut Context<'_>) -> Kernel {
    let mut body = std::mem::take(&mut kernel.body);
    let mut folder = Folder { kernel, fuel: &mut context.fuel, folded: HashMap::new(), leaves: HashMap::new() };
    folder.settle_locals(&body);
    folder.block(&mut body);
    Kernel { body, ..folder.kernel }
}

struct Folder<'f> {
    kernel: Kernel,
    fuel: &'f mut Fuel,
    /// Result for each folded expression.
    folded: HashMap<ExprId, ExprId>,
    /// Immutable locals whose value is a leaf.
    leaves: HashMap<LocalId, ExprId>,
}

/// Operands of an operation.
type Operands<'a> = &'a [ExprId];

impl Folder<'_> {
    /// Makes mutable locals that are never assigned immutable.
    fn settle_locals(&mut self, body: &Block) {
        let mut assigned = vec![false; self.kernel.locals.len()];
        visit(body, &mut |op| {
            if let Op::Assign { local, .. } = op {
                assigned[local.index()] = true;
            }
        });
        for (local, assigned) in self.kernel.locals.iter_mut().zip(assigned) {
            if local.mutable && !assigned && self.fuel.spend() {
                local.mutable = false;
            }
        }
    }

    fn block(&mut self, block: &mut Block) {
        for stmt in block {
            map_operands(&mut stmt.op, |id| self.fold(id));
            if let Op::Let { local, value } = stmt.op
                && !self.kernel.local(local).mutable
                && self.is_leaf(value)
            {
                self.leaves.insert(local, value);
            }
            stmt.op.blocks_mut().into_iter().for_each(|inner| self.block(inner));
        }
    }

    /// Returns true if an expression is free and has the same value everywhere.
    fn is_leaf(&self, id: ExprId) -> bool {
        match self.kernel.exprs.get(id) {
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Builtin(_) | Expr::Len(_) => true,
            Expr::Local(local) => !self.kernel.local(local).mutable,
            Expr::Load { .. }
            | Expr::Alu(..)
            | Expr::Cast(..)
            | Expr::Bitcast(..)
            | Expr::Splat(..)
            | Expr::Extract(..) => false,
        }
    }

    /// Returns the folded expression. Operands have smaller ids and are folded first, without recursion.
    fn fold(&mut self, root: ExprId) -> ExprId {
        let mut pending = vec![root];
        while let Some(id) = pending.last().copied() {
            if self.folded.contains_key(&id) {
                pending.pop();
                continue;
            }
            let expr = self.kernel.exprs.get(id);
            let before = pending.len();
            pending.extend(expr.operands().iter().filter(|operand| !self.folded.contains_key(operand)));
            if pending.len() == before {
                pending.pop();
                let made = self.make(expr.map_operands(|operand| self.folded[&operand]));
                self.folded.insert(id, made);
            }
        }
        self.folded[&root]
    }

    /// Returns an expression over folded operands, simplified by the rules.
    fn make(&mut self, expr: Expr) -> ExprId {
        let simpler = match expr {
            Expr::Local(local) => self.leaves.get(&local).copied(),
            Expr::Len(mem) => match self.kernel.mem(mem).space {
                Space::Shared(len) | Space::Private(len) => Some(self.kernel.index(len as u64)),
                Space::Buffer(_) => None,
            },
            Expr::Builtin(builtin) => self.builtin(builtin),
            Expr::Alu(op, args) => self.operation(op, &args),
            Expr::Cast(ty, x) => self.cast(ty, x),
            Expr::Bitcast(ty, x) => self.bitcast(ty, x),
            Expr::Extract(x, _) => match self.kernel.exprs.get(x) {
                Expr::Splat(scalar, _) => Some(scalar),
                _ => None,
            },
            Expr::Const(_) | Expr::Index(_) | Expr::Param(_) | Expr::Load { .. } | Expr::Splat(..) => None,
        };
        match simpler {
            Some(id) if self.fuel.spend() => id,
            _ => self.kernel.expr(expr),
        }
    }

    fn builtin(&mut self, builtin: Builtin) -> Option<ExprId> {
        let size = |axis: u8| self.kernel.group_size.map(|group| group[axis as usize]);
        let known = match builtin {
            Builtin::GroupSize(axis) => size(axis)? as u64,
            Builtin::LocalId(axis) if size(axis) == Some(1) => 0,
            _ => return None,
        };
        Some(self.kernel.index(known))
    }

    fn operation(&mut self, op: Alu, args: Operands<'_>) -> Option<ExprId> {
        if let Some(value) = self.evaluate(op, args) {
            return Some(value);
        }
        let ty = self.ty(args[args.len() - 1]);
        self.ordered(op, ty, args)
            .or_else(|| self.logic(op, args))
            .or_else(|| if ty.is_float() { self.float(op, ty, args) } else { self.integer(op, ty, args) })
    }

    /// Evaluates an operation on constants.
    fn evaluate(&mut self, op: Alu, args: Operands<'_>) -> Option<ExprId> {
        let values: Option<Vec<Scalar>> = args.iter().map(|arg| self.constant(*arg)).collect();
        let result = scalar::alu(op, &values?);
        let operand = self.ty(args[args.len() - 1]);
        let ty = if op.is_comparison() { operand.with_dtype(DType::Bool) } else { operand };
        Some(self.literal(ty, result))
    }

    /// Sorts operands of a commutative operation into canonical order. `Min` and `Max` of floats are excluded, because
    /// for -0 and 0 the result depends on the order.
    fn ordered(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        if !op.is_commutative() || ty.is_float() && matches!(op, Alu::Min | Alu::Max) {
            return None;
        }
        let rank = |id: ExprId| (self.constant(id).is_some(), id);
        (rank(args[0]) > rank(args[1])).then(|| self.alu(op, &[args[1], args[0]]))
    }

    // Helpers for rules.

    fn ty(&self, id: ExprId) -> Type {
        self.kernel.exprs.ty(id)
    }

    fn get(&self, id: ExprId) -> Expr {
        self.kernel.exprs.get(id)
    }

    /// Returns the operands of an expression if it is this operation.
    fn operands_of(&self, id: ExprId, op: Alu) -> Option<Args> {
        match self.get(id) {
            Expr::Alu(found, args) if found == op => Some(args),
            _ => None,
        }
    }

    /// Returns the common value of all lanes if it is constant; for an index as u64.
    fn constant(&self, id: ExprId) -> Option<Scalar> {
        match self.get(id) {
            Expr::Const(value) => Some(value),
            Expr::Index(value) => Some(value.into()),
            Expr::Splat(x, _) => self.constant(x),
            _ => None,
        }
    }

    /// Returns the value of a constant integer.
    fn int(&self, id: ExprId) -> Option<i128> {
        let value = self.constant(id)?;
        (!value.dtype.is_float()).then(|| value.to_i128())
    }

    /// Returns a constant of a type.
    fn literal(&mut self, ty: Type, value: Scalar) -> ExprId {
        match ty {
            Type::Index => self.kernel.index(value.bits),
            Type::Scalar(_) => self.kernel.expr(Expr::Const(value)),
            Type::Vector(_, lanes) => {
                let scalar = self.kernel.expr(Expr::Const(value));
                self.kernel.expr(Expr::Splat(scalar, lanes))
            }
        }
    }

    /// Returns an integer constant of a type, wrapped to its width.
    fn number(&mut self, ty: Type, value: i128) -> ExprId {
        self.literal(ty, Scalar::from_i128(ty.dtype().unwrap_or(DType::U64), value))
    }

    fn alu(&mut self, op: Alu, args: Operands<'_>) -> ExprId {
        self.make(Expr::Alu(op, Args::new(args)))
    }
}
