//! Exponentials: `x = n ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial in `r`, and a scaling by 2^n.

use panoply_ir::polynomials::single::{EXP, EXP2, EXPM1};

use super::{LN_2_HI, LN_2_LO, SHIFT, clamp, mad, poly};
use crate::math::MathIsa;

/// Returns e to the power x.
#[inline(always)]
pub fn exp<I: MathIsa>(x: f32) -> f32 {
    // The clamped bounds already give 0 and infinity, and keep n within the range of `scale`.
    let x = clamp(x, -104.0, 89.0);
    let (n, r) = reduce::<I>(x);
    let p = mad::<I>(poly::<I, 5>(r, EXP), r * r, r) + 1.0;
    scale(p, n, x < 0.0)
}

/// Returns 2 to the power x.
#[inline(always)]
pub fn exp2<I: MathIsa>(x: f32) -> f32 {
    exp2_sum::<I>(x, 0.0)
}

/// Returns 2 to the power x + low, where low is small relative to 1 and only matters if x is neither huge nor infinite.
#[inline(always)]
pub(super) fn exp2_sum<I: MathIsa>(x: f32, low: f32) -> f32 {
    let bounded = clamp(x, -151.0, 129.0);
    let low = if bounded == x { low } else { 0.0 };
    let n = bounded + SHIFT;
    let r = (bounded - (n - SHIFT)) + low;
    let p = mad::<I>(poly::<I, 6>(r, EXP2), r, 1.0);
    scale(p, n, bounded < 0.0)
}

/// Returns exp(x) - 1, accurate near 0.
#[inline(always)]
pub fn expm1<I: MathIsa>(x: f32) -> f32 {
    // Below -18 the result rounds to -1.
    let y = clamp(x, -18.0, 89.0);
    let (n, r) = reduce::<I>(y);
    let p = mad::<I>(poly::<I, 6>(r, EXPM1), r * r, r);
    // 2^n (p + 1) - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), because 2^n can be infinite.
    let half = exponent(n, -1);
    let scaled = 2.0 * mad::<I>(half, p, half - 0.5);
    // For n = 0 halving would lose the last bit of a denormal. `copysign` preserves -0.
    (if n == SHIFT { p } else { scaled }).copysign(x)
}

/// Returns exp(x) for x in -87..=88, where it is a normal number.
#[inline(always)]
pub(super) fn exp_normal<I: MathIsa>(x: f32) -> f32 {
    let (n, r) = reduce::<I>(x);
    let p = mad::<I>(poly::<I, 5>(r, EXP), r * r, r) + 1.0;
    p * exponent(n, 0)
}

/// Returns `n + SHIFT` and `r` with `x = n ln 2 + r`.
#[inline(always)]
pub(super) fn reduce<I: MathIsa>(x: f32) -> (f32, f32) {
    let shifted = mad::<I>(x, std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = mad::<I>(n, -LN_2_HI, x);
    (shifted, mad::<I>(n, -LN_2_LO, r))
}

/// Returns 2^(n + offset), a normal number, from `n + SHIFT`.
#[inline(always)]
pub(super) fn exponent(shifted: f32, offset: i32) -> f32 {
    f32::from_bits((shifted.to_bits() << 23).wrapping_add(((127 + offset) as u32) << 23))
}

/// Returns `p * 2^n` with one rounding, from `n + SHIFT` with n in -151..=129; `small` must be true if n may be below
/// -126 and false if n may be above 126.
#[inline(always)]
fn scale(p: f32, shifted: f32, small: bool) -> f32 {
    let (offset, rest) = if small { (64, 1.0 / 18_446_744_073_709_551_616.0) } else { (-1, 2.0) };
    p * exponent(shifted, offset) * rest
}
