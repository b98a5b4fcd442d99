//! Scalar arithmetic: the reference semantics of every operation on elements.
//!
//! Integers wrap to their width. f32 and f64 follow IEEE 754. f16 and bf16 are storage formats: their arithmetic, including `fma` and
//! conversions, is that of f32, rounded to nearest even after each operation. For `+ - * /` and square root this equals rounding once.
//! Transcendental functions of types other than f64 are computed in f64 and rounded.

use half::{bf16, f16};

use crate::alu::{Alu, Math};
use crate::dtype::{DType, Scalar};

/// Applies an operation to operands of types for which it is defined. An index is a `u64`.
///
/// # Panics
/// Panics if the operation is not defined for the types.
pub fn alu(op: Alu, operands: &[Scalar]) -> Scalar {
    let x = operands[0];
    match (op, operands) {
        (Alu::Select, [condition, a, b]) => {
            if condition.is_true() {
                *a
            } else {
                *b
            }
        }
        (Alu::Fma, [a, b, c]) => fma(*a, *b, *c),
        (_, [_]) if x.dtype == DType::F64 => f64_unary(op, f64::from_bits(x.bits)).into(),
        (_, [_]) if x.dtype.is_float() => float_unary(op, x),
        (_, [_]) => int_unary(op, x),
        (_, [_, y]) if op.is_comparison() => compare(op, x, *y).into(),
        (_, [_, y]) if x.dtype == DType::F64 => f64_binary(op, f64::from_bits(x.bits), f64::from_bits(y.bits)).into(),
        (_, [_, y]) if x.dtype.is_float() => round(x.dtype, f32_binary(op, single(x), single(*y))),
        (_, [_, y]) => int_binary(op, x, *y),
        _ => undefined(op, x.dtype),
    }
}

/// Converts a value to another type as Rust's `as` does, rounded once to nearest.
pub fn cast(to: DType, value: Scalar) -> Scalar {
    let from = value.dtype;
    if to == from {
        return value;
    }
    if to == DType::Bool {
        let zero = if from.is_float() { value.to_f64() == 0.0 } else { value.bits == 0 };
        return (!zero).into();
    }
    match (from.is_float(), to.is_float()) {
        (false, _) => Scalar::from_i128(to, value.to_i128()),
        (true, true) if from != DType::F64 && to != DType::F64 => round(to, single(value)),
        (true, _) => Scalar::from_f64(to, value.to_f64()),
    }
}

/// Returns true if a conversion through f32 would round twice.
pub fn rounds_twice(from: DType, to: DType) -> bool {
    // An integer that f32 cannot represent exactly is infinite in f16.
    let inexact = matches!(from, DType::I32 | DType::I64 | DType::U32 | DType::U64);
    to == DType::F16 && from == DType::F64 || to == DType::BF16 && (from == DType::F64 || inexact)
}

/// Reinterprets the bits as another type of the same width.
pub fn bitcast(to: DType, value: Scalar) -> Scalar {
    Scalar { dtype: to, bits: value.bits }
}

fn undefined(op: Alu, dtype: DType) -> ! {
    panic!("{} of {dtype} reached the interpreter, although the verifier rejects it", op.name())
}

/// Converts an f16, bf16 or f32 to f32.
fn single(value: Scalar) -> f32 {
    match value.dtype {
        DType::F16 => f16::from_bits(value.bits as u16).to_f32(),
        DType::BF16 => bf16::from_bits(value.bits as u16).to_f32(),
        _ => f32::from_bits(value.bits as u32),
    }
}

/// Rounds an f32 to f16, bf16 or f32.
fn round(dtype: DType, value: f32) -> Scalar {
    match dtype {
        DType::F16 => f16::from_f32(value).into(),
        DType::BF16 => bf16::from_f32(value).into(),
        _ => value.into(),
    }
}

fn fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    match a.dtype {
        DType::F64 => f64::from_bits(a.bits).mul_add(f64::from_bits(b.bits), f64::from_bits(c.bits)).into(),
        dtype => round(dtype, single(a).mul_add(single(b), single(c))),
    }
}

fn compare(op: Alu, x: Scalar, y: Scalar) -> bool {
    use std::cmp::Ordering::*;
    let order =
        if x.dtype.is_float() { x.to_f64().partial_cmp(&y.to_f64()) } else { Some(x.to_i128().cmp(&y.to_i128())) };
    match op {
        Alu::Lt => order == Some(Less),
        Alu::Le => matches!(order, Some(Less | Equal)),
        Alu::Eq => order == Some(Equal),
        Alu::Ne => order != Some(Equal),
        _ => undefined(op, x.dtype),
    }
}

