//! Renders operations as SPIR-V, on the values of their operands.

use panoply_ir::{Alu, DType, Math, Scalar};

use super::module::Writer;

impl Writer<'_> {
    /// Renders a scalar operation. `dtype` is the operands' type (for `Select` that of the alternatives).
    pub fn alu(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        match (op, dtype) {
            (Alu::Select, _) => {
                let ty = self.ty(dtype);
                self.op(&ty, "OpSelect", args)
            }
            (_, DType::Bool) => self.logic(op, args),
            _ if dtype.is_float() => self.float(op, dtype, args),
            _ => self.integer(op, dtype, args),
        }
    }

    fn logic(&mut self, op: Alu, args: &[&str]) -> String {
        let instruction = match op {
            Alu::Not => "OpLogicalNot",
            Alu::And => "OpLogicalAnd",
            Alu::Or => "OpLogicalOr",
            Alu::Xor | Alu::Ne => "OpLogicalNotEqual",
            Alu::Eq => "OpLogicalEqual",
            _ => unreachable!("{} of bools", op.name()),
        };
        self.compare(instruction, args)
    }

    fn float(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        let ty = self.ty(dtype);
        let result = match op {
            Alu::Add => self.op(&ty, "OpFAdd", args),
            Alu::Sub => self.op(&ty, "OpFSub", args),
            Alu::Mul => self.op(&ty, "OpFMul", args),
            Alu::Div => self.op(&ty, "OpFDiv", args),
            Alu::Math(Math::Log) => self.call(&ty, "log", args),
            Alu::Math(_) | Alu::Sqrt | Alu::Pow | Alu::Fma => self.call(&ty, op.name(), args),
            // The following operations are exact in every format, or do not give a float.
            Alu::Neg => return self.op(&ty, "OpFNegate", args),
            Alu::Abs => return self.call(&ty, "fabs", args),
            Alu::Round => return self.call(&ty, "rint", args),
            Alu::Rem => return self.call(&ty, "fmod", args),
            Alu::Floor | Alu::Ceil | Alu::Trunc => return self.call(&ty, op.name(), args),
            Alu::Min | Alu::Max => {
                let relation = if op == Alu::Min { "OpFOrdLessThan" } else { "OpFOrdGreaterThan" };
                let nan = self.compare("OpFUnordNotEqual", &[args[0], args[0]]);
                let before = self.compare(relation, args);
                let first = self.compare("OpLogicalOr", &[&nan, &before]);
                return self.select(&ty, &first, args[0], args[1]);
            }
            Alu::Lt => return self.compare("OpFOrdLessThan", args),
            Alu::Le => return self.compare("OpFOrdLessThanEqual", args),
            Alu::Eq => return self.compare("OpFOrdEqual", args),
            Alu::Ne => return self.compare("OpFUnordNotEqual", args),
            Alu::Select | Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => {
                unreachable!("{} of {dtype}", op.name())
            }
        };
        self.rounded(dtype, result)
    }

    fn integer(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        let (ty, signed) = (self.ty(dtype), dtype.is_signed());
        let either = |of_signed, of_unsigned| if signed { of_signed } else { of_unsigned };
        match op {
            Alu::Add => self.op(&ty, "OpIAdd", args),
            Alu::Sub => self.op(&ty, "OpISub", args),
            Alu::Mul => self.op(&ty, "OpIMul", args),
            Alu::Neg => self.op(&ty, "OpSNegate", args),
            Alu::Not => self.op(&ty, "OpNot", args),
            Alu::PopCount => self.op(&ty, "OpBitCount", args),
            Alu::And => self.op(&ty, "OpBitwiseAnd", args),
            Alu::Or => self.op(&ty, "OpBitwiseOr", args),
            Alu::Xor => self.op(&ty, "OpBitwiseXor", args),
            Alu::Abs if !signed => args[0].to_string(),
            Alu::Abs => {
                let zero = self.int(dtype, 0);
                let below = self.compare("OpSLessThan", &[args[0], &zero]);
                let negated = self.op(&ty, "OpSNegate", args);
                self.select(&ty, &below, &negated, args[0])
            }
            Alu::Div | Alu::Rem => self.divide(op, dtype, args),
            Alu::Min | Alu::Max => {
                let first = match op {
                    Alu::Min => self.compare(either("OpSLessThan", "OpULessThan"), args),
                    _ => self.compare(either("OpSGreaterThan", "OpUGreaterThan"), args),
                };
                self.select(&ty, &first, args[0], args[1])
            }
            Alu::Shl | Alu::Shr => {
                // The amount is used modulo the width.
                let mask = self.int(dtype, u64::from(dtype.bits() - 1));
                let amount = self.op(&ty, "OpBitwiseAnd", &[args[1], &mask]);
                let right = either("OpShiftRightArithmetic", "OpShiftRightLogical");
                self.op(&ty, if op == Alu::Shl { "OpShiftLeftLogical" } else { right }, &[args[0], &amount])
            }
            Alu::Lt => self.compare(either("OpSLessThan", "OpULessThan"), args),
            Alu::Le => self.compare(either("OpSLessThanEqual", "OpULessThanEqual"), args),
            Alu::Eq => self.compare("OpIEqual", args),
            Alu::Ne => self.compare("OpINotEqual", args),
            Alu::Select
            | Alu::Math(_)
            | Alu::Sqrt
            | Alu::Floor
            | Alu::Ceil
            | Alu::Round
            | Alu::Trunc
            | Alu::Pow
            | Alu::Fma => unreachable!("{} of {dtype}", op.name()),
        }
    }

    /// Renders division defined for every divisor: a divisor with undefined result is replaced, and then the result.
    fn divide(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        let ty = self.ty(dtype);
        let [a, b] = [args[0], args[1]];
        let divide = match (op, dtype.is_signed()) {
            (Alu::Div, true) => "OpSDiv",
            (Alu::Div, false) => "OpUDiv",
            (_, true) => "OpSRem",
            (_, false) => "OpUMod",
        };
        let [none, one] = [0, 1].map(|value| self.int(dtype, value));
        let zero = self.compare("OpIEqual", &[b, &none]);
        let by_zero = if op == Alu::Div { none.as_str() } else { a };
        if !dtype.is_signed() {
            let divisor = self.select(&ty, &zero, &one, b);
            let result = self.op(&ty, divide, &[a, &divisor]);
            return self.select(&ty, &zero, by_zero, &result);
        }
        let minus_one = self.constant(Scalar::from_i128(dtype, -1));
        let minus = self.compare("OpIEqual", &[b, &minus_one]);
        let either = self.compare("OpLogicalOr", &[&zero, &minus]);
        let divisor = self.select(&ty, &either, &one, b);
        let mut result = self.op(&ty, divide, &[a, &divisor]);
        if op == Alu::Div {
            let negated = self.op(&ty, "OpSNegate", &[a]);
            result = self.select(&ty, &minus, &negated, &result);
        }
        // The remainder by 1 is 0, as by -1.
        self.select(&ty, &zero, by_zero, &result)
    }
}
