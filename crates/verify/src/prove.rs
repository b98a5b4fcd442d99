//! Claims stated in Rust: for all inputs of some boxes, a condition on tensors that are computed from them. The macro `prove!` writes them.
//!
//! The sides of all comparisons are the outputs of one traced function, and the claim is a property of these outputs with coefficients 1 and
//! -1, so that no rounding is added to that of the user's own operations.

use std::panic::Location;

use panoply_tensor::{DType, Error, Operand, Result, Shape, Tensor};

use crate::interval::Interval;
use crate::property::{Case, Constraint, MAX_INPUTS, Property, Range, check_size};
use crate::report::{Report, Verdict, shown};
use crate::search::{Options, verify};

/// A set of tensors: a range for each element.
///
/// ```
/// # use panoply_tensor::Tensor;
/// # use panoply_verify::InputBox;
/// let image = Tensor::from_slice(&[0.0f32, 0.5, 1.0], [3]);
/// let near = InputBox::ball(&image, 0.1).clip(0.0, 1.0);
/// let all = InputBox::new([2, 3], -1.0, 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct InputBox {
    shape: Shape,
    /// The ranges, or why there are none.
    ranges: Result<Vec<Range>>,
}

impl InputBox {
    /// Creates the set of tensors of a shape whose elements are between two numbers.
    pub fn new(shape: impl Into<Shape>, lo: f64, hi: f64) -> InputBox {
        let shape = shape.into();
        let range = Range { lo: Interval::point(lo), hi: Interval::point(hi) };
        let ranges = limited(&shape).and_then(|count| valid(vec![range; count]));
        InputBox { shape, ranges }
    }

    /// Creates the set of tensors whose elements are between those of two f32 tensors.
    pub fn between(lo: &Tensor, hi: &Tensor) -> InputBox {
        let point = |x: f32| Interval::point(f64::from(x));
        let ranges = || {
            let (from, to) = (lo.shape()?, hi.shape()?);
            if from != to {
                return Err(Error::mistake(format!("a box has the lower ends {from} and the upper ends {to}")));
            }
            let ends = lo.to_vec::<f32>()?.into_iter().zip(hi.to_vec::<f32>()?);
            valid(ends.map(|(lo, hi)| Range { lo: point(lo), hi: point(hi) }).collect())
        };
        InputBox { shape: shape_of(lo), ranges: ranges() }
    }

    /// Creates the set of tensors whose elements differ from those of an f32 tensor by at most a radius: a ball in the maximum norm.
    pub fn ball(center: &Tensor, radius: f64) -> InputBox {
        let near = |points: Vec<f32>| valid(points.into_iter().map(|x| Range::near(x, radius)).collect());
        InputBox { shape: shape_of(center), ranges: center.to_vec::<f32>().and_then(near) }
    }

    /// Returns the part of the set whose elements are between two numbers.
    #[must_use]
    pub fn clip(self, lo: f64, hi: f64) -> InputBox {
        let clip = |ranges: Vec<Range>| valid(ranges.into_iter().map(|range| range.clipped(lo, hi)).collect());
        InputBox { shape: self.shape, ranges: self.ranges.and_then(clip) }
    }
}

/// Returns the shape of a tensor, empty if it has none because of a mistake.
fn shape_of(tensor: &Tensor) -> Shape {
    tensor.shape().map_or_else(|_| Shape::new(Vec::new()), Clone::clone)
}

/// Returns the number of elements of a set.
///
/// # Errors
/// If there are too many.
fn limited(shape: &Shape) -> Result<usize> {
    let count = shape.numel();
    match count <= MAX_INPUTS {
        true => Ok(count),
        false => Err(Error::unsupported(format!("a box of {count} elements; up to {MAX_INPUTS} are supported"))),
    }
}

fn valid(ranges: Vec<Range>) -> Result<Vec<Range>> {
    match ranges.iter().position(|range| !range.is_valid()) {
        None => Ok(ranges),
        Some(at) => Err(Error::mistake(format!("the range of element {at} of a box is empty or not finite"))),
    }
}

/// A linear condition on outputs that violates the claim: Σ factor·output + constant < 0, or ≤ 0 if it is not strict.
#[derive(Clone, Debug)]
struct Violation {
    terms: Vec<(usize, f64)>,
    constant: f64,
    is_strict: bool,
}

/// A conjunction of conditions on f32 tensors, which hold for all their elements.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// Flattened tensors that the conditions are about.
    outputs: Vec<Tensor>,
    /// Number of elements of all outputs.
    count: usize,
    violations: Vec<Violation>,
    /// Number of conditions that outputs are finite, and of all conditions.
    finite: usize,
    all: usize,
}

