//! Rounding to integers, square roots, and fused multiply-add.

use crate::math::MathIsa;

/// Every f32 from here on is an integer.
const INTEGERS: f32 = 8_388_608.0;

/// Returns the nearest integer, ties to even.
#[inline(always)]
pub fn round<I: MathIsa>(x: f32) -> f32 {
    if I::FUSED {
        return x.round_ties_even();
    }
    // The sum has no fraction bits, so the addition does the rounding.
    let near = (x.abs() + INTEGERS) - INTEGERS;
    if x.abs() < INTEGERS { near.copysign(x) } else { x }
}

/// Returns the largest integer not above x.
#[inline(always)]
pub fn floor<I: MathIsa>(x: f32) -> f32 {
    if I::FUSED {
        return x.floor();
    }
    let near = round::<I>(x);
    if near > x { near - 1.0 } else { near }
}

/// Returns the smallest integer not below x.
#[inline(always)]
pub fn ceil<I: MathIsa>(x: f32) -> f32 {
    if I::FUSED {
        return x.ceil();
    }
    let near = round::<I>(x);
    // `copysign` is for values that round up to -0.
    (if near < x { near + 1.0 } else { near }).copysign(x)
}

/// Returns the integer part.
#[inline(always)]
pub fn trunc<I: MathIsa>(x: f32) -> f32 {
    if I::FUSED {
        return x.trunc();
    }
    floor::<I>(x.abs()).copysign(x)
}

/// Returns the square root, correctly rounded.
#[inline(always)]
pub fn sqrt<I: MathIsa>(x: f32) -> f32 {
    x.sqrt()
}

/// Returns the reciprocal of the square root.
#[inline(always)]
pub fn rsqrt<I: MathIsa>(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Returns `a * b + c` with one rounding, on every machine.
#[inline(always)]
pub fn fma<I: MathIsa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FUSED {
        return a.mul_add(b, c);
    }
    // The product is exact in f64. The f64 sum is rounded to odd, so that the final rounding to f32 equals a single
    // rounding of the exact value.
    let (product, c) = (a as f64 * b as f64, c as f64);
    let sum = product + c;
    let virtual_c = sum - product;
    let error = (product - (sum - virtual_c)) + (c - virtual_c);
    let towards_zero = (error > 0.0) != (sum > 0.0);
    let bits = sum.to_bits();
    let odd = if towards_zero { bits.wrapping_sub(1) | 1 } else { bits | 1 };
    let inexact = error != 0.0 && !error.is_nan();
    (if inexact { f64::from_bits(odd) } else { sum }) as f32
}
