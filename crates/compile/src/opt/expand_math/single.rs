//! Functions for f32, within 2 ULP. Constants are written as f64; each is rounded to the nearest f32.

#![allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "the constants are minimax coefficients of f32"
)]

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LOG2_E};

use panoply_ir::DType;
use panoply_ir::polynomials::single as table;
use table::*;

use super::payne_hanek::{quarter_turn_words, window};
use super::value::V;
use super::{double, pow};

/// 3 * 2^22: adding it to a number below 2^22 rounds that to an integer, which is then in the low bits of the sum.
const SHIFT: f64 = 12_582_912.0;

/// Upper part of ln 2 and the remainder.
const LN_2_HI: f64 = table::LN_2_HI as f64;
const LN_2_LO: f64 = table::LN_2_LO as f64;

/// pi / 2 as an f32.
const FRAC_PI_2_HI: f64 = std::f32::consts::FRAC_PI_2 as f64;

pub(super) fn exp(x: V<'_>) -> V<'_> {
    // Results at these bounds are already 0 and infinity, and n stays within the domain of `scale`.
    let x = x.clamp(-104.0, 89.0);
    let (n, r) = reduce_exp(x);
    let p = r.poly(&EXP).mad(r * r, r) + 1.0;
    scale(p, n, x.less(0.0))
}

pub(super) fn exp2(x: V<'_>) -> V<'_> {
    exp2_sum(x, x.number(0.0))
}

/// Returns 2^(x + low), where low is small relative to 1 and only matters if x is neither huge nor infinite.
pub(super) fn exp2_sum<'m>(x: V<'m>, low: V<'m>) -> V<'m> {
    let bounded = x.clamp(-151.0, 129.0);
    let low = bounded.equal(x).then(low, x.number(0.0));
    let n = bounded + SHIFT;
    let r = (bounded - (n - SHIFT)) + low;
    let p = r.poly(&EXP2).mad(r, r.number(1.0));
    scale(p, n, bounded.less(0.0))
}

pub(super) fn expm1(x: V<'_>) -> V<'_> {
    // Below -18 the result is -1.
    let y = x.clamp(-18.0, 89.0);
    let (n, r) = reduce_exp(y);
    let p = r.poly(&EXPM1).mad(r * r, r);
    // 2^n (p + 1) - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), because 2^n can be infinite.
    let half = exponent(n, -1);
    let scaled = half.mad(p, half - 0.5) * 2.0;
    // For n = 0, halving would lose the last bit of a denormal. Copying the sign handles -0.
    n.is(SHIFT).then(p, scaled).copysign(x)
}

/// Returns exp(x) for x in -87..=88, where it is a normal number.
fn exp_normal(x: V<'_>) -> V<'_> {
    let (n, r) = reduce_exp(x);
    let p = r.poly(&EXP).mad(r * r, r) + 1.0;
    p * exponent(n, 0)
}

/// Returns `n + SHIFT` and `r` with `x = n ln 2 + r`.
fn reduce_exp(x: V<'_>) -> (V<'_>, V<'_>) {
    let shifted = x.mad(x.number(LOG2_E), x.number(SHIFT));
    let n = shifted - SHIFT;
    let r = n.mad(n.number(-LN_2_HI), x);
    (shifted, n.mad(n.number(-LN_2_LO), r))
}

/// Returns 2^(n + offset), a normal number, from `n + SHIFT`.
fn exponent(shifted: V<'_>, offset: i128) -> V<'_> {
    let bits = shifted.bits().shl(23);
    (bits + bits.integer((127 + offset) << 23)).float()
}

/// Returns `p * 2^n` with one rounding, from `n + SHIFT`. If `small`, n can be below -126 but not above 126.
fn scale<'m>(p: V<'m>, shifted: V<'m>, small: V<'m>) -> V<'m> {
    let bits = shifted.bits().shl(23);
    let bias = small.then(bits.integer((127 + 64) << 23), bits.integer((127 - 1) << 23));
    let rest = small.then(p.number(1.0 / 18_446_744_073_709_551_616.0), p.number(2.0));
    p * (bits + bias).float() * rest
}

pub(super) fn ln(x: V<'_>) -> V<'_> {
    let (e, f) = split(x);
    let e = e.cast(DType::F32);
    let small = e.mad(e.number(LN_2_LO), tail(f));
    limits(x, e.mad(e.number(LN_2_HI), f + small))
}

pub(super) fn log2(x: V<'_>) -> V<'_> {
    let (e, f) = split(x);
    // f log2(e) with f itself kept separate, so that only the smaller part is rounded twice.
    let log2_e = LOG2_E as f32;
    let small = f.mad(f.number(f64::from(log2_e - 1.0)), tail(f) * f64::from(log2_e));
    limits(x, e.cast(DType::F32) + (f + small))
}

pub(super) fn log1p(x: V<'_>) -> V<'_> {
    let u = x + 1.0;
    let (e, f) = split(u);
    // ln(m + c) = ln m + c / m, where c is the rounding error of the sum, scaled like m; 1 / m = 1 - f + f^2 to a few
    // percent.
    let one = x.number(1.0);
    let lost = u.more(2.0).then(one - (u - x), x - (u - 1.0));
    let scale = (one.bits() - e.bits_as(DType::U32).shl(23)).float();
    let c = u.less(1e9).then(lost * scale * f.mad(f, one - f), x.number(0.0));
    let e = e.cast(DType::F32);
    let small = e.mad(e.number(LN_2_LO), tail(f) + c);
    let sum = limits(u, e.mad(e.number(LN_2_HI), f + small));
    // -0 stays -0.
    x.is(0.0).then(x, sum)
}

/// Returns `e` (an i32) and `f` with `x = 2^e (1 + f)` and `1 + f` within sqrt(1/2)..sqrt(2), for positive finite x.
fn split(x: V<'_>) -> (V<'_>, V<'_>) {
    const SQRT_HALF: i128 = std::f32::consts::FRAC_1_SQRT_2.to_bits() as i128;
    let denormal = x.less(f64::from(f32::MIN_POSITIVE));
    let bits = denormal.then((x * 33_554_432.0).bits(), x.bits());
    let e = (bits - bits.integer(SQRT_HALF)).bits_as(DType::I32).shr(23);
    let m = (bits - e.bits_as(DType::U32).shl(23)).float();
    (e - denormal.then(e.integer(25), e.integer(0)), m - 1.0)
}

/// Returns log(1 + f) - f.
fn tail(f: V<'_>) -> V<'_> {
    let square = f * f;
    (f * square).mad(f.poly(&LOG), square * -0.5)
}

/// Returns the logarithm of x: `finite` where x is positive and finite, and the special values of C's Annex F
/// elsewhere.
pub(super) fn limits<'m>(x: V<'m>, finite: V<'m>) -> V<'m> {
    let outside = x.is(0.0).then(x.number(f64::NEG_INFINITY), x.number(f64::NAN));
    let inside = x.less(f64::INFINITY).then(finite, x);
    x.more(0.0).then(inside, outside)
}

pub(super) fn atan(x: V<'_>) -> V<'_> {
    const LOW: f64 = -4.371_139e-8;
    double::atan_of(x, &ATAN, [0.414_213_57, 2.414_213_7], LOW)
}

pub(super) fn tanh(x: V<'_>) -> V<'_> {
    // From 10 on the result is 1; a NaN remains a NaN.
    let a = x.abs();
    let bounded = a.more(10.0).then(a.number(10.0), a);
    let (n, r) = reduce_exp(bounded * -2.0);
    let p = r.poly(&EXPM1).mad(r * r, r);
    // exp(-2 a) = 2^n (1 + p). The sign is negative because the divisor is then just below 2 for small a, where its
    // relative rounding error is smallest.
    let scale = exponent(n, 0);
    (scale.mad(p, scale - 1.0) / scale.mad(p, scale + 1.0)).copysign(x)
}

pub(super) fn erf(x: V<'_>) -> V<'_> {
    let a = x.abs();
    let near = a.mad((a * a).poly(&ERF_NEAR), a);
    // From 4 on the result is 1.
    let bounded = a.at_most(4.0);
    let exponent = bounded.mad(bounded, (bounded - 2.0).poly(&ERF_FAR));
    let far = a.number(1.0) - exp_normal(-exponent);
    a.more(0.92).then(far, near).copysign(x)
}

pub(super) fn sin(x: V<'_>) -> V<'_> {
    let (quarter, r, _) = reduce(x.abs());
    wave(quarter, r).flip_with(x)
}

pub(super) fn cos(x: V<'_>) -> V<'_> {
    let (quarter, r, _) = reduce(x.abs());
    wave(quarter + quarter.integer(1), r)
}

pub(super) fn tan(x: V<'_>) -> V<'_> {
    let (quarter, r, lost) = reduce(x.abs());
    let square = r * r;
    let rest = square.poly(&TAN) * square * r;
    // The rounding error of r, times the derivative 1 + tan^2, which is at most 2.
    let near = r + rest;
    let small = lost.mad(near.mad(near, near.number(1.0)), rest);
    let t = r + small;
    // -1 / (t + low) = q + q^2 low with q = -1 / t, where low is the rounding error of the sum.
    let low = (r - t) + small;
    let q = t.number(-1.0) / t;
    let q = (q * q).mad(low, q);
    let odd = (quarter & quarter.integer(1)).equal(quarter.integer(1));
    odd.then(q, t).flip_with(x)
}

/// Returns sin(r + quarter * pi / 2) for |r| up to pi / 4.
fn wave<'m>(quarter: V<'m>, r: V<'m>) -> V<'m> {
    let square = r * r;
    let sin = square.poly(&SIN).mad(square * r, r);
    let cos = square.poly(&COS).mad(square, square.number(-0.5)).mad(square, square.number(1.0));
    let odd = (quarter & quarter.integer(1)).equal(quarter.integer(1));
    let value = odd.then(cos, sin);
    (value.bits() ^ (quarter & quarter.integer(2)).shl(30)).float()
}

/// Returns `quarter` (a u32, modulo 4), `r` within -pi/4..=pi/4 and its rounding error `lost`: `x = r + lost + quarter
/// * pi / 2`, for positive x; NaN for infinity.
///
/// Payne and Hanek's reduction in fixed point: the product of the significand with 96 bits of 2 / pi. Bits that only
/// give whole turns, or less than 2^-70, are skipped. It uses integers because f64 is slow or missing on many GPUs. For
/// the f32 closest to a multiple of pi / 2, 31 of the 62 fraction bits remain significant.
fn reduce(x: V<'_>) -> (V<'_>, V<'_>, V<'_>) {
    const LOW: u64 = u32::MAX as u64;
    let bits = x.bits();
    let significand = ((bits & bits.integer(0x7F_FFFF)) | bits.integer(1 << 23)).cast(DType::U64);
    // Index of the first bit of 2 / pi, after 32 zeros, whose product with the significand's last bit counts 2 quarter
    // turns.
    let first = bits.shr(23) - bits.integer(120);
    let words: Vec<V<'_>> =
        window(first.shr(5), 4, &quarter_turn_words()).into_iter().map(|w| w.cast(DType::U64)).collect();
    let within = (first & first.integer(31)).cast(DType::U64);
    let [upper, middle, lower] = [0, 1, 2].map(|n| (words[n].shl(32) | words[n + 1]).shl_by(within).shr(32));
    let low = significand * lower;
    let middle = significand * middle + low.shr(32);
    let high = significand * upper + middle.shr(32);
    // Quarter turns modulo 4, with 62 fraction bits.
    let turns = high.shl(32) | (middle & middle.integer(i128::from(LOW)));
    let quarter = (turns + turns.integer(1 << 61)).shr(62);
    let rest = (turns - quarter.shl(62)).bits_as(DType::I64);
    let main = rest.cast(DType::F32);
    let small = (rest - main.cast(DType::I64)).cast(DType::F32);
    // Convert to radians, with pi / 2 in two parts.
    let unit = double::power(-62);
    let [pi, pi_low] = [FRAC_PI_2_HI * unit, (FRAC_PI_2 - FRAC_PI_2_HI) * unit].map(|part| main.number(part));
    let product = main * pi;
    let low = small.mad(pi, main.mad(pi_low, main.mad(pi, -product)));
    let r = product + low;
    let lost = (product - r) + low;
    let near = x.less(FRAC_PI_4);
    let zero = x.number(0.0);
    (near.then(bits.integer(0), quarter.cast(DType::U32)), near.then(x, r + x * zero), near.then(zero, lost))
}

/// Returns log2 of a positive number as a sum of two, to about 2^-37.
pub(super) fn log2_sum(x: V<'_>) -> (V<'_>, V<'_>) {
    let (e, f) = split(x);
    pow::log2_sum(e.cast(DType::F32), f + 1.0, [POW_LOG2_0, POW_LOG2_1], &POW_LOG2)
}
