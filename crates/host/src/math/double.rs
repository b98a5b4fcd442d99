//! The functions for `f64`, accurate to 4 ULP.

use panoply_ir::polynomials::double::{LN_2_HI, LN_2_LO};

mod atan;
mod erf;
mod exp;
mod log;
mod pow;
mod round;
mod tanh;
mod trig;

pub use atan::atan;
pub use erf::erf;
pub use exp::{exp, exp2, expm1};
pub use log::{ln, log1p, log2};
pub use pow::pow;
pub use round::{ceil, floor, fma, rem, round, rsqrt, sqrt, trunc};
pub use tanh::tanh;
pub use trig::{NEAR, cos, cos_near, sin, sin_near, tan, tan_near};

use super::MathIsa;

/// 3 * 2^51: adding it to a number below 2^51 rounds that number to an integer, in the low bits of the sum.
pub(super) const SHIFT: f64 = 6_755_399_441_055_744.0;

/// The sign bit.
const SIGN: u64 = 1 << 63;

/// Returns `a * b + c`, with one rounding if the machine has fused multiply-add. Only for code that is correct either way.
#[inline(always)]
pub(super) fn mad<I: MathIsa>(a: f64, b: f64, c: f64) -> f64 {
    if I::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Evaluates a polynomial by Horner's rule; coefficients start with the lowest degree.
#[inline(always)]
pub(super) fn poly<I: MathIsa, const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
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
pub(super) fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// Returns `e` and `m` with `x = 2^e m` and m within sqrt(1/2)..sqrt(2), for normal positive x.
#[inline(always)]
pub(super) fn split_normal(x: f64) -> (f64, f64) {
    const ONE: u64 = 1f64.to_bits();
    const SQRT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let bits = x.to_bits().wrapping_add(ONE - SQRT_HALF);
    // The biased exponent is converted to a number by placing it in the low bits of 2^52: few machines convert 64-bit integers.
    const UNIT: f64 = 4_503_599_627_370_496.0;
    let e = f64::from_bits((bits >> 52) | UNIT.to_bits()) - (UNIT + 1023.0);
    let m = f64::from_bits((bits & ((1 << 52) - 1)).wrapping_add(SQRT_HALF));
    (e, m)
}

/// Same as `split_normal`, also for denormals.
#[inline(always)]
fn split(x: f64) -> (f64, f64) {
    const UP: f64 = 18_014_398_509_481_984.0;
    let denormal = x < f64::MIN_POSITIVE;
    let (e, m) = split_normal(if denormal { x * UP } else { x });
    (if denormal { e - 54.0 } else { e }, m)
}

super::power::rests!(f64, 27);

/// Returns the rounded sum and its exact error (Knuth).
#[inline(always)]
fn sum_and_rest(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}
