//! Loops on masks, which are one byte per lane, 0 or 1.

use std::slice;

use panoply_host::isa::{LoopBody, Simd, VecFn};

use super::loops::{Binary, Iv, Unary, V, Vv};

/// An operation on masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// `dst = not a`.
    Not,
    /// `dst = a and b`.
    And,
    /// `dst = a and not b`.
    AndNot,
    /// `dst = dst and b`.
    Keep,
    /// `dst = dst and not b`.
    Remove,
}

/// The range of active lanes of a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Extent {
    /// The first active lane; 0 if there is none.
    pub first: usize,
    /// One past the last active lane; 0 if there is none.
    pub end: usize,
    /// Number of active lanes.
    pub count: usize,
}

/// Returns the loop of an operation on masks.
pub fn find<M: Simd>(how: Combine) -> VecFn {
    match how {
        Combine::Not => M::compile::<V<Not>>(),
        Combine::And => M::compile::<Vv<And>>(),
        Combine::AndNot => M::compile::<Vv<AndNot>>(),
        Combine::Keep => M::compile::<Iv<And>>(),
        Combine::Remove => M::compile::<Iv<AndNot>>(),
    }
}

/// Returns the loop that writes the [`Extent`] of the mask `a` to `dst`.
pub fn extent<M: Simd>() -> VecFn {
    M::compile::<Scan>()
}

struct Not;

impl Unary for Not {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Simd>(a: u8) -> u8 {
        a ^ 1
    }
}

struct And;

impl Binary for And {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Simd>(a: u8, b: u8) -> u8 {
        a & b
    }
}

struct AndNot;

impl Binary for AndNot {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Simd>(a: u8, b: u8) -> u8 {
        a & (b ^ 1)
    }
}

struct Scan;

impl LoopBody for Scan {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and one aligned `Extent`.
        let (mask, extent) = unsafe { (slice::from_raw_parts(a, n), &mut *dst.cast::<Extent>()) };
        let (words, rest) = mask.as_chunks::<8>();
        let mut last = [0; 8];
        rest.iter().zip(&mut last).for_each(|(lane, byte)| *byte = *lane);
        let word = |number: usize| u64::from_le_bytes(words.get(number).copied().unwrap_or(last));
        let count = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones()).sum::<u32>() as usize
            + u64::from_ne_bytes(last).count_ones() as usize;
        *extent = if count == 0 {
            Extent::default()
        } else if count == n {
            Extent { first: 0, end: n, count }
        } else {
            let holds = |number: &usize| word(*number) != 0;
            let (first, end) = ((0..=words.len()).find(holds), (0..=words.len()).rfind(holds));
            let (first, end) = (first.unwrap_or(0), end.unwrap_or(0));
            Extent {
                first: first * 8 + word(first).trailing_zeros() as usize / 8,
                end: end * 8 + 8 - word(end).leading_zeros() as usize / 8,
                count,
            }
        };
    }
}
