//! Interval arithmetic in f64 that contains the exact result: every bound is rounded outwards after each operation.
//!
//! A bound is never NaN. Unknown values, including domain errors, are [`Interval::ENTIRE`], which proves nothing.

use std::ops::{Add, Mul, Neg, Sub};

/// The real numbers from `lo` to `hi`. Bools are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub lo: f64,
    /// Upper bound.
    pub hi: f64,
}

impl Interval {
    /// The interval of unknown or possibly undefined values.
    pub const ENTIRE: Interval = Interval { lo: f64::NEG_INFINITY, hi: f64::INFINITY };

    /// Returns the interval of one number; [`Interval::ENTIRE`] if it is not finite.
    pub fn point(value: f64) -> Interval {
        Interval::new(value, value)
    }

    /// Returns the interval between two bounds in either order; [`Interval::ENTIRE`] if one is not finite.
    pub fn new(a: f64, b: f64) -> Interval {
        if !a.is_finite() || !b.is_finite() {
            return Interval::ENTIRE;
        }
        if a <= b { Interval { lo: a, hi: b } } else { Interval { lo: b, hi: a } }
    }

    /// Widens rounded bounds so that they contain the exact result.
    pub(crate) fn outward(lo: f64, hi: f64) -> Interval {
        Interval::new(lo.next_down(), hi.next_up())
    }

    /// Returns true if the interval is one finite number.
    pub fn is_point(self) -> bool {
        self.lo == self.hi
    }

    /// Returns true if both bounds are finite.
    pub fn is_finite(self) -> bool {
        self.lo.is_finite() && self.hi.is_finite()
    }

