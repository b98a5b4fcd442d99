//! Powers: `2^(y log2 |x|)` with the logarithm in two parts, about 2^-37 relative, and the special cases of C's `pow`.

use panoply_ir::approximate::single::{POW_LOG2, POW_LOG2_0, POW_LOG2_1};

use super::exp::exp2_sum;
use super::log::split;
use super::round::trunc;
use super::{mad, poly, product_and_rest, sum_and_rest_ordered};
use crate::math::Isa;

/// x to the y, as C's `pow`.
#[inline(always)]
pub fn pow<I: Isa>(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let (log, log_low) = log2::<I>(a);
    let log = if a < f32::INFINITY { log } else { f32::INFINITY };
    let log = if a > 0.0 { log } else { f32::NEG_INFINITY };
    let (product, product_low) = product_and_rest::<I>(y, log);
    let product_low = mad::<I>(y, log_low, product_low);
    // 1 to the infinity is 1, and -1 too.
    let (product, product_low) = if a == 1.0 { (0.0, 0.0) } else { (product, product_low) };
    let magnitude = exp2_sum::<I>(product, product_low);

    let whole = trunc::<I>(y) == y;
    let odd = whole && trunc::<I>(0.5 * y) != 0.5 * y;
    let negative = x.to_bits() & 0x8000_0000;
    let signed = f32::from_bits(magnitude.to_bits() ^ (if odd { negative } else { 0 }));
    let undefined = x < 0.0 && a < f32::INFINITY && !whole;
    let result = if undefined || x.is_nan() || y.is_nan() { f32::NAN } else { signed };
    if y == 0.0 || x == 1.0 { 1.0 } else { result }
}

/// log2 of a positive number as a sum of two, to about 2^-37.
#[inline(always)]
fn log2<I: Isa>(x: f32) -> (f32, f32) {
    let (e, f) = split(x);
    // s = f / (2 + f).
    let (bottom, bottom_low) = sum_and_rest_ordered(2.0, f);
    let inverse = 1.0 / bottom;
    let s = f * inverse;
    let (back, back_low) = product_and_rest::<I>(s, bottom);
    let s_low = (((f - back) - back_low) - s * bottom_low) * inverse;

    let (square, square_low) = product_and_rest::<I>(s, s);
    let square_low = mad::<I>(2.0 * s, s_low, square_low);
    // POW_LOG2_1 + s^2 P, then times s^2, plus POW_LOG2_0, then times s; each as a sum of two.
    let (sum, sum_low) = sum_and_rest_ordered(POW_LOG2_1.0, square * poly::<I, 3>(square, POW_LOG2));
    let sum_low = sum_low + POW_LOG2_1.1;
    let (part, part_low) = product_and_rest::<I>(sum, square);
    let part_low = part_low + mad::<I>(sum, square_low, sum_low * square);
    let (sum, sum_low) = sum_and_rest_ordered(POW_LOG2_0.0, part);
    let sum_low = sum_low + (POW_LOG2_0.1 + part_low);
    let (part, part_low) = product_and_rest::<I>(sum, s);
    let part_low = part_low + mad::<I>(sum, s_low, sum_low * s);

    // |part| <= 1/2, so e is larger unless it is 0, when the sum is exact in either order.
    let (log, low) = sum_and_rest_ordered(e as f32, part);
    sum_and_rest_ordered(log, low + part_low)
}
