//! Semantics of instructions: from the bits of up to three operands to the bits of the result.

use half::f16;

use super::types::Ty;

/// The function that an instruction computes.
pub type Function = fn(u64, u64, u64) -> u64;

/// The result of operations that the ISA leaves unspecified.
const UNSPECIFIED: u64 = 0xDEAD_BEEF_DEAD_BEEF;

fn s(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

fn of(x: f32) -> u64 {
    u64::from(x.to_bits())
}

macro_rules! by_int {
    ($ty:expr, |$a:ident, $b:ident, $c:ident| $value:expr) => {
        by_int!($ty, |$a, $b, $c| $value, [(S(32), i32, u32), (U(32), u32, u32), (S(64), i64, u64), (U(64), u64, u64)])
    };
    ($ty:expr, |$a:ident, $b:ident, $c:ident| $value:expr, [$(($kind:ident($bits:literal), $int:ident, $word:ident)),*]) => {
        match $ty {
            $(Ty::$kind($bits) => Some((|x, y, z| {
                #[allow(unused_variables)]
                let ($a, $b, $c) = (x as $int, y as $int, z as $int);
                ($value) as $word as u64
            }) as Function),)*
            _ => None,
        }
    };
}

macro_rules! by_float {
    ($ty:expr, |$a:ident, $b:ident, $c:ident| $value:expr) => {
        match $ty {
            Ty::F(32) => Some(
                (|x, y, z| {
                    #[allow(unused_variables)]
                    let ($a, $b, $c) = (s(x), s(y), s(z));
                    of($value)
                }) as Function,
            ),
            Ty::F(64) => Some(
                (|x, y, z| {
                    #[allow(unused_variables)]
                    let ($a, $b, $c) = (d(x), d(y), d(z));
                    ($value).to_bits()
                }) as Function,
            ),
            _ => None,
        }
    };
}

macro_rules! by_bits {
    ($ty:expr, |$a:ident, $b:ident| $value:expr) => {
        match $ty {
            Ty::Pred => Some((|$a, $b, _| ($value) & 1) as Function),
            Ty::B(16) => Some((|$a, $b, _| ($value) & 0xFFFF) as Function),
            Ty::B(32) => Some((|$a, $b, _| ($value) & 0xFFFF_FFFF) as Function),
            Ty::B(64) => Some((|$a, $b, _| $value) as Function),
            _ => None,
        }
    };
}

/// Returns an integer instruction of a type.
pub fn integer(name: &str, ty: Ty) -> Option<Function> {
    match name {
        "add" => by_int!(ty, |a, b, c| a.wrapping_add(b)),
        "sub" => by_int!(ty, |a, b, c| a.wrapping_sub(b)),
        "mul.lo" => by_int!(ty, |a, b, c| a.wrapping_mul(b)),
        "mad.lo" => by_int!(ty, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "div" => by_int!(ty, |a, b, c| a.checked_div(b).unwrap_or(UNSPECIFIED as _)),
        "rem" => by_int!(ty, |a, b, c| a.checked_rem(b).unwrap_or(UNSPECIFIED as _)),
        "min" => by_int!(ty, |a, b, c| a.min(b)),
        "max" => by_int!(ty, |a, b, c| a.max(b)),
        // Amounts beyond the width are clamped to it.
        "shr" => match ty {
            Ty::S(32) => Some(|a, b, _| u64::from((a as i32 >> (b as u32).min(31)) as u32)),
            Ty::U(32) => Some(|a, b, _| u64::from((a as u32).checked_shr(b as u32).unwrap_or(0))),
            Ty::S(64) => Some(|a, b, _| (a as i64 >> (b as u32).min(63)) as u64),
            Ty::U(64) => Some(|a, b, _| a.checked_shr(b as u32).unwrap_or(0)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a bitwise instruction of a type.
pub fn bitwise(name: &str, ty: Ty) -> Option<Function> {
    match (name, ty) {
        ("and", _) => by_bits!(ty, |a, b| a & b),
        ("or", _) => by_bits!(ty, |a, b| a | b),
        ("xor", _) => by_bits!(ty, |a, b| a ^ b),
        ("not", _) => by_bits!(ty, |a, _b| !a),
        ("shl", Ty::B(32)) => Some(|a, b, _| if b as u32 > 31 { 0 } else { u64::from((a as u32) << b) }),
        ("shl", Ty::B(64)) => Some(|a, b, _| if b as u32 > 63 { 0 } else { a << (b as u32) }),
        ("clz", Ty::B(32)) => Some(|a, _, _| u64::from((a as u32).leading_zeros())),
        ("popc", Ty::B(32)) => Some(|a, _, _| u64::from((a as u32).count_ones())),
        ("popc", Ty::B(64)) => Some(|a, _, _| u64::from(a.count_ones())),
        ("clz", Ty::B(64)) => Some(|a, _, _| u64::from(a.leading_zeros())),
        _ => None,
    }
}

/// Returns a floating-point instruction of a type; the names of rounding instructions include the rounding mode.
pub fn float(name: &str, ty: Ty) -> Option<Function> {
    match name {
        "add.rn" => by_float!(ty, |a, b, c| a + b),
        "sub.rn" => by_float!(ty, |a, b, c| a - b),
        "mul.rn" => by_float!(ty, |a, b, c| a * b),
        "div.rn" => by_float!(ty, |a, b, c| a / b),
        "fma.rn" => by_float!(ty, |a, b, c| a.mul_add(b, c)),
        "sqrt.rn" => by_float!(ty, |a, b, c| a.sqrt()),
        "neg" => by_float!(ty, |a, b, c| -a),
        "abs" => by_float!(ty, |a, b, c| a.abs()),
        // If only one operand is NaN, the result is the other one.
        "min" => by_float!(ty, |a, b, c| a.min(b)),
        "max" => by_float!(ty, |a, b, c| a.max(b)),
        _ => None,
    }
}

/// Returns a multiplication of 32-bit integers with a 64-bit result.
pub fn wide(name: &str, ty: Ty) -> Option<Function> {
    match (name, ty) {
        ("mul", Ty::U(32)) => Some(|a, b, _| u64::from(a as u32) * u64::from(b as u32)),
        ("mul", Ty::S(32)) => Some(|a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        ("mad", Ty::U(32)) => Some(|a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c)),
        ("mad", Ty::S(32)) => Some(|a, b, c| (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64),
        _ => None,
    }
}

/// Returns a comparison of two numbers of a type.
pub fn compare(relation: &str, ty: Ty) -> Option<Function> {
    macro_rules! floats {
        (|$a:ident, $b:ident| $value:expr) => {
            match ty {
                Ty::F(32) => Some(
                    (|x, y, _| {
                        let ($a, $b) = (s(x), s(y));
                        u64::from($value)
                    }) as Function,
                ),
                Ty::F(64) => Some(
                    (|x, y, _| {
                        let ($a, $b) = (d(x), d(y));
                        u64::from($value)
                    }) as Function,
                ),
                _ => None,
            }
        };
    }
    if matches!(ty, Ty::F(_)) {
        #[allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons, reason = "the unordered relations")]
        return match relation {
            "eq" => floats!(|a, b| a == b),
            "ne" => floats!(|a, b| a < b || a > b),
            "lt" => floats!(|a, b| a < b),
            "le" => floats!(|a, b| a <= b),
            "gt" => floats!(|a, b| a > b),
            "ge" => floats!(|a, b| a >= b),
            "equ" => floats!(|a, b| !(a < b || a > b)),
            "neu" => floats!(|a, b| a != b),
            "ltu" => floats!(|a, b| !(a >= b)),
            "leu" => floats!(|a, b| !(a > b)),
            "gtu" => floats!(|a, b| !(a <= b)),
            "geu" => floats!(|a, b| !(a < b)),
            "num" => floats!(|a, b| !a.is_nan() && !b.is_nan()),
            "nan" => floats!(|a, b| a.is_nan() || b.is_nan()),
            _ => None,
        };
    }
    let ty = if let Ty::B(bits) = ty { Ty::U(bits) } else { ty };
    match relation {
        "eq" => by_int!(ty, |a, b, c| u8::from(a == b)),
        "ne" => by_int!(ty, |a, b, c| u8::from(a != b)),
        "lt" => by_int!(ty, |a, b, c| u8::from(a < b)),
        "le" => by_int!(ty, |a, b, c| u8::from(a <= b)),
        "gt" => by_int!(ty, |a, b, c| u8::from(a > b)),
        "ge" => by_int!(ty, |a, b, c| u8::from(a >= b)),
        _ => None,
    }
}

/// Returns a conversion, with its rounding mode if it has one.
pub fn convert(to: Ty, from: Ty, rounding: Option<&str>) -> Option<Function> {
    match (to, from, rounding) {
        (Ty::F(16), Ty::F(32), Some("rn")) => Some(|x, _, _| u64::from(f16::from_f32(s(x)).to_bits())),
        (Ty::F(32), Ty::F(16), None) => Some(|x, _, _| of(f16::from_bits(x as u16).to_f32())),
        (Ty::F(32), Ty::F(64), Some("rn")) => Some(|x, _, _| of(d(x) as f32)),
        (Ty::F(64), Ty::F(32), None) => Some(|x, _, _| f64::from(s(x)).to_bits()),
        (Ty::F(a), Ty::F(b), Some(rounding)) if a == b => match rounding {
            "rni" => by_float!(from, |a, b, c| a.round_ties_even()),
            "rzi" => by_float!(from, |a, b, c| a.trunc()),
            "rmi" => by_float!(from, |a, b, c| a.floor()),
            "rpi" => by_float!(from, |a, b, c| a.ceil()),
            _ => None,
        },
        (Ty::F(32), _, Some("rn")) => by_int!(from, |a, b, c| (a as f32).to_bits()),
        (Ty::F(64), _, Some("rn")) => by_int!(
            from,
            |a, b, c| (a as f64).to_bits(),
            [(S(32), i32, u64), (U(32), u32, u64), (S(64), i64, u64), (U(64), u64, u64)]
        ),
        (_, Ty::F(_), Some("rzi")) => truncate(to, from),
        (Ty::S(_) | Ty::U(_), Ty::S(_) | Ty::U(_), None) => integers(to, from),
        _ => None,
    }
}

/// Returns a conversion that truncates and saturates. NaN becomes 0 if neither type has 64 bits, otherwise the highest bit alone.
fn truncate(to: Ty, from: Ty) -> Option<Function> {
    macro_rules! clamped {
        ($x:ident, $int:ident, $word:ident, $nan:expr) => {
            if $x.is_nan() { $nan } else { $x as $int as $word as u64 }
        };
    }
    const HIGHEST_32: u64 = 1 << 31;
    const HIGHEST: u64 = 1 << 63;
    match (to, from) {
        (Ty::S(32), Ty::F(32)) => Some(|x, _, _| {
            let x = s(x);
            clamped!(x, i32, u32, 0)
        }),
        (Ty::U(32), Ty::F(32)) => Some(|x, _, _| {
            let x = s(x);
            clamped!(x, u32, u32, 0)
        }),
        (Ty::S(64), Ty::F(32)) => Some(|x, _, _| {
            let x = s(x);
            clamped!(x, i64, u64, HIGHEST)
        }),
        (Ty::U(64), Ty::F(32)) => Some(|x, _, _| {
            let x = s(x);
            clamped!(x, u64, u64, HIGHEST)
        }),
        (Ty::S(32), Ty::F(64)) => Some(|x, _, _| {
            let x = d(x);
            clamped!(x, i32, u32, HIGHEST_32)
        }),
        (Ty::U(32), Ty::F(64)) => Some(|x, _, _| {
            let x = d(x);
            clamped!(x, u32, u32, HIGHEST_32)
        }),
        (Ty::S(64), Ty::F(64)) => Some(|x, _, _| {
            let x = d(x);
            clamped!(x, i64, u64, HIGHEST)
        }),
        (Ty::U(64), Ty::F(64)) => Some(|x, _, _| {
            let x = d(x);
            clamped!(x, u64, u64, HIGHEST)
        }),
        _ => None,
    }
}

/// Returns a truncation, or an extension according to the source's signedness.
fn integers(to: Ty, from: Ty) -> Option<Function> {
    match (to.bits(), from) {
        (64, Ty::S(32)) => Some(|x, _, _| x as i32 as i64 as u64),
        (64, Ty::U(32)) => Some(|x, _, _| u64::from(x as u32)),
        (64, _) if from.bits() == 64 => Some(|x, _, _| x),
        (32, _) if from.bits() >= 32 => Some(|x, _, _| u64::from(x as u32)),
        (32, Ty::U(16)) => Some(|x, _, _| u64::from(x as u16)),
        (32, Ty::S(16)) => Some(|x, _, _| u64::from(x as i16 as u32)),
        (16, _) if from.bits() >= 16 => Some(|x, _, _| u64::from(x as u16)),
        _ => None,
    }
}

/// Returns the function from the old value and the operands of an atomic instruction to the new value.
pub fn atomic(name: &str, ty: Ty, shared: bool) -> Option<Function> {
    fn flush(x: f32) -> f32 {
        if x.is_subnormal() { 0f32.copysign(x) } else { x }
    }
    match (name, ty) {
        ("add", Ty::F(32)) if shared => Some(|old, x, _| of(s(old) + s(x))),
        // In global memory denormals are flushed.
        ("add", Ty::F(32)) => Some(|old, x, _| of(flush(flush(s(old)) + flush(s(x))))),
        ("exch", Ty::B(32)) => Some(|_, x, _| x & 0xFFFF_FFFF),
        ("cas", Ty::B(32)) => {
            Some(|old, expected, x| if old as u32 == expected as u32 { x & 0xFFFF_FFFF } else { old })
        }
        ("add", Ty::U(32)) | ("min" | "max", Ty::U(32) | Ty::S(32)) => integer(name, ty),
        _ => None,
    }
}
