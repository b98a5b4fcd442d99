//! Renders operations as C, from the texts of their operands.
//!
//! Every input and output text can be placed next to any operator: names, literals, calls, casts of these, or text in
//! parentheses. Each operand appears once, so nothing is evaluated twice.

use panoply_ir::{Alu, DType};

use super::c_dialect::CDialect;
use super::prelude::{Helper, Prelude, unsigned};

/// Renders operations, and records the helper functions they call.
pub(super) struct Ops {
    pub dialect: &'static CDialect,
    pub prelude: Prelude,
    /// Index type: u32 or u64.
    pub index: DType,
}

impl Ops {
    /// Returns the type of a register that holds an element; for an index the index type.
    pub fn register(&self, dtype: Option<DType>) -> DType {
        match dtype {
            None => self.index,
            Some(DType::F16 | DType::BF16) => DType::F32,
            Some(dtype) => dtype,
        }
    }

    /// Returns the type's name.
    pub fn name(&self, dtype: DType) -> &'static str {
        self.dialect.type_name(dtype)
    }

    /// Renders a scalar operation. `dtype` is the operands' type (for `Select` that of the alternatives), `None` for
    /// indices.
    pub fn alu(&mut self, op: Alu, dtype: Option<DType>, args: &[String]) -> String {
        let element = dtype.unwrap_or(self.index);
        if element.is_float() { self.float(op, element, args) } else { self.integer(op, element, args) }
    }

    fn float(&mut self, op: Alu, dtype: DType, args: &[String]) -> String {
        let register = self.register(Some(dtype));
        let text = match op {
            Alu::Add => infix("+", args),
            Alu::Sub => infix("-", args),
            Alu::Mul => infix("*", args),
            Alu::Div => infix("/", args),
            Alu::Math(_) | Alu::Sqrt | Alu::Pow | Alu::Fma => self.math(op, register, args),
            // The following operations are exact in every format, or do not give a float.
            Alu::Neg => return format!("(-{})", args[0]),
            Alu::Abs | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc | Alu::Rem => {
                return self.math(op, register, args);
            }
            Alu::Min => return self.call(Helper::Min(register), args),
            Alu::Max => return self.call(Helper::Max(register), args),
            Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne | Alu::Select => return compare_or_select(op, args),
            Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => {
                unreachable!("bits of {dtype}")
            }
        };
        self.rounded(dtype, text)
    }

    fn integer(&mut self, op: Alu, dtype: DType, args: &[String]) -> String {
        let is_bool = dtype == DType::Bool;
        match op {
            Alu::Not if is_bool => format!("(!{})", args[0]),
            Alu::And if is_bool => infix("&&", args),
            Alu::Or if is_bool => infix("||", args),
            Alu::Xor if is_bool => infix("!=", args),
            Alu::Neg => self.wrapping(dtype, "-", &["0".to_string(), args[0].clone()]),
            // C also inverts the promoted bits.
            Alu::Not if dtype.bytes() < 4 => format!("({})(~{})", self.name(dtype), args[0]),
            Alu::Not => format!("(~{})", args[0]),
            Alu::Abs if !dtype.is_signed() => args[0].clone(),
            Alu::Abs => self.call(Helper::Abs(dtype), args),
            Alu::PopCount => {
                // The sign of a narrow integer would be promoted to more bits. Also, some languages' functions return
                // an `int`.
                let bits = self.cast(Some(dtype), Some(dtype.unsigned()), &args[0]);
                format!("({}){}", self.name(dtype), self.math(op, dtype.unsigned(), &[bits]))
            }
            Alu::Add => self.wrapping(dtype, "+", args),
            Alu::Sub => self.wrapping(dtype, "-", args),
            Alu::Mul => self.wrapping(dtype, "*", args),
            Alu::Div if is_nonzero(&args[1]) => infix("/", args),
            Alu::Rem if is_nonzero(&args[1]) => infix("%", args),
            Alu::Div => self.call(Helper::Div(dtype), args),
            Alu::Rem => self.call(Helper::Rem(dtype), args),
            Alu::Min => self.call(Helper::Min(dtype), args),
            Alu::Max => self.call(Helper::Max(dtype), args),
            Alu::And => infix("&", args),
            Alu::Or => infix("|", args),
            Alu::Xor => infix("^", args),
            Alu::Shl => {
                let amount = self.shift_amount(dtype, &args[1]);
                self.wrapping(dtype, "<<", &[args[0].clone(), amount])
            }
            Alu::Shr => {
                let amount = self.shift_amount(dtype, &args[1]);
                infix(">>", &[args[0].clone(), amount])
            }
            Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne | Alu::Select => compare_or_select(op, args),
            Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc | Alu::Pow | Alu::Fma => {
                unreachable!("{} of {dtype}", op.name())
            }
        }
    }

    /// Renders arithmetic modulo the width. C leaves signed overflow undefined and promotes narrow types, so it is
    /// computed unsigned.
    fn wrapping(&self, dtype: DType, sign: &str, args: &[String]) -> String {
        let wide = unsigned(dtype);
        if dtype == wide {
            return infix(sign, args);
        }
        let wide = self.name(wide);
        let [left, right] =
            [&args[0], &args[1]].map(|arg| if is_digits(arg) { arg.clone() } else { format!("({wide}){arg}") });
        // One unsigned operand suffices to make C compute unsigned. The type of a shift does not depend on the amount.
        let is_shift = sign == "<<";
        let right = if is_shift { &args[1] } else { &right };
        let left = if is_digits(&left) && (is_shift || is_digits(right)) { format!("({wide}){left}") } else { left };
        format!("({})({left} {sign} {right})", self.name(dtype))
    }

    /// Renders a shift amount modulo the width.
    fn shift_amount(&self, dtype: DType, text: &str) -> String {
        let mask = dtype.bits() - 1;
        match text.trim_end_matches(['u', 'U', 'L']).parse::<u32>() {
            Ok(amount) => (amount & mask).to_string(),
            Err(_) => format!("({text} & {mask})"),
        }
    }

    fn math(&self, op: Alu, register: DType, args: &[String]) -> String {
        call(&self.dialect.math(op, register), args)
    }

    fn call(&mut self, helper: Helper, args: &[String]) -> String {
        call(&self.prelude.call(helper), args)
    }

    /// Rounds an f32 result to the 16-bit type that it represents.
    fn rounded(&mut self, dtype: DType, text: String) -> String {
        match dtype {
            DType::F16 => self.call(Helper::RoundF16, &[text]),
            DType::BF16 => self.call(Helper::RoundBF16, &[text]),
            _ => text,
        }
    }

    /// Converts a value with the semantics of Rust's `as`.
    pub fn cast(&mut self, from: Option<DType>, to: Option<DType>, text: &str) -> String {
        let (from, to) = (from.unwrap_or(self.index), to.unwrap_or(self.index));
        let text = text.to_string();
        if from == to {
            return text;
        }
        match (from, to) {
            (DType::F16 | DType::BF16, DType::F32) => text,
            (_, DType::Bool) => format!("({text} != 0)"),
            (_, DType::F16 | DType::BF16) => {
                // Defined as a conversion through f32.
                let single = self.cast(Some(from), Some(DType::F32), &text);
                self.rounded(to, single)
            }
            _ if from.is_float() && !to.is_float() => {
                let register = self.register(Some(from));
                self.call(Helper::Saturate(register, to), &[text])
            }
            _ => format!("({}){text}", self.name(to)),
        }
    }

    /// Reinterprets the bits as another type of the same width.
    pub fn bitcast(&mut self, from: Option<DType>, to: Option<DType>, text: &str) -> String {
        let (from, to) = (from.unwrap_or(self.index), to.unwrap_or(self.index));
        if from == to {
            return text.to_string();
        }
        let half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
        let bits = match from {
            DType::F16 | DType::BF16 => call(&self.prelude.bits(from, true), &[text.to_string()]),
            _ => text.to_string(),
        };
        match to {
            DType::F16 | DType::BF16 => {
                let bits = if half(from) { bits } else { format!("({}){bits}", self.name(DType::U16)) };
                call(&self.prelude.bits(to, false), &[bits])
            }
            _ if from.is_float() && !half(from) || to.is_float() => call(self.dialect.bits_as(to), &[bits]),
            _ => format!("({}){bits}", self.name(to)),
        }
    }

    /// Converts an element from its memory representation.
    pub fn convert_loaded(&mut self, dtype: DType, text: String) -> String {
        match dtype {
            DType::Bool => format!("({text} != 0)"),
            DType::F16 | DType::BF16 => call(&self.prelude.bits(dtype, false), &[text]),
            _ => text,
        }
    }

    /// Converts a value to its memory representation.
    pub fn convert_stored(&mut self, dtype: DType, text: &str) -> String {
        match dtype {
            DType::F16 | DType::BF16 => {
                // The conversion rounds anyway, so a preceding rounding is redundant.
                let rounding = if dtype == DType::F16 { Helper::RoundF16 } else { Helper::RoundBF16 };
                let text = text.strip_prefix(&rounding.name()).map_or(text, bare);
                call(&self.prelude.bits(dtype, true), &[text.to_string()])
            }
            _ => bare(text).to_string(),
        }
    }
}

