//! Powers of floats of any type: `2^(y log2 |x|)` with the logarithm in two parts, and the special cases of C's `pow`.

use super::value::V;

/// Returns x to the y like C's `pow`, from the logarithm and exponential of the type.
pub(super) fn pow<'m>(x: V<'m>, y: V<'m>, log2: fn(V<'m>) -> (V<'m>, V<'m>), exp2: fn(V<'m>, V<'m>) -> V<'m>) -> V<'m> {
    let a = x.abs();
    let (log, log_low) = log2(a);
    let log = a.less(f64::INFINITY).then(log, a.number(f64::INFINITY));
    let log = a.more(0.0).then(log, a.number(f64::NEG_INFINITY));
    let (product, product_low) = product_and_rest(y, log);
    let product_low = y.mad(log_low, product_low);
    // 1 to an infinite power is 1, and so is -1.
    let (one, zero) = (a.is(1.0), a.number(0.0));
    let magnitude = exp2(one.then(zero, product), one.then(zero, product_low));

    let whole = y.trunc().equal(y);
    let half = y * 0.5;
    let odd = whole & half.trunc().equal(half).not();
    let signed = odd.then(magnitude.flip_with(x), magnitude);
    let undefined = x.less(0.0) & x.abs().less(f64::INFINITY) & whole.not();
    let result = (undefined | x.is_nan() | y.is_nan()).then(x.number(f64::NAN), signed);
    (y.is(0.0) | x.is(1.0)).then(x.number(1.0), result)
}

/// Returns the base-2 logarithm of `2^e m` as a sum of two: `e + s (C0 + C1 s^2 + s^4 P(s^2))` with C0 and C1 as sums
/// of two.
pub(super) fn log2_sum<'m, C: Into<f64> + Copy>(
    e: V<'m>,
    m: V<'m>,
    [c0, c1]: [(C, C); 2],
    rest: &[C],
) -> (V<'m>, V<'m>) {
    // s = (m - 1) / (m + 1); m - 1 is exact.
    let top = m - 1.0;
    let one = m.number(1.0);
    let (bottom, bottom_low) = sum_and_rest_ordered(one, m);
    let inverse = one / bottom;
    let s = top * inverse;
    let (back, back_low) = product_and_rest(s, bottom);
    let s_low = (((top - back) - back_low) - s * bottom_low) * inverse;

    let (square, square_low) = product_and_rest(s, s);
    let square_low = (s * 2.0).mad(s_low, square_low);
    // C1 + s^2 P, then times s^2, plus C0, then times s; each as a sum of two.
    let (sum, sum_low) = sum_and_rest_ordered(s.number(c1.0.into()), square * square.poly(rest));
    let sum_low = sum_low + c1.1.into();
    let (part, part_low) = product_and_rest(sum, square);
    let part_low = part_low + sum.mad(square_low, sum_low * square);
    let (sum, sum_low) = sum_and_rest_ordered(s.number(c0.0.into()), part);
    let sum_low = sum_low + (part_low + c0.1.into());
    let (part, part_low) = product_and_rest(sum, s);
    let part_low = part_low + sum.mad(s_low, sum_low * s);

    // |part| <= 1/2, so e is larger unless it is 0, in which case the sum is exact in either order.
    let (log, low) = sum_and_rest_ordered(e, part);
    sum_and_rest_ordered(log, low + part_low)
}

/// Returns the product as a rounded part and the exact remainder.
pub(super) fn product_and_rest<'m>(a: V<'m>, b: V<'m>) -> (V<'m>, V<'m>) {
    let product = a * b;
    (product, a.mad(b, -product))
}

/// Returns the sum, for |a| >= |b| or a = 0, as a rounded part and the exact remainder (Dekker).
fn sum_and_rest_ordered<'m>(a: V<'m>, b: V<'m>) -> (V<'m>, V<'m>) {
    let sum = a + b;
    (sum, b - (sum - a))
}
