//! Loops on masks, which are bools of one byte, 0 or 1.

use std::slice;

use super::loops::{Binary, Iv, Unary, V, Vv};
use crate::vm::isa::{Body, Machine, VecFn};

/// A way to combine masks.
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

/// Where a mask holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Extent {
    /// The first lane that holds; 0 if none does.
    pub first: usize,
    /// One past the last lane that holds; 0 if none does.
    pub end: usize,
    /// How many lanes hold.
    pub count: usize,
}

/// The loop that combines masks.
pub fn find<M: Machine>(how: Combine) -> VecFn {
    match how {
        Combine::Not => M::compile::<V<Not>>(),
        Combine::And => M::compile::<Vv<And>>(),
        Combine::AndNot => M::compile::<Vv<AndNot>>(),
        Combine::Keep => M::compile::<Iv<And>>(),
        Combine::Remove => M::compile::<Iv<AndNot>>(),
    }
}

/// The loop that writes the [`Extent`] of the mask `a` to `dst`.
pub fn extent<M: Machine>() -> VecFn {
    M::compile::<Scan>()
}

struct Not;

impl Unary for Not {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Machine>(a: u8) -> u8 {
        a ^ 1
    }
}

struct And;

impl Binary for And {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Machine>(a: u8, b: u8) -> u8 {
        a & b
    }
}

struct AndNot;

impl Binary for AndNot {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Machine>(a: u8, b: u8) -> u8 {
        a & (b ^ 1)
    }
}

struct Scan;

impl Body for Scan {
    #[inline(always)]
    unsafe fn run<M: Machine>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and one aligned `Extent`.
        let (mask, extent) = unsafe { (slice::from_raw_parts(a, n), &mut *dst.cast::<Extent>()) };
        let count: usize = mask.chunks(128).map(|chunk| chunk.iter().sum::<u8>() as usize).sum();
        *extent = if count == 0 {
            Extent::default()
        } else if count == n {
            Extent { first: 0, end: n, count }
        } else {
            let first = leading_zeros(mask);
            let end = n - trailing_zeros(mask);
            Extent { first, end, count }
        };
    }
}

/// Lanes before the first that holds.
#[inline(always)]
fn leading_zeros(mask: &[u8]) -> usize {
    let (words, rest) = mask.as_chunks::<16>();
    let skipped = words.iter().take_while(|word| u128::from_ne_bytes(**word) == 0).count();
    let rest = if skipped < words.len() { &words[skipped][..] } else { rest };
    skipped * 16 + rest.iter().take_while(|lane| **lane == 0).count()
}

/// Lanes after the last that holds.
#[inline(always)]
fn trailing_zeros(mask: &[u8]) -> usize {
    let (rest, words) = mask.as_rchunks::<16>();
    let skipped = words.iter().rev().take_while(|word| u128::from_ne_bytes(**word) == 0).count();
    let rest = if skipped < words.len() { &words[words.len() - 1 - skipped][..] } else { rest };
    skipped * 16 + rest.iter().rev().take_while(|lane| **lane == 0).count()
}