/// Returns the type of an element in memory.
pub(super) fn in_memory(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::U8,
        DType::F16 | DType::BF16 => DType::U16,
        _ => dtype,
    }
}

fn compare_or_select(op: Alu, args: &[String]) -> String {
    match op {
        Alu::Lt => infix("<", args),
        Alu::Le => infix("<=", args),
        Alu::Eq => infix("==", args),
        Alu::Ne => infix("!=", args),
        _ => format!("({} ? {} : {})", args[0], args[1], args[2]),
    }
}

fn infix(sign: &str, args: &[String]) -> String {
    format!("({} {sign} {})", args[0], args[1])
}

fn call(function: &str, args: &[String]) -> String {
    let args: Vec<&str> = args.iter().map(|arg| bare(arg)).collect();
    format!("{function}({})", args.join(", "))
}

/// Returns true if a text is a literal without sign and suffix.
fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if a divisor is a positive literal, for which C's division equals the IR's.
fn is_nonzero(text: &str) -> bool {
    let digits = text.trim_end_matches(['u', 'U', 'L']);
    is_digits(digits) && digits.bytes().any(|digit| digit != b'0')
}

/// Returns a text without enclosing parentheses.
pub(super) fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) else { return text };
    let mut depth = 0i32;
    for byte in inner.bytes() {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        if depth < 0 {
            return text;
        }
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn bare_removes_only_enclosing_parentheses() {
        let cases = [
            ("(a + b)", "a + b"),
            ("(a) + (b)", "(a) + (b)"),
            ("(int)(a)", "(int)(a)"),
            ("f(a)", "f(a)"),
            ("((a))", "(a)"),
        ];
        for (text, expected) in cases {
            assert_eq!(bare(text), expected);
        }
    }
}
