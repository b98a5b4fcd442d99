//! How the numbers of products and convolutions lie in memory, and what vectors make of them: bf16 is multiplied in pairs where the
//! machine does that, other 16-bit floats are widened to f32 as they are packed.

use std::marker::PhantomData;

use crate::simd::{self, Number, Real, Task, Vector};
#[cfg(target_arch = "x86_64")]
use crate::vm::isa::{Avx512Pairs, Avx512Words, has_pairs, has_words};
use crate::vm::isa::{Isa, Machine};
use crate::vm::ops::half;

/// Elements in memory, and the lanes they become.
pub trait Format: 'static {
    /// In memory.
    type Elem: Copy + Default;
    /// In a copy of memory from any place of which a lane can be read.
    type Plane: Copy + Default;
    /// What they are summed in; as an operand, what a lane holds.
    type Sum: Number;
    /// A result in memory.
    type Result: Copy;
    /// What multiplies and adds.
    type Vector<M: Machine>: Vector<Elem = Self::Sum>;
    /// Elements along `k` that a lane holds.
    const DEPTH: usize;
    /// Whether memory itself is such a copy.
    const IN_PLACE: bool;

    /// A lane; of one element, the second does not count.
    fn lane(first: Self::Elem, second: Self::Elem) -> Self::Sum;

    /// An element in a copy.
    fn plane(elem: Self::Elem) -> Self::Plane;

    /// A lane of one element of a copy.
    fn alone(plane: Self::Plane) -> Self::Sum;

    /// Lanes from one to the next along `k`, if elements that lie so far apart are lanes as they are.
    fn step(distance: usize) -> Option<usize>;

    /// A sum as it is written.
    fn narrow(sum: Self::Sum) -> Self::Result;

    /// Does a task with the best instructions for it.
    ///
    /// # Safety
    /// As [`simd::run`].
    unsafe fn run<T: Task>(isa: Isa, task: T) {
        // SAFETY: the caller's promise.
        unsafe { simd::run(isa, task) }
    }
}

/// Elements that are summed as they are.
pub struct Plain<T>(PhantomData<T>);

impl<T: Real> Format for Plain<T> {
    type Elem = T;
    type Plane = T;
    type Sum = T;
    type Result = T;
    type Vector<M: Machine> = T::Vector<M>;
    const DEPTH: usize = 1;
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn lane(first: T, _: T) -> T {
        first
    }

    #[inline(always)]
    fn plane(elem: T) -> T {
        elem
    }

    #[inline(always)]
    fn alone(plane: T) -> T {
        plane
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
            type Plane = f32;
            type Sum = f32;
            type Result = u16;
            type Vector<M: Machine> = M::Single;
            const DEPTH: usize = 1;
            const IN_PLACE: bool = false;

            #[inline(always)]
            fn lane(first: u16, _: u16) -> f32 {
                half::$widen(first)
            }

            #[inline(always)]
            fn plane(elem: u16) -> f32 {
                half::$widen(elem)
            }

            #[inline(always)]
            fn alone(plane: f32) -> f32 {
                plane
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

/// Whether this machine multiplies [`Bf16Pairs`], and may.
#[cfg(target_arch = "x86_64")]
pub fn multiply_pairs(isa: Isa) -> bool {
    isa == Isa::Avx512 && has_pairs()
}

/// Whether this machine multiplies [`Bytes`] at once, and may.
#[cfg(target_arch = "x86_64")]
pub fn multiply_words(isa: Isa) -> bool {
    isa == Isa::Avx512 && has_words()
}

/// bf16 in pairs, where [`multiply_pairs`] holds.
#[cfg(target_arch = "x86_64")]
pub struct Bf16Pairs;

#[cfg(target_arch = "x86_64")]
impl Format for Bf16Pairs {
    type Elem = u16;
    type Plane = u16;
    type Sum = f32;
    type Result = u16;
    type Vector<M: Machine> = crate::simd::Pairs;
    const DEPTH: usize = 2;
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn lane(first: u16, second: u16) -> f32 {
        f32::from_bits(u32::from(first) | u32::from(second) << 16)
    }

    #[inline(always)]
    fn plane(elem: u16) -> u16 {
        elem
    }

    #[inline(always)]
    fn alone(plane: u16) -> f32 {
        f32::from_bits(plane.into())
    }

    #[inline(always)]
    fn step(distance: usize) -> Option<usize> {
        (distance == 1).then_some(1)
    }

    #[inline(always)]
    fn narrow(sum: f32) -> u16 {
        half::f32_to_bf16(sum)
    }

    unsafe fn run<T: Task>(isa: Isa, task: T) {
        assert!(multiply_pairs(isa), "pairs were asked for where there are none");
        // SAFETY: the caller's promise; the machine has what multiplies pairs.
        unsafe { Avx512Pairs::run(task) }
    }
}

/// Whole numbers of 8 bits, widened to pairs of 16 when they are packed; products and sums of 32 are exact, and wrap.
///
/// At once: both products and their addition by one instruction, where this machine has it.
pub struct Bytes<const AT_ONCE: bool>;

impl<const AT_ONCE: bool> Format for Bytes<AT_ONCE> {
    type Elem = i8;
    type Plane = i32;
    type Sum = i32;
    type Result = i32;
    type Vector<M: Machine> = M::Words;
    const DEPTH: usize = 2;
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn lane(first: i8, second: i8) -> i32 {
        i32::from(second) << 16 | i32::from(i16::from(first) as u16)
    }

    #[inline(always)]
    fn plane(elem: i8) -> i32 {
        Self::lane(elem, 0)
    }

    #[inline(always)]
    fn alone(plane: i32) -> i32 {
        plane
    }

    #[inline(always)]
    fn step(_: usize) -> Option<usize> {
        None
    }

    #[inline(always)]
    fn narrow(sum: i32) -> i32 {
        sum
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn run<T: Task>(isa: Isa, task: T) {
        if !AT_ONCE {
            // SAFETY: the caller's promise.
            return unsafe { simd::run(isa, task) };
        }
        assert!(multiply_words(isa), "words were asked for where there are none");
        // SAFETY: the caller's promise; the machine has what multiplies words.
        unsafe { Avx512Words::run(task) }
    }
}
