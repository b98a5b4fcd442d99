//! Rounding to integers, square roots, and fused multiply-add.

use crate::math::MathIsa;

/// Every f64 from here on is an integer.
const INTEGERS: f64 = 4_503_599_627_370_496.0;

/// Returns the nearest integer, ties to even.
#[inline(always)]
pub fn round<I: MathIsa>(x: f64) -> f64 {
    if I::FUSED {
        return x.round_ties_even();
    }
    // The sum has no fraction bits, so the addition does the rounding.
    let near = (x.abs() + INTEGERS) - INTEGERS;
    if x.abs() < INTEGERS { near.copysign(x) } else { x }
}

/// Returns the largest integer not above x.
#[inline(always)]
pub fn floor<I: MathIsa>(x: f64) -> f64 {
    if I::FUSED {
        return x.floor();
    }
    let near = round::<I>(x);
    if near > x { near - 1.0 } else { near }
}

/// Returns the smallest integer not below x.
#[inline(always)]
pub fn ceil<I: MathIsa>(x: f64) -> f64 {
    if I::FUSED {
        return x.ceil();
    }
    let near = round::<I>(x);
    // `copysign` is for values that round up to -0.
    (if near < x { near + 1.0 } else { near }).copysign(x)
}

/// Returns the integer part.
#[inline(always)]
pub fn trunc<I: MathIsa>(x: f64) -> f64 {
    if I::FUSED {
        return x.trunc();
    }
    floor::<I>(x.abs()).copysign(x)
}

/// Returns the square root, correctly rounded.
#[inline(always)]
pub fn sqrt<I: MathIsa>(x: f64) -> f64 {
    x.sqrt()
}

/// Returns the reciprocal of the square root.
#[inline(always)]
pub fn rsqrt<I: MathIsa>(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// Returns `a * b + c` with one rounding. On machines without such an instruction this calls the C library and is slow,
/// because there is no wider type to compute it in.
#[inline(always)]
pub fn fma<I: MathIsa>(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

/// Returns the remainder of x / y with the sign of x, as C's `fmod`. Exact, but a call into the C library on most
/// machines: the quotient may have 2098 bits.
#[inline(always)]
pub fn rem<I: MathIsa>(x: f64, y: f64) -> f64 {
    x % y
}
