//! The error function: a polynomial near 0, `1 - exp(-x^2 - P(|x|))` elsewhere.

use panoply_ir::polynomials::double::{ERF_FAR, ERF_NEAR};

use super::exp::exp_normal;
use super::{mad, poly};
use crate::math::MathIsa;

/// Returns the Gauss error function.
#[inline(always)]
pub fn erf<I: MathIsa>(x: f64) -> f64 {
    let a = x.abs();
    let near = mad::<I>(a, poly::<I, 12>(a * a, ERF_NEAR), a);
    // From 5.95 on the result rounds to 1.
    let bounded = if a < 5.95 { a } else { 5.95 };
    let exponent = mad::<I>(bounded, bounded, poly::<I, 19>(bounded - 3.0, ERF_FAR));
    let far = 1.0 - exp_normal::<I>(-exponent);
    (if a > 1.0 { far } else { near }).copysign(x)
}
