//! How several values combine into one: shared by tensor reductions and by work-items of a group.

use crate::alu::Alu;
use crate::dtype::{DType, Scalar};

/// How values of several work-items combine; shared with tensor reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum, from 0.
    Sum,
    /// Product, from 1.
    Prod,
    /// Largest, from the type's least value; NaN wins.
    Max,
    /// Smallest, from the type's greatest value; NaN wins.
    Min,
}

impl ReduceOp {
    /// Every combination.
    pub const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

    /// The operation that combines two.
    pub const fn alu(self) -> Alu {
        match self {
            ReduceOp::Sum => Alu::Add,
            ReduceOp::Prod => Alu::Mul,
            ReduceOp::Max => Alu::Max,
            ReduceOp::Min => Alu::Min,
        }
    }

    /// The value that changes nothing.
    pub fn identity(self, dtype: DType) -> Scalar {
        let bits = dtype.bits();
        match (self, dtype.is_float()) {
            (ReduceOp::Sum, _) => Scalar::from_i128(dtype, 0),
            (ReduceOp::Prod, _) => Scalar::from_i128(dtype, 1),
            (ReduceOp::Max, true) => Scalar::from_f64(dtype, f64::NEG_INFINITY),
            (ReduceOp::Min, true) => Scalar::from_f64(dtype, f64::INFINITY),
            (ReduceOp::Max, false) if dtype.is_signed() => Scalar::from_i128(dtype, -(1 << (bits - 1))),
            (ReduceOp::Max, false) => Scalar::from_i128(dtype, 0),
            (ReduceOp::Min, false) if dtype.is_signed() => Scalar::from_i128(dtype, (1 << (bits - 1)) - 1),
            (ReduceOp::Min, false) => Scalar::from_i128(dtype, (1 << bits) - 1),
        }
    }

    /// The spelling: `sum`, `prod`, `max`, `min`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
}
