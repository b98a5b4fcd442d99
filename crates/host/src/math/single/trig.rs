//! Sine, cosine and tangent: the angle reduced to a quarter turn in `f64`, then polynomials in `f32`.

use panoply_ir::polynomials::single::{COS, SIN, TAN};

use super::{mad, poly};
use crate::math::payne_hanek::{WHOLE_TURNS, bits};
use crate::math::{MathIsa, double};

/// Magnitude below which `sin_near`, `cos_near` and `tan_near` equal `sin`, `cos` and `tan` bit for bit.
pub const NEAR: f32 = 262_144.0;

/// Returns the sine of x radians.
#[inline(always)]
pub fn sin<I: MathIsa>(x: f32) -> f32 {
    sin_of::<I, true>(x)
}

/// Returns the cosine of x radians.
#[inline(always)]
pub fn cos<I: MathIsa>(x: f32) -> f32 {
    cos_of::<I, true>(x)
}

/// Returns the tangent of x radians.
#[inline(always)]
pub fn tan<I: MathIsa>(x: f32) -> f32 {
    tan_of::<I, true>(x)
}

/// Returns the sine of x radians, for magnitudes below [`NEAR`] only; faster.
#[inline(always)]
pub fn sin_near<I: MathIsa>(x: f32) -> f32 {
    sin_of::<I, false>(x)
}

/// Returns the cosine of x radians, for magnitudes below [`NEAR`] only; faster.
#[inline(always)]
pub fn cos_near<I: MathIsa>(x: f32) -> f32 {
    cos_of::<I, false>(x)
}

/// Returns the tangent of x radians, for magnitudes below [`NEAR`] only; faster.
#[inline(always)]
pub fn tan_near<I: MathIsa>(x: f32) -> f32 {
    tan_of::<I, false>(x)
}

#[inline(always)]
fn sin_of<I: MathIsa, const FAR: bool>(x: f32) -> f32 {
    let (quarter, r) = reduce::<I, FAR>(x.abs());
    let wave = wave::<I>(quarter, r as f32);
    f32::from_bits(wave.to_bits() ^ (x.to_bits() & 0x8000_0000))
}

#[inline(always)]
fn cos_of<I: MathIsa, const FAR: bool>(x: f32) -> f32 {
    let (quarter, r) = reduce::<I, FAR>(x.abs());
    wave::<I>(quarter.wrapping_add(1), r as f32)
}

#[inline(always)]
fn tan_of<I: MathIsa, const FAR: bool>(x: f32) -> f32 {
    let (quarter, r64) = reduce::<I, FAR>(x.abs());
    let r = r64 as f32;
    let square = r * r;
    let rest = poly::<I, 7>(square, TAN) * square * r;
    // The rounding error of r, times the derivative 1 + tan^2, which is up to 2.
    let lost = (r64 - r as f64) as f32;
    let near = r + rest;
    let small = mad::<I>(lost, mad::<I>(near, near, 1.0), rest);
    let t = r + small;
    // -1 / (t + low) = q + q^2 low with q = -1 / t, where low is the rounding error of the sum.
    let low = (r - t) + small;
    let q = -1.0 / t;
    let q = mad::<I>(q * q, low, q);
    let t = if quarter & 1 != 0 { q } else { t };
    f32::from_bits(t.to_bits() ^ (x.to_bits() & 0x8000_0000))
}

/// Returns sin(r + quarter * pi / 2) for |r| up to pi / 4.
#[inline(always)]
fn wave<I: MathIsa>(quarter: u32, r: f32) -> f32 {
    let square = r * r;
    let sin = mad::<I>(poly::<I, 3>(square, SIN), square * r, r);
    let cos = mad::<I>(mad::<I>(poly::<I, 3>(square, COS), square, -0.5), square, 1.0);
    let value = if quarter & 1 == 0 { sin } else { cos };
    f32::from_bits(value.to_bits() ^ ((quarter & 2) << 30))
}

/// Returns `quarter` (only its value modulo 4 matters) and `r` within -pi/4..=pi/4 with `x = r + quarter * pi / 2`, for
/// positive x; NaN for infinity.
#[inline(always)]
fn reduce<I: MathIsa, const FAR: bool>(x: f32) -> (u32, f64) {
    // Pieces of 27 bits: with the 24 bits of x their products are exact, as `payne_hanek` requires, and a product above
    // 2^52 is a multiple of 4. A product with the bits after piece n is below 2^(e - 27 n) for x below 2^e; below 2^-7
    // it needs no rounding.
    const PIECES: [f64; 5] = [bits(0, 27), bits(27, 27), bits(54, 27), bits(81, 27), bits(108, 27)];
    const TAIL: f64 = bits(135, 53);
    const NEAR_TAIL: f64 = bits(27, 53);
    let is_near = x < NEAR;
    let x = x as f64;
    let product = x * PIECES[0];
    let whole = double::round::<I>(product);
    let mut part = product - whole;
    let near = (whole, double::mad::<I>(x, NEAR_TAIL, part));
    let (whole, part) = if FAR {
        let mut sum = if whole < WHOLE_TURNS { whole } else { 0.0 };
        for piece in &PIECES[1..] {
            let product = double::mad::<I>(x, *piece, part);
            let whole = double::round::<I>(product);
            part = product - whole;
            sum += if whole < WHOLE_TURNS { whole } else { 0.0 };
        }
        // Reduced modulo 4, so that the low bits of the float contain it.
        let turns = 0.25 * sum;
        let whole = 4.0 * (turns - double::round::<I>(turns));
        part = double::mad::<I>(x, TAIL, part);
        // Both variants must give the same result for a number, regardless of the other lanes.
        if is_near { near } else { (whole, part) }
    } else {
        near
    };
    ((whole + double::SHIFT).to_bits() as u32, part * std::f64::consts::FRAC_PI_2)
}
