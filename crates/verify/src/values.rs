//! Interval bounds of every step over a box of inputs.
//!
//! [`Arithmetic::Real`] bounds the program in real arithmetic. [`Arithmetic::Float`] also covers the results that a device computes: bounds
//! are widened by the rounding of each operation, sums by γₖ·Σ|wᵢ||xᵢ| with γₖ = ku/(1-ku), which holds for every order of summation, fused
//! or not (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1).

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::{Add, Mul, Range};
use std::thread::available_parallelism;

use panoply_ir::Alu;
use panoply_ir::reduce::ReduceOp;
use panoply_tensor::parallel_map;

use crate::interval::Interval;
use crate::lanes;
use crate::rounding::relu;
pub use crate::rounding::{Arithmetic, Rounding};
use crate::steps::{Entry, Matrix, Sizes, Step, StepId, Steps, ZERO};
use crate::univariate::{LinearRelaxation, Univariate};

/// Bounds of a step.
#[derive(Clone, Debug)]
pub struct Bounds<'a> {
    /// Bounds of each element.
    pub elements: Cow<'a, [Interval]>,
    /// For each element of a linear step, a bound of its rounding error plus the error per unit of coefficient that backward propagation
    /// through it makes in f64.
    pub slack: Vec<f64>,
    /// Linear relaxation of each element of a [`Step::Univariate`] in its operand.
    pub relaxations: Vec<LinearRelaxation>,
}

/// Relative rounding error of f64 with a safety margin: eight units.
pub const EPSILON: f64 = 4.0 * f64::EPSILON;
/// Covers underflow of f64 products whose factors are below [`MAX_MAGNITUDE`].
pub const TINY: f64 = 1e-250;
/// Number of rounding errors of the conversion of an integer, which can be rounded up or down.
pub const INTEGER_UNITS: usize = 2;
/// Larger magnitudes count as unknown.
pub const MAX_MAGNITUDE: f64 = 1e60;

/// Returns bounds of all steps for inputs in these intervals.
pub fn forward<'a>(steps: &'a Steps, input: &[Interval]) -> Vec<Bounds<'a>> {
    let mut bounds: Vec<Bounds<'a>> = Vec::with_capacity(steps.steps.len());
    for entry in &steps.steps {
        bounds.push(step(entry, &bounds, input, steps.arithmetic));
    }
    bounds
}

