//! Powers, with a logarithm accurate to about 2^-37.

use panoply_ir::polynomials::single::{POW_LOG2, POW_LOG2_0, POW_LOG2_1};

use super::exp::exp2_sum;
use super::round::trunc;
use super::{SIGN, log, mad, poly, product_and_rest, sum_and_rest_ordered};
use crate::math::MathIsa;

/// Returns `e` and `m` with `x = 2^e m`, for positive finite x.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let (e, f) = log::split(x);
    (e as f32, 1.0 + f)
}

crate::math::power::power!(f32);
