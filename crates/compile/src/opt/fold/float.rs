//! Rules for floats: only those that are exact for every operand, including infinities, signed zeros and denormals. A
//! NaN remains a NaN, with arbitrary bits.

use panoply_ir::kernel::ExprId;
use panoply_ir::{Alu, DType, Scalar, Type};

use super::{Folder, Operands};

impl Folder<'_> {
    pub(super) fn float(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let x = args[0];
        if let Some(known) = self.of_nan(op, ty, args) {
            return Some(known);
        }
        match op {
            Alu::Neg => self.operands_of(x, Alu::Neg).map(|inner| inner[0]),
            Alu::Abs => self.magnitude(x),
            Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc => self.whole(x),
            Alu::Add | Alu::Sub => self.float_sum(op, args),
            Alu::Mul => self.float_product(args),
            Alu::Div => self.float_quotient(ty, args),
            Alu::Min | Alu::Max => (x == args[1]).then_some(x),
            Alu::Pow => self.power(ty, args),
            Alu::Fma => self.fused(args),
            // This also holds for NaN, which is not less than itself.
            Alu::Lt if x == args[1] => Some(self.number(ty.with_dtype(DType::Bool), 0)),
            Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne | Alu::Select | Alu::Rem | Alu::Sqrt => None,
            Alu::Math(_) => None,
            Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => None,
        }
    }

    /// Returns the value of a constant float; -0 and 0 differ.
    fn real(&self, id: ExprId) -> Option<f64> {
        self.constant(id).map(Scalar::to_f64)
    }

    fn is(&self, id: ExprId, value: f64) -> bool {
        self.real(id).is_some_and(|found| found.to_bits() == value.to_bits())
    }

    fn magnitude(&mut self, x: ExprId) -> Option<ExprId> {
        if self.operands_of(x, Alu::Abs).is_some() {
            return Some(x);
        }
        let inner = self.operands_of(x, Alu::Neg)?;
        Some(self.alu(Alu::Abs, &[inner[0]]))
    }

    /// Folds operations with a constant NaN operand. Driver compilers evaluate some functions of a constant NaN
    /// incorrectly (`rint` and `exp` of PoCL 3.1).
    fn of_nan(&mut self, op: Alu, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let nan = args.iter().find(|x| self.real(**x).is_some_and(f64::is_nan))?;
        let of = |value| Some((ty.with_dtype(DType::Bool), value));
        let (ty, value) = match op {
            Alu::Add | Alu::Sub | Alu::Mul | Alu::Div | Alu::Rem | Alu::Min | Alu::Max | Alu::Fma => return Some(*nan),
            Alu::Lt | Alu::Le | Alu::Eq => of(0),
            Alu::Ne => of(1),
            // Operations with one operand, which is constant and evaluated elsewhere, and operations with special NaN
            // semantics.
            Alu::Neg | Alu::Abs | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc | Alu::Math(_) => None,
            Alu::Pow | Alu::Select => None,
            Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => None,
        }?;
        Some(self.number(ty, value))
    }

    /// Removes the rounding of an integral value.
    fn whole(&self, x: ExprId) -> Option<ExprId> {
        let rounds = [Alu::Floor, Alu::Ceil, Alu::Round, Alu::Trunc];
        rounds.iter().any(|op| self.operands_of(x, *op).is_some()).then_some(x)
    }

    fn float_sum(&mut self, op: Alu, args: Operands<'_>) -> Option<ExprId> {
        let (x, y) = (args[0], args[1]);
        // Adding -0 or subtracting 0 changes nothing; the other zero turns -0 into 0.
        if self.is(y, if op == Alu::Add { -0.0 } else { 0.0 }) {
            return Some(x);
        }
        if op == Alu::Sub && self.is(x, -0.0) {
            return Some(self.alu(Alu::Neg, &[y]));
        }
        if let Some(inner) = self.operands_of(y, Alu::Neg) {
            let opposite = if op == Alu::Add { Alu::Sub } else { Alu::Add };
            return Some(self.alu(opposite, &[x, inner[0]]));
        }
        match self.operands_of(x, Alu::Neg) {
            Some(inner) if op == Alu::Add => Some(self.alu(Alu::Sub, &[y, inner[0]])),
            _ => None,
        }
    }

    fn float_product(&mut self, args: Operands<'_>) -> Option<ExprId> {
        let (x, y) = (args[0], args[1]);
        if self.is(y, 1.0) {
            return Some(x);
        }
        if self.is(y, -1.0) {
            return Some(self.alu(Alu::Neg, &[x]));
        }
        let (left, right) = (self.operands_of(x, Alu::Neg)?, self.operands_of(y, Alu::Neg)?);
        Some(self.alu(Alu::Mul, &[left[0], right[0]]))
    }

    fn float_quotient(&mut self, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let divisor = self.real(args[1])?;
        if divisor == 1.0 {
            return Some(args[0]);
        }
        if divisor == -1.0 {
            return Some(self.alu(Alu::Neg, &[args[0]]));
        }
        // Multiplication by the inverse of a power of two is exact. A denormal inverse might be flushed by a device.
        let dtype = ty.dtype().expect("floats have an element type");
        let least_exponent = match dtype {
            DType::F16 => -14,
            DType::F64 => -1022,
            _ => -126,
        };
        let inverse = 1.0 / divisor;
        let power_of_two = divisor.is_normal() && divisor.to_bits() & ((1 << 52) - 1) == 0;
        let in_range = |x: f64| x.abs() >= 2f64.powi(least_exponent) && x.abs() <= 2f64.powi(1 - least_exponent);
        if !power_of_two || !in_range(inverse) {
            return None;
        }
        let inverse = self.literal(ty, Scalar::from_f64(dtype, inverse));
        Some(self.alu(Alu::Mul, &[args[0], inverse]))
    }

    fn power(&mut self, ty: Type, args: Operands<'_>) -> Option<ExprId> {
        let exponent = self.real(args[1])?;
        if exponent == 1.0 {
            return Some(args[0]);
        }
        if exponent == 0.0 {
            // Also for NaN, as in C.
            return Some(self.literal(ty, Scalar::from_f64(ty.dtype().expect("floats have an element type"), 1.0)));
        }
        // The square of an f32 is exact in f64, so the power equals the product rounded once. For f64 this need not
        // hold.
        (exponent == 2.0 && ty.dtype() == Some(DType::F32)).then(|| self.alu(Alu::Mul, &[args[0], args[0]]))
    }

    fn fused(&mut self, args: Operands<'_>) -> Option<ExprId> {
        let (a, b, c) = (args[0], args[1], args[2]);
        if self.is(a, 1.0) || self.is(b, 1.0) {
            let factor = if self.is(a, 1.0) { b } else { a };
            return Some(self.alu(Alu::Add, &[factor, c]));
        }
        self.is(c, -0.0).then(|| self.alu(Alu::Mul, &[a, b]))
    }
}
