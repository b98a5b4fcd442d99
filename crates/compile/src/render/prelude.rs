//! Helper functions for operations without an equivalent C expression, included only when a kernel needs them.
//!
//! They take their operands by value, so an operand's text never appears twice. The sources are templates over the
//! dialect: `$fn` expands to the function qualifiers, `$u32` to a type's name, `$as_f32` to the function that
//! reinterprets bits.

use std::collections::BTreeSet;

use panoply_ir::kernel::Space;
use panoply_ir::{DType, Scalar};

use super::c_dialect::CDialect;
use super::literal::literal;

/// A helper function. Each can call those declared before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Helper {
    /// Minimum of two integers, or of two floats with NaN propagation.
    Min(DType),
    /// Maximum, likewise.
    Max(DType),
    /// Absolute value of a signed integer; wraps.
    Abs(DType),
    /// Quotient of two integers, defined for every divisor.
    Div(DType),
    /// Remainder, likewise.
    Rem(DType),
    /// Conversion of f32 or f64 to an integer: truncates, saturates, maps NaN to 0.
    Saturate(DType, DType),
    /// Both conversions between f16 bits and f32.
    F16,
    /// Rounding of f32 to f16, as f32.
    RoundF16,
    /// Both conversions between bf16 bits and f32.
    BF16,
    /// Rounding of f32 to bf16, as f32.
    RoundBF16,
    /// Atomic addition of f32 in buffer (false) or shared memory (true).
    AtomicAddF32(bool),
}

/// The helper functions that a program needs.
pub(super) struct Prelude {
    dialect: &'static CDialect,
    native_f16: bool,
    needed: BTreeSet<Helper>,
}

impl Prelude {
    pub fn new(dialect: &'static CDialect, native_f16: bool) -> Prelude {
        Prelude { dialect, native_f16, needed: BTreeSet::new() }
    }

    /// Requests a function and returns its name.
    pub fn call(&mut self, helper: Helper) -> String {
        self.needed.insert(helper);
        match helper {
            Helper::RoundF16 => drop(self.needed.insert(Helper::F16)),
            Helper::RoundBF16 => drop(self.needed.insert(Helper::BF16)),
            _ => {}
        }
        helper.name()
    }

    /// Requests the conversions of a 16-bit float and returns the name of one, such as `f16_from_bits` or `f16_bits`.
    pub fn bits(&mut self, dtype: DType, to_bits: bool) -> String {
        self.needed.insert(if dtype == DType::F16 { Helper::F16 } else { Helper::BF16 });
        format!("{dtype}_{}", if to_bits { "bits" } else { "from_bits" })
    }

    /// Returns the text of all requested functions.
    pub fn source(&self) -> String {
        self.needed.iter().map(|helper| self.expand(&helper.template(self.dialect, self.native_f16))).collect()
    }

    /// Substitutes the dialect's spellings in a template.
    fn expand(&self, template: &str) -> String {
        let mut text = String::with_capacity(template.len());
        let mut parts = template.split('$');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
            let (word, rest) = part.split_at(end);
            text.push_str(match word.strip_prefix("as_") {
                _ if word == "fn" => self.dialect.function,
                _ if word == "global" => self.dialect.global,
                _ if word == "shared" => self.dialect.shared,
                Some(name) => self.dialect.bits_as(dtype(name)),
                None => self.dialect.type_name(dtype(word)),
            });
            text.push_str(rest);
        }
        text
    }
}

fn dtype(name: &str) -> DType {
    DType::from_name(name).expect("templates contain only names of element types")
}

/// Returns the helper for atomic f32 addition in this memory space.
pub(super) fn atomic_add_f32(space: Space) -> Helper {
    match space {
        Space::Buffer(_) => Helper::AtomicAddF32(false),
        Space::Shared(_) => Helper::AtomicAddF32(true),
        Space::Private(_) => unreachable!("the verifier permits atomics only on buffers and shared arrays"),
    }
}

impl Helper {
    /// Returns the function's name.
    pub fn name(self) -> String {
        match self {
            Helper::Min(dtype) => format!("min_{dtype}"),
            Helper::Max(dtype) => format!("max_{dtype}"),
            Helper::Div(dtype) => format!("div_{dtype}"),
            Helper::Rem(dtype) => format!("rem_{dtype}"),
            Helper::Saturate(from, to) => format!("{to}_from_{from}"),
            Helper::Abs(dtype) => format!("abs_{dtype}"),
            Helper::F16 | Helper::BF16 => unreachable!("these are two functions, see `bits`"),
            Helper::RoundF16 => "round_f16".into(),
            Helper::RoundBF16 => "round_bf16".into(),
            Helper::AtomicAddF32(false) => "atomic_add_f32".into(),
            Helper::AtomicAddF32(true) => "atomic_add_f32_shared".into(),
        }
    }

