//! Algebraic simplification of integers and indices, as LLVM's InstSimplify and InstCombine. Integers wrap, so sums and
//! products may be reassociated. Constants are second operands here. Division by zero is defined: the quotient is 0, the
//! remainder the dividend.

use panoply_ir::kernel::ExprId;
use panoply_ir::{Alu, DType, Type};

use super::{Folder, Operands};

impl Folder<'_> {
    /// Returns a simpler equivalent of an operation on integers of type `ty`, or `None` if no rule applies.
    pub(super) fn integer(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        // Bools are integers for the caller, but none of these rules is valid for them.
        if ty.is_bool() {
            return None;
        }
        match op {
            Alu::Neg | Alu::Not => self.operands_of(args[0], op).map(|inner| inner[0]),
            Alu::Abs if !is_signed(ty) => Some(args[0]),
            Alu::Add | Alu::Sub => self.sum(op, ty, args),
            Alu::Mul => self.product(ty, args),
            Alu::Div | Alu::Rem => self.quotient(op, ty, args),
            Alu::Min | Alu::Max => self.min_max(op, args),
            Alu::And | Alu::Or | Alu::Xor => self.bits(op, ty, args),
            Alu::Shl | Alu::Shr => self.shift(op, ty, args),
            Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne => self.comparison(op, ty, args),
            Alu::Abs | Alu::PopCount | Alu::Select => None,
            Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc => None,
            Alu::Pow | Alu::Fma => None,
        }
    }

    fn sum(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let (x, y) = (args[0], args[1]);
        if op == Alu::Sub && x == y {
            return Some(self.number(ty, 0));
        }
        if op == Alu::Sub && self.int(x) == Some(0) {
            return Some(self.alu(Alu::Neg, &[y]));
        }
        if let Some(inner) = self.operands_of(y, Alu::Neg) {
            let opposite = if op == Alu::Add { Alu::Sub } else { Alu::Add };
            return Some(self.alu(opposite, &[x, inner[0]]));
        }
        let constant = self.int(y)?;
        let right = if op == Alu::Add { constant } else { -constant };
        if right == 0 {
            return Some(x);
        }
        // (x ± a) ± b is x ± (a ± b).
        for (inner, sign) in [(Alu::Add, 1), (Alu::Sub, -1)] {
            if let Some(args) = self.operands_of(x, inner)
                && let Some(left) = self.int(args[1])
            {
                return Some(self.offset(ty, args[0], sign * left + right));
            }
        }
        // In an unsigned type, x + (2ⁿ - 1) is x - 1.
        let total = self.wrap(ty, right);
        (op == Alu::Add && !is_signed(ty) && total < 0).then(|| self.offset(ty, x, total))
    }

    /// Returns `x + by`, or `x - |by|` for a negative `by` in an unsigned type.
    fn offset(&mut self, ty: Type, x: ExprId, by: i128) -> ExprId {
        let by = self.wrap(ty, by);
        let (op, amount) = if by < 0 && !is_signed(ty) { (Alu::Sub, -by) } else { (Alu::Add, by) };
        let amount = self.number(ty, amount);
        self.alu(op, &[x, amount])
    }

    /// Returns the value congruent to `value` modulo 2ⁿ, for a type of n bits, that is closest to 0.
    fn wrap(&self, ty: Type, value: i128) -> i128 {
        let modulus = 1i128 << ty.dtype().unwrap_or(DType::U64).bits();
        let value = value.rem_euclid(modulus);
        if value > modulus / 2 - i128::from(is_signed(ty)) { value - modulus } else { value }
    }

    fn product(&mut self, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let (x, factor) = (args[0], self.int(args[1])?);
        if factor == 1 {
            return Some(x);
        }
        if factor == 0 {
            return Some(args[1]);
        }
        if factor == -1 {
            return Some(self.alu(Alu::Neg, &[x]));
        }
        if let Some(inner) = self.operands_of(x, Alu::Mul)
            && let Some(left) = self.int(inner[1])
        {
            let both = self.number(ty, left.wrapping_mul(factor));
            return Some(self.alu(Alu::Mul, &[inner[0], both]));
        }
        // Products of indices are kept, because address analysis looks for factors.
        if ty == Type::Index || factor < 0 || factor.count_ones() != 1 {
            return None;
        }
        let amount = self.number(ty, factor.trailing_zeros() as i128);
        Some(self.alu(Alu::Shl, &[x, amount]))
    }

    fn quotient(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let x = args[0];
        if self.int(x) == Some(0) {
            return Some(x);
        }
        let divisor = self.int(args[1])?;
        match (op, divisor) {
            (Alu::Div, 1) | (Alu::Rem, 0) => return Some(x),
            (Alu::Div, 0) | (Alu::Rem, 1 | -1) => return Some(self.number(ty, 0)),
            (Alu::Div, -1) => return Some(self.alu(Alu::Neg, &[x])),
            _ => {}
        }
        if let Some(inner) = self.operands_of(x, op)
            && let Some(first) = self.int(inner[1])
        {
            if op == Alu::Rem && first == divisor {
                return Some(x);
            }
            let both = first.checked_mul(divisor).filter(|both| first > 0 && divisor > 0 && self.holds(ty, *both));
            if let (Alu::Div, Some(both)) = (op, both) {
                let both = self.number(ty, both);
                return Some(self.alu(Alu::Div, &[inner[0], both]));
            }
        }
        if is_signed(ty) || divisor.count_ones() != 1 {
            return None;
        }
        let (op, amount) = match op {
            Alu::Div => (Alu::Shr, divisor.trailing_zeros() as i128),
            _ => (Alu::And, divisor - 1),
        };
        let amount = self.number(ty, amount);
        Some(self.alu(op, &[x, amount]))
    }

    fn min_max(&mut self, op: Alu, args: Operands<'_>) -> Option<ExprId> {
        if args[0] == args[1] {
            return Some(args[0]);
        }
        // min(min(x, a), b) is min(x, min(a, b)).
        let outer = self.int(args[1])?;
        let inner = self.operands_of(args[0], op)?;
        let first = self.int(inner[1])?;
        let bound = if op == Alu::Min { first.min(outer) } else { first.max(outer) };
        let kept = if bound == first { inner[1] } else { args[1] };
        Some(self.alu(op, &[inner[0], kept]))
    }

    fn bits(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let x = args[0];
        if x == args[1] {
            return Some(if op == Alu::Xor { self.number(ty, 0) } else { x });
        }
        let mask = self.int(args[1])?;
        let all = self.number(ty, -1);
        match op {
            Alu::And if mask == 0 => Some(args[1]),
            Alu::And if args[1] == all => Some(x),
            Alu::Or | Alu::Xor if mask == 0 => Some(x),
            Alu::Or if args[1] == all => Some(all),
            Alu::Xor if args[1] == all => Some(self.alu(Alu::Not, &[x])),
            _ => {
                // (x & a) & b is x & (a & b), and likewise for `|` and `^`.
                let inner = self.operands_of(x, op)?;
                let first = self.int(inner[1])?;
                let both = match op {
                    Alu::And => first & mask,
                    Alu::Or => first | mask,
                    _ => first ^ mask,
                };
                let both = self.number(ty, both);
                Some(self.alu(op, &[inner[0], both]))
            }
        }
    }

    fn shift(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        if self.int(args[0]) == Some(0) {
            return Some(args[0]);
        }
        let width = ty.dtype().unwrap_or(DType::U64).bits() as i128;
        let amount = self.int(args[1])?.rem_euclid(width);
        if amount == 0 {
            return Some(args[0]);
        }
        let inner = self.operands_of(args[0], op)?;
        let total = self.int(inner[1])?.rem_euclid(width) + amount;
        if total < width {
            let total = self.number(ty, total);
            return Some(self.alu(op, &[inner[0], total]));
        }
        // All bits are shifted out: copies of the sign bit remain in a signed type, zeros otherwise.
        if op == Alu::Shr && is_signed(ty) {
            let most = self.number(ty, width - 1);
            return Some(self.alu(op, &[inner[0], most]));
        }
        Some(self.number(ty, 0))
    }

    fn comparison(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let bool_ty = ty.with_dtype(DType::Bool);
        if args[0] == args[1] {
            return Some(self.number(bool_ty, i128::from(matches!(op, Alu::Le | Alu::Eq))));
        }
        let dtype = ty.dtype().unwrap_or(DType::U64);
        let value_bits = dtype.bits() - u32::from(dtype.is_signed());
        let max = (1i128 << value_bits) - 1;
        let min = if dtype.is_signed() { -max - 1 } else { 0 };
        match (op, self.int(args[0]), self.int(args[1])) {
            (Alu::Lt, _, Some(right)) if right == min => Some(self.number(bool_ty, 0)),
            (Alu::Lt, Some(left), _) if left == max => Some(self.number(bool_ty, 0)),
            (Alu::Le, _, Some(right)) if right == max => Some(self.number(bool_ty, 1)),
            (Alu::Le, Some(left), _) if left == min => Some(self.number(bool_ty, 1)),
            _ => None,
        }
    }

    /// Returns true if a type can represent a number, which is not negative.
    fn holds(&self, ty: Type, value: i128) -> bool {
        let dtype = ty.dtype().unwrap_or(DType::U64);
        value < 1i128 << (dtype.bits() - u32::from(dtype.is_signed()))
    }
}

fn is_signed(ty: Type) -> bool {
    ty.dtype().is_some_and(DType::is_signed)
}
