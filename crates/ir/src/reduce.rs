//! Reduction operators, shared by tensor reductions and collectives of work-items.

use crate::alu::Alu;
use crate::dtype::{DType, Scalar};

/// A reduction operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum, with identity 0.
    Sum,
    /// Product, with identity 1.
    Prod,
    /// Maximum, with the type's least value as identity; NaN propagates.
    Max,
    /// Minimum, with the type's greatest value as identity; NaN propagates.
    Min,
}

impl ReduceOp {
    /// All operators.
    pub const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

    /// Returns the binary operation.
    pub const fn alu(self) -> Alu {
        match self {
            ReduceOp::Sum => Alu::Add,
            ReduceOp::Prod => Alu::Mul,
            ReduceOp::Max => Alu::Max,
            ReduceOp::Min => Alu::Min,
        }
    }

    /// Returns the identity element.
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

    /// Returns the name: `sum`, `prod`, `max` or `min`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
}
