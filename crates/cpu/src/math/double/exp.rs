//! Exponentials: `x = n ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial in `r`, and a scaling by 2^n.

use super::{LN_2_HI, LN_2_LO, SHIFT, clamp, mad, poly};
use crate::math::Isa;

/// `exp(r) = 1 + r + r^2 P(r)`, relative error 2^-57.
const EXP: [f64; 10] = [
    0.5000000000000006,
    0.1666666666666664,
    0.041666666666575716,
    0.008333333333364648,
    0.0013888888931630373,
    0.00019841269762004937,
    2.4801505287775697e-05,
    2.755737572911844e-06,
    2.762602483135972e-07,
    2.5062362670889573e-08,
];
/// `expm1(r) = r + r^2 P(r)`, relative error 2^-61.
const EXPM1: [f64; 11] = [
    0.5,
    0.16666666666666677,
    0.041666666666666685,
    0.00833333333332179,
    0.0013888888888893697,
    0.00019841269885373486,
    2.480158727901335e-05,
    2.7557245103109796e-06,
    2.755732941860856e-07,
    2.5108709955422767e-08,
    2.089398671515446e-09,
];
/// `exp2(r) = 1 + r P(r)`, relative error 2^-57.
const EXP2: [f64; 11] = [
    std::f64::consts::LN_2,
    0.2402265069591011,
    0.055504108664821736,
    0.009618129107600584,
    0.0013333558146543065,
    0.0001540353045029212,
    1.5252733637295974e-05,
    1.3215438208577103e-06,
    1.0178158427576722e-07,
    7.073342315790945e-09,
    4.4391573051793605e-10,
];

/// e to the x.
#[inline(always)]
pub fn exp<I: Isa>(x: f64) -> f64 {
    // The bounds already give 0 and infinity, and keep n within what `scale` takes.
    let x = clamp(x, -746.0, 710.0);
    let (n, r) = reduce::<I>(x);
    let p = mad::<I>(poly::<I, 10>(r, EXP), r * r, r) + 1.0;
    scale(p, n, x < 0.0)
}

/// 2 to the x.
#[inline(always)]
pub fn exp2<I: Isa>(x: f64) -> f64 {
    exp2_sum::<I>(x, 0.0)
}

/// 2 to the x + low, where low is small beside 1 and only matters if x is neither huge nor infinite.
#[inline(always)]
pub(super) fn exp2_sum<I: Isa>(x: f64, low: f64) -> f64 {
    let bounded = clamp(x, -1076.0, 1025.0);
    let low = if bounded == x { low } else { 0.0 };
    let n = bounded + SHIFT;
    let r = (bounded - (n - SHIFT)) + low;
    let p = mad::<I>(poly::<I, 11>(r, EXP2), r, 1.0);
    scale(p, n, bounded < 0.0)
}

/// exp(x) - 1, accurate near 0.
#[inline(always)]
pub fn expm1<I: Isa>(x: f64) -> f64 {
    // Below -38 the result is -1.
    let y = clamp(x, -38.0, 710.0);
    let (n, r) = reduce::<I>(y);
    let p = mad::<I>(poly::<I, 11>(r, EXPM1), r * r, r);
    // 2^n (p + 1) - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), because 2^n may be infinite.
    let half = exponent(n, -1);
    let scaled = 2.0 * mad::<I>(half, p, half - 0.5);
    // For n = 0 halving would lose the last bit of a denormal. The sign is for -0.
    (if n == SHIFT { p } else { scaled }).copysign(x)
}

/// exp(x) for x in -708..=709, where it is a normal number.
#[inline(always)]
pub(super) fn exp_normal<I: Isa>(x: f64) -> f64 {
    let (n, r) = reduce::<I>(x);
    let p = mad::<I>(poly::<I, 10>(r, EXP), r * r, r) + 1.0;
    p * exponent(n, 0)
}

/// `n + SHIFT` and `r` with `x = n ln 2 + r`.
#[inline(always)]
fn reduce<I: Isa>(x: f64) -> (f64, f64) {
    let shifted = mad::<I>(x, std::f64::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = mad::<I>(n, -LN_2_HI, x);
    (shifted, mad::<I>(n, -LN_2_LO, r))
}

/// 2^(n + offset), a normal number, from `n + SHIFT`.
#[inline(always)]
fn exponent(shifted: f64, offset: i64) -> f64 {
    f64::from_bits((shifted.to_bits() << 52).wrapping_add(((1023 + offset) as u64) << 52))
}

/// `p * 2^n` with one rounding, from `n + SHIFT` with n in -1076..=1025; `small` if n may be below -1022 but not above 1022.
#[inline(always)]
fn scale(p: f64, shifted: f64, small: bool) -> f64 {
    const DOWN: f64 = f64::from_bits((1023 - 512) << 52);
    let (offset, rest) = if small { (512, DOWN) } else { (-1, 2.0) };
    p * exponent(shifted, offset) * rest
}
