//! Exponentials: `x = n ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial in `r`, and a scaling by 2^n.

use panoply_ir::polynomials::double::{EXP, EXP2, EXPM1};

use super::{LN_2_HI, LN_2_LO, SHIFT, clamp, mad, poly};
use crate::math::MathIsa;

/// Returns e to the power x.
#[inline(always)]
pub fn exp<I: MathIsa>(x: f64) -> f64 {
    // The clamped bounds already give 0 and infinity, and keep n within the range of `scale`.
    let x = clamp(x, -746.0, 710.0);
    let (n, r) = reduce::<I>(x);
    let p = mad::<I>(poly::<I, 10>(r, EXP), r * r, r) + 1.0;
    scale(p, n, x < 0.0)
}

/// Returns 2 to the power x.
#[inline(always)]
pub fn exp2<I: MathIsa>(x: f64) -> f64 {
    exp2_sum::<I>(x, 0.0)
}

/// Returns 2 to the power x + low, where low is small relative to 1 and only matters if x is neither huge nor infinite.
#[inline(always)]
pub(super) fn exp2_sum<I: MathIsa>(x: f64, low: f64) -> f64 {
    let bounded = clamp(x, -1076.0, 1025.0);
    let low = if bounded == x { low } else { 0.0 };
    let n = bounded + SHIFT;
    let r = (bounded - (n - SHIFT)) + low;
    let p = mad::<I>(poly::<I, 11>(r, EXP2), r, 1.0);
    scale(p, n, bounded < 0.0)
}

/// Returns exp(x) - 1, accurate near 0.
#[inline(always)]
pub fn expm1<I: MathIsa>(x: f64) -> f64 {
    // Below -38 the result rounds to -1.
    let y = clamp(x, -38.0, 710.0);
    let (n, r) = reduce::<I>(y);
    let p = mad::<I>(poly::<I, 11>(r, EXPM1), r * r, r);
    // 2^n (p + 1) - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), because 2^n can be infinite.
    let half = exponent(n, -1);
    let scaled = 2.0 * mad::<I>(half, p, half - 0.5);
    // For n = 0 halving would lose the last bit of a denormal. `copysign` preserves -0.
    (if n == SHIFT { p } else { scaled }).copysign(x)
}

/// Returns exp(x) for x in -708..=709, where it is a normal number.
#[inline(always)]
pub(super) fn exp_normal<I: MathIsa>(x: f64) -> f64 {
    let (n, r) = reduce::<I>(x);
    let p = mad::<I>(poly::<I, 10>(r, EXP), r * r, r) + 1.0;
    p * exponent(n, 0)
}

/// Returns `n + SHIFT` and `r` with `x = n ln 2 + r`.
#[inline(always)]
fn reduce<I: MathIsa>(x: f64) -> (f64, f64) {
    let shifted = mad::<I>(x, std::f64::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = mad::<I>(n, -LN_2_HI, x);
    (shifted, mad::<I>(n, -LN_2_LO, r))
}

/// Returns 2^(n + offset), a normal number, from `n + SHIFT`.
#[inline(always)]
fn exponent(shifted: f64, offset: i64) -> f64 {
    f64::from_bits((shifted.to_bits() << 52).wrapping_add(((1023 + offset) as u64) << 52))
}

/// Returns `p * 2^n` with one rounding, from `n + SHIFT` with n in -1076..=1025; `small` must be true if n may be below
/// -1022 and false if n may be above 1022.
#[inline(always)]
fn scale(p: f64, shifted: f64, small: bool) -> f64 {
    const DOWN: f64 = f64::from_bits((1023 - 512) << 52);
    let (offset, rest) = if small { (512, DOWN) } else { (-1, 2.0) };
    p * exponent(shifted, offset) * rest
}
