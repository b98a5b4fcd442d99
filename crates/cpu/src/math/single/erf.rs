//! The error function: a polynomial near 0, `1 - exp(-x^2 - P(|x|))` elsewhere.

use super::exp::exp_normal;
use super::{mad, poly};
use crate::math::Isa;

/// `erf x = x + x P(x^2)` on |x| <= 0.93, relative error 2^-30.
const NEAR: [f32; 7] = [0.12837917, -0.3761263, 0.11283626, -0.026855731, 0.005192405, -0.00080497697, 7.99665e-05];

/// `erfc x = exp(-x^2 - P(x - 2))` on 0.9..=4, absolute error 2^-26.7.
const FAR: [f32; 7] = [1.3649409, 0.4181598, -0.07624119, 0.016495889, -0.0035519146, 0.0006894273, -0.00019718155];

/// Gauss error function.
#[inline(always)]
pub fn erf<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let near = mad::<I>(a, poly::<I, 7>(a * a, NEAR), a);
    // From 4 on the result is 1.
    let bounded = if a < 4.0 { a } else { 4.0 };
    let exponent = mad::<I>(bounded, bounded, poly::<I, 7>(bounded - 2.0, FAR));
    let far = 1.0 - exp_normal::<I>(-exponent);
    (if a > 0.92 { far } else { near }).copysign(x)
}
