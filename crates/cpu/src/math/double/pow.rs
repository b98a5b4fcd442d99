//! Powers: `2^(y log2 |x|)` with the logarithm in two parts, about 2^-66 relative, and the special cases of C's `pow`.

use super::exp::exp2_sum;
use super::round::trunc;
use super::{SIGN, mad, poly, product_and_rest, split, sum_and_rest_ordered};
use crate::math::Isa;

/// `log2((1 + s) / (1 - s)) = s (C0 + C1 s^2 + s^4 P(s^2))`, relative error 2^-73.
const LOG2: [f64; 8] = [
    0.5770780163555851,
    0.41219858311134566,
    0.3205988979127996,
    0.2623081986563947,
    0.2219522704167374,
    0.1924013221632604,
    0.16845146885582518,
    0.17281808023079562,
];
/// 2 / ln 2.
const C0: (f64, f64) = (2.8853900817779268, 4.0710547481862066e-17);
/// A third of that.
const C1: (f64, f64) = (0.9617966939259756, 5.0577616648125907e-17);

/// x to the y, as C's `pow`.
#[inline(always)]
pub fn pow<I: Isa>(x: f64, y: f64) -> f64 {
    let a = x.abs();
    let (log, log_low) = log2::<I>(a);
    let log = if a < f64::INFINITY { log } else { f64::INFINITY };
    let log = if a > 0.0 { log } else { f64::NEG_INFINITY };
    let (product, product_low) = product_and_rest::<I>(y, log);
    let product_low = mad::<I>(y, log_low, product_low);
    // 1 to the infinity is 1, and -1 too.
    let (product, product_low) = if a == 1.0 { (0.0, 0.0) } else { (product, product_low) };
    let magnitude = exp2_sum::<I>(product, product_low);

    let whole = trunc::<I>(y) == y;
    let odd = whole && trunc::<I>(0.5 * y) != 0.5 * y;
    let signed = f64::from_bits(magnitude.to_bits() ^ (if odd { x.to_bits() & SIGN } else { 0 }));
    let undefined = x < 0.0 && a < f64::INFINITY && !whole;
    let result = if undefined || x.is_nan() || y.is_nan() { f64::NAN } else { signed };
    if y == 0.0 || x == 1.0 { 1.0 } else { result }
}

/// log2 of a positive number as a sum of two, to about 2^-66.
#[inline(always)]
fn log2<I: Isa>(x: f64) -> (f64, f64) {
    let (e, m) = split(x);
    // s = (m - 1) / (m + 1); m - 1 is exact.
    let top = m - 1.0;
    let (bottom, bottom_low) = sum_and_rest_ordered(1.0, m);
    let inverse = 1.0 / bottom;
    let s = top * inverse;
    let (back, back_low) = product_and_rest::<I>(s, bottom);
    let s_low = (((top - back) - back_low) - s * bottom_low) * inverse;

    let (square, square_low) = product_and_rest::<I>(s, s);
    let square_low = mad::<I>(2.0 * s, s_low, square_low);
    // C1 + s^2 P, then times s^2, plus C0, then times s; each as a sum of two.
    let (sum, sum_low) = sum_and_rest_ordered(C1.0, square * poly::<I, 8>(square, LOG2));
    let sum_low = sum_low + C1.1;
    let (part, part_low) = product_and_rest::<I>(sum, square);
    let part_low = part_low + mad::<I>(sum, square_low, sum_low * square);
    let (sum, sum_low) = sum_and_rest_ordered(C0.0, part);
    let sum_low = sum_low + (C0.1 + part_low);
    let (part, part_low) = product_and_rest::<I>(sum, s);
    let part_low = part_low + mad::<I>(sum, s_low, sum_low * s);

    // |part| <= 1/2, so e is larger unless it is 0, when the sum is exact in either order.
    let (log, low) = sum_and_rest_ordered(e, part);
    sum_and_rest_ordered(log, low + part_low)
}
