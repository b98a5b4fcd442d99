//! Logarithms: `x = 2^e (1 + f)` with `1 + f` within sqrt(1/2)..sqrt(2), and a polynomial in `f`.

use panoply_ir::polynomials::single::LOG;

use super::{LN_2_HI, LN_2_LO, mad, poly};
use crate::math::MathIsa;

const SQRT_HALF: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();

/// Returns the natural logarithm.
#[inline(always)]
pub fn ln<I: MathIsa>(x: f32) -> f32 {
    let (e, f) = split(x);
    let e = e as f32;
    let small = mad::<I>(e, LN_2_LO, tail::<I>(f));
    limits(x, mad::<I>(e, LN_2_HI, f + small))
}

/// Returns the logarithm to base 2.
#[inline(always)]
pub fn log2<I: MathIsa>(x: f32) -> f32 {
    use std::f32::consts::LOG2_E;
    let (e, f) = split(x);
    // f log2(e) with f added separately, so that only the smaller part is rounded twice.
    let small = mad::<I>(f, LOG2_E - 1.0, tail::<I>(f) * LOG2_E);
    limits(x, e as f32 + (f + small))
}

/// Returns ln(1 + x), accurate near 0.
#[inline(always)]
pub fn log1p<I: MathIsa>(x: f32) -> f32 {
    let u = 1.0 + x;
    let (e, f) = split(u);
    // ln(m + c) = ln m + c / m, where c is the rounding error of the sum, scaled like m; 1 / m = 1 - f + f^2 to a few percent.
    let lost = if u > 2.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let scale = f32::from_bits(1f32.to_bits().wrapping_sub((e as u32) << 23));
    let c = if u < 1e9 { lost * scale * mad::<I>(f, f, 1.0 - f) } else { 0.0 };
    let e = e as f32;
    let small = mad::<I>(e, LN_2_LO, tail::<I>(f) + c);
    let sum = limits(u, mad::<I>(e, LN_2_HI, f + small));
    // Preserves -0.
    if x == 0.0 { x } else { sum }
}

/// Returns `e` and `f` with `x = 2^e (1 + f)`, for positive finite x.
#[inline(always)]
pub(super) fn split(x: f32) -> (i32, f32) {
    let (bits, offset) = if x < f32::MIN_POSITIVE { ((x * 33_554_432.0).to_bits(), 25) } else { (x.to_bits(), 0) };
    let e = bits.wrapping_sub(SQRT_HALF) as i32 >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e as u32) << 23));
    (e.wrapping_sub(offset), m - 1.0)
}

/// Returns log(1 + f) - f.
#[inline(always)]
fn tail<I: MathIsa>(f: f32) -> f32 {
    let square = f * f;
    mad::<I>(f * square, poly::<I, 9>(f, LOG), -0.5 * square)
}

/// Returns the logarithm of x: `finite` if x is positive and finite, otherwise the value that Annex F of C requires.
#[inline(always)]
fn limits(x: f32, finite: f32) -> f32 {
    let outside = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    let inside = if x < f32::INFINITY { finite } else { x };
    if x > 0.0 { inside } else { outside }
}
