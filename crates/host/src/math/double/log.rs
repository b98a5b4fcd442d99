//! Logarithms: `x = 2^e m` with m within sqrt(1/2)..sqrt(2), `s = (m - 1) / (m + 1)`, and a polynomial in `s^2`.

use panoply_ir::polynomials::double::LOG;

use super::{LN_2_HI, LN_2_LO, mad, poly, split};
use crate::math::MathIsa;

/// Returns the natural logarithm.
#[inline(always)]
pub fn ln<I: MathIsa>(x: f64) -> f64 {
    let (e, m) = split(x);
    let f = m - 1.0;
    let small = mad::<I>(e, LN_2_LO, tail::<I>(f));
    limits(x, mad::<I>(e, LN_2_HI, f + small))
}

/// Returns the logarithm to base 2.
#[inline(always)]
pub fn log2<I: MathIsa>(x: f64) -> f64 {
    use std::f64::consts::LOG2_E;
    let (e, m) = split(x);
    let f = m - 1.0;
    // f log2(e) with f added separately, so that only the smaller part is rounded twice.
    let small = mad::<I>(f, LOG2_E - 1.0, tail::<I>(f) * LOG2_E);
    limits(x, e + (f + small))
}

/// Returns ln(1 + x), accurate near 0.
#[inline(always)]
pub fn log1p<I: MathIsa>(x: f64) -> f64 {
    let u = 1.0 + x;
    let (e, m) = split(u);
    let f = m - 1.0;
    // ln(m + c) = ln m + c / m, where c is the rounding error of the sum, scaled like m; 1 / m = 1 - f + f^2 to a few percent.
    let lost = if u > 2.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let scale = f64::from_bits(1f64.to_bits().wrapping_add(m.to_bits()).wrapping_sub(u.to_bits()));
    let c = if u < 1e18 { lost * scale * mad::<I>(f, f, 1.0 - f) } else { 0.0 };
    let small = mad::<I>(e, LN_2_LO, tail::<I>(f) + c);
    let sum = limits(u, mad::<I>(e, LN_2_HI, f + small));
    // Preserves -0.
    if x == 0.0 { x } else { sum }
}

/// Returns log(1 + f) - f = s (f^2 / 2 + R) - f^2 / 2, where log(1 + f) = 2 s + s R.
#[inline(always)]
fn tail<I: MathIsa>(f: f64) -> f64 {
    let s = f / (2.0 + f);
    let square = s * s;
    let half = 0.5 * f * f;
    mad::<I>(s, mad::<I>(square, poly::<I, 7>(square, LOG), half), -half)
}

/// Returns the logarithm of x: `finite` if x is positive and finite, otherwise the value that Annex F of C requires.
#[inline(always)]
fn limits(x: f64, finite: f64) -> f64 {
    let outside = if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    let inside = if x < f64::INFINITY { finite } else { x };
    if x > 0.0 { inside } else { outside }
}
