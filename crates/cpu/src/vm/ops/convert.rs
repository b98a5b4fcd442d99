//! Loops that convert lanes to another type.

use std::marker::PhantomData;
use std::slice;

use panoply_host::half;
use panoply_host::isa::{LoopBody, Simd, VecFn};
use panoply_ir::dtype::{integer_to_odd, to_odd};

use super::loops::{Unary, V};
use crate::vm::lane::{Lane, Round};

/// Rust's `as` conversion.
pub struct As<A, R>(PhantomData<(A, R)>);

macro_rules! converted {
    ($x:ident: $a:ident => $r:ident) => {
        $x as $r
    };
    // LLVM scalarizes `as` from a float to an integer; comparisons and an unchecked conversion are vectorized.
    ($x:ident: $a:ident => $r:ident, $largest:literal) => {{
        let number = if $x.is_nan() { 0.0 } else { $x };
        let number = if number < $r::MIN as $a { $r::MIN as $a } else { number };
        let within = if number > $largest { $largest } else { number };
        // SAFETY: the value is between the smallest and the largest integer of the type.
        let integer: $r = unsafe { within.to_int_unchecked() };
        if number > $largest { $r::MAX } else { integer }
    }};
}

macro_rules! casts {
    ($($a:ident => $($r:ident $($largest:literal)?)*;)*) => {
        $($(
            impl Unary for As<$a, $r> {
                type A = $a;
                type R = $r;
                #[inline(always)]
                fn apply<M: Simd>(a: $a) -> $r {
                    converted!(a: $a => $r $(, $largest)?)
                }
            }
        )*)*

        /// Returns the loop that converts lanes to a type of a different width or class, like Rust's `as`. A signed
        /// destination uses the loop of the unsigned type of the same width if no float is involved, and a `bool`
        /// source the loop of `u8`. `None` if the bits stay the same.
        pub fn cast<M: Simd>(from: Lane, to: Lane) -> Option<VecFn> {
            let from = if from == Lane::Bool { Lane::U8 } else { from };
            let is_float = |lane| matches!(lane, Lane::F32 | Lane::F64);
            let to = if is_float(from) || is_float(to) { to } else { to.unsigned() };
            let names = (from.name(), to.name());
            $($(
                if names == (stringify!($a), stringify!($r)) {
                    return Some(M::compile::<V<As<$a, $r>>>());
                }
            )*)*
            None
        }
    };
}

// Each integer type is followed by the largest float that it can hold.
casts! {
    i8 => u16 u32 u64 f32 f64;
    i16 => u8 u32 u64 f32 f64;
    i32 => u8 u16 u64 f32 f64;
    i64 => u8 u16 u32 f32 f64;
    u8 => u16 u32 u64 f32 f64;
    u16 => u8 u32 u64 f32 f64;
    u32 => u8 u16 u64 f32 f64;
    u64 => u8 u16 u32 f32 f64;
    f32 => i8 127.0 i16 32767.0 i32 2_147_483_520.0 i64 9_223_371_487_098_961_920.0
        u8 255.0 u16 65535.0 u32 4_294_967_040.0 u64 18_446_742_974_197_923_840.0 f64;
    f64 => i8 127.0 i16 32767.0 i32 2_147_483_647.0 i64 9_223_372_036_854_774_784.0
        u8 255.0 u16 65535.0 u32 4_294_967_295.0 u64 18_446_744_073_709_549_568.0 f32;
}

macro_rules! conversions {
    ($($(#[$doc:meta])* $name:ident |$a:ident: $from:ty| -> $to:ty { $value:expr })*) => {$(
        $(#[$doc])*
        struct $name;
        impl Unary for $name {
            type A = $from;
            type R = $to;
            #[inline(always)]
            fn apply<M: Simd>($a: $from) -> $to {
                $value
            }
        }
    )*};
}

conversions! {
    OddI32 |a: i32| -> f32 { to_odd(f64::from(a)) }
    OddU32 |a: u32| -> f32 { to_odd(f64::from(a)) }
    OddI64 |a: i64| -> f32 { integer_to_odd(a.into()) }
    OddU64 |a: u64| -> f32 { integer_to_odd(a.into()) }
    OddF64 |a: f64| -> f32 { to_odd(a) }
    RoundBf16 |a: f32| -> f32 { half::bf16_to_f32(half::f32_to_bf16(a)) }
    WidenBf16 |a: u16| -> f32 { half::bf16_to_f32(a) }
    NarrowBf16 |a: f32| -> u16 { half::f32_to_bf16(a) }
}

macro_rules! conversions_of_f16 {
    ($($name:ident $from:ty => $to:ty, $run:ident;)*) => {$(
        struct $name;
        impl LoopBody for $name {
            #[inline(always)]
            unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
                // SAFETY: the caller promises `n` aligned lanes on both sides that do not overlap.
                let (from, to) = unsafe {
                    (slice::from_raw_parts(a.cast::<$from>(), n), slice::from_raw_parts_mut(dst.cast::<$to>(), n))
                };
                half::$run::<M>(from, to);
            }
        }
    )*};
}

conversions_of_f16! {
    RoundF16 f32 => f32, round_f16;
    WidenF16 u16 => f32, widen_f16;
    NarrowF16 f32 => u16, narrow_f16;
}

/// Returns the loop that converts lanes to f32, rounding to odd, so that a following rounding to a 16-bit float equals
/// a single rounding.
pub fn odd<M: Simd>(from: Lane) -> Option<VecFn> {
    match from {
        Lane::I32 => Some(M::compile::<V<OddI32>>()),
        Lane::I64 => Some(M::compile::<V<OddI64>>()),
        Lane::U32 => Some(M::compile::<V<OddU32>>()),
        Lane::U64 => Some(M::compile::<V<OddU64>>()),
        Lane::F64 => Some(M::compile::<V<OddF64>>()),
        Lane::Bool | Lane::I8 | Lane::I16 | Lane::U8 | Lane::U16 | Lane::F32 => None,
    }
}

/// Returns the loop that rounds f32 lanes to a narrower type, keeping them f32.
pub fn round<M: Simd>(to: Round) -> Option<VecFn> {
    match to {
        Round::None => None,
        Round::F16 => Some(M::compile::<RoundF16>()),
        Round::BF16 => Some(M::compile::<V<RoundBf16>>()),
    }
}

/// Returns the loop that widens the 16-bit floats of a memory to f32 lanes.
pub fn widen<M: Simd>(from: Round) -> Option<VecFn> {
    match from {
        Round::None => None,
        Round::F16 => Some(M::compile::<WidenF16>()),
        Round::BF16 => Some(M::compile::<V<WidenBf16>>()),
    }
}

/// Returns the loop that narrows f32 lanes to the 16-bit floats of a memory.
pub fn narrow<M: Simd>(to: Round) -> Option<VecFn> {
    match to {
        Round::None => None,
        Round::F16 => Some(M::compile::<NarrowF16>()),
        Round::BF16 => Some(M::compile::<V<NarrowBf16>>()),
    }
}
