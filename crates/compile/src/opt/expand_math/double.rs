//! Functions for f64, within 4 ULP.

#![allow(clippy::excessive_precision, reason = "the constants are minimax coefficients")]

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LOG2_E};

use panoply_ir::DType;
use panoply_ir::polynomials::double::*;

use super::payne_hanek::{PIECE_BITS, WHOLE_TURNS, pieces, weight, window};
use super::pow::{self, product_and_rest};
use super::single::limits;
use super::value::V;

/// 3 * 2^51: adding it to a number below 2^51 rounds that to an integer, which is then in the low bits of the sum.
pub(super) const SHIFT: f64 = 6_755_399_441_055_744.0;

/// Returns 2^n.
pub(super) fn power(n: i64) -> f64 {
    f64::from_bits(((1023 + n) as u64) << 52)
}

pub(super) fn exp(x: V<'_>) -> V<'_> {
    // Results at these bounds are already 0 and infinity, and n stays within the domain of `scale`.
    let x = x.clamp(-746.0, 710.0);
    let (n, r) = reduce_exp(x);
    let p = r.poly(&EXP).mad(r * r, r) + 1.0;
    scale(p, n, x.less(0.0))
}

pub(super) fn exp2(x: V<'_>) -> V<'_> {
    exp2_sum(x, x.number(0.0))
}

/// Returns 2^(x + low), where low is small relative to 1 and only matters if x is neither huge nor infinite.
pub(super) fn exp2_sum<'m>(x: V<'m>, low: V<'m>) -> V<'m> {
    let bounded = x.clamp(-1076.0, 1025.0);
    let low = bounded.equal(x).then(low, x.number(0.0));
    let n = bounded + SHIFT;
    let r = (bounded - (n - SHIFT)) + low;
    let p = r.poly(&EXP2).mad(r, r.number(1.0));
    scale(p, n, bounded.less(0.0))
}

pub(super) fn expm1(x: V<'_>) -> V<'_> {
    // Below -38 the result is -1.
    let y = x.clamp(-38.0, 710.0);
    let (n, r) = reduce_exp(y);
    let p = r.poly(&EXPM1).mad(r * r, r);
    // 2^n (p + 1) - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), because 2^n can be infinite.
    let half = exponent(n, -1);
    let scaled = half.mad(p, half - 0.5) * 2.0;
    // For n = 0, halving would lose the last bit of a denormal. Copying the sign handles -0.
    n.is(SHIFT).then(p, scaled).copysign(x)
}

/// Returns exp(x) for x in -708..=709, where it is a normal number.
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
    let bits = shifted.bits().shl(52);
    (bits + bits.integer((1023 + offset) << 52)).float()
}

/// Returns `p * 2^n` with one rounding, from `n + SHIFT`. If `small`, n can be below -1022 but not above 1022.
fn scale<'m>(p: V<'m>, shifted: V<'m>, small: V<'m>) -> V<'m> {
    let bits = shifted.bits().shl(52);
    let bias = small.then(bits.integer((1023 + 512) << 52), bits.integer((1023 - 1) << 52));
    let rest = small.then(p.number(weight(512)), p.number(2.0));
    p * (bits + bias).float() * rest
}

