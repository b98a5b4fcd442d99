//! Powers: `2^(y log2 |x|)` in `f64`, which is as good as exact, and the special cases of C's `pow`.

use panoply_ir::approximate::single::{POW_EXP2, POW_LOG2};

use super::round::trunc;
use crate::math::{Isa, double};

/// x to the y, as C's `pow`.
#[inline(always)]
pub fn pow<I: Isa>(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let log = log2::<I>(a as f64);
    let log = if a < f32::INFINITY { log } else { f64::INFINITY };
    let log = if a > 0.0 { log } else { f64::NEG_INFINITY };
    // 1 to the infinity is 1, and -1 too.
    let exponent = if a == 1.0 { 0.0 } else { y as f64 * log };
    let magnitude = exp2::<I>(exponent);

    let whole = trunc::<I>(y) == y;
    let odd = whole && trunc::<I>(0.5 * y) != 0.5 * y;
    let negative = x.to_bits() & 0x8000_0000;
    let signed = f32::from_bits(magnitude.to_bits() ^ (if odd { negative } else { 0 }));
    let undefined = x < 0.0 && a < f32::INFINITY && !whole;
    let result = if undefined || x.is_nan() || y.is_nan() { f32::NAN } else { signed };
    if y == 0.0 || x == 1.0 { 1.0 } else { result }
}

/// log2 of a normal positive number, to about 2^-37.
#[inline(always)]
fn log2<I: Isa>(x: f64) -> f64 {
    let (e, m) = double::split_normal(x);
    let s = (m - 1.0) / (m + 1.0);
    double::mad::<I>(s, double::poly::<I, 5>(s * s, POW_LOG2), e)
}

/// 2 to the x, to about 2^-28, rounded to f32.
#[inline(always)]
fn exp2<I: Isa>(x: f64) -> f32 {
    let x = double::clamp(x, -160.0, 130.0);
    let shifted = x + double::SHIFT;
    let r = x - (shifted - double::SHIFT);
    let p = double::mad::<I>(double::poly::<I, 6>(r, POW_EXP2), r, 1.0);
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1f64.to_bits()));
    (p * scale) as f32
}
