//! The inherent methods of each type of the kernel language, as facts that rustc checks.
//!
//! A kernel calls a method by name, and rustc resolves the name in the author's program, where a trait or type can
//! define a method of the same name. [`BuiltIn`] is implemented for a type and a name if the type's inherent method (or
//! that of a trait every type has it from, such as `Ord`) takes precedence over any such definition. The emitter's
//! method of that name then computes the same.

use panoply_ir::{bf16, f16};

use super::super::number::KernelValue;
use super::{Emitter, Probe};

mod sealed {
    /// A type whose methods are listed here.
    pub trait Sealed {}
}

/// A type whose method `M` is the one that the kernel language implements.
#[diagnostic::on_unimplemented(
    message = "the method is not one that `{Self}` has by itself",
    label = "a method of another trait or type cannot run in a kernel",
    note = "kernels call the methods of Rust's numbers, and functions marked `#[kernel_fn]`"
)]
pub trait BuiltIn<M>: sealed::Sealed {}

/// Method names as types.
#[allow(non_camel_case_types, reason = "messages show them as the author wrote them")]
pub mod method {
    macro_rules! names {
        ($($name:ident)*) => {$(
            #[doc = concat!("`", stringify!($name), "`.")]
            #[derive(Clone, Copy, Debug)]
            pub struct $name;
        )*};
    }

    names! {
        sqrt exp exp2 exp_m1 ln ln_1p log2 sin cos tan atan tanh powf powi pow mul_add recip abs signum copysign
        floor ceil round round_ties_even trunc fract min max clamp rem_euclid
        is_nan is_finite is_infinite is_sign_negative is_sign_positive
        to_bits to_f32 to_f64 from_bits from_f32 from_f64
        wrapping_add wrapping_sub wrapping_mul wrapping_neg wrapping_shl wrapping_shr saturating_add saturating_sub
        rotate_left rotate_right abs_diff div_ceil next_multiple_of is_power_of_two
        count_ones count_zeros leading_zeros trailing_zeros
    }
}

macro_rules! built_in {
    ($($types:tt: $names:tt;)*) => { $(built_in!(@types $types $names);)* };
    (@types [$($ty:ident)*] $names:tt) => { $(built_in!(@names $ty $names);)* };
    (@names $ty:ident [$($name:ident)*]) => {
        $(#[diagnostic::do_not_recommend] impl BuiltIn<method::$name> for $ty {})*
    };
}

macro_rules! sealed {
    ($($ty:ident)*) => { $(impl sealed::Sealed for $ty {})* };
}

sealed! { bool i8 i16 i32 i64 u8 u16 u32 u64 usize f16 bf16 f32 f64 }

built_in! {
    [f16 bf16 f32 f64]: [
        sqrt exp exp2 exp_m1 ln ln_1p log2 sin cos tan atan tanh powf powi mul_add recip abs signum copysign
        floor ceil round round_ties_even trunc fract min max clamp rem_euclid
        is_nan is_finite is_infinite is_sign_negative is_sign_positive to_bits from_bits
    ];
    [f16 bf16]: [to_f32 to_f64 from_f32 from_f64];
    [i8 i16 i32 i64]: [abs signum];
    [i8 i16 i32 i64 u8 u16 u32 u64 usize]: [
        pow min max clamp rem_euclid
        wrapping_add wrapping_sub wrapping_mul wrapping_neg wrapping_shl wrapping_shr saturating_add saturating_sub
        rotate_left rotate_right abs_diff count_ones count_zeros leading_zeros trailing_zeros
    ];
    [u8 u16 u32 u64 usize]: [div_ceil next_multiple_of is_power_of_two];
    [bool]: [min max];
}

impl<T> Probe<T> {
    /// Returns the emitter, to call the method `M` on a value of the probe's type.
    pub fn built_in<'e, M>(&self, emitter: &'e Emitter, method: M) -> &'e Emitter
    where
        T: BuiltIn<M>,
    {
        let _ = method;
        emitter
    }

    /// Emits `U::from(value)`.
    pub fn converted<U: KernelValue + From<T>>(&self, emitter: &Emitter, value: super::ExprId) -> super::ExprId {
        emitter.cast::<U>(value)
    }
}

impl Emitter {
    /// Returns the emitter, to call `T::method`.
    pub fn built_in_of<T: BuiltIn<M>, M>(&self, method: M) -> &Emitter {
        let _ = method;
        self
    }
}
