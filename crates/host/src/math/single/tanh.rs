//! Hyperbolic tangent: `(1 - exp(-2 x)) / (1 + exp(-2 x))`, both from one polynomial.

use panoply_ir::polynomials::single::EXPM1;

use super::exp::{exponent, reduce};
use super::{mad, poly};
use crate::math::MathIsa;

/// Returns the hyperbolic tangent.
#[inline(always)]
pub fn tanh<I: MathIsa>(x: f32) -> f32 {
    let a = x.abs();
    // From 10 on the result rounds to 1.
    let bounded = if a > 10.0 { 10.0 } else { a };
    let (n, r) = reduce::<I>(-2.0 * bounded);
    let p = mad::<I>(poly::<I, 6>(r, EXPM1), r * r, r);
    // exp(-2 a) = 2^n (1 + p). The argument is -2 a, because for small a the divisor is then just below 2, where its
    // relative rounding error is smallest.
    let scale = exponent(n, 0);
    let (below, above) = (mad::<I>(scale, p, scale - 1.0), mad::<I>(scale, p, scale + 1.0));
    (below / above).copysign(x)
}
