//! Traits of the types that kernels compute with; rustc checks kernels against them.

use std::ops::{Add, AddAssign, BitAnd, BitOr, BitXor, Div, DivAssign, Mul, MulAssign, Neg, Not};
use std::ops::{Rem, RemAssign, Shl, Shr, Sub, SubAssign};

use panoply_ir::dtype::{DType, Element, Scalar, Type};
use panoply_ir::interpret::scalar;
use panoply_ir::{bf16, f16};

use super::emit::{BuiltIn, method};

/// A value known while a kernel is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelConstant {
    /// An element.
    Element(Scalar),
    /// An index or length.
    Index(u64),
}

/// A type of the kernel language: a bool, an integer, `usize` (the IR's index) or a float.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of the kernel language",
    label = "kernels compute with bool, integers up to 64 bits, usize, f16, bf16, f32 and f64"
)]
pub trait KernelValue: KernelValues + Copy + 'static {
    /// Type in the IR.
    const TYPE: Type;

    /// Converts the value to a constant.
    fn to_constant(self) -> KernelConstant;

    /// Converts a constant to this type as Rust's `as` does.
    fn from_constant(constant: KernelConstant) -> Self;
}

/// Result of a function of the kernel language: a value, a tuple of values, or nothing.
pub trait KernelValues {
    /// Returns the types of the values in order.
    fn types() -> Vec<Type>;
}

/// A number that a buffer can hold.
pub trait Number:
    Element
    + KernelValue
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + RemAssign
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Smallest value: -∞ for floats.
    const MIN_VALUE: Self;
    /// Largest value: ∞ for floats.
    const MAX_VALUE: Self;
}

/// An integer that a buffer can hold.
pub trait Int:
    Number
    + Ord
    + BuiltIn<method::min>
    + BuiltIn<method::max>
    + BuiltIn<method::clamp>
    + Not<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
}

/// A number with atomic operations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no atomic operations",
    label = "they exist for u32, i32 and f32"
)]
pub trait Atomic: Number {}

/// An integer with atomic minimum, maximum and compare-exchange.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no atomic minimum, maximum or compare-exchange",
    label = "they exist for u32 and i32"
)]
pub trait AtomicInt: Atomic {}

impl Atomic for u32 {}
impl Atomic for i32 {}
impl Atomic for f32 {}
impl AtomicInt for u32 {}
impl AtomicInt for i32 {}

