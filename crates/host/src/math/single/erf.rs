//! The error function: a polynomial near 0, `1 - exp(-x^2 - P(|x|))` elsewhere.

use panoply_ir::polynomials::single::{ERF_FAR, ERF_NEAR};

use super::exp::exp_normal;
use super::{mad, poly};
use crate::math::MathIsa;

/// Returns the Gauss error function.
#[inline(always)]
pub fn erf<I: MathIsa>(x: f32) -> f32 {
    let a = x.abs();
    let near = mad::<I>(a, poly::<I, 7>(a * a, ERF_NEAR), a);
    // From 4 on the result rounds to 1.
    let bounded = if a < 4.0 { a } else { 4.0 };
    let exponent = mad::<I>(bounded, bounded, poly::<I, 7>(bounded - 2.0, ERF_FAR));
    let far = 1.0 - exp_normal::<I>(-exponent);
    (if a > 0.92 { far } else { near }).copysign(x)
}
