//! How the numbers of a product lie in memory, and what vectors make of them.

use std::marker::PhantomData;

use crate::simd::{Number, Real, Vector};
use crate::vm::isa::Machine;
use crate::vm::ops::half;

/// Elements in memory, and the lanes they become.
pub trait Format: 'static {
    /// In memory.
    type Elem: Copy + Default;
    /// What they are summed in; as an operand, what a lane holds.
    type Sum: Number;
    /// A result in memory.
    type Result: Copy;
    /// What multiplies and adds.
    type Vector<M: Machine>: Vector<Elem = Self::Sum>;
    /// Elements along `k` that a lane holds.
    const DEPTH: usize;

    /// A lane; of one element, the second does not count.
    fn lane(first: Self::Elem, second: Self::Elem) -> Self::Sum;

    /// Lanes from one to the next along `k`, if elements that lie so far apart are lanes as they are.
    fn step(distance: usize) -> Option<usize>;

    /// A sum as it is written.
    fn narrow(sum: Self::Sum) -> Self::Result;
}

/// Elements that are summed as they are.
pub struct Plain<T>(PhantomData<T>);

impl<T: Real> Format for Plain<T> {
    type Elem = T;
    type Sum = T;
    type Result = T;
    type Vector<M: Machine> = T::Vector<M>;
    const DEPTH: usize = 1;

    #[inline(always)]
    fn lane(first: T, _: T) -> T {
        first
    }

    #[inline(always)]
    fn step(distance: usize) -> Option<usize> {
        Some(distance)
    }

    #[inline(always)]
    fn narrow(sum: T) -> T {
        sum
    }
}

macro_rules! widened {
    ($(#[$doc:meta])* $name:ident, $widen:ident, $narrow:ident) => {
        $(#[$doc])*
        pub struct $name;

        impl Format for $name {
            type Elem = u16;
            type Sum = f32;
            type Result = u16;
            type Vector<M: Machine> = M::Single;
            const DEPTH: usize = 1;

            #[inline(always)]
            fn lane(first: u16, _: u16) -> f32 {
                half::$widen(first)
            }

            #[inline(always)]
            fn step(_: usize) -> Option<usize> {
                None
            }

            #[inline(always)]
            fn narrow(sum: f32) -> u16 {
                half::$narrow(sum)
            }
        }
    };
}

widened!(
    /// f16, widened when it is packed.
    F16,
    f16_to_f32,
    f32_to_f16
);

widened!(
    /// bf16, widened when it is packed.
    Bf16,
    bf16_to_f32,
    f32_to_bf16
);

/// bf16 in pairs, for machines that multiply those.
#[cfg(target_arch = "x86_64")]
pub struct Bf16Pairs;

#[cfg(target_arch = "x86_64")]
impl Format for Bf16Pairs {
    type Elem = u16;
    type Sum = f32;
    type Result = u16;
    type Vector<M: Machine> = crate::simd::Pairs;
    const DEPTH: usize = 2;

    #[inline(always)]
    fn lane(first: u16, second: u16) -> f32 {
        f32::from_bits(u32::from(first) | u32::from(second) << 16)
    }

    #[inline(always)]
    fn step(distance: usize) -> Option<usize> {
        (distance == 1).then_some(1)
    }

    #[inline(always)]
    fn narrow(sum: f32) -> u16 {
        half::f32_to_bf16(sum)
    }
}

/// Whole numbers of 8 bits, widened to pairs of 16 when they are packed; products and sums of 32 are exact, and wrap.
pub struct Bytes;

impl Format for Bytes {
    type Elem = i8;
    type Sum = i32;
    type Result = i32;
    type Vector<M: Machine> = M::Words;
    const DEPTH: usize = 2;

    #[inline(always)]
    fn lane(first: i8, second: i8) -> i32 {
        i32::from(second) << 16 | i32::from(i16::from(first) as u16)
    }

    #[inline(always)]
    fn step(_: usize) -> Option<usize> {
        None
    }

    #[inline(always)]
    fn narrow(sum: i32) -> i32 {
        sum
    }
}
