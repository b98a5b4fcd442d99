//! Renders operations as WGSL, from the texts of their operands.
//!
//! Every input and output text can be placed next to any operator: names, literals, calls, or text in parentheses. Each
//! operand appears once, so nothing is evaluated twice.

use panoply_ir::{Alu, DType};

use super::super::ops::bare;
use super::expr::Writer;
use super::soft_float::{Function, Fused, MAX_DIVISOR};

impl Writer<'_> {
    /// Renders a scalar operation. `dtype` is the operands' type (for `Select` that of the alternatives), `None` for
    /// indices.
    pub fn alu(&mut self, op: Alu, dtype: Option<DType>, args: &[String]) -> String {
        let element = dtype.unwrap_or(self.index);
        match op {
            Alu::Select => format!("select({}, {}, {})", bare(&args[2]), bare(&args[1]), bare(&args[0])),
            _ if self.is_pair(element) => self.wide_alu(op, element, args),
            Alu::Lt if element == DType::I64 => infix("<", &[ordered(&args[0]), ordered(&args[1])]),
            Alu::Le if element == DType::I64 => infix("<=", &[ordered(&args[0]), ordered(&args[1])]),
            Alu::Lt => infix("<", args),
            Alu::Le => infix("<=", args),
            Alu::Eq => infix("==", args),
            // Compilers translate `!=` so that it is false for NaN.
            Alu::Ne if element.is_float() => format!("(!{})", infix("==", args)),
            Alu::Ne => infix("!=", args),
            _ if element.is_float() => self.float(op, element, args),
            _ if element == DType::Bool => self.logic(op, args),
            Alu::PopCount => self.count_ones(element, &args[0]),
            _ => {
                let text = self.integer(op, element, args);
                self.narrow(element, text)
            }
        }
    }

    fn float(&mut self, op: Alu, dtype: DType, args: &[String]) -> String {
        let register = self.register(Some(dtype));
        let exact = match op {
            Alu::Neg => Some(format!("(-{})", args[0])),
            Alu::Abs => Some(call("abs", args)),
            Alu::Floor => Some(call("floor", args)),
            Alu::Ceil => Some(call("ceil", args)),
            Alu::Round if register == DType::F64 => Some(self.soft(Function::RoundF64, args)),
            Alu::Trunc if register == DType::F64 => Some(self.soft(Function::TruncF64, args)),
            Alu::Round => Some(call("round", args)),
            Alu::Trunc => Some(call("trunc", args)),
            Alu::Rem => Some(self.soft(Function::Remainder(register), args)),
            Alu::Min => Some(self.soft(Function::Min(register), args)),
            Alu::Max => Some(self.soft(Function::Max(register), args)),
            _ => None,
        };
        if let Some(text) = exact {
            return text;
        }
        let text = match op {
            Alu::Add => infix("+", args),
            Alu::Sub => infix("-", args),
            Alu::Mul => infix("*", args),
            Alu::Div if matches!(dtype, DType::F32 | DType::BF16) && !is_limited(&args[1]) => {
                self.soft(Function::Quotient, args)
            }
            Alu::Div => infix("/", args),
            Alu::Sqrt => call("sqrt", args),
            Alu::Fma if register == DType::F64 => self.soft(Function::Fma(Fused::Wide), args),
            Alu::Fma if self.f64 => self.soft(Function::Fma(Fused::Doubles), args),
            Alu::Fma => self.soft(Function::Fma(Fused::Integers), args),
            _ => unreachable!("{} of {dtype}", op.name()),
        };
        self.rounded(dtype, text)
    }

    fn logic(&mut self, op: Alu, args: &[String]) -> String {
        match op {
            Alu::Not => format!("(!{})", args[0]),
            Alu::And => infix("&", args),
            Alu::Or => infix("|", args),
            Alu::Xor => infix("!=", args),
            _ => unreachable!("{} of bools", op.name()),
        }
    }

    /// Renders an integer operation in the register type; the caller narrows the result.
    fn integer(&mut self, op: Alu, dtype: DType, args: &[String]) -> String {
        let register = self.register(Some(dtype));
        let wide = register.bytes() == 8;
        match op {
            Alu::Neg => format!("({} - {})", self.zero(register), args[0]),
            Alu::Not => format!("(~{})", args[0]),
            Alu::Abs if !dtype.is_signed() => args[0].clone(),
            Alu::Abs if wide => self.soft(Function::Abs(register), args),
            Alu::Abs => call("abs", args),
            Alu::Add => infix("+", args),
            Alu::Sub => infix("-", args),
            Alu::Mul => infix("*", args),
            Alu::Div if is_positive(&args[1]) => infix("/", args),
            Alu::Rem if is_positive(&args[1]) => infix("%", args),
            Alu::Div => self.soft(Function::Div(register), args),
            Alu::Rem => self.soft(Function::Rem(register), args),
            Alu::Min if wide => self.soft(Function::Min(register), args),
            Alu::Max if wide => self.soft(Function::Max(register), args),
            Alu::Min => call("min", args),
            Alu::Max => call("max", args),
            Alu::And => infix("&", args),
            Alu::Or => infix("|", args),
            Alu::Xor => infix("^", args),
            Alu::Shl => format!("({} << {})", args[0], self.amount(dtype, &args[1])),
            Alu::Shr => format!("({} >> {})", args[0], self.amount(dtype, &args[1])),
            _ => unreachable!("{} of {dtype}", op.name()),
        }
    }

    fn count_ones(&mut self, dtype: DType, text: &str) -> String {
        let (unsigned, register) = (dtype.unsigned(), self.register(Some(dtype)));
        // The register of a narrow integer is sign-extended.
        let bits = [self.cast(Some(dtype), Some(unsigned), text)];
        let count = match register.bytes() {
            8 => self.soft(Function::CountOnes, &bits),
            _ => call("countOneBits", &bits),
        };
        self.cast(Some(register.unsigned()), Some(register), &count)
    }

    /// Renders a shift amount modulo the width, as a `u32`.
    fn amount(&self, dtype: DType, text: &str) -> String {
        let mask = dtype.bits() - 1;
        match bare(text).trim_end_matches(['u', 'i', 'l']).parse::<i128>() {
            Ok(amount) => format!("{}u", amount & i128::from(mask)),
            Err(_) if self.register(Some(dtype)) == DType::U32 => format!("({text} & {mask}u)"),
            Err(_) => format!("(u32({}) & {mask}u)", bare(text)),
        }
    }

    /// Renders a call of a helper function.
    pub fn soft(&mut self, function: Function, args: &[String]) -> String {
        call(&self.soft.call(function), args)
    }
}

