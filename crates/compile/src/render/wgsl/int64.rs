//! Emulates 64-bit integers by pairs of words, low word first, on devices without them; every operation is a helper
//! function.
//!
//! Signed and unsigned integers are both `vec2<u32>`, so a change of sign is free. If an operation depends on the sign,
//! the function's name contains it.

use panoply_ir::{Alu, DType};

use super::super::ops::bare;
use super::expr::Writer;
use super::ops::call;
use super::soft_float::Function;

/// Type of a 64-bit integer.
pub(super) const PAIR: &str = "vec2<u32>";

/// A helper function on pairs. Each can call those declared before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wide {
    Widen,
    Less,
    LessSigned,
    Add,
    Sub,
    Mul,
    Shl,
    Shr,
    ShrSigned,
    Abs,
    CountOnes,
    Divide,
    Div,
    Rem,
    DivSigned,
    RemSigned,
    Min,
    Max,
    MinSigned,
    MaxSigned,
    FromFloat,
    FromFloatSigned,
    ToFloat,
    ToFloatSigned,
}

impl Wide {
    pub fn name(self) -> &'static str {
        match self {
            Wide::Widen => "pair_from_i32",
            Wide::Less => "pair_less",
            Wide::LessSigned => "pair_less_signed",
            Wide::Add => "pair_add",
            Wide::Sub => "pair_sub",
            Wide::Mul => "pair_mul",
            Wide::Shl => "pair_shl",
            Wide::Shr => "pair_shr",
            Wide::ShrSigned => "pair_shr_signed",
            Wide::Abs => "pair_abs",
            Wide::CountOnes => "pair_count_ones",
            Wide::Divide => "pair_divide",
            Wide::Div => "pair_div",
            Wide::Rem => "pair_rem",
            Wide::DivSigned => "pair_div_signed",
            Wide::RemSigned => "pair_rem_signed",
            Wide::Min => "pair_min",
            Wide::Max => "pair_max",
            Wide::MinSigned => "pair_min_signed",
            Wide::MaxSigned => "pair_max_signed",
            Wide::FromFloat => "pair_from_f32",
            Wide::FromFloatSigned => "pair_from_f32_signed",
            Wide::ToFloat => "f32_from_pair",
            Wide::ToFloatSigned => "f32_from_pair_signed",
        }
    }

    /// Returns the helpers that this function calls.
    pub fn needs(self) -> &'static [Wide] {
        match self {
            Wide::Widen | Wide::Less | Wide::LessSigned | Wide::Add | Wide::Sub | Wide::Mul => &[],
            Wide::CountOnes | Wide::Shl | Wide::Shr | Wide::ShrSigned => &[],
            Wide::Abs => &[Wide::Sub],
            Wide::Divide => &[Wide::Less, Wide::Sub],
            Wide::Div | Wide::Rem => &[Wide::Divide],
            Wide::DivSigned | Wide::RemSigned => &[Wide::Abs, Wide::Divide],
            Wide::Min | Wide::Max => &[Wide::Less],
            Wide::MinSigned | Wide::MaxSigned => &[Wide::LessSigned],
            Wide::FromFloat | Wide::ToFloat => &[Wide::Shl],
            Wide::FromFloatSigned => &[Wide::FromFloat, Wide::Sub],
            Wide::ToFloatSigned => &[Wide::Abs, Wide::ToFloat],
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Wide::Widen => {
                "fn pair_from_i32(x: i32) -> vec2<u32> { return bitcast<vec2<u32>>(vec2<i32>(x, x >> 31u)); }\n"
            }
            Wide::Less => {
                "fn pair_less(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.y < b.y) || ((a.y == b.y) && (a.x < b.x)); }\n"
            }
            Wide::LessSigned => {
                "fn pair_less_signed(a: vec2<u32>, b: vec2<u32>) -> bool {\n    \
                 return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) || ((a.y == b.y) && (a.x < b.x));\n}\n"
            }
            Wide::Add => {
                "fn pair_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n    \
                 let low = a.x + b.x;\n    return vec2<u32>(low, a.y + b.y + u32(low < a.x));\n}\n"
            }
            Wide::Sub => {
                "fn pair_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x)); }\n"
            }
            Wide::Mul => MUL,
            Wide::Shl => SHL,
            Wide::Shr => SHR,
            Wide::ShrSigned => SHR_SIGNED,
            Wide::Abs => {
                "fn pair_abs(a: vec2<u32>) -> vec2<u32> { return select(a, pair_sub(vec2<u32>(), a), a.y > 0x7fffffffu); }\n"
            }
            Wide::CountOnes => {
                "fn pair_count_ones(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(countOneBits(a.x) + countOneBits(a.y), 0u); }\n"
            }
            Wide::Divide => DIVIDE,
            Wide::Div => "fn pair_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return pair_divide(a, b).xy; }\n",
            Wide::Rem => "fn pair_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return pair_divide(a, b).zw; }\n",
            Wide::DivSigned => {
                "fn pair_div_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n    \
                 let q = pair_divide(pair_abs(a), pair_abs(b)).xy;\n    \
                 return select(q, pair_sub(vec2<u32>(), q), (a.y ^ b.y) > 0x7fffffffu);\n}\n"
            }
            Wide::RemSigned => {
                "fn pair_rem_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n    \
                 let r = pair_divide(pair_abs(a), pair_abs(b)).zw;\n    \
                 return select(r, pair_sub(vec2<u32>(), r), a.y > 0x7fffffffu);\n}\n"
            }
            Wide::Min => {
                "fn pair_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less(b, a)); }\n"
            }
            Wide::Max => {
                "fn pair_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less(a, b)); }\n"
            }
            Wide::MinSigned => {
                "fn pair_min_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less_signed(b, a)); }\n"
            }
            Wide::MaxSigned => {
                "fn pair_max_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less_signed(a, b)); }\n"
            }
            Wide::FromFloat => FROM_FLOAT,
            Wide::FromFloatSigned => FROM_FLOAT_SIGNED,
            Wide::ToFloat => TO_FLOAT,
            Wide::ToFloatSigned => {
                "fn f32_from_pair_signed(a: vec2<u32>) -> f32 {\n    \
                 let size = f32_from_pair(pair_abs(a));\n    return select(size, -size, a.y > 0x7fffffffu);\n}\n"
            }
        }
    }
}

