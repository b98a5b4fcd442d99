//! Loops that change the type of lanes.

use std::marker::PhantomData;

use super::half;
use super::loops::{Unary, V};
use crate::vm::isa::{Machine, VecFn};
use crate::vm::lane::{Lane, Round};

/// Rust's `as`.
struct As<A, R>(PhantomData<(A, R)>);

macro_rules! casts {
    ($($a:ident => $($r:ident)*;)*) => {
        $($(
            impl Unary for As<$a, $r> {
                type A = $a;
                type R = $r;
                #[inline(always)]
                fn apply<M: Machine>(a: $a) -> $r {
                    a as $r
                }
            }
        )*)*

        /// The loop that converts lanes of one type to another of a different width or kind, as Rust's `as`. Signed
        /// integers stand for unsigned ones of the same width as a destination, and `u8` for `bool` as a source. None if
        /// no loop is needed because the bits stay the same.
        pub fn cast<M: Machine>(from: Lane, to: Lane) -> Option<VecFn> {
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

casts! {
    i8 => u16 u32 u64 f32 f64;
    i16 => u8 u32 u64 f32 f64;
    i32 => u8 u16 u64 f32 f64;
    i64 => u8 u16 u32 f32 f64;
    u8 => u16 u32 u64 f32 f64;
    u16 => u8 u32 u64 f32 f64;
    u32 => u8 u16 u64 f32 f64;
    u64 => u8 u16 u32 f32 f64;
    f32 => i8 i16 i32 i64 u8 u16 u32 u64 f64;
    f64 => i8 i16 i32 i64 u8 u16 u32 u64 f32;
}

macro_rules! conversions {
    ($($(#[$doc:meta])* $name:ident |$a:ident: $from:ty| -> $to:ty { $value:expr })*) => {$(
        $(#[$doc])*
        struct $name;
        impl Unary for $name {
            type A = $from;
            type R = $to;
            #[inline(always)]
            fn apply<M: Machine>($a: $from) -> $to {
                $value
            }
        }
    )*};
}

conversions! {
    RoundF16 |a: f32| -> f32 { half::f16_to_f32(half::f32_to_f16(a)) }
    RoundBf16 |a: f32| -> f32 { half::bf16_to_f32(half::f32_to_bf16(a)) }
    WidenF16 |a: u16| -> f32 { half::f16_to_f32(a) }
    WidenBf16 |a: u16| -> f32 { half::bf16_to_f32(a) }
    NarrowF16 |a: f32| -> u16 { half::f32_to_f16(a) }
    NarrowBf16 |a: f32| -> u16 { half::f32_to_bf16(a) }
}

/// Rounds f32 lanes to a narrower type, leaving them f32.
pub fn round<M: Machine>(to: Round) -> Option<VecFn> {
    match to {
        Round::None => None,
        Round::F16 => Some(M::compile::<V<RoundF16>>()),
        Round::BF16 => Some(M::compile::<V<RoundBf16>>()),
    }
}

/// Makes f32 lanes of the 16-bit elements of a memory.
pub fn widen<M: Machine>(from: Round) -> Option<VecFn> {
    match from {
        Round::None => None,
        Round::F16 => Some(M::compile::<V<WidenF16>>()),
        Round::BF16 => Some(M::compile::<V<WidenBf16>>()),
    }
}

/// Makes 16-bit elements of a memory of f32 lanes.
pub fn narrow<M: Machine>(to: Round) -> Option<VecFn> {
    match to {
        Round::None => None,
        Round::F16 => Some(M::compile::<V<NarrowF16>>()),
        Round::BF16 => Some(M::compile::<V<NarrowBf16>>()),
    }
}
