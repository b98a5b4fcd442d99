//! Lane types of registers.
//!
//! Registers have fewer types than the IR: an index is a u64, and f16 and bf16 are f32 lanes restricted to values of
//! the narrower type, because every operation rounds its result ([`Round`]). Memory always holds the IR's types.

use panoply_ir::{DType, Type};

/// The type of one lane of a register, or of a scalar slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are named like Rust's types")]
pub enum Lane {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

/// The narrower float type to which the values of an f32 lane are restricted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// No restriction.
    None,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
}

impl Lane {
    /// Bytes of one lane.
    pub const fn bytes(self) -> usize {
        match self {
            Lane::Bool | Lane::I8 | Lane::U8 => 1,
            Lane::I16 | Lane::U16 => 2,
            Lane::I32 | Lane::U32 | Lane::F32 => 4,
            Lane::I64 | Lane::U64 | Lane::F64 => 8,
        }
    }

    /// Returns the lane type of a scalar or of one element of a vector, and the type its results are rounded to.
    pub fn of(ty: Type) -> (Lane, Round) {
        match ty {
            Type::Index => (Lane::U64, Round::None),
            Type::Scalar(dtype) | Type::Vector(dtype, _) => Lane::of_dtype(dtype),
        }
    }

    /// Returns the lane type of an element type, and the type its results are rounded to.
    pub fn of_dtype(dtype: DType) -> (Lane, Round) {
        let lane = match dtype {
            DType::Bool => Lane::Bool,
            DType::I8 => Lane::I8,
            DType::I16 => Lane::I16,
            DType::I32 => Lane::I32,
            DType::I64 => Lane::I64,
            DType::U8 => Lane::U8,
            DType::U16 => Lane::U16,
            DType::U32 => Lane::U32,
            DType::U64 => Lane::U64,
            DType::F16 => return (Lane::F32, Round::F16),
            DType::BF16 => return (Lane::F32, Round::BF16),
            DType::F32 => Lane::F32,
            DType::F64 => Lane::F64,
        };
        (lane, Round::None)
    }

    /// Returns the unsigned lane type of the same width, for operations that only move bits or wrap.
    pub const fn unsigned(self) -> Lane {
        match self.bytes() {
            1 => Lane::U8,
            2 => Lane::U16,
            4 => Lane::U32,
            _ => Lane::U64,
        }
    }

    /// Returns the name in a dump.
    pub const fn name(self) -> &'static str {
        match self {
            Lane::Bool => "bool",
            Lane::I8 => "i8",
            Lane::I16 => "i16",
            Lane::I32 => "i32",
            Lane::I64 => "i64",
            Lane::U8 => "u8",
            Lane::U16 => "u16",
            Lane::U32 => "u32",
            Lane::U64 => "u64",
            Lane::F32 => "f32",
            Lane::F64 => "f64",
        }
    }
}
