//! Loops that apply one operation to all lanes, for each mode of the operands.
//!
//! `V` is a vector of lanes, `S` one value for all lanes, `I` the destination itself. The inner functions take
//! references, because only those tell the optimizer that the destination does not alias the sources.

use std::marker::PhantomData;
use std::slice;

use panoply_host::isa::{LoopBody, Simd};

/// An operation on one operand.
pub trait Unary: 'static {
    /// The operand.
    type A: Copy + 'static;
    /// The result.
    type R: Copy + 'static;
    /// Computes one lane. Implementations must be `#[inline(always)]`.
    fn apply<M: Simd>(a: Self::A) -> Self::R;
}

/// An operation on two operands of one type.
pub trait Binary: 'static {
    /// The operands.
    type A: Copy + 'static;
    /// The result.
    type R: Copy + 'static;
    /// Computes one lane. Implementations must be `#[inline(always)]`.
    fn apply<M: Simd>(a: Self::A, b: Self::A) -> Self::R;
}

/// An operation on three operands, of which two have one type.
pub trait Ternary: 'static {
    /// The first operand.
    type A: Copy + 'static;
    /// The other operands.
    type B: Copy + 'static;
    /// The result.
    type R: Copy + 'static;
    /// Computes one lane. Implementations must be `#[inline(always)]`.
    fn apply<M: Simd>(a: Self::A, b: Self::B, c: Self::B) -> Self::R;
}

/// An operand of a loop.
trait Operand<T> {
    fn lane(&self, i: usize) -> T;
}

impl<T: Copy> Operand<T> for &[T] {
    #[inline(always)]
    fn lane(&self, i: usize) -> T {
        debug_assert!(i < self.len());
        // SAFETY: every operand of a loop has as many lanes as the destination, and `i` is a lane of the destination.
        unsafe { *self.get_unchecked(i) }
    }
}

impl<T: Copy> Operand<T> for T {
    #[inline(always)]
    fn lane(&self, _: usize) -> T {
        *self
    }
}

#[inline(always)]
fn map1<M: Simd, O: Unary>(dst: &mut [O::R], a: &[O::A]) {
    for (i, out) in dst.iter_mut().enumerate() {
        *out = O::apply::<M>(a.lane(i));
    }
}

#[inline(always)]
fn map2<M: Simd, O: Binary>(dst: &mut [O::R], a: impl Operand<O::A>, b: impl Operand<O::A>) {
    for (i, out) in dst.iter_mut().enumerate() {
        *out = O::apply::<M>(a.lane(i), b.lane(i));
    }
}

#[inline(always)]
fn map3<M: Simd, O: Ternary>(dst: &mut [O::R], a: impl Operand<O::A>, b: impl Operand<O::B>, c: impl Operand<O::B>) {
    for (i, out) in dst.iter_mut().enumerate() {
        *out = O::apply::<M>(a.lane(i), b.lane(i), c.lane(i));
    }
}

#[inline(always)]
fn update2<M: Simd, O: Binary<R = <O as Binary>::A>>(dst: &mut [O::R], b: impl Operand<O::A>) {
    for (i, out) in dst.iter_mut().enumerate() {
        *out = O::apply::<M>(*out, b.lane(i));
    }
}

#[inline(always)]
fn update3<M: Simd, O: Ternary<R = <O as Ternary>::B>>(dst: &mut [O::R], a: impl Operand<O::A>, b: impl Operand<O::B>) {
    for (i, out) in dst.iter_mut().enumerate() {
        *out = O::apply::<M>(a.lane(i), b.lane(i), *out);
    }
}

#[inline(always)]
fn update1of3<M: Simd, O: Ternary<A = <O as Ternary>::R>>(
    dst: &mut [O::R],
    b: impl Operand<O::B>,
    c: impl Operand<O::B>,
) {
    for (i, out) in dst.iter_mut().enumerate() {
        *out = O::apply::<M>(*out, b.lane(i), c.lane(i));
    }
}