/// A side of a comparison, as elements of the outputs or a number.
enum Part {
    Outputs(usize),
    Number(f64),
}

impl Condition {
    /// Creates a condition that always holds.
    pub fn new() -> Condition {
        Condition::default()
    }

    /// Adds the condition that `left` is at most `right`, with broadcasting.
    ///
    /// # Errors
    /// If an operand is not f32, or their shapes do not broadcast.
    pub fn at_most<A: Clone + Into<Operand>, B: Clone + Into<Operand>>(&mut self, left: &A, right: &B) -> Result<()> {
        self.compare(left.clone().into(), right.clone().into(), true)
    }

    /// Adds the condition that `left` is below `right`, with broadcasting.
    ///
    /// # Errors
    /// If an operand is not f32, or their shapes do not broadcast.
    pub fn below<A: Clone + Into<Operand>, B: Clone + Into<Operand>>(&mut self, left: &A, right: &B) -> Result<()> {
        self.compare(left.clone().into(), right.clone().into(), false)
    }

    /// Adds the condition that the element with the index `class` along an axis is larger than all others along this axis.
    ///
    /// # Errors
    /// If the tensor is not f32, or has no such axis or element.
    pub fn argmax<A: Clone + Into<Operand>>(&mut self, tensor: &A, axis: isize, class: usize) -> Result<()> {
        let Operand::Tensor(tensor) = tensor.clone().into() else { return Err(Error::mistake("a number has no axes")) };
        let dims = tensor.shape()?.dims().to_vec();
        let rank = dims.len() as isize;
        if axis < -rank || axis >= rank {
            return Err(Error::mistake(format!("argmax: the tensor {} has no axis {axis}", tensor.shape()?)));
        }
        let axis = axis.rem_euclid(rank) as usize;
        let length = dims[axis];
        if class >= length {
            return Err(Error::mistake(format!(
                "argmax: axis {axis} has {length} elements, so none has the index {class}"
            )));
        }
        let inner: usize = dims[axis + 1..].iter().product();
        let first = self.push(&tensor)?;
        for row in (0..tensor.shape()?.numel() / length.max(1)).map(|n| n / inner * inner * length + n % inner) {
            let element = |index: usize| first + row + index * inner;
            for other in (0..length).filter(|index| *index != class) {
                let terms = vec![(element(class), 1.0), (element(other), -1.0)];
                self.violations.push(Violation { terms, constant: 0.0, is_strict: false });
            }
        }
        self.all += 1;
        Ok(())
    }

    /// Adds the condition that all elements are finite.
    ///
    /// # Errors
    /// If the tensor is not f32.
    pub fn finite<A: Clone + Into<Operand>>(&mut self, tensor: &A) -> Result<()> {
        let Operand::Tensor(tensor) = tensor.clone().into() else {
            return Err(Error::mistake("`is_finite` of a number does not depend on the inputs"));
        };
        let first = self.push(&tensor)?;
        for at in first..self.count {
            for sign in [1.0, -1.0] {
                let (terms, constant) = (vec![(at, sign)], f64::from(f32::MAX));
                self.violations.push(Violation { terms, constant, is_strict: true });
            }
        }
        (self.finite, self.all) = (self.finite + 1, self.all + 1);
        Ok(())
    }

    fn compare(&mut self, left: Operand, right: Operand, is_strict: bool) -> Result<()> {
        let (left, right, count) = match (left, right) {
            (Operand::Number(_), Operand::Number(_)) => {
                return Err(Error::mistake("a comparison of two numbers does not depend on the inputs"));
            }
            (Operand::Tensor(left), Operand::Number(right)) => {
                let count = left.shape()?.numel();
                (Part::Outputs(self.push(&left)?), Part::Number(right.to_f64()), count)
            }
            (Operand::Number(left), Operand::Tensor(right)) => {
                let count = right.shape()?.numel();
                (Part::Number(left.to_f64()), Part::Outputs(self.push(&right)?), count)
            }
            (Operand::Tensor(left), Operand::Tensor(right)) => {
                let shape = left.shape()?.broadcast(right.shape()?)?;
                let mut part = |side: Tensor| self.push(&side.broadcast_to(shape.clone())).map(Part::Outputs);
                (part(left)?, part(right)?, shape.numel())
            }
        };
        for at in 0..count {
            let (mut terms, mut constant) = (Vec::new(), 0.0);
            for (part, sign) in [(&right, 1.0), (&left, -1.0)] {
                match part {
                    Part::Outputs(first) => terms.push((first + at, sign)),
                    Part::Number(number) => constant += sign * number,
                }
            }
            if !constant.is_finite() {
                return Err(Error::mistake("a comparison with a number that is not finite"));
            }
            self.violations.push(Violation { terms, constant, is_strict });
        }
        self.all += 1;
        Ok(())
    }

