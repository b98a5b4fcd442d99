//! What the operations of [`Alu`](panoply_ir::Alu) mean for each Rust type, free of branches where the loops should be
//! vectorized.

use crate::math;
use crate::vm::isa::Machine;

/// What every number can do.
pub trait Number: Copy + PartialEq + PartialOrd + 'static {
    /// `-self`, wrapping.
    fn neg(self) -> Self;
    /// Magnitude, wrapping.
    fn abs(self) -> Self;
    /// Sum, wrapping.
    fn add(self, other: Self) -> Self;
    /// Difference, wrapping.
    fn sub(self, other: Self) -> Self;
    /// Product, wrapping.
    fn mul(self, other: Self) -> Self;
    /// Quotient; for integers 0 if the divisor is 0.
    fn div(self, other: Self) -> Self;
    /// Remainder; for integers `self` if the divisor is 0.
    fn rem(self, other: Self) -> Self;
    /// The smaller, or NaN.
    fn min(self, other: Self) -> Self;
    /// The larger, or NaN.
    fn max(self, other: Self) -> Self;
}

/// What integers and bools can do.
pub trait Bits: Copy + 'static {
    /// Bits inverted.
    fn not(self) -> Self;
    /// How many bits are set.
    fn count_ones(self) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Left shift modulo the width.
    fn shl(self, other: Self) -> Self;
    /// Right shift modulo the width.
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
                // With the quotient 0 of a division by 0 this is `self`, and 0 for the smallest integer by -1.
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

/// A quotient of integers of at most 32 bits, which f64 holds exactly: vectors of integers cannot be divided, vectors of
/// doubles can. The rounded quotient truncates to the right integer because the true one, if it is not an integer, is
/// further from the next integer than f64's rounding error.
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

/// What floats can do besides; all as in [`math`], which is told whether the instruction set has fused multiply-add.
pub trait Float: Number {
    /// `self × b + c` with one rounding.
    fn fma<M: Machine>(self, b: Self, c: Self) -> Self;
    /// x to the y.
    fn pow<M: Machine>(self, exponent: Self) -> Self;
    /// e to the x.
    fn exp<M: Machine>(self) -> Self;
    /// 2 to the x.
    fn exp2<M: Machine>(self) -> Self;
    /// Natural logarithm.
    fn ln<M: Machine>(self) -> Self;
    /// Logarithm to base 2.
    fn log2<M: Machine>(self) -> Self;
    /// ln(1 + x).
    fn log1p<M: Machine>(self) -> Self;
    /// exp(x) - 1.
    fn expm1<M: Machine>(self) -> Self;
    /// Sine.
    fn sin<M: Machine>(self) -> Self;
    /// Cosine.
    fn cos<M: Machine>(self) -> Self;
    /// Tangent.
    fn tan<M: Machine>(self) -> Self;
    /// Arc tangent.
    fn atan<M: Machine>(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh<M: Machine>(self) -> Self;
    /// Gauss error function.
    fn erf<M: Machine>(self) -> Self;
    /// Square root.
    fn sqrt<M: Machine>(self) -> Self;
    /// Towards -inf.
    fn floor<M: Machine>(self) -> Self;
    /// Towards +inf.
    fn ceil<M: Machine>(self) -> Self;
    /// To nearest, ties to even.
    fn round<M: Machine>(self) -> Self;
    /// Towards zero.
    fn trunc<M: Machine>(self) -> Self;
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
            fn fma<M: Machine>(self, b: Self, c: Self) -> Self {
                math::$math::fma::<M::Math>(self, b, c)
            }
            #[inline(always)]
            fn pow<M: Machine>(self, exponent: Self) -> Self {
                math::$math::pow::<M::Math>(self, exponent)
            }
            $(
                #[inline(always)]
                fn $name<M: Machine>(self) -> Self {
                    math::$math::$name::<M::Math>(self)
                }
            )*
        }
    };
}

float!(f32, single: exp exp2 ln log2 log1p expm1 sin cos tan atan tanh erf sqrt floor ceil round trunc);
float!(f64, double: exp exp2 ln log2 log1p expm1 sin cos tan atan tanh erf sqrt floor ceil round trunc);
