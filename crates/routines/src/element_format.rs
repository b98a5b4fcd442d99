//! Element formats of matrix products and convolutions: bf16 is multiplied in pairs if the machine supports it; other
//! 16-bit floats are widened to f32 when they are packed.

use std::marker::PhantomData;

use panoply_host::half;
#[cfg(target_arch = "x86_64")]
use panoply_host::isa::{Avx512Bf16, Avx512Vnni, has_avx512_bf16, has_avx512_vnni};
use panoply_host::isa::{Isa, Simd};
use panoply_host::simd::{self, Number, Real, Task, Vector};

/// A format of elements in memory and of the lanes computed from them.
pub trait Format: 'static {
    /// Type of an element in memory.
    type Elem: Copy + Default;
    /// Type of an element in a plane: a copy from which a lane can be read at any position.
    type Plane: Copy + Default;
    /// Type of a sum; as an operand, the contents of a lane.
    type Sum: Number;
    /// Type of a result in memory.
    type Result: Copy;
    /// The format whose tiles multiply packed elements: formats that are packed into the same lanes share them.
    type Packed: Format<Sum = Self::Sum, Plane = Self::Plane>;
    /// The vector that multiplies and adds.
    type Vector<M: Simd>: Vector<Elem = Self::Sum>;
    /// Number of elements along `k` in a lane.
    const DEPTH: usize;
    /// True if memory itself can be used as a plane.
    const IN_PLACE: bool;

    /// Packs elements into a lane; the second one is ignored if a lane has one element.
    fn lane(first: Self::Elem, second: Self::Elem) -> Self::Sum;

    /// Converts an element for a plane.
    fn plane(elem: Self::Elem) -> Self::Plane;

    /// Creates a lane from one element of a plane.
    fn alone(plane: Self::Plane) -> Self::Sum;

    /// Returns the step between lanes along `k`, if elements at this distance can be used as lanes directly.
    fn step(distance: usize) -> Option<usize>;

    /// Converts a sum to a result.
    fn narrow(sum: Self::Sum) -> Self::Result;

    /// Runs a task with the best instructions for the format.
    ///
    /// # Safety
    /// As [`simd::run`].
    unsafe fn run<T: Task>(isa: Isa, task: T) {
        // SAFETY: the caller's promise.
        unsafe { simd::run(isa, task) }
    }
}

/// Elements that are summed in their own type.
pub struct Plain<T>(PhantomData<T>);

impl<T: Real> Format for Plain<T> {
    type Elem = T;
    type Plane = T;
    type Sum = T;
    type Result = T;
    type Packed = Plain<T>;
    type Vector<M: Simd> = T::Vector<M>;
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
            type Packed = Plain<f32>;
            type Vector<M: Simd> = M::Single;
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
    /// f16, widened when packed.
    F16,
    f16_to_f32,
    f32_to_f16
);

widened!(
    /// bf16, widened when packed.
    Bf16,
    bf16_to_f32,
    f32_to_bf16
);

/// Returns true if this machine supports [`Bf16Pairs`] and `isa` allows it.
#[cfg(target_arch = "x86_64")]
pub fn has_bf16_dot(isa: Isa) -> bool {
    isa == Isa::Avx512 && has_avx512_bf16()
}

/// Returns true if this machine multiplies and accumulates [`Bytes`] in one instruction and `isa` allows it.
#[cfg(target_arch = "x86_64")]
pub fn has_i16_dot(isa: Isa) -> bool {
    isa == Isa::Avx512 && has_avx512_vnni()
}

/// bf16 in pairs; requires [`has_bf16_dot`].
#[cfg(target_arch = "x86_64")]
pub struct Bf16Pairs;

#[cfg(target_arch = "x86_64")]
impl Format for Bf16Pairs {
    type Elem = u16;
    type Plane = u16;
    type Sum = f32;
    type Result = u16;
    type Packed = Bf16Pairs;
    type Vector<M: Simd> = panoply_host::simd::Bf16Dot;
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
        assert!(has_bf16_dot(isa), "the machine has no bf16 dot product");
        // SAFETY: the caller's promise; the machine has the bf16 dot product.
        unsafe { Avx512Bf16::run(task) }
    }
}

/// i8, widened to pairs of i16 when packed. Products and sums in i32 are exact and wrap.
///
/// If `VNNI` is true, one instruction computes both products and their sum; the machine must support it.
pub struct Bytes<const VNNI: bool>;

impl<const VNNI: bool> Format for Bytes<VNNI> {
    type Elem = i8;
    type Plane = i32;
    type Sum = i32;
    type Result = i32;
    type Packed = Bytes<VNNI>;
    type Vector<M: Simd> = M::I16Dot;
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
        if const { !VNNI } {
            // SAFETY: the caller's promise.
            return unsafe { simd::run(isa, task) };
        }
        assert!(has_i16_dot(isa), "the machine has no i16 dot product");
        // SAFETY: the caller's promise; the machine has the i16 dot product.
        unsafe { Avx512Vnni::run(task) }
    }
}
