//! The exact remainder: long division, 29 bits of the quotient at a time.

use crate::math::{MathIsa, double};

/// Quotient below which `rem_near` equals `rem` bit for bit.
pub const NEAR_QUOTIENT: f32 = 268_435_456.0;

/// Returns the remainder of x / y with the sign of x, as C's `fmod`. Exact.
#[inline(always)]
pub fn rem<I: MathIsa>(x: f32, y: f32) -> f32 {
    rem_of::<I, true>(x, y)
}

/// Same as `rem`, for |x| <= [`NEAR_QUOTIENT`] * |y| only; faster.
#[inline(always)]
pub fn rem_near<I: MathIsa>(x: f32, y: f32) -> f32 {
    rem_of::<I, false>(x, y)
}

#[inline(always)]
fn rem_of<I: MathIsa, const FAR: bool>(x: f32, y: f32) -> f32 {
    let (a, b) = (x.abs() as f64, y.abs() as f64);
    let inverse = 1.0 / b;
    // 2^277 is the largest possible quotient.
    let mut rest = a;
    for digit in (0..if FAR { 10 } else { 1 }).rev() {
        rest = take::<I>(rest, b * power(29 * digit), inverse * power(-29 * digit));
    }
    let rest = if b < f64::INFINITY { rest } else { a };
    let defined = b > 0.0 && a < f64::INFINITY;
    (if defined { rest as f32 } else { f32::NAN }).copysign(x)
}

/// Returns `rest` modulo `unit`. Both are multiples of the same unit in the last place of a 24-bit divisor, and the
/// quotient is below 2^29, so that the product and the difference are exact.
#[inline(always)]
fn take<I: MathIsa>(rest: f64, unit: f64, inverse: f64) -> f64 {
    let count = double::round::<I>(rest * inverse);
    let left = double::mad::<I>(-count, unit, rest);
    // Rounding makes the quotient exact or one too large; an error of the quotient only occurs where both are acceptable.
    if left < 0.0 { left + unit } else { left }
}

/// Returns 2^n.
#[inline(always)]
fn power(n: i64) -> f64 {
    f64::from_bits(((1023 + n) as u64) << 52)
}