/// Renders an i64 as the u64 of the same order. Mesa 22.3 compares an i32 that was converted to i64 with a constant wrongly.
pub(super) fn ordered(text: &str) -> String {
    const SIGN: u64 = 1 << 63;
    match bare(text).strip_suffix("li").and_then(|digits| digits.parse::<i64>().ok()) {
        Some(number) => format!("{}lu", number as u64 ^ SIGN),
        None => format!("(bitcast<u64>({}) ^ {SIGN}lu)", bare(text)),
    }
}

fn infix(sign: &str, args: &[String]) -> String {
    format!("({} {sign} {})", args[0], args[1])
}

pub(super) fn call(function: &str, args: &[String]) -> String {
    let args: Vec<&str> = args.iter().map(|arg| bare(arg)).collect();
    format!("{function}({})", args.join(", "))
}

/// Returns true if a divisor is a literal for which WGSL limits the error of a quotient.
fn is_limited(text: &str) -> bool {
    let divisor = bare(text).trim_end_matches('f').parse::<f32>();
    divisor.is_ok_and(|divisor| (f32::MIN_POSITIVE..=MAX_DIVISOR).contains(&divisor.abs()))
}

/// Returns true if a divisor is a positive literal, for which the language's division equals the IR's.
fn is_positive(text: &str) -> bool {
    let digits = text.trim_end_matches(['u', 'i', 'l']);
    digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.bytes().any(|digit| digit != b'0')
}
