//! Arc tangent: argument reduction to three intervals, one division, one odd polynomial (as in FreeBSD's msun).

use panoply_ir::polynomials::double::ATAN;

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

use super::{mad, poly};
use crate::math::MathIsa;

/// The rounding error of `FRAC_PI_2`: pi / 2 - `FRAC_PI_2`.
const FRAC_PI_2_LO: f64 = 6.123_233_995_736_766e-17;

/// Returns the arc tangent in radians, in -pi/2..=pi/2.
#[inline(always)]
pub fn atan<I: MathIsa>(x: f64) -> f64 {
    let a = x.abs();
    // atan a = pi/4 + atan((a - 1) / (a + 1)) = pi/2 + atan(-1 / a). The limits are tan(pi/8) and tan(3 pi/8), so that the
    // argument z of the polynomial is at most tan(pi/8).
    let middle = a > 0.414_213_562_373_095_05;
    let far = a > 2.414_213_562_373_095;
    let (numerator, denominator) = if middle { (a - 1.0, a + 1.0) } else { (a, 1.0) };
    let (numerator, denominator) = if far { (-1.0, a) } else { (numerator, denominator) };
    let base = if middle { FRAC_PI_4 } else { 0.0 };
    let base = if far { FRAC_PI_2 } else { base };
    let base_low = if middle { 0.5 * FRAC_PI_2_LO } else { 0.0 };
    let base_low = if far { FRAC_PI_2_LO } else { base_low };
    let z = numerator / denominator;
    let square = z * z;
    let rest = mad::<I>(poly::<I, 12>(square, ATAN), square * z, base_low);
    (base + (z + rest)).copysign(x)
}