macro_rules! float_methods {
    (
        unary { $($unary:ident)* } test { $($test:ident)* } binary { $($binary:ident)* }
    ) => {
        /// A float. The methods are those of Rust's own floats, for all four float types.
        pub trait Float:
            Number
            + Neg<Output = Self>
            $(+ BuiltIn<method::$unary>)*
            $(+ BuiltIn<method::$test>)*
            $(+ BuiltIn<method::$binary>)*
            + BuiltIn<method::powi>
            + BuiltIn<method::mul_add>
            + BuiltIn<method::clamp>
        {
            $(#[doc = concat!("Same as `f32::", stringify!($unary), "`.")] fn $unary(self) -> Self;)*
            $(#[doc = concat!("Same as `f32::", stringify!($test), "`.")] fn $test(self) -> bool;)*
            $(#[doc = concat!("Same as `f32::", stringify!($binary), "`.")] fn $binary(self, other: Self) -> Self;)*
            /// Same as `f32::powi`.
            fn powi(self, n: i32) -> Self;
            /// Same as `f32::mul_add`.
            fn mul_add(self, a: Self, b: Self) -> Self;
            /// Same as `f32::clamp`.
            fn clamp(self, least: Self, most: Self) -> Self;
        }

        macro_rules! native {
            ($ty:ident) => {
                impl Float for $ty {
                    $(fn $unary(self) -> Self { $ty::$unary(self) })*
                    $(fn $test(self) -> bool { $ty::$test(self) })*
                    $(fn $binary(self, other: Self) -> Self { $ty::$binary(self, other) })*
                    fn powi(self, n: i32) -> Self { $ty::powi(self, n) }
                    fn mul_add(self, a: Self, b: Self) -> Self { $ty::mul_add(self, a, b) }
                    fn clamp(self, least: Self, most: Self) -> Self { $ty::clamp(self, least, most) }
                }
            };
        }

        macro_rules! through_f32 {
            ($ty:ident) => {
                impl Float for $ty {
                    $(fn $unary(self) -> Self { $ty::from_f32(self.to_f32().$unary()) })*
                    $(fn $test(self) -> bool { self.to_f32().$test() })*
                    $(fn $binary(self, other: Self) -> Self { $ty::from_f32(self.to_f32().$binary(other.to_f32())) })*
                    fn powi(self, n: i32) -> Self { $ty::from_f32(self.to_f32().powi(n)) }
                    fn mul_add(self, a: Self, b: Self) -> Self {
                        $ty::from_f32(self.to_f32().mul_add(a.to_f32(), b.to_f32()))
                    }
                    fn clamp(self, least: Self, most: Self) -> Self {
                        $ty::from_f32(self.to_f32().clamp(least.to_f32(), most.to_f32()))
                    }
                }
            };
        }
    };
}

float_methods! {
    unary {
        sqrt exp exp2 exp_m1 ln ln_1p log2 sin cos tan atan tanh recip abs signum floor ceil round round_ties_even trunc
        fract
    }
    test { is_nan is_finite is_infinite is_sign_negative is_sign_positive }
    binary { powf min max copysign rem_euclid }
}

native!(f32);
native!(f64);
through_f32!(f16);
through_f32!(bf16);

macro_rules! values {
    ($($ty:ident: $dtype:ident, $from_bits:expr;)*) => {$(
        impl KernelValue for $ty {
            const TYPE: Type = Type::Scalar(DType::$dtype);

            fn to_constant(self) -> KernelConstant {
                KernelConstant::Element(self.into())
            }

            fn from_constant(constant: KernelConstant) -> Self {
                let bits = match constant {
                    KernelConstant::Element(value) => scalar::cast(DType::$dtype, value).bits,
                    KernelConstant::Index(index) => scalar::cast(DType::$dtype, index.into()).bits,
                };
                let from_bits: fn(u64) -> $ty = $from_bits;
                from_bits(bits)
            }
        }

        impl KernelValues for $ty {
            fn types() -> Vec<Type> {
                vec![<$ty>::TYPE]
            }
        }
    )*};
}

values! {
    bool: Bool, |bits| bits != 0;
    i8: I8, |bits| bits as i8;
    i16: I16, |bits| bits as i16;
    i32: I32, |bits| bits as i32;
    i64: I64, |bits| bits as i64;
    u8: U8, |bits| bits as u8;
    u16: U16, |bits| bits as u16;
    u32: U32, |bits| bits as u32;
    u64: U64, |bits| bits;
    f16: F16, |bits| f16::from_bits(bits as u16);
    bf16: BF16, |bits| bf16::from_bits(bits as u16);
    f32: F32, |bits| f32::from_bits(bits as u32);
    f64: F64, f64::from_bits;
}

impl KernelValue for usize {
    const TYPE: Type = Type::Index;

    fn to_constant(self) -> KernelConstant {
        KernelConstant::Index(self as u64)
    }

    fn from_constant(constant: KernelConstant) -> Self {
        match constant {
            KernelConstant::Element(value) => scalar::cast(DType::U64, value).bits as usize,
            KernelConstant::Index(index) => index as usize,
        }
    }
}

impl KernelValues for usize {
    fn types() -> Vec<Type> {
        vec![Type::Index]
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: KernelValue),*> KernelValues for ($($name,)*) {
            fn types() -> Vec<Type> {
                vec![$($name::TYPE),*]
            }
        }
    )*};
}

tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

macro_rules! numbers {
    ($($ty:ident: $zero:expr, $one:expr, $least:expr, $greatest:expr;)*) => {$(
        impl Number for $ty {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            const MIN_VALUE: Self = $least;
            const MAX_VALUE: Self = $greatest;
        }
    )*};
}

macro_rules! ints {
    ($($ty:ident)*) => {
        numbers! { $($ty: 0, 1, $ty::MIN, $ty::MAX;)* }
        $(impl Int for $ty {})*
    };
}

ints! { i8 i16 i32 i64 u8 u16 u32 u64 }

numbers! {
    f16: f16::ZERO, f16::ONE, f16::NEG_INFINITY, f16::INFINITY;
    bf16: bf16::ZERO, bf16::ONE, bf16::NEG_INFINITY, bf16::INFINITY;
    f32: 0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY;
    f64: 0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY;
}