pub(super) fn ln(x: V<'_>) -> V<'_> {
    let (e, m) = split(x);
    let f = m - 1.0;
    let small = e.mad(e.number(LN_2_LO), tail(f));
    limits(x, e.mad(e.number(LN_2_HI), f + small))
}

pub(super) fn log2(x: V<'_>) -> V<'_> {
    let (e, m) = split(x);
    let f = m - 1.0;
    // f log2(e) with f itself kept separate, so that only the smaller part is rounded twice.
    let small = f.mad(f.number(LOG2_E - 1.0), tail(f) * LOG2_E);
    limits(x, e + (f + small))
}

pub(super) fn log1p(x: V<'_>) -> V<'_> {
    let u = x + 1.0;
    let (e, m) = split(u);
    let f = m - 1.0;
    // ln(m + c) = ln m + c / m, where c is the rounding error of the sum, scaled like m; 1 / m = 1 - f + f^2 to a few
    // percent.
    let one = x.number(1.0);
    let lost = u.more(2.0).then(one - (u - x), x - (u - 1.0));
    let scale = (one.bits() + m.bits() - u.bits()).float();
    let c = u.less(1e18).then(lost * scale * f.mad(f, one - f), x.number(0.0));
    let small = e.mad(e.number(LN_2_LO), tail(f) + c);
    let sum = limits(u, e.mad(e.number(LN_2_HI), f + small));
    // -0 stays -0.
    x.is(0.0).then(x, sum)
}

/// Returns log(1 + f) - f = s (f^2 / 2 + R) - f^2 / 2, where log(1 + f) = 2 s + s R.
fn tail(f: V<'_>) -> V<'_> {
    let s = f / (f + 2.0);
    let square = s * s;
    let half = f * 0.5 * f;
    s.mad(square.mad(square.poly(&LOG), half), -half)
}

/// Returns `e` and `m` with `x = 2^e m` and m within sqrt(1/2)..sqrt(2), for normal positive x.
fn split_normal(x: V<'_>) -> (V<'_>, V<'_>) {
    const SQRT_HALF: i128 = std::f64::consts::FRAC_1_SQRT_2.to_bits() as i128;
    let bits = x.bits() + x.bits().integer(1f64.to_bits() as i128 - SQRT_HALF);
    // The biased exponent becomes a number by placing it in the low bits of 2^52.
    const UNIT: f64 = 4_503_599_627_370_496.0;
    let e = (bits.shr(52) | bits.integer(i128::from(UNIT.to_bits()))).float() - (UNIT + 1023.0);
    let m = (bits & bits.integer((1 << 52) - 1)) + bits.integer(SQRT_HALF);
    (e, m.float())
}

/// Returns the same for normal and denormal numbers.
fn split(x: V<'_>) -> (V<'_>, V<'_>) {
    let denormal = x.less(f64::MIN_POSITIVE);
    let (e, m) = split_normal(denormal.then(x * 18_014_398_509_481_984.0, x));
    (denormal.then(e - 54.0, e), m)
}

/// Returns the sum as a rounded part and the exact remainder (Knuth).
fn sum_and_rest<'m>(a: V<'m>, b: V<'m>) -> (V<'m>, V<'m>) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

pub(super) fn atan(x: V<'_>) -> V<'_> {
    atan_of(x, &ATAN, [0.414_213_562_373_095_05, 2.414_213_562_373_095], 6.123_233_995_736_766e-17)
}

/// Computes the arc tangent on three intervals: atan a = pi/4 + atan((a - 1) / (a + 1)) = pi/2 + atan(-1 / a). `low` is
/// the rounding error of pi / 2 in the type.
pub(super) fn atan_of<'m>(
    x: V<'m>,
    coefficients: &[impl Into<f64> + Copy],
    [first, second]: [f64; 2],
    low: f64,
) -> V<'m> {
    let a = x.abs();
    let (middle, far) = (a.more(first), a.more(second));
    let (zero, one) = (a.number(0.0), a.number(1.0));
    let top = far.then(a.number(-1.0), middle.then(a - 1.0, a));
    let bottom = far.then(a, middle.then(a + 1.0, one));
    let base = far.then(a.number(FRAC_PI_2), middle.then(a.number(FRAC_PI_4), zero));
    let base_low = far.then(a.number(low), middle.then(a.number(0.5 * low), zero));
    let z = top / bottom;
    let square = z * z;
    let rest = square.poly(coefficients).mad(square * z, base_low);
    (base + (z + rest)).copysign(x)
}

pub(super) fn tanh(x: V<'_>) -> V<'_> {
    // -t / (t + 2) with t = expm1(-2 |x|).
    let t = expm1(x.abs() * -2.0);
    (t / (t + 2.0)).copysign(x)
}

pub(super) fn erf(x: V<'_>) -> V<'_> {
    let a = x.abs();
    let near = a.mad((a * a).poly(&ERF_NEAR), a);
    // From 5.95 on the result is 1.
    let bounded = a.at_most(5.95);
    let exponent = bounded.mad(bounded, (bounded - 3.0).poly(&ERF_FAR));
    let far = a.number(1.0) - exp_normal(-exponent);
    a.more(1.0).then(far, near).copysign(x)
}

/// Returns log2 of a positive number as a sum of two, to about 2^-66.
pub(super) fn log2_sum(x: V<'_>) -> (V<'_>, V<'_>) {
    let (e, m) = split(x);
    pow::log2_sum(e, m, [POW_LOG2_0, POW_LOG2_1], &POW_LOG2)
}

pub(super) fn sin(x: V<'_>) -> V<'_> {
    let (quarter, r) = reduce(x.abs());
    let (sin, cos) = sin_cos(r);
    let value = is_odd(quarter).then(cos, sin);
    (value.bits() ^ (quarter & quarter.integer(2)).shl(62)).float().flip_with(x)
}

pub(super) fn cos(x: V<'_>) -> V<'_> {
    let (quarter, r) = reduce(x.abs());
    let (sin, cos) = sin_cos(r);
    let value = is_odd(quarter).then(sin, cos);
    let next = quarter + quarter.integer(1);
    (value.bits() ^ (next & next.integer(2)).shl(62)).float()
}

pub(super) fn tan(x: V<'_>) -> V<'_> {
    let (quarter, r) = reduce(x.abs());
    let (sin, cos) = sin_cos(r);
    let odd = is_odd(quarter);
    (odd.then(-cos, sin) / odd.then(sin, cos)).flip_with(x)
}

fn is_odd(quarter: V<'_>) -> V<'_> {
    (quarter & quarter.integer(1)).equal(quarter.integer(1))
}

/// Returns sine and cosine for |r| up to pi / 4.
fn sin_cos(r: V<'_>) -> (V<'_>, V<'_>) {
    let square = r * r;
    let sin = square.poly(&SIN).mad(square * r, r);
    let half = square * 0.5;
    let main = r.number(1.0) - half;
    let lost = (r.number(1.0) - main) - half;
    (sin, main + square.poly(&COS).mad(square * square, lost))
}

/// Returns `quarter` (a u64, not reduced modulo 4) and `r` within -pi/4..=pi/4 with `x = r + quarter * pi / 2`, for
/// positive x; NaN for infinity.
fn reduce(x: V<'_>) -> (V<'_>, V<'_>) {
    let ((near_quarter, near), (far_quarter, far)) = (reduce_near(x), reduce_far(x));
    let is_near = x.less(32_768.0);
    (is_near.then(near_quarter, far_quarter), is_near.then(near, far))
}

/// Cody and Waite's reduction: `x - n pi/2` with pi / 2 in parts.
fn reduce_near(x: V<'_>) -> (V<'_>, V<'_>) {
    let shifted = x.mad(x.number(FRAC_2_PI), x.number(SHIFT));
    let n = shifted - SHIFT;
    let [first, second, third] = FRAC_PI_2_PARTS;
    // The first product and difference are exact, and so is the second product.
    let (r, lost) = sum_and_rest(x - n * first, -(n * second));
    (shifted.bits(), r + n.mad(n.number(-third), lost))
}

/// Payne and Hanek's reduction for any finite x.
fn reduce_far(x: V<'_>) -> (V<'_>, V<'_>) {
    // Pieces whose product with x is a whole number of turns are skipped, and x is scaled down accordingly, below 2^78.
    let exponent = x.bits().shr(52).bits_as(DType::I64);
    let beyond = exponent - exponent.integer(1023 + 54);
    // Division by 24, exact for these numbers.
    let zero = beyond.integer(0);
    let first = zero.lt(beyond).then((beyond * beyond.integer(2731)).shr(16), zero);
    let down = (first.integer(1023) - first * first.integer(PIECE_BITS as i128)).bits_as(DType::U64).shl(52).float();
    let scaled = x * down;
    let pieces: Vec<V<'_>> = window(first, 9, &pieces())
        .into_iter()
        .enumerate()
        .map(|(n, piece)| piece.cast(DType::F64) * weight(PIECE_BITS * (n + 1)))
        .collect();
    // 27 and 26 bits of the significand: the products with 24-bit pieces are exact.
    let upper = (scaled.bits() & scaled.bits().integer(!((1i128 << 26) - 1))).float();
    let lower = scaled - upper;
    // The rounding error of additions to `part` is kept, because `part` can cancel and because errors accumulate.
    let none = x.number(0.0);
    let (mut sum, mut part, mut low) = (none, none, none);
    let mut add = |half, piece, rounds: bool| {
        let (product, lost) = sum_and_rest(part, half * piece);
        let whole = if rounds { product.round() } else { none };
        part = product - whole;
        low = low + lost;
        sum = sum + whole.less(WHOLE_TURNS).then(whole, none);
    };
    add(upper, pieces[0], true);
    for n in 1..6 {
        // From piece 4 on the products are below 2^-18.
        add(upper, pieces[n], n < 4);
        add(lower, pieces[n - 1], n < 4);
    }
    for n in 6..9 {
        low = upper.mad(pieces[n], low);
        low = lower.mad(pieces[n - 1], low);
    }
    // Modulo 4, as far as the lowest bits of a float represent it.
    let turns = sum * 0.25;
    let whole = (turns - turns.round()) * 4.0;
    // Convert to radians, with pi / 2 in twice the precision.
    const LOW: f64 = 6.123_233_995_736_766e-17;
    let (part, low) = sum_and_rest(part, low);
    let (r, lost) = product_and_rest(part, part.number(FRAC_PI_2));
    let low = low.mad(low.number(FRAC_PI_2), part * LOW);
    ((whole + SHIFT).bits(), r + (lost + low))
}
