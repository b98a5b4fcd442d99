//! Search for counterexamples by random sampling and gradient descent.
//!
//! A property is a list of cases; each combines a part of the input set with constraints that describe a violation.
//!
//! A point is a counterexample only if it is an f32 input inside the exact set, and both the f32 outputs of the device and the outputs in
//! real arithmetic, enclosed by intervals, satisfy the constraints of a case.

use panoply_tensor::{Device, Error, Result, Rng, Shape, Tensor};

use crate::backward::{Rows, lower};
use crate::device_bounds;
use crate::interval::Interval;
use crate::property::{Case, Constraint, Property, Range};
use crate::steps::Steps;
use crate::values;

/// Number of points per batch on the device.
const BATCH: usize = 512;
/// Number of batches per box: the first one samples the whole box, later ones around the best point so far.
const ROUNDS: i32 = 12;
/// Number of restarts per case.
const RESTARTS: usize = 2;
/// Maximum number of gradient steps from a point.
const MAX_STEPS: usize = 40;
/// Number of random points, over all cases, from which gradient steps start.
const MAX_DESCENTS: usize = 256;
/// First length of a gradient step, as a fraction of the width of each range, and the length at which the descent ends.
const FIRST_LENGTH: f64 = 0.25;
const LAST_LENGTH: f64 = 1e-4;
/// Maximum number of inputs for which all corners of a box are tried.
const MAX_CORNERS: usize = 6;

/// A function of one tensor.
pub type Run<'f> = dyn Fn(&Tensor) -> Result<Tensor> + 'f;

/// A function of one f32 tensor, with its input shape.
pub struct Function<'f> {
    /// The function; it is traced, and evaluated if `compiled` is absent.
    pub run: &'f Run<'f>,
    /// Shape of the input.
    pub shape: Shape,
    /// Evaluates the function in place of `run`, for a batch of any size along the first axis of `shape`, whose length is 1.
    pub compiled: Option<&'f Run<'f>>,
}

/// Draws a number uniformly from [0, 1), a multiple of 2^-53.
pub fn uniform(rng: &mut Rng) -> f64 {
    let [low, high, ..] = rng.next_words();
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1u64 << 53) as f64
}

impl Function<'_> {
    /// Returns the outputs at several inputs, each as a list of elements, computed in one batch on the device.
    ///
    /// # Errors
    /// If the function fails or its output is not f32 with `outputs` elements.
    pub fn outputs(&self, points: &[Vec<f32>], outputs: usize) -> Result<Vec<Vec<f32>>> {
        let elements: Vec<f32> = points.concat();
        let dims = self.shape.dims();
        let result = match self.compiled {
            Some(compiled) => {
                let shape = Shape::new([&[points.len()], dims.get(1..).unwrap_or_default()].concat());
                compiled(&Tensor::from_slice(&elements, shape))?
            }
            None => {
                let shape = Shape::new([&[points.len()], dims].concat());
                let run = |x: [&Tensor; 1]| [(self.run)(x[0]).unwrap_or_else(Tensor::from_mistake)];
                let [result] = Tensor::vmap([&Tensor::from_slice(&elements, shape)], run);
                result
            }
        };
        let values = result.to_vec::<f32>()?;
        if values.len() != points.len() * outputs {
            return Err(Error::mistake(format!(
                "the output has {} elements, not {outputs}",
                values.len() / points.len()
            )));
        }
        Ok(values.chunks_exact(outputs).map(<[f32]>::to_vec).collect())
    }

    /// Returns the output at one input, computed without batching.
    ///
    /// # Errors
    /// If the function fails.
    pub fn output(&self, point: &[f32]) -> Result<Vec<f32>> {
        let run = self.compiled.unwrap_or(self.run);
        run(&Tensor::from_slice(point, self.shape.clone()))?.to_vec::<f32>()
    }
}

/// Returns the f32 nearest to `x` that is certainly in a range, if there is one.
pub fn nearest_in(range: Range, x: f64) -> Option<f32> {
    let near = x as f32;
    [near, near.next_up(), near.next_down()].into_iter().find(|x| range.contains(f64::from(*x)))
}

/// Returns the f32 point of a case nearest to these inputs; `None` if one of its ranges contains no f32.
pub fn point_of(case: &Case, inputs: impl Iterator<Item = f64>) -> Option<Vec<f32>> {
    case.ranges.iter().zip(inputs).map(|(range, x)| nearest_in(*range, x)).collect()
}

/// Returns true if the outputs in real arithmetic certainly satisfy a case at a point.
pub fn satisfies_in_reals(steps: &Steps, case: &Case, point: &[f32]) -> bool {
    let inputs: Vec<f64> = point.iter().map(|x| f64::from(*x)).collect();
    let intervals: Vec<Interval> = inputs.iter().map(|x| Interval::point(*x)).collect();
    let bounds = values::forward(steps, &intervals);
    case.is_satisfied(&inputs, &bounds[steps.output].elements)
}

