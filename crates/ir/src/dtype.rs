//! Element types and constants.
//!
//! A [`Type`] is the type of a kernel expression: a scalar, a short vector, or an [`Type::Index`]. The width of indices (32 or 64 bits)
//! is chosen per kernel and is not visible to the program.

use std::fmt;

use half::{bf16, f16};

use crate::error::{Error, Result};

/// Element type of a tensor or buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[rustfmt::skip]
#[allow(missing_docs, reason = "the variants are Rust's own names")]
pub enum DType { Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64 }

impl DType {
    /// All element types, in declaration order.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Returns the bytes of one element in a buffer; 1 for a bool.
    pub const fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Returns the bits of the value; 1 for a bool.
    pub const fn bits(self) -> u32 {
        match self {
            DType::Bool => 1,
            _ => self.bytes() as u32 * 8,
        }
    }

    /// Returns true for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Returns true for signed and unsigned integers; false for bool.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }

    /// Returns true for signed integers and floats.
    pub const fn is_signed(self) -> bool {
        self.is_float() || matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Returns the unsigned integer type of the same width.
    pub const fn unsigned(self) -> DType {
        match self.bytes() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        }
    }

    /// Returns the Rust name: `f32`, `u8`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// Returns the type with this Rust name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Type of a kernel expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// A scalar.
    Scalar(DType),
    /// A vector of 2, 4, 8 or 16 lanes.
    Vector(DType, u8),
    /// An unsigned position or length (`usize` in the kernel language) of 32 or 64 bits, as the kernel needs.
    Index,
}

impl Type {
    /// `bool`, the type of conditions.
    pub const BOOL: Type = Type::Scalar(DType::Bool);

    /// Returns the element type; `None` for an index.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Type::Scalar(dtype) | Type::Vector(dtype, _) => Some(dtype),
            Type::Index => None,
        }
    }

    /// Returns the number of lanes; 1 unless it is a vector.
    pub fn lanes(self) -> u8 {
        match self {
            Type::Vector(_, lanes) => lanes,
            Type::Scalar(_) | Type::Index => 1,
        }
    }

    /// Returns the type with another element type and the same number of lanes.
    pub fn with_dtype(self, dtype: DType) -> Type {
        match self {
            Type::Vector(_, lanes) => Type::Vector(dtype, lanes),
            Type::Scalar(_) | Type::Index => Type::Scalar(dtype),
        }
    }

    /// Returns true if the elements are floats.
    pub fn is_float(self) -> bool {
        self.dtype().is_some_and(DType::is_float)
    }

    /// Returns true if the elements are integers or indices.
    pub fn is_int(self) -> bool {
        self.dtype().is_none_or(DType::is_int)
    }

    /// Returns true if the elements are bools.
    pub fn is_bool(self) -> bool {
        self.dtype() == Some(DType::Bool)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(dtype) => write!(f, "{dtype}"),
            Type::Vector(dtype, lanes) => write!(f, "{dtype}x{lanes}"),
            Type::Index => f.write_str("index"),
        }
    }
}

impl From<DType> for Type {
    fn from(dtype: DType) -> Type {
        Type::Scalar(dtype)
    }
}

/// A constant: an element type and the zero-extended bit pattern of one element. Vector constants are splats.
///
/// Equality and hashing are on bits, so `-0.0` and `0.0` differ and a NaN equals itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// Element type.
    pub dtype: DType,
    /// Bit pattern in the low bits.
    pub bits: u64,
}

impl Scalar {
    /// Converts a value: rounded to nearest for a float type, truncated as by Rust's `as` for an integer type.
    pub fn from_f64(dtype: DType, value: f64) -> Scalar {
        let bits = match dtype {
            DType::Bool => u64::from(value != 0.0),
            DType::I8 => value as i8 as u8 as u64,
            DType::I16 => value as i16 as u16 as u64,
            DType::I32 => value as i32 as u32 as u64,
            DType::I64 => value as i64 as u64,
            DType::U8 => value as u8 as u64,
            DType::U16 => value as u16 as u64,
            DType::U32 => value as u32 as u64,
            DType::U64 => value as u64,
            // `half::f16::from_f64` would use only the upper half of the bits, or round to f32 first.
            DType::F16 => f16::from_f32(to_odd(value)).to_bits() as u64,
            DType::BF16 => bf16::from_f32(to_odd(value)).to_bits() as u64,
            DType::F32 => (value as f32).to_bits() as u64,
            DType::F64 => value.to_bits(),
        };
        Scalar { dtype, bits }
    }