/// Returns bounds of a step from those of earlier steps.
pub fn step<'a>(entry: &'a Entry, bounds: &[Bounds<'a>], input: &[Interval], arithmetic: Arithmetic) -> Bounds<'a> {
    let known = |values: Cow<'a, [Interval]>| Bounds { elements: values, slack: Vec::new(), relaxations: Vec::new() };
    match &entry.step {
        Step::Input => {
            let rounding = Rounding { arithmetic, dtype: entry.dtype };
            known(input.iter().map(|x| rounding.flushed(*x)).collect())
        }
        Step::Constant(values) => known(Cow::Borrowed(values)),
        Step::Unknown => known(vec![Interval::ENTIRE; entry.numel].into()),
        Step::Univariate(x, function) => {
            let (elements, relaxations) = univariate(function, &bounds[*x].elements, arithmetic);
            Bounds { elements: elements.into(), slack: Vec::new(), relaxations }
        }
        computed => {
            let x = |id: StepId| &bounds[id].elements[..];
            #[cfg_attr(not(test), expect(unused_mut, reason = "tests make bounds wrong"))]
            let (mut elements, slack) = evaluate(computed, entry, &x, arithmetic);
            #[cfg(test)]
            crate::fault::narrow(entry, &mut elements);
            Bounds { elements: elements.into(), slack, relaxations: Vec::new() }
        }
    }
}

/// Returns the values of a step whose operands are all constants; otherwise `None`.
pub fn folded(steps: &[Entry], entry: &Entry, arithmetic: Arithmetic) -> Option<Vec<Interval>> {
    let constant = |id: &StepId| matches!(steps[*id].step, Step::Constant(_));
    let all = match &entry.step {
        Step::Constant(values) => return Some(values.to_vec()),
        Step::Input | Step::Unknown => false,
        Step::Move(x, _) | Step::Relu(x) | Step::Reduce(_, x, _) | Step::Linear(x, _) | Step::Cast(x) => constant(x),
        Step::Univariate(x, _) => constant(x),
        Step::Alu(_, x) => x.iter().all(constant),
        Step::MatMul(x, y, _) => constant(x) && constant(y),
    };
    let value = |id: StepId| match &steps[id].step {
        Step::Constant(values) => &values[..],
        _ => &[],
    };
    all.then(|| evaluate(&entry.step, entry, &value, arithmetic).0)
}

/// Elements of a function for each thread, at least: one takes some 10 µs, a thread some 50.
const PARALLEL: usize = 16;

thread_local! {
    /// True on a thread of a search, whose other threads use the other processors.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Computes bounds on this thread alone from now on.
pub fn use_one_thread() {
    IS_WORKER.set(true);
}

fn univariate(function: &Univariate, x: &[Interval], arithmetic: Arithmetic) -> (Vec<Interval>, Vec<LinearRelaxation>) {
    let enclose = |range: &Range<usize>| -> Vec<(Interval, LinearRelaxation)> {
        range.clone().map(|at| function.enclose(x[at], at, arithmetic)).collect()
    };
    if IS_WORKER.get() || x.len() < 2 * PARALLEL {
        return enclose(&(0..x.len())).into_iter().unzip();
    }
    let threads = available_parallelism().map_or(1, usize::from);
    let size = x.len().div_ceil(threads).max(PARALLEL);
    let parts: Vec<Range<usize>> = (0..x.len()).step_by(size).map(|start| start..(start + size).min(x.len())).collect();
    // Nothing fails.
    let done = parallel_map(&parts, |part| Ok(enclose(part))).unwrap_or_else(|_| vec![enclose(&(0..x.len()))]);
    done.into_iter().flatten().unzip()
}

/// Returns the bounds of a step.
type Lookup<'b> = &'b dyn Fn(StepId) -> &'b [Interval];

fn evaluate(step: &Step, entry: &Entry, x: Lookup<'_>, arithmetic: Arithmetic) -> (Vec<Interval>, Vec<f64>) {
    let rounding = Rounding { arithmetic, dtype: entry.dtype };
    match step {
        Step::Input | Step::Constant(_) | Step::Unknown => (vec![Interval::ENTIRE; entry.numel], Vec::new()),
        Step::Move(id, from) => {
            let read = |from: &u32| if *from == ZERO { Interval::point(0.0) } else { x(*id)[*from as usize] };
            let elements: Vec<Interval> = from.iter().map(read).collect();
            let slack = elements.iter().map(|element| slack(element.magnitude(), entry.numel, 0.0)).collect();
            (elements, slack)
        }
        Step::Relu(id) => (x(*id).iter().map(|x| relu(*x)).collect(), Vec::new()),
        Step::Univariate(id, function) => (univariate(function, x(*id), arithmetic).0, Vec::new()),
        Step::Cast(id) => {
            // Integers are exact up to a limit.
            let is_exact = |x: &Interval| entry.units == INTEGER_UNITS && x.magnitude() <= rounding.largest_integer();
            let units = |x: &Interval| if is_exact(x) { 0 } else { entry.units };
            x(*id).iter().map(|x| rounding.of(*x, x.magnitude(), units(x))).unzip()
        }
        Step::Alu(op, operands) => {
            let operands: Vec<&[Interval]> = operands.iter().map(|id| x(*id)).collect();
            let element = |at: usize| match operands[..] {
                [x] => scalar(*op, &[x[at]], entry.units, rounding),
                [x, y] => scalar(*op, &[x[at], y[at]], entry.units, rounding),
                [x, y, z] => scalar(*op, &[x[at], y[at], z[at]], entry.units, rounding),
                _ => (Interval::ENTIRE, f64::INFINITY),
            };
            (0..entry.numel).map(element).unzip()
        }
        Step::Reduce(op, id, to) => reduce(*op, x(*id), to, entry.numel, rounding),
        Step::Linear(id, matrix) => linear(x(*id), matrix, rounding),
        Step::MatMul(a, b, sizes) => matmul(x(*a), x(*b), *sizes, rounding),
    }
}

/// Returns the error per unit of coefficient of a backward propagation that sums `terms` products, plus the rounding of the operation.
fn slack(magnitude: f64, terms: usize, rounding: f64) -> f64 {
    rounding + (terms + 4) as f64 * EPSILON * magnitude + TINY
}

fn scalar(op: Alu, operands: &[Interval], units: usize, rounding: Rounding) -> (Interval, f64) {
    let exact = Interval::alu(op, operands).unwrap_or(Interval::ENTIRE);
    if units == 0 {
        let error = if matches!(op, Alu::Min | Alu::Max) { rounding.of_choice(operands) } else { 0.0 };
        let bounds = if error > 0.0 && exact.is_finite() { exact.widened(error) } else { exact };
        return (bounds, slack(exact.magnitude(), 1, error));
    }
    let sum = || operands.iter().map(|x| x.magnitude()).sum();
    let magnitude = if matches!(op, Alu::Add | Alu::Sub) { sum() } else { exact.magnitude() };
    let error = rounding.error(exact.magnitude(), units);
    let bounds = if error.is_finite() { exact.widened(error) } else { Interval::ENTIRE };
    (bounds, slack(magnitude, 1, error))
}

impl Rounding {
    /// Returns the bounds of an exact result including rounding, and its slack.
    fn of(self, exact: Interval, magnitude: f64, terms: usize) -> (Interval, f64) {
        let error = self.error(magnitude, terms);
        let bounds = if error.is_finite() { exact.widened(error) } else { Interval::ENTIRE };
        (bounds, slack(magnitude, terms, error))
    }
}

fn reduce(op: ReduceOp, x: &[Interval], to: &[u32], numel: usize, rounding: Rounding) -> (Vec<Interval>, Vec<f64>) {
    let mut result: Vec<Option<Interval>> = vec![None; numel];
    let (mut magnitudes, mut terms) = (vec![0.0; numel], vec![0; numel]);
    for (x, to) in x.iter().zip(to) {
        let at = *to as usize;
        magnitudes[at] += x.magnitude();
        terms[at] += 1;
        result[at] = Some(match (result[at], op) {
            (None, _) => *x,
            (Some(before), ReduceOp::Sum) => before.add(*x),
            (Some(before), ReduceOp::Max) => Interval::alu(Alu::Max, &[before, *x]).unwrap_or(Interval::ENTIRE),
            (Some(before), ReduceOp::Min) => Interval::alu(Alu::Min, &[before, *x]).unwrap_or(Interval::ENTIRE),
            (Some(_), ReduceOp::Prod) => Interval::ENTIRE,
        });
    }
    let element = |at: usize| match (result[at], op) {
        (None, ReduceOp::Sum) => (Interval::point(0.0), 0.0),
        (None, _) => (Interval::ENTIRE, 0.0),
        (Some(exact), ReduceOp::Sum) => rounding.of(exact, magnitudes[at], terms[at]),
        (Some(exact), _) => match rounding.of_choice(&[exact]) {
            error if error > 0.0 && exact.is_finite() => (exact.widened(error), error),
            _ => (exact, 0.0),
        },
    };
    (0..numel).map(element).unzip()
}

/// Returns centers, radii and magnitudes of intervals; `None` if one is too large.
fn centered(x: &[Interval]) -> Option<[Vec<f64>; 3]> {
    if !x.iter().all(|x| x.magnitude() < MAX_MAGNITUDE) {
        return None;
    }
    let centers: Vec<f64> = x.iter().map(|x| 0.5 * (x.lo + x.hi)).collect();
    let radii = x.iter().zip(&centers).map(|(x, center)| (x.hi - center).max(center - x.lo).next_up()).collect();
    Some([centers, radii, x.iter().map(|x| x.magnitude()).collect()])
}

/// Returns bounds of x × w as center ± radius, including the errors of both sums.
fn linear(x: &[Interval], matrix: &Matrix, rounding: Rounding) -> (Vec<Interval>, Vec<f64>) {
    let Sizes { batch, m, k, n } = matrix.sizes;
    let Some([centers, radii, magnitudes]) = centered(x) else {
        return (vec![Interval::ENTIRE; batch * m * n], vec![f64::INFINITY; batch * m * n]);
    };
    let mut elements = Vec::with_capacity(batch * m * n);
    let mut slacks = Vec::with_capacity(batch * m * n);
    for row in 0..batch * m {
        let at = row * k..(row + 1) * k;
        let flushed =
            if matrix.flushed > 0.0 { matrix.flushed * magnitudes[at.clone()].iter().sum::<f64>() } else { 0.0 };
        let [center, radius, magnitude] = lanes::multiply_interval(
            [&centers[at.clone()], &radii[at.clone()], &magnitudes[at]],
            &matrix.forward,
            row / m,
        );
        for column in 0..n {
            let magnitude = magnitude[column];
            let reach = radius[column] + slack(magnitude, k, 2.0 * flushed);
            // In the backward pass, each result can read another value of a subnormal operand.
            let read = matrix.reads.get(row / m * n + column).copied().unwrap_or(0.0);
            let exact = Interval::new((center[column] - reach).next_down(), (center[column] + reach).next_up());
            let (bounds, _) = rounding.of(exact, magnitude, k);
            elements.push(bounds);
            slacks.push(slack(magnitude, k.max(n), rounding.error(magnitude, k) + 2.0 * flushed + read));
        }
    }
    (elements, slacks)
}

fn matmul(x: &[Interval], y: &[Interval], sizes: Sizes, rounding: Rounding) -> (Vec<Interval>, Vec<f64>) {
    let Sizes { batch, m, k, n } = sizes;
    let element = |at: usize| {
        let (row, column) = (at / n, at % n);
        let product = |i: usize| (x[row * k + i], y[(row / m * k + i) * n + column]);
        let exact = (0..k).map(product).map(|(x, y)| x.mul(y)).reduce(Interval::add).unwrap_or(Interval::point(0.0));
        let magnitude = (0..k).map(product).map(|(x, y)| x.magnitude() * y.magnitude()).sum();
        rounding.of(exact, magnitude, k)
    };
    (0..batch * m * n).map(element).unzip()
}