    fn template(self, dialect: &CDialect, native_f16: bool) -> String {
        let name = match self {
            Helper::F16 => return (dialect.f16)(native_f16).to_string(),
            Helper::BF16 => return BF16.to_string(),
            _ => self.name(),
        };
        match self {
            Helper::Min(t) | Helper::Max(t) => {
                let sign = if matches!(self, Helper::Min(_)) { "<" } else { ">" };
                let nan = if t.is_float() { "a != a || " } else { "" };
                format!("$fn${t} {name}(${t} a, ${t} b) {{ return {nan}a {sign} b ? a : b; }}\n")
            }
            Helper::Abs(t) => {
                format!("$fn${t} {name}(${t} a) {{ return a < 0 ? (${t})(0 - (${})a) : a; }}\n", unsigned(t))
            }
            Helper::Div(t) => division(t, &name, "/", "0"),
            Helper::Rem(t) => division(t, &name, "%", "a"),
            Helper::Saturate(from, to) => saturate(dialect, from, to, &name),
            Helper::RoundF16 => "$fn$f32 round_f16($f32 x) { return f16_from_bits(f16_bits(x)); }\n".to_string(),
            Helper::RoundBF16 => "$fn$f32 round_bf16($f32 x) { return bf16_from_bits(bf16_bits(x)); }\n".to_string(),
            Helper::AtomicAddF32(shared) => {
                ATOMIC_ADD_F32.replace("NAME", &name).replace("SPACE", if shared { "$shared" } else { "$global" })
            }
            Helper::F16 | Helper::BF16 => unreachable!("returned above"),
        }
    }
}

/// Returns the text of integer division without a branch: a divisor that would trap is replaced, and then the result.
fn division(t: DType, name: &str, sign: &str, by_zero: &str) -> String {
    let by_minus_one = match sign {
        "/" => format!("(${t})(0 - (${})a)", unsigned(t)),
        _ => "0".to_string(),
    };
    if t.is_signed() {
        format!(
            "$fn${t} {name}(${t} a, ${t} b) {{\n    const ${t} d = b == 0 || b == -1 ? 1 : b;\n    \
             return b == 0 ? {by_zero} : b == -1 ? {by_minus_one} : (${t})(a {sign} d);\n}}\n"
        )
    } else {
        format!("$fn${t} {name}(${t} a, ${t} b) {{ return b == 0 ? {by_zero} : (${t})(a {sign} (b == 0 ? 1 : b)); }}\n")
    }
}

/// Returns the unsigned type in which integers of a type are computed: at least 32 bits, because C would promote
/// anyway.
pub(super) fn unsigned(dtype: DType) -> DType {
    if dtype.bytes() == 8 { DType::U64 } else { DType::U32 }
}

/// Returns the text of a saturating conversion. The bounds are powers of two, so they are exact in either float type.
fn saturate(dialect: &CDialect, from: DType, to: DType, name: &str) -> String {
    let bits = to.bits() - u32::from(to.is_signed());
    let above = literal(dialect, Scalar::from_f64(from, 2f64.powi(bits as i32)));
    let most = literal(dialect, Scalar::from_i128(to, (1 << bits) - 1));
    let below = if to.is_signed() {
        format!("x <= -{above} ? {} : x != x ? 0", literal(dialect, Scalar::from_i128(to, -(1 << bits))))
    } else {
        "!(x > 0) ? 0".to_string()
    };
    format!("$fn${to} {name}(${from} x) {{ return x >= {above} ? {most} : {below} : (${to})x; }}\n")
}

const BF16: &str = "\
$fn$f32 bf16_from_bits($u16 bits) { return $as_f32(($u32)bits << 16); }
$fn$u16 bf16_bits($f32 x) {
    const $u32 u = $as_u32(x);
    return x != x ? (u >> 16) | 64 : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
";

const ATOMIC_ADD_F32: &str = "\
$fn$f32 NAME(volatile SPACE$f32 *p, $f32 x) {
    volatile SPACE$u32 *bits = (volatile SPACE$u32 *)p;
    $u32 seen = *bits;
    for (;;) {
        const $u32 old = atomic_cmpxchg(bits, seen, $as_u32($as_f32(seen) + x));
        if (old == seen) return $as_f32(old);
        seen = old;
    }
}
";