fn int_unary(op: Alu, x: Scalar) -> Scalar {
    let value = x.to_i128();
    let result = match op {
        Alu::Neg => -value,
        Alu::Not if x.dtype == DType::Bool => i128::from(value == 0),
        Alu::Not => !value,
        Alu::Abs => value.abs(),
        Alu::PopCount => x.bits.count_ones().into(),
        _ => undefined(op, x.dtype),
    };
    Scalar::from_i128(x.dtype, result)
}

fn int_binary(op: Alu, x: Scalar, y: Scalar) -> Scalar {
    let (a, b) = (x.to_i128(), y.to_i128());
    let places = (y.bits % x.dtype.bits() as u64) as u32;
    let result = match op {
        Alu::Add => a + b,
        Alu::Sub => a - b,
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => {
            if b == 0 {
                0
            } else {
                a / b
            }
        }
        Alu::Rem => {
            if b == 0 {
                a
            } else {
                a % b
            }
        }
        Alu::Min => a.min(b),
        Alu::Max => a.max(b),
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Shl => a << places,
        Alu::Shr => a >> places,
        _ => undefined(op, x.dtype),
    };
    Scalar::from_i128(x.dtype, result)
}

/// Returns the result of operations that only change the sign bit, for every float type.
fn sign_only(op: Alu, x: Scalar) -> Option<Scalar> {
    let sign = 1 << (x.dtype.bits() - 1);
    match op {
        Alu::Neg => Some(Scalar { dtype: x.dtype, bits: x.bits ^ sign }),
        Alu::Abs => Some(Scalar { dtype: x.dtype, bits: x.bits & !sign }),
        _ => None,
    }
}

/// Unary operations of f16, bf16 and f32.
fn float_unary(op: Alu, x: Scalar) -> Scalar {
    if let Some(result) = sign_only(op, x) {
        return result;
    }
    let value = single(x);
    let result = match op {
        Alu::Sqrt => value.sqrt(),
        Alu::Floor => value.floor(),
        Alu::Ceil => value.ceil(),
        Alu::Round => value.round_ties_even(),
        Alu::Trunc => value.trunc(),
        _ => f64_unary(op, value as f64) as f32,
    };
    round(x.dtype, result)
}

fn f64_unary(op: Alu, x: f64) -> f64 {
    match op {
        Alu::Neg => -x,
        Alu::Abs => x.abs(),
        Alu::Math(Math::Exp) => libm::exp(x),
        Alu::Math(Math::Exp2) => libm::exp2(x),
        Alu::Math(Math::Log) => libm::log(x),
        Alu::Math(Math::Log2) => libm::log2(x),
        Alu::Math(Math::Log1p) => libm::log1p(x),
        Alu::Math(Math::Expm1) => libm::expm1(x),
        Alu::Math(Math::Sin) => libm::sin(x),
        Alu::Math(Math::Cos) => libm::cos(x),
        Alu::Math(Math::Tan) => libm::tan(x),
        Alu::Math(Math::Atan) => libm::atan(x),
        Alu::Math(Math::Tanh) => libm::tanh(x),
        Alu::Math(Math::Erf) => libm::erf(x),
        Alu::Sqrt => x.sqrt(),
        Alu::Floor => x.floor(),
        Alu::Ceil => x.ceil(),
        Alu::Round => x.round_ties_even(),
        Alu::Trunc => x.trunc(),
        _ => undefined(op, DType::F64),
    }
}

fn f32_binary(op: Alu, x: f32, y: f32) -> f32 {
    match op {
        Alu::Add => x + y,
        Alu::Sub => x - y,
        Alu::Mul => x * y,
        Alu::Div => x / y,
        Alu::Rem => x % y,
        Alu::Min => {
            if x < y || x.is_nan() {
                x
            } else {
                y
            }
        }
        Alu::Max => {
            if x > y || x.is_nan() {
                x
            } else {
                y
            }
        }
        Alu::Pow => libm::pow(x as f64, y as f64) as f32,
        _ => undefined(op, DType::F32),
    }
}

fn f64_binary(op: Alu, x: f64, y: f64) -> f64 {
    match op {
        Alu::Add => x + y,
        Alu::Sub => x - y,
        Alu::Mul => x * y,
        Alu::Div => x / y,
        Alu::Rem => x % y,
        Alu::Min => {
            if x < y || x.is_nan() {
                x
            } else {
                y
            }
        }
        Alu::Max => {
            if x > y || x.is_nan() {
                x
            } else {
                y
            }
        }
        Alu::Pow => libm::pow(x, y),
        _ => undefined(op, DType::F64),
    }
}
