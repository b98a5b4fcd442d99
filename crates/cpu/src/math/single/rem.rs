//! The exact remainder: long division, 29 bits of the quotient at a time.

use crate::math::{Isa, double};

/// Where the quotient is below this `rem_near` gives, bit for bit, what `rem` gives.
pub const NEAR_QUOTIENT: f32 = 268_435_456.0;

/// What is left of x after taking away y as often as it fits, with the sign of x, as C's `fmod`. Exact.
#[inline(always)]
pub fn rem<I: Isa>(x: f32, y: f32) -> f32 {
    rem_of::<I, true>(x, y)
}

/// The same where |x| <= [`NEAR_QUOTIENT`] * |y|; faster.
#[inline(always)]
pub fn rem_near<I: Isa>(x: f32, y: f32) -> f32 {
    rem_of::<I, false>(x, y)
}

#[inline(always)]
fn rem_of<I: Isa, const FAR: bool>(x: f32, y: f32) -> f32 {
    let (a, b) = (x.abs() as f64, y.abs() as f64);
    let inverse = 1.0 / b;
    // 2^277 is the largest quotient there is.
    let mut rest = a;
    for digit in (0..if FAR { 10 } else { 1 }).rev() {
        rest = take::<I>(rest, b * power(29 * digit), inverse * power(-29 * digit));
    }
    let rest = if b < f64::INFINITY { rest } else { a };
    let defined = b > 0.0 && a < f64::INFINITY;
    (if defined { rest as f32 } else { f32::NAN }).copysign(x)
}

/// `rest` modulo `unit`, where both are multiples of what a 24-bit divisor is a multiple of, and the quotient is below
/// 2^29, so that the product and the difference are exact.
#[inline(always)]
fn take<I: Isa>(rest: f64, unit: f64, inverse: f64) -> f64 {
    let count = double::round::<I>(rest * inverse);
    let left = double::mad::<I>(-count, unit, rest);
    // Rounding makes it one too many or exact; an error of the quotient only shows where either will do.
    if left < 0.0 { left + unit } else { left }
}

/// 2^n.
#[inline(always)]
fn power(n: i64) -> f64 {
    f64::from_bits(((1023 + n) as u64) << 52)
}
