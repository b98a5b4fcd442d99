//! Arc tangent: three intervals, one division, one polynomial.

use panoply_ir::polynomials::single::ATAN;

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4};

use super::{mad, poly};
use crate::math::MathIsa;

/// pi / 2 - `FRAC_PI_2`.
const FRAC_PI_2_LO: f32 = -4.371_139e-8;

/// Returns the arc tangent, in -pi/2..=pi/2.
#[inline(always)]
pub fn atan<I: MathIsa>(x: f32) -> f32 {
    let a = x.abs();
    // atan a = pi/4 + atan((a - 1) / (a + 1)) = pi/2 + atan(-1 / a)
    let middle = a > 0.414_213_57;
    let far = a > 2.414_213_7;
    let (top, bottom) = if middle { (a - 1.0, a + 1.0) } else { (a, 1.0) };
    let (top, bottom) = if far { (-1.0, a) } else { (top, bottom) };
    let base = if middle { FRAC_PI_4 } else { 0.0 };
    let base = if far { FRAC_PI_2 } else { base };
    let base_low = if middle { 0.5 * FRAC_PI_2_LO } else { 0.0 };
    let base_low = if far { FRAC_PI_2_LO } else { base_low };
    let z = top / bottom;
    let square = z * z;
    let rest = mad::<I>(poly::<I, 5>(square, ATAN), square * z, base_low);
    (base + (z + rest)).copysign(x)
}
