//! Sine, cosine and tangent: the angle in quarter turns, reduced exactly, then polynomials.

use panoply_ir::polynomials::double::{COS, FRAC_PI_2_PARTS, SIN};

use super::{SHIFT, SIGN, mad, poly, product_and_rest, round, sum_and_rest};
use crate::math::MathIsa;
use crate::math::payne_hanek::{PIECE_BITS, PIECES, WHOLE_TURNS, weight};

/// Magnitude below which `sin_near`, `cos_near` and `tan_near` equal `sin`, `cos` and `tan` bit for bit.
pub const NEAR: f64 = 32_768.0;

/// Returns the sine of x radians.
#[inline(always)]
pub fn sin<I: MathIsa>(x: f64) -> f64 {
    sin_of::<I>(x, reduce_far::<I>(x.abs()))
}

/// Returns the cosine of x radians.
#[inline(always)]
pub fn cos<I: MathIsa>(x: f64) -> f64 {
    cos_of::<I>(reduce_far::<I>(x.abs()))
}

/// Returns the tangent of x radians.
#[inline(always)]
pub fn tan<I: MathIsa>(x: f64) -> f64 {
    tan_of::<I>(x, reduce_far::<I>(x.abs()))
}

/// Returns the sine of x radians, for magnitudes below [`NEAR`] only; faster.
#[inline(always)]
pub fn sin_near<I: MathIsa>(x: f64) -> f64 {
    sin_of::<I>(x, reduce_near::<I>(x.abs()))
}

/// Returns the cosine of x radians, for magnitudes below [`NEAR`] only; faster.
#[inline(always)]
pub fn cos_near<I: MathIsa>(x: f64) -> f64 {
    cos_of::<I>(reduce_near::<I>(x.abs()))
}

/// Returns the tangent of x radians, for magnitudes below [`NEAR`] only; faster.
#[inline(always)]
pub fn tan_near<I: MathIsa>(x: f64) -> f64 {
    tan_of::<I>(x, reduce_near::<I>(x.abs()))
}

/// `quarter` (only its value modulo 4 matters) and `r` within -pi/4..=pi/4 with `|x| = r + quarter * pi / 2`.
type Reduced = (u64, f64);

#[inline(always)]
fn sin_of<I: MathIsa>(x: f64, (quarter, r): Reduced) -> f64 {
    let (sin, cos) = sin_cos::<I>(r);
    let value = if quarter & 1 == 0 { sin } else { cos };
    f64::from_bits(value.to_bits() ^ ((quarter & 2) << 62) ^ (x.to_bits() & SIGN))
}

#[inline(always)]
fn cos_of<I: MathIsa>((quarter, r): Reduced) -> f64 {
    let (sin, cos) = sin_cos::<I>(r);
    let value = if quarter & 1 == 0 { cos } else { sin };
    f64::from_bits(value.to_bits() ^ (((quarter + 1) & 2) << 62))
}

#[inline(always)]
fn tan_of<I: MathIsa>(x: f64, (quarter, r): Reduced) -> f64 {
    let (sin, cos) = sin_cos::<I>(r);
    let odd = quarter & 1 != 0;
    let value = if odd { -cos } else { sin } / if odd { sin } else { cos };
    f64::from_bits(value.to_bits() ^ (x.to_bits() & SIGN))
}

/// Returns sine and cosine for |r| up to pi / 4.
#[inline(always)]
fn sin_cos<I: MathIsa>(r: f64) -> (f64, f64) {
    let square = r * r;
    let sin = mad::<I>(poly::<I, 6>(square, SIN), square * r, r);
    let half = 0.5 * square;
    let main = 1.0 - half;
    let lost = (1.0 - main) - half;
    let cos = main + mad::<I>(poly::<I, 6>(square, COS), square * square, lost);
    (sin, cos)
}

/// Cody and Waite's reduction: `x - n pi/2` with pi / 2 in parts.
#[inline(always)]
fn reduce_near<I: MathIsa>(x: f64) -> Reduced {
    let shifted = mad::<I>(x, std::f64::consts::FRAC_2_PI, SHIFT);
    let n = shifted - SHIFT;
    let [first, second, third] = FRAC_PI_2_PARTS;
    // The first product and difference are exact, the second product too.
    let (r, lost) = sum_and_rest(x - n * first, -(n * second));
    (shifted.to_bits(), r + mad::<I>(n, -third, lost))
}

/// Payne and Hanek's reduction, explained in `payne_hanek`, for any finite x; NaN for infinity.
#[inline(always)]
fn reduce_far<I: MathIsa>(x: f64) -> Reduced {
    // Pieces whose product with x is a whole number of turns are skipped, and x is scaled down accordingly, below 2^78.
    let beyond = (x.to_bits() >> 52) as i32 - (1023 + 54);
    // Division by 24, exact for these numbers.
    let first = if beyond > 0 { (beyond * 2731) >> 16 } else { 0 };
    let scaled = x * f64::from_bits((1023 - PIECE_BITS as u64 * first as u64) << 52);
    let piece = |n: usize| PIECES[(first as usize + n) & 63] as i32 as f64 * weight(PIECE_BITS * (n + 1));
    // 27 and 26 bits of the significand: the products with 24-bit pieces are exact.
    let upper = f64::from_bits(scaled.to_bits() & !((1 << 26) - 1));
    let lower = scaled - upper;
    // The error of each addition to `part` is accumulated, because `part` may cancel and because errors add up.
    let (mut sum, mut part, mut low) = (0.0, 0.0, 0.0);
    let mut add = |half: f64, piece: f64, rounds: bool| {
        let (product, lost) = sum_and_rest(part, half * piece);
        let whole = if rounds { round::round::<I>(product) } else { 0.0 };
        part = product - whole;
        low += lost;
        sum += if whole < WHOLE_TURNS { whole } else { 0.0 };
    };
    add(upper, piece(0), true);
    for n in 1..6 {
        // From piece 4 on the products are below 2^-18.
        add(upper, piece(n), n < 4);
        add(lower, piece(n - 1), n < 4);
    }
    for n in 6..9 {
        low = mad::<I>(upper, piece(n), low);
        low = mad::<I>(lower, piece(n - 1), low);
    }
    // Reduced modulo 4, so that the low bits of the float contain it.
    let turns = 0.25 * sum;
    let whole = 4.0 * (turns - round::round::<I>(turns));
    // To radians, with pi / 2 to twice the precision.
    const LOW: f64 = 6.123_233_995_736_766e-17;
    let (part, low) = sum_and_rest(part, low);
    let (r, lost) = product_and_rest::<I>(part, std::f64::consts::FRAC_PI_2);
    let low = mad::<I>(low, std::f64::consts::FRAC_PI_2, part * LOW);
    let far = ((whole + SHIFT).to_bits(), r + (lost + low));
    // Both variants must give the same result for a number, regardless of the other lanes.
    let near = reduce_near::<I>(x);
    if x < NEAR { near } else { far }
}
