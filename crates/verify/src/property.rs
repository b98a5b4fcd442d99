//! Properties: which outputs may not occur for which inputs.
//!
//! A property is stated by its counterexamples, as VNN-LIB does: it holds if no input of any case satisfies all constraints of the case.

use std::ops::{Add, Mul};

use crate::interval::Interval;

/// The cases that would violate a property.
#[derive(Clone, Debug)]
pub struct Property {
    /// How many elements the input has.
    pub inputs: usize,
    /// How many elements the output has.
    pub outputs: usize,
    /// Cases; an input that satisfies one of them is a counterexample.
    pub cases: Vec<Case>,
}

/// A box of inputs and constraints that hold together.
#[derive(Clone, Debug)]
pub struct Case {
    /// The range of each input.
    pub ranges: Vec<Range>,
    /// Constraints on outputs.
    pub constraints: Vec<Constraint>,
}

/// A closed range whose ends are decimals, of which each is enclosed by two floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lower end.
    pub lo: Interval,
    /// The upper end.
    pub hi: Interval,
}

/// Σ `input`·x + Σ `output`·y + `constant` ≤ 0.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// Coefficients of the inputs.
    pub input: Vec<Interval>,
    /// Coefficients of the outputs.
    pub output: Vec<Interval>,
    /// What is added.
    pub constant: Interval,
}

impl Range {
    /// The floats around the range: it contains all of it.
    pub fn outer(self) -> Interval {
        Interval { lo: self.lo.lo, hi: self.hi.hi }
    }

    /// Whether a float is surely in the range.
    pub fn contains(self, x: f64) -> bool {
        x >= self.lo.hi && x <= self.hi.lo
    }
}

impl Constraint {
    /// Bounds of the left side.
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
    /// Whether this input with these outputs surely satisfies the case.
    pub fn is_satisfied(&self, inputs: &[f64], outputs: &[Interval]) -> bool {
        let points: Vec<Interval> = inputs.iter().map(|x| Interval::point(*x)).collect();
        self.ranges.iter().zip(inputs).all(|(range, x)| range.contains(*x))
            && self.constraints.iter().all(|constraint| constraint.value(&points, outputs).hi <= 0.0)
    }
}