    /// Converts an integer: wrapped to the width of an integer type, rounded for a float type.
    pub fn from_i128(dtype: DType, value: i128) -> Scalar {
        match dtype {
            DType::Bool => Scalar { dtype, bits: u64::from(value != 0) },
            DType::F16 => f16::from_f32(integer_to_odd(value)).into(),
            DType::BF16 => bf16::from_f32(integer_to_odd(value)).into(),
            DType::F32 => (value as f32).into(),
            DType::F64 => (value as f64).into(),
            _ => Scalar { dtype, bits: value as u64 & mask(dtype.bits()) },
        }
    }

    /// Returns the value as f64; exact except for 64-bit integers beyond 2^53.
    pub fn to_f64(self) -> f64 {
        match self.dtype {
            DType::F16 => f16::from_bits(self.bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            DType::F32 => f32::from_bits(self.bits as u32) as f64,
            DType::F64 => f64::from_bits(self.bits),
            _ => self.to_i128() as f64,
        }
    }

    /// Returns the value as an integer; floats saturate and NaN is 0, as with Rust's `as`.
    pub fn to_i128(self) -> i128 {
        match self.dtype {
            DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => self.bits as i128,
            DType::I8 => self.bits as u8 as i8 as i128,
            DType::I16 => self.bits as u16 as i16 as i128,
            DType::I32 => self.bits as u32 as i32 as i128,
            DType::I64 => self.bits as i64 as i128,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => self.to_f64() as i128,
        }
    }

    /// Returns true for the bool `true`.
    pub fn is_true(self) -> bool {
        self.dtype == DType::Bool && self.bits != 0
    }
}

/// Rounds an f64 to f32 with rounding to odd: an inexact result is the neighbor whose last bit is 1. Rounding the result to nearest in a
/// type with at least two bits less gives the f64 correctly rounded. [Boldo and Melquiond, Emulation of a FMA and Correctly Rounded
/// Sums, 2008]
pub fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    odd(near, back.abs() > value.abs(), back != value)
}

/// Like [`to_odd`], for an integer.
pub fn integer_to_odd(value: i128) -> f32 {
    let near = value as f32;
    let back = near as i128;
    odd(near, back.unsigned_abs() > value.unsigned_abs(), back != value)
}

/// Moves the nearest f32 one step towards 0 if it lies beyond the number, and sets its last bit if it is inexact.
fn odd(near: f32, is_beyond: bool, is_inexact: bool) -> f32 {
    f32::from_bits((near.to_bits() - u32::from(is_beyond)) | u32::from(is_inexact))
}

const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            DType::Bool => write!(f, "{}", self.bits != 0),
            dtype if dtype.is_float() => {
                let value = self.to_f64();
                if value.is_nan() {
                    write!(f, "nan:{:#x}{dtype}", self.bits)
                } else if dtype == DType::F64 {
                    write!(f, "{value:?}{dtype}")
                } else {
                    write!(f, "{:?}{dtype}", value as f32)
                }
            }
            dtype => write!(f, "{}{dtype}", self.to_i128()),
        }
    }
}

macro_rules! scalar_from {
    ($($rust:ty => $dtype:ident, $bits:expr;)*) => {$(
        impl From<$rust> for Scalar {
            fn from(value: $rust) -> Scalar {
                let to_bits: fn($rust) -> u64 = $bits;
                Scalar { dtype: DType::$dtype, bits: to_bits(value) }
            }
        }

        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn read_into<E>(elements: &mut [$rust], read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
                read(bytemuck::cast_slice_mut(elements))
            }
        }
    )*};
}

