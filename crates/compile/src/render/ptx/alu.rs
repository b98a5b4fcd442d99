//! Renders operations as PTX, on the registers of their operands.

use panoply_ir::{Alu, DType};

use super::writer::{Class, Writer, float_name, int_name};

impl Writer<'_> {
    /// Renders a scalar operation. `dtype` is the operands' type (for `Select` that of the alternatives).
    pub fn alu(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        match (op, dtype) {
            (Alu::Select, _) => self.select(dtype, args),
            (_, DType::Bool) => self.logic(op, args),
            _ if dtype.is_float() => self.float(op, dtype, args),
            _ => self.integer(op, dtype, args),
        }
    }

    fn select(&mut self, dtype: DType, args: &[&str]) -> String {
        let [condition, a, b] = [args[0], args[1], args[2]];
        let class = Class::of(dtype);
        if class != Class::Pred {
            return self.op(class, &format!("selp.{}", class.name()), &[a, b, condition]);
        }
        let yes = self.compare("and.pred", &[condition, a]);
        let not = self.compare("not.pred", &[condition]);
        let no = self.compare("and.pred", &[&not, b]);
        self.compare("or.pred", &[&yes, &no])
    }

    fn logic(&mut self, op: Alu, args: &[&str]) -> String {
        match op {
            Alu::Not => self.compare("not.pred", args),
            Alu::And => self.compare("and.pred", args),
            Alu::Or => self.compare("or.pred", args),
            Alu::Xor | Alu::Ne => self.compare("xor.pred", args),
            Alu::Eq => {
                let differ = self.compare("xor.pred", args);
                self.compare("not.pred", &[&differ])
            }
            _ => unreachable!("{} of bools", op.name()),
        }
    }

    fn float(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        let (class, ty) = (Class::of(dtype), float_name(dtype));
        let plain = |name: &str| format!("{name}.{ty}");
        let result = match op {
            Alu::Add | Alu::Sub | Alu::Mul | Alu::Div | Alu::Sqrt | Alu::Fma => {
                self.op(class, &format!("{}.rn.{ty}", op.name()), args)
            }
            Alu::Rem => self.remainder(dtype, args),
            // The following operations are exact in every format, or do not give a float.
            Alu::Neg | Alu::Abs => return self.op(class, &plain(op.name()), args),
            Alu::Floor => return self.op(class, &format!("cvt.rmi.{ty}.{ty}"), args),
            Alu::Ceil => return self.op(class, &format!("cvt.rpi.{ty}.{ty}"), args),
            Alu::Round => return self.op(class, &format!("cvt.rni.{ty}.{ty}"), args),
            Alu::Trunc => return self.op(class, &format!("cvt.rzi.{ty}.{ty}"), args),
            Alu::Min | Alu::Max => {
                // min.NaN requires capability 8.0.
                let relation = if op == Alu::Min { "lt" } else { "gt" };
                let nan = self.compare(&plain("setp.nan"), &[args[0], args[0]]);
                let first = self.compare(&format!("setp.{relation}.or.{ty}"), &[args[0], args[1], &nan]);
                return self.op(class, &plain("selp"), &[args[0], args[1], &first]);
            }
            Alu::Lt | Alu::Le | Alu::Eq => return self.compare(&format!("setp.{}.{ty}", op.name()), args),
            Alu::Ne => return self.compare(&plain("setp.neu"), args),
            Alu::Math(_) | Alu::Pow => unreachable!("{} was expanded before", op.name()),
            Alu::Select | Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => {
                unreachable!("{} of {dtype}", op.name())
            }
        };
        self.rounded(dtype, result)
    }

    fn integer(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        let (class, ty, bits) = (Class::of(dtype), int_name(dtype), Class::of(dtype).name());
        let plain = format!("{}.{ty}", op.name());
        let result = match op {
            Alu::Add | Alu::Sub => self.op(class, &plain, args),
            Alu::Mul => self.op(class, &format!("mul.lo.{ty}"), args),
            Alu::Neg => self.op(class, &format!("sub.{ty}"), &["0", args[0]]),
            Alu::Not => self.op(class, &format!("not.{bits}"), args),
            Alu::Abs if !dtype.is_signed() => return args[0].to_string(),
            Alu::Abs => {
                let negated = self.op(class, &format!("sub.{ty}"), &["0", args[0]]);
                self.op(class, &format!("max.{ty}"), &[args[0], &negated])
            }
            Alu::PopCount => return self.count_ones(dtype, args[0]),
            Alu::Div | Alu::Rem => self.divide(op, dtype, args),
            Alu::Min | Alu::Max => return self.op(class, &plain, args),
            Alu::And | Alu::Or | Alu::Xor => return self.op(class, &format!("{}.{bits}", op.name()), args),
            Alu::Shl | Alu::Shr => {
                let amount = self.amount(dtype, args[1]);
                let kind = if op == Alu::Shl { bits } else { ty };
                self.op(class, &format!("{}.{kind}", op.name()), &[args[0], &amount])
            }
            Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne => return self.compare(&format!("setp.{}.{ty}", op.name()), args),
            _ => unreachable!("{} of {dtype}", op.name()),
        };
        self.narrow(dtype, result)
    }

    fn count_ones(&mut self, dtype: DType, text: &str) -> String {
        let bits = match dtype.is_signed() {
            // A narrow register is sign-extended.
            true => self.narrow(dtype.unsigned(), text.to_string()),
            false => text.to_string(),
        };
        let count = self.op(Class::B32, &format!("popc.{}", Class::of(dtype).name()), &[&bits]);
        match dtype.bytes() {
            8 => self.op(Class::B64, "cvt.u64.u32", &[&count]),
            _ => count,
        }
    }

    /// Returns a shift amount modulo the width, in 32 bits.
    fn amount(&mut self, dtype: DType, text: &str) -> String {
        let mask = dtype.bits() - 1;
        if let Ok(amount) = text.parse::<i128>() {
            return (amount & mask as i128).to_string();
        }
        let word = match dtype.bytes() {
            8 => self.op(Class::B32, "cvt.u32.u64", &[text]),
            _ => text.to_string(),
        };
        self.op(Class::B32, "and.b32", &[&word, &mask.to_string()])
    }

    /// Renders division defined for every divisor: a divisor with undefined result is replaced, and then the result.
    fn divide(&mut self, op: Alu, dtype: DType, args: &[&str]) -> String {
        let (class, ty, bits) = (Class::of(dtype), int_name(dtype), Class::of(dtype).name());
        let [a, b] = [args[0], args[1]];
        let divide = format!("{}.{ty}", op.name());
        if b.parse::<i128>().is_ok_and(|divisor| divisor > 0) {
            return self.op(class, &divide, args);
        }
        let select = format!("selp.{bits}");
        let zero = self.compare(&format!("setp.eq.{ty}"), &[b, "0"]);
        if !dtype.is_signed() {
            let divisor = self.op(class, &select, &["1", b, &zero]);
            let result = self.op(class, &divide, &[a, &divisor]);
            return self.op(class, &select, &[if op == Alu::Div { "0" } else { a }, &result, &zero]);
        }
        let minus = self.compare(&format!("setp.eq.{ty}"), &[b, "-1"]);
        let either = self.compare("or.pred", &[&zero, &minus]);
        let divisor = self.op(class, &select, &["1", b, &either]);
        let result = self.op(class, &divide, &[a, &divisor]);
        if op == Alu::Rem {
            // The remainder by 1 is 0, as by -1.
            return self.op(class, &select, &[a, &result, &zero]);
        }
        let negated = self.op(class, &format!("sub.{ty}"), &["0", a]);
        let result = self.op(class, &select, &[&negated, &result, &minus]);
        self.op(class, &select, &["0", &result, &zero])
    }

    /// Extends a 32-bit result to the register representation of an 8- or 16-bit integer.
    pub fn narrow(&mut self, dtype: DType, value: String) -> String {
        match dtype {
            DType::U8 => self.op(Class::B32, "and.b32", &[&value, "255"]),
            DType::U16 => self.op(Class::B32, "and.b32", &[&value, "65535"]),
            DType::I8 | DType::I16 => {
                let rest = (32 - dtype.bits()).to_string();
                let high = self.op(Class::B32, "shl.b32", &[&value, &rest]);
                self.op(Class::B32, "shr.s32", &[&high, &rest])
            }
            _ => value,
        }
    }
}