impl Writer<'_> {
    /// Returns true if values of a register are emulated by pairs of words.
    pub fn is_pair(&self, register: DType) -> bool {
        !self.int64 && matches!(register, DType::I64 | DType::U64)
    }

    fn wide(&mut self, function: Wide, args: &[String]) -> String {
        self.soft(Function::Wide(function), args)
    }

    /// Renders an operation on 64-bit integers, whose sign is given by `dtype`.
    pub fn wide_alu(&mut self, op: Alu, dtype: DType, args: &[String]) -> String {
        let by_sign = |plain: Wide, signed: Wide| if dtype.is_signed() { signed } else { plain };
        let swapped = || [args[1].clone(), args[0].clone()];
        let less = by_sign(Wide::Less, Wide::LessSigned);
        match op {
            Alu::Lt => self.wide(less, args),
            Alu::Le => format!("(!{})", self.wide(less, &swapped())),
            Alu::Eq => format!("all({} == {})", args[0], args[1]),
            Alu::Ne => format!("any({} != {})", args[0], args[1]),
            Alu::Neg => self.wide(Wide::Sub, &["vec2<u32>()".to_string(), args[0].clone()]),
            Alu::Not => format!("(~{})", args[0]),
            Alu::Abs if dtype.is_signed() => self.wide(Wide::Abs, args),
            Alu::Abs => args[0].clone(),
            Alu::PopCount => self.wide(Wide::CountOnes, args),
            Alu::Add => self.wide(Wide::Add, args),
            Alu::Sub => self.wide(Wide::Sub, args),
            Alu::Mul => self.wide(Wide::Mul, args),
            Alu::Div => self.wide(by_sign(Wide::Div, Wide::DivSigned), args),
            Alu::Rem => self.wide(by_sign(Wide::Rem, Wide::RemSigned), args),
            Alu::Min => self.wide(by_sign(Wide::Min, Wide::MinSigned), args),
            Alu::Max => self.wide(by_sign(Wide::Max, Wide::MaxSigned), args),
            Alu::And => format!("({} & {})", args[0], args[1]),
            Alu::Or => format!("({} | {})", args[0], args[1]),
            Alu::Xor => format!("({} ^ {})", args[0], args[1]),
            Alu::Shl => self.wide(Wide::Shl, args),
            Alu::Shr => self.wide(by_sign(Wide::Shr, Wide::ShrSigned), args),
            _ => unreachable!("{} of {dtype}", op.name()),
        }
    }

    /// Converts to or from a 64-bit integer; `from` and `to` are register types.
    pub fn wide_cast(&mut self, from: DType, to: DType, text: &str) -> String {
        let args = [text.to_string()];
        match (from, to) {
            (DType::I64 | DType::U64, DType::I64 | DType::U64) => text.to_string(),
            (DType::U32, _) => format!("vec2<u32>({}, 0u)", bare(text)),
            (DType::I32, _) => self.wide(Wide::Widen, &args),
            (DType::F32, DType::I64) => self.wide(Wide::FromFloatSigned, &args),
            (DType::F32, _) => self.wide(Wide::FromFloat, &args),
            (DType::I64, DType::F32) => self.wide(Wide::ToFloatSigned, &args),
            (_, DType::F32) => self.wide(Wide::ToFloat, &args),
            (_, DType::I32) => call("bitcast<i32>", &[format!("{text}.x")]),
            (_, DType::U32) => format!("{text}.x"),
            (_, DType::Bool) => format!("any({text} != vec2<u32>())"),
            _ => unreachable!("{from} to {to}"),
        }
    }
}