    /// Returns the largest magnitude.
    pub fn magnitude(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    /// Returns true if a number is between the ends.
    pub fn contains(self, x: f64) -> bool {
        self.lo <= x && x <= self.hi
    }

    /// Returns the smallest interval that contains both.
    pub fn hull(self, other: Interval) -> Interval {
        Interval { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// Returns the interval with both bounds moved outwards by a non-negative distance.
    pub fn widened(self, by: f64) -> Interval {
        if by == 0.0 { self } else { Interval::outward(self.lo - by, self.hi + by) }
    }

    /// Returns the reciprocals; unknown if the interval contains 0.
    pub fn recip(self) -> Interval {
        let defined = self.is_finite() && (self.lo > 0.0 || self.hi < 0.0);
        if defined { Interval::outward(1.0 / self.hi, 1.0 / self.lo) } else { Interval::ENTIRE }
    }

    pub(crate) fn abs(self) -> Interval {
        if !self.is_finite() {
            return Interval::ENTIRE;
        }
        let low = if self.lo > 0.0 {
            self.lo
        } else if self.hi < 0.0 {
            -self.hi
        } else {
            0.0
        };
        Interval::new(low, self.magnitude())
    }

    /// Applies a non-decreasing function that is exact in f64, such as rounding.
    pub(crate) fn monotone(self, function: fn(f64) -> f64) -> Interval {
        Interval::new(function(self.lo), function(self.hi))
    }

    /// Returns a bool: 1 if `surely`, 0 if not `maybe`, else unknown.
    pub(crate) fn truth(surely: bool, maybe: bool) -> Interval {
        Interval { lo: f64::from(u8::from(surely)), hi: f64::from(u8::from(maybe)) }
    }
}

impl Add for Interval {
    type Output = Interval;

    /// Returns the interval of sums.
    fn add(self, other: Interval) -> Interval {
        Interval::outward(self.lo + other.lo, self.hi + other.hi)
    }
}

impl Sub for Interval {
    type Output = Interval;

    /// Returns the interval of differences.
    fn sub(self, other: Interval) -> Interval {
        self.add(other.neg())
    }
}

impl Neg for Interval {
    type Output = Interval;

    /// Returns the interval of negated numbers.
    fn neg(self) -> Interval {
        Interval { lo: -self.hi, hi: -self.lo }
    }
}

impl Mul for Interval {
    type Output = Interval;

    /// Returns the interval of products.
    fn mul(self, other: Interval) -> Interval {
        if !self.is_finite() || !other.is_finite() {
            return Interval::ENTIRE;
        }
        if (self.is_point() && self.lo == 0.0) || (other.is_point() && other.lo == 0.0) {
            return Interval::point(0.0);
        }
        let ends = [self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi];
        let product =
            Interval::outward(ends.into_iter().fold(ends[0], f64::min), ends.into_iter().fold(ends[0], f64::max));
        // Rounding outwards does not change the sign of a product whose factors have known signs.
        let is_positive = (self.lo >= 0.0 && other.lo >= 0.0) || (self.hi <= 0.0 && other.hi <= 0.0);
        if is_positive { Interval { lo: product.lo.max(0.0), hi: product.hi } } else { product }
    }
}

#[cfg(test)]
mod tests {
    use panoply_ir::Alu;

    use super::*;

    fn at(lo: f64, hi: f64) -> Interval {
        Interval { lo, hi }
    }

    #[track_caller]
    fn contains(interval: Interval, lo: f64, hi: f64) {
        assert!(interval.lo <= lo && interval.hi >= hi, "{interval:?} does not contain {lo}..{hi}");
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-15 * b.abs().max(1e-300);
        assert!(near(interval.lo, lo) && near(interval.hi, hi), "{interval:?} is much wider than {lo}..{hi}");
    }

    #[test]
    fn hand_computed_intervals() {
        contains(at(-1.0, 2.0).add(at(3.0, 5.0)), 2.0, 7.0);
        contains(at(-1.0, 2.0).sub(at(3.0, 5.0)), -6.0, -1.0);
        contains(at(-1.0, 2.0).mul(at(-3.0, 5.0)), -6.0, 10.0);
        contains(at(-4.0, -2.0).mul(at(-3.0, -1.0)), 2.0, 12.0);
        contains(at(2.0, 4.0).recip(), 0.25, 0.5);
        contains(at(-3.0, 1.0).abs(), 0.0, 3.0);
        let alu = |op, x: &[Interval]| Interval::alu(op, x).unwrap();
        contains(alu(Alu::Max, &[at(-3.0, 1.0), at(0.0, 0.0)]), 0.0, 1.0);
        contains(alu(Alu::Min, &[at(-3.0, 1.0), at(-1.0, 4.0)]), -3.0, 1.0);
        contains(alu(Alu::Sqrt, &[at(4.0, 9.0)]), 2.0, 3.0);
        contains(alu(Alu::Floor, &[at(-1.5, 2.5)]), -2.0, 2.0);
        contains(alu(Alu::Fma, &[at(1.0, 2.0), at(3.0, 4.0), at(-1.0, 1.0)]), 2.0, 9.0);
    }

    #[test]
    fn results_contain_the_exact_value() {
        let tenth = Interval::point(0.1);
        // 0.1 + 0.2 and 0.1 · 0.1 are not doubles.
        let sum = tenth.add(Interval::point(0.2));
        assert!(sum.lo < 0.1 + 0.2 && sum.hi > 0.1 + 0.2 && sum.lo <= 0.3 && !sum.is_point());
        assert!(!tenth.mul(tenth).is_point() && !Interval::point(3.0).recip().is_point());
        // An underflow is not 0.
        let tiny = Interval::point(1e-200).mul(Interval::point(1e-200));
        assert!(tiny.hi > 0.0 && tiny.lo <= 0.0);
    }

    #[test]
    fn undefined_results_are_unknown() {
        let alu = |op, x: &[Interval]| Interval::alu(op, x).unwrap();
        assert_eq!(at(-1.0, 1.0).recip(), Interval::ENTIRE);
        assert_eq!(Interval::point(f64::NAN), Interval::ENTIRE);
        assert_eq!(Interval::point(1e308).add(Interval::point(1e308)), Interval::ENTIRE);
        assert_eq!(Interval::ENTIRE.mul(Interval::point(0.0)), Interval::ENTIRE);
        assert_eq!(alu(Alu::Sqrt, &[at(-1.0, 4.0)]), Interval::ENTIRE);
        assert_eq!(alu(Alu::Min, &[Interval::ENTIRE, Interval::point(0.0)]), Interval::ENTIRE);
        assert_eq!(alu(Alu::Le, &[Interval::ENTIRE, Interval::ENTIRE]), at(0.0, 1.0));
        let chosen = alu(Alu::Select, &[at(0.0, 1.0), Interval::point(0.0), at(2.0, 3.0)]);
        assert_eq!(chosen, at(0.0, 3.0));
        assert_eq!(Interval::alu(Alu::Shl, &[Interval::point(1.0); 2]), None);
    }
}
