//! Rounding errors of the floating-point arithmetic of devices.

use panoply_ir::alu::Math;
use panoply_ir::{Alu, DType};

use crate::interval::Interval;

/// The arithmetic that bounds cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Real arithmetic.
    Real,
    /// Real arithmetic and floating-point arithmetic with sums in any order.
    Float,
}

/// Returns bounds of max(x, 0).
pub fn relu(x: Interval) -> Interval {
    if x.is_finite() { Interval { lo: x.lo.max(0.0), hi: x.hi.max(0.0) } } else { Interval::ENTIRE }
}

/// Rounding of an element type's arithmetic.
#[derive(Clone, Copy)]
pub struct Rounding {
    /// The arithmetic; real arithmetic does not round.
    pub arithmetic: Arithmetic,
    /// The element type.
    pub dtype: DType,
}

impl Rounding {
    /// Returns a bound of the rounding error of a sum of `terms` products with a total magnitude `magnitude`; infinite if there is none.
    /// Without terms the result is exact.
    pub fn error(self, magnitude: f64, terms: usize) -> f64 {
        if self.arithmetic == Arithmetic::Real || terms == 0 {
            return 0.0;
        }
        let (unit, least, largest) = match self.dtype {
            DType::F32 => (f64::from(f32::EPSILON) / 2.0, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
            DType::F64 => (f64::EPSILON / 2.0, f64::MIN_POSITIVE, f64::MAX),
            _ => return f64::INFINITY,
        };
        let terms = terms as f64;
        let gamma = terms * unit / (1.0 - terms * unit);
        let error = (gamma * magnitude + (terms + 1.0) * least) * (1.0 + 1e-9);
        // A larger sum could overflow in an intermediate result.
        if terms * unit < 0.01 && magnitude < largest / 4.0 { error } else { f64::INFINITY }
    }

    /// Returns the largest finite number.
    pub fn largest(self) -> f64 {
        if self.dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) }
    }

    /// Returns true if a device that replaces subnormal operands by 0 gets another result of a logarithm, a power or a quotient by it.
    pub fn is_subnormal(self, op: Alu, x: f64) -> bool {
        let is_steep = matches!(op, Alu::Math(Math::Log | Math::Log2) | Alu::Pow | Alu::Div);
        self.arithmetic == Arithmetic::Float && is_steep && x < f64::from(f32::MIN_POSITIVE)
    }

    /// Returns the largest difference of a root if a device replaces subnormal operands by 0.
    pub fn flushed_root(self, x: f64) -> f64 {
        let least = f64::from(f32::MIN_POSITIVE);
        if self.arithmetic == Arithmetic::Float && x < least { least.sqrt() } else { 0.0 }
    }
}