/// Multiplies half words, because the language has no instruction for the high half of a product of words.
const MUL: &str = "\
fn pair_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = (a.x & 0xffffu) * (b.x & 0xffffu);
    let middle = (a.x >> 16u) * (b.x & 0xffffu) + (low >> 16u);
    let other = (a.x & 0xffffu) * (b.x >> 16u) + (middle & 0xffffu);
    let high = (a.x >> 16u) * (b.x >> 16u) + (middle >> 16u) + (other >> 16u);
    return vec2<u32>((other << 16u) | (low & 0xffffu), high + a.x * b.y + a.y * b.x);
}
";

/// Bits that move between words are shifted in two steps, because a shift by the width of a word is not allowed.
const SHL: &str = "\
fn pair_shl(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let n = amount.x & 31u;
    let low = a.x << n;
    return select(vec2<u32>(low, (a.y << n) | ((a.x >> 1u) >> (31u - n))), vec2<u32>(0u, low), (amount.x & 32u) != 0u);
}
";

const SHR: &str = "\
fn pair_shr(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let n = amount.x & 31u;
    let high = a.y >> n;
    return select(vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), high), vec2<u32>(high, 0u), (amount.x & 32u) != 0u);
}
";

const SHR_SIGNED: &str = "\
fn pair_shr_signed(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let n = amount.x & 31u;
    let high = bitcast<u32>(bitcast<i32>(a.y) >> n);
    let sign = bitcast<u32>(bitcast<i32>(a.y) >> 31u);
    return select(vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), high), vec2<u32>(high, sign), (amount.x & 32u) != 0u);
}
";

/// Computes quotient and remainder bit by bit; division by zero gives 0 and the dividend.
const DIVIDE: &str = "\
fn pair_divide(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    if (b.x | b.y) == 0u { return vec4<u32>(0u, 0u, a); }
    var q = a;
    var r = vec2<u32>();
    for (var i = 0; i < 64; i = i + 1) {
        let beyond = r.y > 0x7fffffffu;
        r = vec2<u32>((r.x << 1u) | (q.y >> 31u), (r.y << 1u) | (r.x >> 31u));
        q = vec2<u32>(q.x << 1u, (q.y << 1u) | (q.x >> 31u));
        if beyond || !pair_less(r, b) {
            r = pair_sub(r, b);
            q.x = q.x | 1u;
        }
    }
    return vec4<u32>(q, r);
}
";

const FROM_FLOAT: &str = "\
fn pair_from_f32(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    // Below one, negative, or no number.
    if (bits < 0x3f800000u) || (bits > 0x7f800000u) { return vec2<u32>(); }
    if bits >= 0x5f800000u { return vec2<u32>(0xffffffffu, 0xffffffffu); }
    let places = bits >> 23u;
    let digits = (bits & 0x7fffffu) | 0x800000u;
    if places < 150u { return vec2<u32>(digits >> (150u - places), 0u); }
    return pair_shl(vec2<u32>(digits, 0u), vec2<u32>(places - 150u, 0u));
}
";

const FROM_FLOAT_SIGNED: &str = "\
fn pair_from_f32_signed(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u { return vec2<u32>(); }
    let negative = bits > 0x7fffffffu;
    if size >= 0x5f000000u { return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative); }
    let whole = pair_from_f32(bitcast<f32>(size));
    return select(whole, pair_sub(vec2<u32>(), whole), negative);
}
";

/// Rounds to nearest, ties to even, depending on the discarded bits.
const TO_FLOAT: &str = "\
fn f32_from_pair(a: vec2<u32>) -> f32 {
    if (a.x | a.y) == 0u { return 0.0f; }
    let lead = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
    let n = pair_shl(a, vec2<u32>(lead, 0u));
    let lost = n.y & 0xffu;
    let up = (lost > 0x80u) || ((lost == 0x80u) && ((n.x != 0u) || ((n.y & 0x100u) != 0u)));
    return bitcast<f32>(((189u - lead) << 23u) + (n.y >> 8u) + u32(up));
}
";
