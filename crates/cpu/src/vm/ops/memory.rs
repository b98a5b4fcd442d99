//! Loops that move lanes; they depend only on the width of a lane.

use std::marker::PhantomData;
use std::slice;

use panoply_host::isa::{LoopBody, Simd, VecFn};

/// An operation that moves lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// `dst[i] = a[i]`.
    Copy,
    /// `dst[i] = *a`.
    Splat,
    /// `dst[i] = a[...]`, where `*b` is the [`Pattern`] of the lanes' elements, starting at the first.
    Collect,
    /// `dst[...] = a[i]`, in the order of lanes, where `*b` is the [`Pattern`] of their elements.
    Spread,
    /// `dst[i] = a[b[i]]`, and 0 where `b[i]` is not below `*c`.
    Gather,
    /// `dst[i] = a[b[i]]`.
    GatherUnchecked,
    /// `dst[i] = b[i]` where the bool `a[i]` holds; all lanes of `dst` may be written.
    Blend,
    /// `dst[i] = b[i]` where the bool `a[i]` holds; nothing is written elsewhere.
    Masked,
    /// `dst[i] = *b` where the bool `a[i]` holds; nothing is written elsewhere.
    MaskedSplat,
}

/// The layout of the lanes' elements in memory: a fixed stride within a row, and a fixed stride between rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pattern {
    /// Number of lanes of a row.
    pub width: usize,
    /// Elements from one lane to the next.
    pub step: i64,
    /// Elements from one row to the next.
    pub row: i64,
}

/// Returns the loop that moves lanes of `bytes` bytes.
pub fn find<M: Simd>(how: Move, bytes: usize) -> VecFn {
    match bytes {
        1 => of_width::<M, u8>(how),
        2 => of_width::<M, u16>(how),
        4 => of_width::<M, u32>(how),
        _ => of_width::<M, u64>(how),
    }
}

/// Returns the loop `dst[i] = *a + i * *b` on u64 lanes.
pub fn iota<M: Simd>() -> VecFn {
    M::compile::<Iota>()
}

fn of_width<M: Simd, T: Word>(how: Move) -> VecFn {
    match how {
        Move::Copy => M::compile::<Copied<T>>(),
        Move::Splat => M::compile::<Splat<T>>(),
        Move::Collect => M::compile::<Collect<T>>(),
        Move::Spread => M::compile::<Spread<T>>(),
        Move::Gather => M::compile::<Gather<T>>(),
        Move::GatherUnchecked => M::compile::<GatherUnchecked<T>>(),
        Move::Blend => M::compile::<Blend<T>>(),
        Move::Masked => M::compile::<Masked<T>>(),
        Move::MaskedSplat => M::compile::<MaskedSplat<T>>(),
    }
}

trait Word: Copy + Default + std::ops::BitOr<Output = Self> + 'static {
    /// Returns `value` if the bool is 1, else `self`. Uses bit operations, because a select between memory locations
    /// would not be vectorized.
    fn replaced(self, holds: u8, value: Self) -> Self;
}

macro_rules! words {
    ($($ty:ident)*) => {$(
        impl Word for $ty {
            #[inline(always)]
            fn replaced(self, holds: u8, value: $ty) -> $ty {
                self ^ ((self ^ value) & $ty::from(holds).wrapping_neg())
            }
        }
    )*};
}

words!(u8 u16 u32 u64);

struct Copied<T>(PhantomData<T>);

impl<T: Word> LoopBody for Copied<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes on both sides that do not overlap.
        let (dst, source) =
            unsafe { (slice::from_raw_parts_mut(dst.cast::<T>(), n), slice::from_raw_parts(a.cast::<T>(), n)) };
        copy_lanes(dst, source, std::hint::black_box(T::default()));
    }
}

/// Copies through a no-op `or`: the compiler would replace a plain copy by a call of `memcpy`, which for a few
/// kilobytes is several times slower than a vector loop.
#[inline(always)]
fn copy_lanes<T: Word>(dst: &mut [T], source: &[T], nothing: T) {
    for (out, value) in dst.iter_mut().zip(source) {
        *out = *value | nothing;
    }
}

struct Splat<T>(PhantomData<T>);

impl<T: Word> LoopBody for Splat<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and one value.
        unsafe { slice::from_raw_parts_mut(dst.cast::<T>(), n).fill(*a.cast::<T>()) }
    }
}

struct Iota;

impl LoopBody for Iota {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and two values.
        let (dst, base, stride) =
            unsafe { (slice::from_raw_parts_mut(dst.cast::<u64>(), n), *a.cast::<u64>(), *b.cast::<u64>()) };
        for (i, out) in dst.iter_mut().enumerate() {
            *out = base.wrapping_add(stride.wrapping_mul(i as u64));
        }
    }
}

/// Width of rows with specialized loops: that of the usual square tile.
const TILE: usize = 16;

struct Collect<T>(PhantomData<T>);

