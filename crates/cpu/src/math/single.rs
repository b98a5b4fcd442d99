//! The functions for `f32`, within 2 ULP.

use panoply_ir::approximate::single::{LN_2_HI, LN_2_LO};

mod atan;
mod erf;
mod exp;
mod log;
mod pow;
mod rem;
mod round;
mod tanh;
mod trig;

pub use atan::atan;
pub use erf::erf;
pub use exp::{exp, exp2, expm1};
pub use log::{ln, log1p, log2};
pub use pow::pow;
pub use rem::{NEAR_QUOTIENT, rem, rem_near};
pub use round::{ceil, floor, fma, round, rsqrt, sqrt, trunc};
pub use tanh::tanh;
pub use trig::{NEAR, cos, cos_near, sin, sin_near, tan, tan_near};

use super::Isa;

/// 3 * 2^22: adding it to a number below 2^22 rounds that to an integer, which then stands in the low bits of the sum.
const SHIFT: f32 = 12_582_912.0;

/// `a * b + c`, with one rounding where that is cheap. For code that is right either way.
#[inline(always)]
fn mad<I: Isa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The polynomial with these coefficients, the lowest first, by Horner's rule.
#[inline(always)]
fn poly<I: Isa, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    let mut n = N - 1;
    while n > 0 {
        n -= 1;
        sum = mad::<I>(sum, x, coefficients[n]);
    }
    sum
}

/// `x` within `low..=high`; NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// The product as a rounded part and the exact rest (Dekker; Veltkamp's split by masking).
#[inline(always)]
fn product_and_rest<I: Isa>(a: f32, b: f32) -> (f32, f32) {
    let product = a * b;
    if I::FUSED {
        return (product, a.mul_add(b, -product));
    }
    let ((a_hi, a_lo), (b_hi, b_lo)) = (halves(a), halves(b));
    (product, ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo)
}

/// `x` as a number of at most 12 significant bits and the exact rest of at most 12.
#[inline(always)]
fn halves(x: f32) -> (f32, f32) {
    let upper = f32::from_bits(x.to_bits() & !((1 << 12) - 1));
    (upper, x - upper)
}

/// The sum of |a| >= |b|, or a = 0, as a rounded part and the exact rest (Dekker).
#[inline(always)]
fn sum_and_rest_ordered(a: f32, b: f32) -> (f32, f32) {
    let sum = a + b;
    (sum, b - (sum - a))
}
