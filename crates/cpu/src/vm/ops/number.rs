//! Implementations of the operations of [`Alu`](panoply_ir::Alu) for each Rust type, without branches where the loops
//! should be vectorized.

use panoply_host::isa::Simd;
use panoply_host::math;

/// Operations of all numbers.
pub trait Number: Copy + PartialEq + PartialOrd + 'static {
    /// Returns `-self`, wrapping.
    fn neg(self) -> Self;
    /// Returns the absolute value, wrapping.
    fn abs(self) -> Self;
    /// Returns the sum, wrapping.
    fn add(self, other: Self) -> Self;
    /// Returns the difference, wrapping.
    fn sub(self, other: Self) -> Self;
    /// Returns the product, wrapping.
    fn mul(self, other: Self) -> Self;
    /// Returns the quotient; for integers 0 if the divisor is 0.
    fn div(self, other: Self) -> Self;
    /// Returns the remainder; for integers `self` if the divisor is 0.
    fn rem(self, other: Self) -> Self;
    /// Returns the minimum; NaN if either is NaN.
    fn min(self, other: Self) -> Self;
    /// Returns the maximum; NaN if either is NaN.
    fn max(self, other: Self) -> Self;
}

/// Operations of integers and bools.
pub trait Bits: Copy + 'static {
    /// Inverts the bits.
    fn not(self) -> Self;
    /// Returns the number of set bits.
    fn count_ones(self) -> Self;
    /// Returns the bitwise and.
    fn and(self, other: Self) -> Self;
    /// Returns the bitwise or.
    fn or(self, other: Self) -> Self;
    /// Returns the bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Shifts left by `other` modulo the width.
    fn shl(self, other: Self) -> Self;
    /// Shifts right by `other` modulo the width.
    fn shr(self, other: Self) -> Self;
}

macro_rules! integer {
    ($($ty:ident, $abs:expr, $div:expr;)*) => {$(
        impl Number for $ty {
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> Self {
                let abs: fn($ty) -> $ty = $abs;
                abs(self)
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                let div: fn($ty, $ty) -> $ty = $div;
                div(self, other)
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                // Division by 0 has the quotient 0, so the remainder is `self`; it is 0 for the smallest integer divided by -1.
                self.wrapping_sub(Number::div(self, other).wrapping_mul(other))
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
        }

        impl Bits for $ty {
            #[inline(always)]
            fn not(self) -> Self {
                !self
            }
            #[inline(always)]
            fn count_ones(self) -> Self {
                self.count_ones() as $ty
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn shl(self, other: Self) -> Self {
                self.wrapping_shl(other as u32)
            }
            #[inline(always)]
            fn shr(self, other: Self) -> Self {
                self.wrapping_shr(other as u32)
            }
        }
    )*};
}

/// Quotient of integers of at most 32 bits, computed in f64, which holds them exactly: there are no vector instructions
/// for integer division, but there are for f64. Truncating the rounded quotient gives the right integer, because a true
/// quotient that is not an integer is further from the next integer than the rounding error of f64.
macro_rules! narrow_div {
    ($ty:ident) => {
        |a, b| {
            let quotient = (a as f64 / b as f64) as i64 as $ty;
            if b == 0 { 0 } else { quotient }
        }
    };
}

macro_rules! wide_div {
    () => {
        |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }
    };
}

integer! {
    i8, |x| x.wrapping_abs(), narrow_div!(i8);
    i16, |x| x.wrapping_abs(), narrow_div!(i16);
    i32, |x| x.wrapping_abs(), narrow_div!(i32);
    i64, |x| x.wrapping_abs(), wide_div!();
    u8, |x| x, narrow_div!(u8);
    u16, |x| x, narrow_div!(u16);
    u32, |x| x, narrow_div!(u32);
    u64, |x| x, wide_div!();
}

/// Additional operations of floats, all as in [`math`], given whether the instruction set has fused multiply-add.
pub trait Float: Number {
    /// Returns `self × b + c` with one rounding.
    fn fma<M: Simd>(self, b: Self, c: Self) -> Self;
    /// Returns x to the power y.
    fn pow<M: Simd>(self, exponent: Self) -> Self;
    /// Returns e to the power x.
    fn exp<M: Simd>(self) -> Self;
    /// Returns 2 to the power x.
    fn exp2<M: Simd>(self) -> Self;
    /// Returns the natural logarithm.
    fn ln<M: Simd>(self) -> Self;
    /// Returns the logarithm to base 2.
    fn log2<M: Simd>(self) -> Self;
    /// Returns ln(1 + x).
    fn log1p<M: Simd>(self) -> Self;
    /// Returns exp(x) - 1.
    fn expm1<M: Simd>(self) -> Self;
    /// Returns the sine.
    fn sin<M: Simd>(self) -> Self;
    /// Returns the cosine.
    fn cos<M: Simd>(self) -> Self;
    /// Returns the tangent.
    fn tan<M: Simd>(self) -> Self;
    /// Returns the arc tangent.
    fn atan<M: Simd>(self) -> Self;
    /// Returns the hyperbolic tangent.
    fn tanh<M: Simd>(self) -> Self;
    /// Returns the Gauss error function.
    fn erf<M: Simd>(self) -> Self;
    /// Returns the square root.
    fn sqrt<M: Simd>(self) -> Self;
    /// Rounds towards -inf.
    fn floor<M: Simd>(self) -> Self;
    /// Rounds towards +inf.
    fn ceil<M: Simd>(self) -> Self;
    /// Rounds to nearest, ties to even.
    fn round<M: Simd>(self) -> Self;
    /// Rounds towards zero.
    fn trunc<M: Simd>(self) -> Self;
}

macro_rules! float {
    ($ty:ident, $math:ident: $($name:ident)*) => {
        impl Number for $ty {
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $ty::abs(self)
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                self % other
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let smaller = if self < other { self } else { other };
                if self.is_nan() { self } else { smaller }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let larger = if self > other { self } else { other };
                if self.is_nan() { self } else { larger }
            }
        }

        impl Float for $ty {
            #[inline(always)]
            fn fma<M: Simd>(self, b: Self, c: Self) -> Self {
                math::$math::fma::<M::Math>(self, b, c)
            }
            #[inline(always)]
            fn pow<M: Simd>(self, exponent: Self) -> Self {
                math::$math::pow::<M::Math>(self, exponent)
            }
            $(
                #[inline(always)]
                fn $name<M: Simd>(self) -> Self {
                    math::$math::$name::<M::Math>(self)
                }
            )*
        }
    };
}

float!(f32, single: exp exp2 ln log2 log1p expm1 sin cos tan atan tanh erf sqrt floor ceil round trunc);
float!(f64, double: exp exp2 ln log2 log1p expm1 sin cos tan atan tanh erf sqrt floor ceil round trunc);