    /// Appends a tensor; returns the index of its first element among the outputs.
    fn push(&mut self, tensor: &Tensor) -> Result<usize> {
        let count = tensor.shape()?.numel();
        if tensor.dtype() != DType::F32 {
            return Err(Error::unsupported(format!("a condition on {} elements; f32 is supported", tensor.dtype())));
        }
        let first = self.count;
        self.outputs.push(tensor.reshape([count]));
        self.count += count;
        Ok(first)
    }

    /// Returns all outputs as one tensor.
    fn output(&self) -> Tensor {
        if let [output] = &self.outputs[..] { output.clone() } else { Tensor::concat(&self.outputs, 0) }
    }

    fn property(&self, ranges: &[Range]) -> Result<Property> {
        if self.finite > 0 && self.finite < self.all {
            return Err(Error::unsupported("`is_finite` and a comparison cannot be joined; prove them separately"));
        }
        let (inputs, outputs) = (ranges.len(), self.count);
        if self.violations.is_empty() || inputs == 0 {
            return Err(Error::mistake("the claim has no inputs, or no elements to compare"));
        }
        check_size(inputs, outputs, self.violations.len()).map_err(Error::unsupported)?;
        let case = |violation: &Violation| {
            let mut output = vec![Interval::point(0.0); outputs];
            for (at, factor) in &violation.terms {
                output[*at] = output[*at] + Interval::point(*factor);
            }
            let (input, constant) = (vec![Interval::point(0.0); inputs], Interval::point(violation.constant));
            let constraints = vec![Constraint { input, output, constant, is_strict: violation.is_strict }];
            Case { ranges: ranges.to_vec(), constraints }
        };
        let cases = self.violations.iter().map(case).collect();
        Ok(Property { inputs, outputs, cases, requires_finite: self.finite > 0 })
    }
}

/// Proves that a condition holds for all tensors of some boxes, each with the name of its variable. `claim` names the claim in errors. The
/// macro `prove!` is the short way to call this function.
///
/// # Errors
/// If the condition does not hold for an input, which a note of the error contains, or is undecided; if it fails for tensors of these
/// shapes, or the device computes an output outside of its bounds.
#[track_caller]
pub fn prove(
    claim: &str,
    sets: &[(&str, InputBox)],
    condition: &dyn Fn(&[Tensor]) -> Result<Condition>,
    options: &Options,
) -> Result<Report> {
    let place = Location::caller();
    attempt(claim, sets, condition, options).map_err(|error| error.with_location(place))
}

fn attempt(
    claim: &str,
    sets: &[(&str, InputBox)],
    condition: &dyn Fn(&[Tensor]) -> Result<Condition>,
    options: &Options,
) -> Result<Report> {
    let mut ranges = Vec::new();
    for (name, set) in sets {
        let own = set.ranges.clone().map_err(|error| error.note(format!("in the set of `{name}`")))?;
        ranges.extend(own);
    }
    let split = |flat: &Tensor| -> Vec<Tensor> {
        if let [(_, set)] = sets {
            return vec![flat.reshape(set.shape.dims())];
        }
        let mut start = 0;
        let mut part = |set: &InputBox| {
            let count = set.shape.numel();
            start += count;
            flat.narrow(0, start - count, count).reshape(set.shape.dims())
        };
        sets.iter().map(|(_, set)| part(set)).collect()
    };
    let run = |flat: &Tensor| -> Result<Tensor> { condition(&split(flat)).map(|found| found.output()) };
    let zeros = Tensor::from_slice(&vec![0f32; ranges.len()], [ranges.len()]);
    let property = condition(&split(&zeros))?.property(&ranges)?;
    let report = verify(&run, [ranges.len()], &property, options, &mut |_| {})?;
    if let Verdict::Counterexample(found) = &report.verdict {
        let mut error = Error::mistake(format!("{claim}: does not hold: a counterexample was found"));
        let mut rest = &found.input[..];
        for (name, set) in sets {
            let (own, others) = rest.split_at(set.shape.numel().min(rest.len()));
            error = error.note(format!("{name} = {}", shown(own)));
            rest = others;
        }
        return Err(error);
    }
    report.ensure_proven(claim)?;
    Ok(report)
}
