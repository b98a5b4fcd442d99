//! Rules for bools and selects of any type.

use panoply_ir::kernel::ExprId;
use panoply_ir::{Alu, DType, Type};

use super::{Folder, Operands};

impl Folder<'_> {
    pub(super) fn logic(&mut self, op: Alu, args: Operands<'_>) -> Option<ExprId> {
        match op {
            Alu::Select => self.select(args),
            Alu::Not if self.is_bool(args[0]) => self.negation(args[0]),
            Alu::And | Alu::Or | Alu::Xor | Alu::Eq | Alu::Ne if self.is_bool(args[0]) => self.bool_operation(op, args),
            _ => None,
        }
    }

    fn is_bool(&self, id: ExprId) -> bool {
        self.ty(id).is_bool()
    }

    /// Returns the value of a constant bool.
    fn bool_constant(&self, id: ExprId) -> Option<bool> {
        self.constant(id).filter(|value| value.dtype == DType::Bool).map(|value| value.is_true())
    }

    /// Returns a constant bool of the type of `like`, which can be a vector.
    fn bool_literal(&mut self, like: ExprId, value: bool) -> ExprId {
        let ty = self.ty(like);
        self.literal(ty, value.into())
    }

    fn negation(&mut self, x: ExprId) -> Option<ExprId> {
        if let Some(inner) = self.operands_of(x, Alu::Not) {
            return Some(inner[0]);
        }
        for (op, opposite) in [(Alu::Eq, Alu::Ne), (Alu::Ne, Alu::Eq)] {
            if let Some(inner) = self.operands_of(x, op) {
                return Some(self.alu(opposite, &inner));
            }
        }
        // A comparison with NaN is false, and so is the opposite comparison.
        for (op, opposite) in [(Alu::Lt, Alu::Le), (Alu::Le, Alu::Lt)] {
            if let Some(inner) = self.operands_of(x, op)
                && !self.ty(inner[0]).is_float()
            {
                return Some(self.alu(opposite, &[inner[1], inner[0]]));
            }
        }
        None
    }

    fn bool_operation(&mut self, op: Alu, args: Operands<'_>) -> Option<ExprId> {
        let x = args[0];
        if x == args[1] {
            return Some(match op {
                Alu::And | Alu::Or => x,
                _ => self.bool_literal(x, op == Alu::Eq),
            });
        }
        // The constant is on the right.
        match (op, self.bool_constant(args[1])?) {
            (Alu::And, true) | (Alu::Or | Alu::Xor | Alu::Ne, false) | (Alu::Eq, true) => Some(x),
            (Alu::And, false) | (Alu::Or, true) => Some(args[1]),
            _ => Some(self.alu(Alu::Not, &[x])),
        }
    }

    fn select(&mut self, args: Operands<'_>) -> Option<ExprId> {
        let (condition, a, b) = (args[0], args[1], args[2]);
        if a == b {
            return Some(a);
        }
        if let Some(truth) = self.bool_constant(condition) {
            return Some(if truth { a } else { b });
        }
        if let Some(inner) = self.operands_of(condition, Alu::Not) {
            return Some(self.alu(Alu::Select, &[inner[0], b, a]));
        }
        // Nested selects on the same condition.
        for (side, chosen) in [(1, a), (2, b)] {
            if let Some(inner) = self.operands_of(chosen, Alu::Select)
                && inner[0] == condition
            {
                let (a, b) = if side == 1 { (inner[1], b) } else { (a, inner[2]) };
                return Some(self.alu(Alu::Select, &[condition, a, b]));
            }
        }
        if self.ty(a) != self.ty(condition) || self.ty(a) != Type::BOOL {
            return None;
        }
        match (self.bool_constant(a), self.bool_constant(b)) {
            (Some(true), Some(false)) => Some(condition),
            (Some(false), Some(true)) => Some(self.alu(Alu::Not, &[condition])),
            (Some(true), None) => Some(self.alu(Alu::Or, &[condition, b])),
            (None, Some(false)) => Some(self.alu(Alu::And, &[condition, a])),
            _ => None,
        }
    }
}
