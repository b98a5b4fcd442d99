//! The functions for `f32`, accurate to 2 ULP.

use panoply_ir::polynomials::single::{LN_2_HI, LN_2_LO};

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

use super::MathIsa;

/// 3 * 2^22: adding it to a number below 2^22 rounds that number to an integer, in the low bits of the sum.
const SHIFT: f32 = 12_582_912.0;

/// The sign bit.
const SIGN: u32 = 1 << 31;

/// Returns `a * b + c`, with one rounding if the machine has fused multiply-add. Only for code that is correct either way.
#[inline(always)]
fn mad<I: MathIsa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Evaluates a polynomial by Horner's rule; coefficients start with the lowest degree.
#[inline(always)]
fn poly<I: MathIsa, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    let mut n = N - 1;
    while n > 0 {
        n -= 1;
        sum = mad::<I>(sum, x, coefficients[n]);
    }
    sum
}

/// Clamps `x` to `low..=high`; NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

super::power::rests!(f32, 12);