/// Returns true if f32 outputs satisfy a case, or are not finite although the property requires it.
pub fn satisfies_in_f32(property: &Property, case: &Case, point: &[f32], outputs: &[f32]) -> bool {
    let inputs: Vec<f64> = point.iter().map(|x| f64::from(*x)).collect();
    if is_undefined(property, outputs) {
        return case.contains(&inputs);
    }
    let outputs: Vec<Interval> = outputs.iter().map(|y| Interval::point(f64::from(*y))).collect();
    case.is_satisfied(&inputs, &outputs)
}

/// Returns true if f32 outputs are not finite although the property requires it; the outputs in real arithmetic do not matter then.
fn is_undefined(property: &Property, outputs: &[f32]) -> bool {
    property.requires_finite && outputs.iter().any(|y| !y.is_finite())
}

/// Returns the distance of outputs from satisfying a case; at most 0 if they do.
fn distance(case: &Case, point: &[f32], outputs: &[f32]) -> f64 {
    let number = |x: &f32| Interval::point(f64::from(*x));
    let (inputs, outputs): (Vec<_>, Vec<_>) =
        (point.iter().map(number).collect(), outputs.iter().map(number).collect());
    case.constraints.iter().map(|constraint| constraint.value(&inputs, &outputs).hi).fold(f64::NEG_INFINITY, f64::max)
}

