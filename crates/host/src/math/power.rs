//! Powers of floats of either type: `2^(y log2 |x|)` with the logarithm in two parts, and the special cases of C's `pow`.
//!
//! The code is written once, in terms of items of the type's module: its coefficients, `split`, `exp2_sum` and sums in two parts.

/// Defines the product of two floats of a type, and their sum, as a rounded value and the exact error. `$lower` is the
/// number of low bits of a significand that form its lower half.
macro_rules! rests {
    ($float:ident, $lower:literal) => {
        /// Returns the rounded product and its exact error (Dekker; Veltkamp's split by masking).
        #[inline(always)]
        fn product_and_rest<I: MathIsa>(a: $float, b: $float) -> ($float, $float) {
            let product = a * b;
            if I::FUSED {
                return (product, a.mul_add(b, -product));
            }
            let ((a_hi, a_lo), (b_hi, b_lo)) = (halves(a), halves(b));
            (product, ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo)
        }

        /// Splits `x` into a number with the upper bits of its significand and the exact rest.
        #[inline(always)]
        fn halves(x: $float) -> ($float, $float) {
            let upper = $float::from_bits(x.to_bits() & !((1 << $lower) - 1));
            (upper, x - upper)
        }

        /// Returns the rounded sum and its exact error, for |a| >= |b| or a = 0 (Dekker).
        #[inline(always)]
        fn sum_and_rest_ordered(a: $float, b: $float) -> ($float, $float) {
            let sum = a + b;
            (sum, b - (sum - a))
        }
    };
}

/// Defines `pow` of a type.
macro_rules! power {
    ($float:ident) => {
        /// Returns x to the power y, as C's `pow`.
        #[inline(always)]
        pub fn pow<I: MathIsa>(x: $float, y: $float) -> $float {
            let a = x.abs();
            let (log, log_low) = log2::<I>(a);
            let log = if a < $float::INFINITY { log } else { $float::INFINITY };
            let log = if a > 0.0 { log } else { $float::NEG_INFINITY };
            let (product, product_low) = product_and_rest::<I>(y, log);
            let product_low = mad::<I>(y, log_low, product_low);
            // 1 and -1 to the power infinity are 1.
            let (product, product_low) = if a == 1.0 { (0.0, 0.0) } else { (product, product_low) };
            let magnitude = exp2_sum::<I>(product, product_low);

            let whole = trunc::<I>(y) == y;
            let odd = whole && trunc::<I>(0.5 * y) != 0.5 * y;
            let signed = $float::from_bits(magnitude.to_bits() ^ (if odd { x.to_bits() & SIGN } else { 0 }));
            let undefined = x < 0.0 && a < $float::INFINITY && !whole;
            let result = if undefined || x.is_nan() || y.is_nan() { $float::NAN } else { signed };
            if y == 0.0 || x == 1.0 { 1.0 } else { result }
        }

        /// Returns log2 of a positive number as a sum of two.
        #[inline(always)]
        fn log2<I: MathIsa>(x: $float) -> ($float, $float) {
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
            // POW_LOG2_1 + s^2 P, then times s^2, plus POW_LOG2_0, then times s; each as a sum of two.
            let (sum, sum_low) =
                sum_and_rest_ordered(POW_LOG2_1.0, square * poly::<I, { POW_LOG2.len() }>(square, POW_LOG2));
            let sum_low = sum_low + POW_LOG2_1.1;
            let (part, part_low) = product_and_rest::<I>(sum, square);
            let part_low = part_low + mad::<I>(sum, square_low, sum_low * square);
            let (sum, sum_low) = sum_and_rest_ordered(POW_LOG2_0.0, part);
            let sum_low = sum_low + (POW_LOG2_0.1 + part_low);
            let (part, part_low) = product_and_rest::<I>(sum, s);
            let part_low = part_low + mad::<I>(sum, s_low, sum_low * s);

            // |part| <= 1/2, so e is larger unless it is 0, when the sum is exact in either order.
            let (log, low) = sum_and_rest_ordered(e, part);
            sum_and_rest_ordered(log, low + part_low)
        }
    };
}

pub(super) use {power, rests};
