//! Rounding errors of the floating-point arithmetic of devices.

use panoply_ir::DType;

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
        let (unit, largest) = match self.dtype {
            DType::F32 => (f64::from(f32::EPSILON) / 2.0, f64::from(f32::MAX)),
            DType::F64 => (f64::EPSILON / 2.0, f64::MAX),
            _ => return f64::INFINITY,
        };
        let least = self.least();
        let terms = terms as f64;
        let gamma = terms * unit / (1.0 - terms * unit);
        // Products and partial sums below `least` can be replaced by 0.
        let error = (gamma * magnitude + (1.0 + gamma) * (2.0 * terms + 1.0) * least) * (1.0 + 1e-9);
        // A larger sum could overflow in an intermediate result.
        if terms * unit < 0.01 && magnitude < largest / 4.0 { error } else { f64::INFINITY }
    }

    /// Returns the largest finite number.
    pub fn largest(self) -> f64 {
        if self.dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) }
    }

    /// Returns the smallest magnitude of a number that every device distinguishes from 0: the smallest normal number, or 0 in real arithmetic and
    /// for types whose subnormal numbers are converted exactly.
    pub fn least(self) -> f64 {
        match (self.arithmetic, self.dtype) {
            (Arithmetic::Float, DType::F32 | DType::BF16) => f64::from(f32::MIN_POSITIVE),
            (Arithmetic::Float, DType::F64) => f64::MIN_POSITIVE,
            _ => 0.0,
        }
    }

    /// Returns true if an interval contains numbers that a device can replace by 0.
    pub fn is_flushed(self, x: Interval) -> bool {
        let least = self.least();
        least > 0.0 && x.lo < least && x.hi > -least && x != Interval::point(0.0)
    }

    /// Returns an interval with 0 if it contains numbers that a device can replace by 0.
    ///
    /// Operations keep this property: those that round add an error of at least the smallest normal number, and the others are applied to
    /// operands with 0.
    pub fn flushed(self, x: Interval) -> Interval {
        if self.is_flushed(x) { x.hull(Interval::point(0.0)) } else { x }
    }

    /// Returns the largest error of a minimum or maximum of operands: a device can compare them as zeros and return either.
    pub fn of_choice(self, operands: &[Interval]) -> f64 {
        if operands.iter().any(|x| self.is_flushed(*x)) { 2.0 * self.least() } else { 0.0 }
    }

    /// Returns the magnitude up to which all integers are exact.
    pub fn largest_integer(self) -> f64 {
        match self.dtype {
            DType::F64 => 2f64.powi(53),
            DType::F32 => 2f64.powi(24),
            DType::F16 => 2f64.powi(11),
            DType::BF16 => 2f64.powi(8),
            _ => 0.0,
        }
    }
}