/// Searches for a counterexample until `is_over` returns true: first by random sampling, then by gradient descent from random points.
/// `float` has the bounds of the device's arithmetic, if they are to be proven.
///
/// # Errors
/// If the function fails, or an output that violates the property is outside of its bounds in `float`.
pub fn search(
    function: &Function<'_>,
    steps: &Steps,
    float: Option<&Steps>,
    property: &Property,
    seed: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Evaluated>> {
    let has_bounds = !device_bounds::allows_tf32(&Device::current()?);
    let attack = Attack { function, steps, float: float.filter(|_| has_bounds), property, is_over };
    let mut rng = Rng::seed_from_u64(seed);
    for _ in 0..RESTARTS {
        for case in &property.cases {
            if let Some(found) = attack.by_sampling(case, &mut rng)? {
                return Ok(Some(found));
            }
        }
    }
    attack.by_descent(&mut rng)
}

/// A point and the outputs of the device there.
type Evaluated = (Vec<f32>, Vec<f32>);

struct Attack<'s, 'f> {
    function: &'s Function<'f>,
    /// The function in real arithmetic.
    steps: &'s Steps,
    /// The function in the arithmetic of the device, if its outputs are compared with their bounds.
    float: Option<&'s Steps>,
    property: &'s Property,
    is_over: &'s dyn Fn() -> bool,
}

impl Attack<'_, '_> {
    /// Searches a case by random sampling, in each round closer to the best point so far.
    fn by_sampling(&self, case: &Case, rng: &mut Rng) -> Result<Option<Evaluated>> {
        let Attack { function, steps, property, .. } = *self;
        let ranges: Vec<Interval> = case.ranges.iter().map(|range| range.outer()).collect();
        let mut best: Option<(f64, Vec<f32>)> = None;
        for round in 0..ROUNDS {
            if (self.is_over)() {
                return Ok(None);
            }
            let spread = 0.5f64.powi(round);
            let around = best.as_ref().map(|(_, point)| point.clone());
            let points = sample_points(case, &ranges, around.as_deref(), spread, BATCH, rng);
            if points.is_empty() {
                break;
            }
            let start = around.as_deref().filter(|_| round % 4 == 1);
            if let Some(point) = start.and_then(|start| descend(steps, case, &ranges, start, false))
                && let Some(found) = self.confirmed(case, &point)?
            {
                return Ok(Some(found));
            }
            for (point, outputs) in points.iter().zip(function.outputs(&points, property.outputs)?) {
                let is_violated = satisfies_in_f32(property, case, point, &outputs);
                if is_violated && (is_undefined(property, &outputs) || satisfies_in_reals(steps, case, point)) {
                    if let Some(found) = self.confirmed(case, point)? {
                        return Ok(Some(found));
                    }
                } else if let (true, Some(float)) = (is_violated, self.float) {
                    let bounds = device_bounds::bounds_at(float, point);
                    device_bounds::compare(&bounds, point, &outputs)?;
                }
                let distance = distance(case, point, &outputs);
                if best.as_ref().is_none_or(|(least, _)| distance < *least) {
                    best = Some((distance, point.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Searches all cases by gradient descent from random points.
    fn by_descent(&self, rng: &mut Rng) -> Result<Option<Evaluated>> {
        let Attack { steps, property, .. } = *self;
        let count = MAX_DESCENTS / property.cases.len().max(1);
        for (n, case) in (0..count).flat_map(|n| property.cases.iter().map(move |case| (n, case))) {
            if (self.is_over)() || steps.unknown.is_some() {
                return Ok(None);
            }
            let ranges: Vec<Interval> = case.ranges.iter().map(|range| range.outer()).collect();
            let random = ranges.iter().map(|x| (x.lo + uniform(rng) * (x.hi - x.lo)).clamp(x.lo, x.hi));
            let random: Vec<f64> = random.collect();
            let Some(start) = point_of(case, random.into_iter()) else { continue };
            let Some(point) = descend(steps, case, &ranges, &start, n % 2 == 0) else { continue };
            if let Some(found) = self.confirmed(case, &point)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns a point with its outputs if these satisfy the case when computed without batching, which can round differently.
    fn confirmed(&self, case: &Case, point: &[f32]) -> Result<Option<Evaluated>> {
        let outputs = self.function.output(point)?;
        let is_violated = satisfies_in_f32(self.property, case, point, &outputs);
        Ok(is_violated.then(|| (point.to_vec(), outputs)))
    }
}

/// Searches for a point that satisfies a case in real arithmetic by projected gradient descent (PGD; Madry et al.,
/// *Towards Deep Learning Models Resistant to Adversarial Attacks*, 2018) with the sign of the gradient, on the constraint that is farthest
/// from being satisfied. Returns `None` if no such point is found.
///
/// Points are projected onto `ranges`, and the first step is a fraction of their widths. With `is_summed`, the objective is the sum of all
/// constraints that are not satisfied, which avoids oscillation between two of them.
pub fn descend(steps: &Steps, case: &Case, ranges: &[Interval], start: &[f32], is_summed: bool) -> Option<Vec<f32>> {
    let (mut best, mut least, mut length) = (start.to_vec(), f64::INFINITY, FIRST_LENGTH);
    let mut gradient = vec![0.0; start.len()];
    let mut point = best.clone();
    for _ in 0..MAX_STEPS {
        let inputs: Vec<Interval> = point.iter().map(|x| Interval::point(f64::from(*x))).collect();
        let bounds = values::forward(steps, &inputs);
        let outputs = &bounds[steps.output].elements;
        let value = |constraint: &&Constraint| constraint.value(&inputs, outputs).hi;
        let farthest = case.constraints.iter().max_by(|a, b| value(a).total_cmp(&value(b)))?;
        let distance = value(&farthest);
        if distance <= 0.0 && satisfies_in_reals(steps, case, &point) {
            return Some(point);
        }
        if distance < least {
            (best, least) = (point.clone(), distance);
            // The linear bound of a single point is exact, so its coefficients are a gradient.
            let unsatisfied: Vec<&Constraint> = match is_summed {
                true => case.constraints.iter().filter(|constraint| value(constraint) > 0.0).collect(),
                false => vec![farthest],
            };
            let rows = lower(steps, &bounds, steps.output, Rows::of(&unsatisfied)).slopes;
            gradient = vec![0.0; inputs.len()];
            for row in rows.chunks_exact(inputs.len()) {
                gradient.iter_mut().zip(row).for_each(|(sum, partial)| *sum += partial);
            }
        } else {
            length *= 0.5;
        }
        if length < LAST_LENGTH {
            return None;
        }
        let next = best.iter().zip(&gradient).zip(ranges).map(|((x, partial), range)| {
            let step = if *partial == 0.0 { 0.0 } else { partial.signum() * length * (range.hi - range.lo) };
            (f64::from(*x) - step).clamp(range.lo, range.hi)
        });
        point = point_of(case, next)?;
    }
    None
}

/// Returns at least `count` points of a case, fewer if a range contains no f32: without `around` its center, its corners and random points,
/// else random points around that point, in a box that is the case's size times `spread`.
pub fn sample_points(
    case: &Case,
    ranges: &[Interval],
    around: Option<&[f32]>,
    spread: f64,
    count: usize,
    rng: &mut Rng,
) -> Vec<Vec<f32>> {
    let mut points = Vec::with_capacity(count);
    if around.is_none() {
        points.extend(point_of(case, ranges.iter().map(|range| 0.5 * (range.lo + range.hi))));
        let corners = if ranges.len() <= MAX_CORNERS { 1 << ranges.len() } else { 0 };
        let corner = |corner: usize| {
            let end = move |(n, range): (usize, &Interval)| if corner >> n & 1 == 0 { range.lo } else { range.hi };
            point_of(case, ranges.iter().enumerate().map(end))
        };
        points.extend((0..corners).filter_map(corner));
    }
    while points.len() < count {
        let near = |(n, range): (usize, &Interval)| {
            let width = range.hi - range.lo;
            let x = match around {
                Some(point) => f64::from(point[n]) + (uniform(rng) - 0.5) * spread * width,
                None => range.lo + uniform(rng) * width,
            };
            x.clamp(range.lo, range.hi)
        };
        let inputs: Vec<f64> = ranges.iter().enumerate().map(near).collect();
        let Some(point) = point_of(case, inputs.into_iter()) else { break };
        points.push(point);
    }
    points
}
