//! Properties: the outputs that are forbidden for a set of inputs.
//!
//! As in VNN-LIB, a property is given by its counterexamples: it holds if no input of any case satisfies all constraints of the case.

use std::ops::Add;

use crate::interval::Interval;

/// Maximum number of elements of a set.
pub const MAX_INPUTS: usize = 1 << 22;
/// Maximum number of coefficients and ranges of a property, which take up to 32 bytes each.
const MAX_COEFFICIENTS: usize = 1 << 23;

/// Checks the size of a property with as many cases as constraints, before it is made.
///
/// # Errors
/// If it would take too much memory.
pub fn check_size(inputs: usize, outputs: usize, constraints: usize) -> Result<(), String> {
    let count = inputs.saturating_mul(2).saturating_add(outputs).saturating_mul(constraints);
    match count <= MAX_COEFFICIENTS {
        true => Ok(()),
        false => Err(format!(
            "{constraints} comparisons of {outputs} outputs for sets of {inputs} elements are too many for one claim"
        )),
    }
}

/// A property, as the cases that violate it.
#[derive(Clone, Debug)]
pub struct Property {
    /// Number of elements of the input.
    pub inputs: usize,
    /// Number of elements of the output.
    pub outputs: usize,
    /// Cases; an input that satisfies one of them is a counterexample.
    pub cases: Vec<Case>,
    /// True if an input in the box of a case is also a counterexample if its f32 output is not finite.
    pub requires_finite: bool,
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

/// The constraint Σ `input`·x + Σ `output`·y + `constant` ≤ 0, or < 0 if it is strict.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// Coefficients of the inputs.
    pub input: Vec<Interval>,
    /// Coefficients of the outputs.
    pub output: Vec<Interval>,
    /// The constant.
    pub constant: Interval,
    /// True for <.
    pub is_strict: bool,
}

impl Range {
    /// Returns the range of the numbers that differ from `x` by at most `radius`.
    pub fn near(x: f32, radius: f64) -> Range {
        let (x, radius) = (Interval::point(f64::from(x)), Interval::point(radius));
        if radius == Interval::point(0.0) { Range { lo: x, hi: x } } else { Range { lo: x - radius, hi: x + radius } }
    }

    /// Returns the part of the range between two numbers.
    pub fn clipped(self, lo: f64, hi: f64) -> Range {
        Range {
            lo: Interval { lo: self.lo.lo.max(lo), hi: self.lo.hi.max(lo) },
            hi: Interval { lo: self.hi.lo.min(hi), hi: self.hi.hi.min(hi) },
        }
    }

    /// Returns true if the ends are finite, and not certainly in the wrong order.
    pub fn is_valid(self) -> bool {
        self.lo.lo <= self.hi.hi && self.lo.is_finite() && self.hi.is_finite()
    }

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
        let of = |coefficients: &[Interval], values: &[Interval]| -> Option<Interval> {
            let used = coefficients.iter().zip(values).filter(|(coefficient, _)| **coefficient != zero);
            used.map(|(coefficient, value)| product(*coefficient, *value)).reduce(Interval::add)
        };
        let constant = (self.constant != zero).then_some(self.constant);
        let terms = [of(&self.input, inputs), of(&self.output, outputs), constant];
        terms.into_iter().flatten().reduce(Interval::add).unwrap_or(zero)
    }

    /// Returns true if a value of the left side in these bounds certainly does not satisfy the constraint.
    pub fn excludes(&self, value: Interval) -> bool {
        if self.is_strict { value.lo >= 0.0 } else { value.lo > 0.0 }
    }

    /// Returns true if a value of the left side in these bounds certainly satisfies the constraint.
    pub fn includes(&self, value: Interval) -> bool {
        if self.is_strict { value.hi < 0.0 } else { value.hi <= 0.0 }
    }

    /// Returns a lower bound of the left side from that of its row, corrected for the widths of the coefficients and for the constant.
    pub fn at_least(&self, bound: f64, inputs: &[Interval], outputs: &[Interval]) -> f64 {
        let cost = |coefficients: &[Interval], values: &[Interval]| {
            let wide = coefficients.iter().zip(values).filter(|(coefficient, _)| !coefficient.is_point());
            wide.map(|(coefficient, value)| (coefficient.hi - coefficient.lo) * value.magnitude()).sum::<f64>()
        };
        let cost = cost(&self.input, inputs) + cost(&self.output, outputs);
        #[cfg(test)]
        let bound = if crate::fault::is(crate::fault::Fault::Constraint) { bound + 1.0 } else { bound };
        ((bound + self.constant.lo).next_down() - 2.0 * cost).next_down()
    }
}

/// Returns the product, which is exact for the coefficients 1 and -1.
fn product(coefficient: Interval, value: Interval) -> Interval {
    match (coefficient.lo, coefficient.hi) {
        (1.0, 1.0) => value,
        (-1.0, -1.0) => -value,
        _ => coefficient * value,
    }
}

impl Case {
    /// Returns true if an input is certainly in the box.
    pub fn contains(&self, inputs: &[f64]) -> bool {
        self.ranges.iter().zip(inputs).all(|(range, x)| range.contains(*x))
    }

    /// Returns true if this input with these outputs certainly satisfies the case.
    pub fn is_satisfied(&self, inputs: &[f64], outputs: &[Interval]) -> bool {
        let points: Vec<Interval> = inputs.iter().map(|x| Interval::point(*x)).collect();
        self.contains(inputs)
            && self.constraints.iter().all(|constraint| constraint.includes(constraint.value(&points, outputs)))
    }
}