/// Rust types that can be elements of a buffer or tensor.
///
/// A `bool` is one byte in device memory: 1 for true, 0 for false. Any nonzero byte is read as true, so that no buffer content can
/// produce an invalid `bool`.
pub trait Element:
    bytemuck::NoUninit
    + bytemuck::Zeroable
    + bytemuck::CheckedBitPattern
    + Send
    + Sync
    + PartialEq
    + fmt::Debug
    + Into<Scalar>
{
    /// The element type.
    const DTYPE: DType;

    /// Fills elements with the bytes that `read` writes, in native byte order. After an error the elements are unspecified.
    ///
    /// # Errors
    /// The error of `read`.
    fn read_into<E>(elements: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E>;

    /// Converts bytes, a whole number of elements, in native byte order.
    ///
    /// # Panics
    /// If the number of bytes is not a multiple of the element's size.
    fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        assert!(
            bytes.len().is_multiple_of(size_of::<Self>()),
            "{} bytes are not a whole number of {}",
            bytes.len(),
            Self::DTYPE
        );
        let mut elements = vec![Self::zeroed(); bytes.len() / size_of::<Self>()];
        let copied = Self::read_into(&mut elements, |to| {
            to.copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        match copied {
            Ok(()) => elements,
            Err(never) => match never {},
        }
    }
}

scalar_from! {
    i8 => I8, |v| v as u8 as u64;
    i16 => I16, |v| v as u16 as u64;
    i32 => I32, |v| v as u32 as u64;
    i64 => I64, |v| v as u64;
    u8 => U8, u64::from;
    u16 => U16, u64::from;
    u32 => U32, u64::from;
    u64 => U64, |v| v;
    f16 => F16, |v| v.to_bits() as u64;
    bf16 => BF16, |v| v.to_bits() as u64;
    f32 => F32, |v| v.to_bits() as u64;
    f64 => F64, |v| v.to_bits();
}

macro_rules! number_from_scalar {
    ($($rust:ty)*) => {$(
        /// Integers convert if the type can represent them; floats and bools do not convert.
        impl TryFrom<Scalar> for $rust {
            type Error = Error;

            fn try_from(value: Scalar) -> Result<$rust> {
                let fits = if value.dtype.is_int() { value.to_i128().try_into().ok() } else { None };
                fits.ok_or_else(|| has_no(value, stringify!($rust)))
            }
        }
    )*};
    (floats: $($rust:ty, |$number:ident| $round:expr;)*) => {$(
        /// Floats round; integers convert if the type can represent them; bools do not convert.
        impl TryFrom<Scalar> for $rust {
            type Error = Error;

            fn try_from(value: Scalar) -> Result<$rust> {
                let $number = value.to_f64();
                let rounded: $rust = $round;
                let exact = value.dtype.is_int() && f64::from(rounded) as i128 == value.to_i128();
                if value.dtype.is_float() || exact { Ok(rounded) } else { Err(has_no(value, stringify!($rust))) }
            }
        }
    )*};
}

number_from_scalar!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);
number_from_scalar! { floats:
    f16, |number| f16::from_f64(number);
    bf16, |number| bf16::from_f64(number);
    f32, |number| number as f32;
    f64, |number| number;
}

impl TryFrom<Scalar> for bool {
    type Error = Error;

    fn try_from(value: Scalar) -> Result<bool> {
        if value.dtype == DType::Bool { Ok(value.is_true()) } else { Err(has_no(value, "bool")) }
    }
}

/// Returns the mistake of a conversion that would lose information.
fn has_no(value: Scalar, name: &str) -> Error {
    Error::mistake(format!("{value} does not convert to {name} without loss; cast it first"))
}

/// As u64.
impl From<usize> for Scalar {
    fn from(value: usize) -> Scalar {
        Scalar::from(value as u64)
    }
}

/// As i64.
impl From<isize> for Scalar {
    fn from(value: isize) -> Scalar {
        Scalar::from(value as i64)
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar { dtype: DType::Bool, bits: u64::from(value) }
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn read_into<E>(elements: &mut [bool], read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let mut bytes = vec![0u8; elements.len()];
        read(&mut bytes)?;
        elements.iter_mut().zip(bytes).for_each(|(element, byte)| *element = byte != 0);
        Ok(())
    }
}