macro_rules! operand {
    (V, $ty:ty, $ptr:ident, $n:ident) => {
        // SAFETY: the caller promises `n` aligned lanes that are not written meanwhile.
        unsafe { slice::from_raw_parts($ptr.cast::<$ty>(), $n) }
    };
    (S, $ty:ty, $ptr:ident, $n:ident) => {
        // SAFETY: the caller promises one aligned value.
        unsafe { *$ptr.cast::<$ty>() }
    };
}

macro_rules! destination {
    ($ty:ty, $ptr:ident, $n:ident) => {
        // SAFETY: the caller promises `n` aligned lanes that overlap no source.
        unsafe { slice::from_raw_parts_mut($ptr.cast::<$ty>(), $n) }
    };
}

/// One vector operand.
pub struct V<O>(PhantomData<O>);

impl<O: Unary> LoopBody for V<O> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
        map1::<M, O>(destination!(O::R, dst, n), operand!(V, O::A, a, n));
    }
}

macro_rules! binary_loops {
    ($($(#[$doc:meta])* $name:ident: $a:ident $b:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name<O>(PhantomData<O>);

        impl<O: Binary> LoopBody for $name<O> {
            #[inline(always)]
            unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
                map2::<M, O>(destination!(O::R, dst, n), operand!($a, O::A, a, n), operand!($b, O::A, b, n));
            }
        }
    )*};
}

binary_loops! {
    /// Two vectors.
    Vv: V V;
    /// A vector and a uniform value.
    Vs: V S;
    /// A uniform value and a vector.
    Sv: S V;
}

macro_rules! binary_updates {
    ($($(#[$doc:meta])* $name:ident: $b:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name<O>(PhantomData<O>);

        impl<O: Binary<R = <O as Binary>::A>> LoopBody for $name<O> {
            #[inline(always)]
            unsafe fn run<M: Simd>(n: usize, dst: *mut u8, _: *const u8, b: *const u8, _: *const u8) {
                update2::<M, O>(destination!(O::R, dst, n), operand!($b, O::A, b, n));
            }
        }
    )*};
}

binary_updates! {
    /// The destination and a vector.
    Iv: V;
    /// The destination and a uniform value.
    Is: S;
}

macro_rules! ternary_loops {
    ($($(#[$doc:meta])* $name:ident: $a:ident $b:ident $c:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name<O>(PhantomData<O>);

        impl<O: Ternary> LoopBody for $name<O> {
            #[inline(always)]
            unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8) {
                map3::<M, O>(
                    destination!(O::R, dst, n),
                    operand!($a, O::A, a, n),
                    operand!($b, O::B, b, n),
                    operand!($c, O::B, c, n),
                );
            }
        }
    )*};
}

ternary_loops! {
    /// Three vectors.
    Vvv: V V V;
    /// Two vectors and a uniform value.
    Vvs: V V S;
    /// A vector, a uniform value and a vector.
    Vsv: V S V;
    /// A vector and two uniform values.
    Vss: V S S;
}

macro_rules! ternary_updates {
    ($($(#[$doc:meta])* $name:ident: $a:ident $b:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name<O>(PhantomData<O>);

        impl<O: Ternary<R = <O as Ternary>::B>> LoopBody for $name<O> {
            #[inline(always)]
            unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, b: *const u8, _: *const u8) {
                update3::<M, O>(destination!(O::R, dst, n), operand!($a, O::A, a, n), operand!($b, O::B, b, n));
            }
        }
    )*};
}

ternary_updates! {
    /// Two vectors and the destination.
    Vvi: V V;
    /// A vector, a uniform value and the destination.
    Vsi: V S;
}

macro_rules! ternary_updates_of_first {
    ($($(#[$doc:meta])* $name:ident: $b:ident $c:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name<O>(PhantomData<O>);

        impl<O: Ternary<A = <O as Ternary>::R>> LoopBody for $name<O> {
            #[inline(always)]
            unsafe fn run<M: Simd>(n: usize, dst: *mut u8, _: *const u8, b: *const u8, c: *const u8) {
                update1of3::<M, O>(destination!(O::R, dst, n), operand!($b, O::B, b, n), operand!($c, O::B, c, n));
            }
        }
    )*};
}

ternary_updates_of_first! {
    /// The destination and two vectors.
    Ivv: V V;
    /// The destination, a vector and a uniform value.
    Ivs: V S;
}
