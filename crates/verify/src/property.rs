//! Properties: the outputs that are forbidden for a set of inputs.
//!
//! As in VNN-LIB, a property is given by its counterexamples: it holds if no input of any case satisfies all constraints of the case.

use std::ops::{Add, Mul};

use crate::interval::Interval;

/// A property, as the cases that violate it.
#[derive(Clone, Debug)]
pub struct Property {
    /// Number of elements of the input.
    pub inputs: usize,
    /// Number of elements of the output.
    pub outputs: usize,
    /// Cases; an input that satisfies one of them is a counterexample.
    pub cases: Vec<Case>,
}

/// A box of inputs and a conjunction of constraints.
#[derive(Clone, Debug)]
pub struct Case {
    /// Range of each input.
    pub ranges: Vec<Range>,
    /// Constraints on outputs.
    pub constraints: Vec<Constraint>,
}

/// A closed range whose ends are decimals, each enclosed by two floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Lower end.
    pub lo: Interval,
    /// Upper end.
    pub hi: Interval,
}

/// The constraint Σ `input`·x + Σ `output`·y + `constant` ≤ 0.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// Coefficients of the inputs.
    pub input: Vec<Interval>,
    /// Coefficients of the outputs.
    pub output: Vec<Interval>,
    /// The constant.
    pub constant: Interval,
}

impl Range {
    /// Returns the interval of floats that contains the whole range.
    pub fn outer(self) -> Interval {
        Interval { lo: self.lo.lo, hi: self.hi.hi }
    }

    /// Returns true if a float is certainly in the range.
    pub fn contains(self, x: f64) -> bool {
        x >= self.lo.hi && x <= self.hi.lo
    }
}

impl Constraint {
    /// Returns bounds of the left side.
    pub fn value(&self, inputs: &[Interval], outputs: &[Interval]) -> Interval {
        let zero = Interval::point(0.0);
        let of = |coefficients: &[Interval], values: &[Interval]| {
            let used = coefficients.iter().zip(values).filter(|(coefficient, _)| **coefficient != zero);
            used.fold(zero, |sum, (coefficient, value)| sum.add(coefficient.mul(*value)))
        };
        of(&self.input, inputs).add(of(&self.output, outputs)).add(self.constant)
    }
}

impl Case {
    /// Returns true if this input with these outputs certainly satisfies the case.
    pub fn is_satisfied(&self, inputs: &[f64], outputs: &[Interval]) -> bool {
        let points: Vec<Interval> = inputs.iter().map(|x| Interval::point(*x)).collect();
        self.ranges.iter().zip(inputs).all(|(range, x)| range.contains(*x))
            && self.constraints.iter().all(|constraint| constraint.value(&points, outputs).hi <= 0.0)
    }
}
