//! Hyperbolic tangent: `-t / (t + 2)` with `t = expm1(-2 |x|)`.

use super::exp::expm1;
use crate::math::MathIsa;

/// Returns the hyperbolic tangent.
#[inline(always)]
pub fn tanh<I: MathIsa>(x: f64) -> f64 {
    let t = expm1::<I>(-2.0 * x.abs());
    (t / (t + 2.0)).copysign(x)
}
