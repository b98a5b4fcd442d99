//! Hyperbolic tangent: a polynomial near 0, `1 - 2 / (exp(2 |x|) + 1)` elsewhere.

use panoply_ir::approximate::single::TANH;

use super::exp::exp_normal;
use super::{mad, poly};
use crate::math::Isa;

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let square = a * a;
    let near = mad::<I>(poly::<I, 5>(square, TANH), square * a, a);
    // From 10 on the result is 1.
    let bounded = if a < 10.0 { a } else { 10.0 };
    let far = 1.0 - 2.0 / (exp_normal::<I>(2.0 * bounded) + 1.0);
    (if a > 0.6 { far } else { near }).copysign(x)
}
