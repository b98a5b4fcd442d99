//! Quotients and remainders of unsigned lanes by one uniform value, which are frequent in index arithmetic.
//!
//! Processors divide 64-bit integers one at a time and slowly. Below 2^50 the quotient can be computed in f64: (x + ½)
//! / n differs from every integer by at least ½ / n, which is more than the rounding errors of 1 / n and of the
//! product.

use std::slice;

use panoply_host::isa::{LoopBody, Simd};

/// Lanes at or above this are divided one at a time.
const EXACT: u64 = 1 << 50;

/// Quotient of lanes by a value; 0 if the value is 0.
pub struct Quotient;
/// Remainder of lanes by a value; the lanes themselves if the value is 0.
pub struct Remainder;

/// Writes `of(x, x / n)` for each lane `x` of `a`, with quotient 0 if `n` is 0.
#[inline(always)]
pub fn each(dst: &mut [u64], a: &[u64], n: u64, of: impl Fn(u64, u64) -> u64) {
    let largest = a.iter().fold(n, |all, x| all | x);
    if n == 0 {
        dst.iter_mut().zip(a).for_each(|(out, x)| *out = of(*x, 0));
    } else if largest < EXACT {
        let inverse = 1.0 / n as f64;
        for (out, x) in dst.iter_mut().zip(a) {
            let quotient = (*x as i64 as f64 + 0.5) * inverse;
            // SAFETY: the value is finite and in 0 .. 2^51.
            let quotient = unsafe { quotient.to_int_unchecked::<i64>() } as u64;
            *out = of(*x, quotient);
        }
    } else {
        dst.iter_mut().zip(a).for_each(|(out, x)| *out = of(*x, x / n));
    }
}

macro_rules! body {
    ($name:ident, |$x:ident, $quotient:ident, $n:ident| $value:expr) => {
        impl LoopBody for $name {
            #[inline(always)]
            unsafe fn run<M: Simd>(lanes: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
                // SAFETY: the caller promises `lanes` aligned lanes that overlap no source.
                let dst = unsafe { slice::from_raw_parts_mut(dst.cast::<u64>(), lanes) };
                // SAFETY: the caller promises `lanes` aligned lanes that are not written meanwhile.
                let a = unsafe { slice::from_raw_parts(a.cast::<u64>(), lanes) };
                // SAFETY: the caller promises one aligned value.
                let $n = unsafe { *b.cast::<u64>() };
                each(dst, a, $n, |$x, $quotient| $value);
            }
        }
    };
}

body!(Quotient, |_x, quotient, n| quotient);
body!(Remainder, |x, quotient, n| x - quotient * n);