impl<T: Word> LoopBody for Collect<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and a pattern.
        let (dst, pattern) = unsafe { (slice::from_raw_parts_mut(dst.cast::<T>(), n), *b.cast::<Pattern>()) };
        let Pattern { width, step, row } = pattern;
        let first = |number: usize| a.cast::<T>().wrapping_offset(row as isize * number as isize);
        let nothing = std::hint::black_box(T::default());
        // SAFETY: the caller promises that every element of the pattern is readable.
        unsafe {
            match (width, step) {
                (TILE, 0) => {
                    let tile = dst.as_chunks_mut::<TILE>().0;
                    tile.iter_mut().enumerate().for_each(|(row, out)| *out = [*first(row); TILE]);
                }
                (TILE, 1) => {
                    let tile = dst.as_chunks_mut::<TILE>().0;
                    tile.iter_mut().enumerate().for_each(|(row, out)| *out = *first(row).cast::<[T; TILE]>());
                }
                (TILE, _) => {
                    for (row, out) in dst.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
                        let from = first(row);
                        (0..TILE).for_each(|i| out[i] = *from.wrapping_offset(step as isize * i as isize));
                    }
                }
                (_, 1) => {
                    let rows = dst.chunks_exact_mut(width).enumerate();
                    rows.for_each(|(row, out)| copy_lanes(out, slice::from_raw_parts(first(row), width), nothing));
                }
                (_, -1) => {
                    for (row, out) in dst.chunks_exact_mut(width).enumerate() {
                        let from = slice::from_raw_parts(first(row).wrapping_sub(width - 1), width);
                        out.iter_mut().zip(from.iter().rev()).for_each(|(out, from)| *out = *from);
                    }
                }
                _ => {
                    for (row, out) in dst.chunks_exact_mut(width).enumerate() {
                        let from = first(row);
                        let lane = |(i, out): (usize, &mut T)| *out = *from.wrapping_offset(step as isize * i as isize);
                        out.iter_mut().enumerate().for_each(lane);
                    }
                }
            }
        }
    }
}

struct Spread<T>(PhantomData<T>);

impl<T: Word> LoopBody for Spread<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and a pattern.
        let (source, pattern) = unsafe { (slice::from_raw_parts(a.cast::<T>(), n), *b.cast::<Pattern>()) };
        let Pattern { width, step, row } = pattern;
        let first = |number: usize| dst.cast::<T>().wrapping_offset(row as isize * number as isize);
        let nothing = std::hint::black_box(T::default());
        // SAFETY: the caller promises that every element of the pattern is writable.
        unsafe {
            match (width, step) {
                (TILE, 1) => {
                    let tile = source.as_chunks::<TILE>().0.iter().enumerate();
                    tile.for_each(|(row, lanes)| *first(row).cast::<[T; TILE]>() = *lanes);
                }
                (_, 1) => {
                    let rows = source.chunks_exact(width).enumerate();
                    rows.for_each(|(row, lanes)| {
                        copy_lanes(slice::from_raw_parts_mut(first(row), width), lanes, nothing);
                    });
                }
                _ => {
                    for (row, lanes) in source.chunks_exact(width).enumerate() {
                        let to = first(row);
                        let lane = |(i, value): (usize, &T)| *to.wrapping_offset(step as isize * i as isize) = *value;
                        lanes.iter().enumerate().for_each(lane);
                    }
                }
            }
        }
    }
}

struct Gather<T>(PhantomData<T>);

impl<T: Word> LoopBody for Gather<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8) {
        // SAFETY: the caller promises `n` lanes, `n` indices and a length.
        let (dst, index, len) = unsafe {
            (slice::from_raw_parts_mut(dst.cast::<T>(), n), slice::from_raw_parts(b.cast::<u64>(), n), *c.cast::<u64>())
        };
        // Indices may be in a buffer that changes concurrently: the same loaded value must be compared and used.
        for (out, &index) in dst.iter_mut().zip(index) {
            // SAFETY: `a` is the address of `len` elements.
            *out = if index < len { unsafe { *a.cast::<T>().add(index as usize) } } else { T::default() };
        }
    }
}

struct GatherUnchecked<T>(PhantomData<T>);

impl<T: Word> LoopBody for GatherUnchecked<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and `n` indices.
        let (dst, index) =
            unsafe { (slice::from_raw_parts_mut(dst.cast::<T>(), n), slice::from_raw_parts(b.cast::<u64>(), n)) };
        for (out, index) in dst.iter_mut().zip(index) {
            // SAFETY: the caller promises that every index is within the memory at `a`.
            *out = unsafe { *a.cast::<T>().add(*index as usize) };
        }
    }
}

struct Blend<T>(PhantomData<T>);

impl<T: Word> LoopBody for Blend<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes that overlap neither mask nor source.
        let (dst, mask, source) = unsafe {
            (
                slice::from_raw_parts_mut(dst.cast::<T>(), n),
                slice::from_raw_parts(a, n),
                slice::from_raw_parts(b.cast::<T>(), n),
            )
        };
        for ((out, holds), value) in dst.iter_mut().zip(mask).zip(source) {
            *out = out.replaced(*holds, *value);
        }
    }
}

struct Masked<T>(PhantomData<T>);

impl<T: Word> LoopBody for Masked<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes of mask and source.
        let (mask, source) = unsafe { (slice::from_raw_parts(a, n), slice::from_raw_parts(b.cast::<T>(), n)) };
        for (i, (holds, value)) in mask.iter().zip(source).enumerate() {
            if *holds != 0 {
                // SAFETY: the caller promises elements where the mask holds. Other threads may access the others, so
                // there must be no reference to them.
                unsafe { *dst.cast::<T>().add(i) = *value };
            }
        }
    }
}

struct MaskedSplat<T>(PhantomData<T>);

impl<T: Word> LoopBody for MaskedSplat<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
        // SAFETY: as for `Masked`, with one value as the source.
        let (mask, value) = unsafe { (slice::from_raw_parts(a, n), *b.cast::<T>()) };
        for (i, holds) in mask.iter().enumerate() {
            if *holds != 0 {
                // SAFETY: as for `Masked`.
                unsafe { *dst.cast::<T>().add(i) = value };
            }
        }
    }
}
