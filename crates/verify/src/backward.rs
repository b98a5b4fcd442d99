//! Linear lower bounds by backward propagation from a step to the input (CROWN; Zhang et al., *Efficient Neural Network Robustness
//! Certification with General Activation Functions*, 2018, and its generalization to graphs, Xu et al., 2020).
//!
//! For each row, the propagation keeps coefficients of steps whose weighted sum plus a constant is a lower bound of the row. A linear step
//! is replaced by its operands through the transposed coefficients, a ReLU by one of its two relaxations, and any other step by its
//! interval. The computation uses f64; its rounding errors are accumulated in `error` and subtracted at the end.

use panoply_ir::Alu;
use panoply_ir::reduce::ReduceOp;

use crate::interval::Interval;
use crate::steps::{Matrix, Sizes, Step, StepId, Steps, ZERO};
use crate::values::{self, Bounds, EPSILON, MAX_MAGNITUDE, TINY};

/// Lower bounds of several rows over a box.
#[derive(Clone, Debug)]
pub struct Lower {
    /// Bound of each row; minus infinity if there is none.
    pub bounds: Vec<f64>,
    /// Coefficients of the inputs in the linear lower bound of each row, row by row.
    pub slopes: Vec<f64>,
}

/// Linear functions Σ `output`·y + Σ `input`·x of an output y and an input x, row by row.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Number of rows.
    pub count: usize,
    /// Coefficients of the step where the propagation starts.
    pub output: Vec<f64>,
    /// Coefficients of the input; empty if all are 0.
    pub input: Vec<f64>,
}

/// Bounds of the operand of each ReLU, in the order of the steps.
pub type Known = Vec<Vec<Interval>>;

/// Returns bounds of all steps over a box. The operands of ReLUs are tightened by linear bounds and by the bounds `known` for an enclosing
/// box.
pub fn tightened<'a>(steps: &'a Steps, input: &[Interval], known: &[Vec<Interval>]) -> (Vec<Bounds<'a>>, Known) {
    let mut bounds: Vec<Bounds<'a>> = Vec::with_capacity(steps.steps.len());
    let mut found = Known::new();
    // The operand of the first ReLU is an affine function of the input, for which intervals are as tight as linear bounds.
    let mut is_affine = true;
    for entry in &steps.steps {
        if let Step::Relu(x) = entry.step {
            if let Some(known) = known.get(found.len()) {
                let elements = bounds[x].elements.to_mut().iter_mut();
                elements.zip(known).for_each(|(element, known)| *element = narrowed(*element, *known));
            }
            if !is_affine {
                tighten(steps, &mut bounds, x);
            }
            is_affine = false;
            found.push(bounds[x].elements.to_vec());
        }
        let next = values::step(entry, &bounds, input, steps.arithmetic);
        bounds.push(next);
    }
    (bounds, found)
}

/// Returns the intersection of two bounds of one value. It is empty only if one of them is wrong; then `x` is returned.
fn narrowed(x: Interval, other: Interval) -> Interval {
    let lo = if other.lo > x.lo { other.lo } else { x.lo };
    let hi = if other.hi < x.hi { other.hi } else { x.hi };
    debug_assert!(lo <= hi, "{other:?} contradicts {x:?}");
    if lo <= hi { Interval { lo, hi } } else { x }
}

/// Tightens the elements of a step that can have either sign.
fn tighten(steps: &Steps, bounds: &mut [Bounds<'_>], id: StepId) {
    let unstable = |(at, x): (usize, &Interval)| (x.lo < 0.0 && x.hi > 0.0).then_some(at);
    let unstable: Vec<usize> = bounds[id].elements.iter().enumerate().filter_map(unstable).collect();
    if unstable.is_empty() {
        return;
    }
    let numel = bounds[id].elements.len();
    let mut output = vec![0.0; 2 * unstable.len() * numel];
    for (row, at) in unstable.iter().enumerate() {
        output[2 * row * numel + at] = 1.0;
        output[(2 * row + 1) * numel + at] = -1.0;
    }
    let rows = Rows { count: 2 * unstable.len(), output, input: Vec::new() };
    let found = lower(steps, bounds, id, rows).bounds;
    let elements = bounds[id].elements.to_mut();
    for (row, at) in unstable.into_iter().enumerate() {
        elements[at] = narrowed(elements[at], Interval { lo: found[2 * row], hi: -found[2 * row + 1] });
    }
}

/// Returns lower bounds of rows over the step `start`.
pub fn lower(steps: &Steps, bounds: &[Bounds<'_>], start: StepId, rows: Rows) -> Lower {
    let count = rows.count;
    let mut walk = Walk {
        count,
        bounds,
        coefficients: vec![None; start.max(steps.input) + 1],
        constant: vec![0.0; count],
        magnitude: vec![0.0; count],
        terms: 0,
        error: vec![0.0; count],
    };
    walk.add(start, rows.output);
    if !rows.input.is_empty() {
        walk.add(steps.input, rows.input);
    }
    for id in (0..walk.coefficients.len()).rev().filter(|id| *id != steps.input) {
        if let Some(coefficients) = walk.coefficients[id].take() {
            walk.pass(steps, id, &coefficients);
        }
    }
    let inputs = steps.steps[steps.input].numel;
    let slopes = walk.coefficients[steps.input].take().unwrap_or_else(|| vec![0.0; count * inputs]);
    walk.replace(steps.input, &slopes);
    let bound = |row: usize| {
        let lost = 2.0 * walk.error[row] + (walk.terms + 8) as f64 * EPSILON * walk.magnitude[row] + TINY;
        let bound = walk.constant[row] - lost;
        if bound.is_finite() { bound.next_down() } else { f64::NEG_INFINITY }
    };
    Lower { bounds: (0..count).map(bound).collect(), slopes }
}

struct Walk<'b, 'a> {
    count: usize,
    bounds: &'b [Bounds<'a>],
    /// Coefficients of each step that is not yet propagated, row by row.
    coefficients: Vec<Option<Vec<f64>>>,
    /// Accumulated constant of each row.
    constant: Vec<f64>,
    /// Sum of the magnitudes of the terms in `constant`, and the maximum number of terms per row.
    magnitude: Vec<f64>,
    terms: usize,
    /// Bounds of the accumulated rounding errors.
    error: Vec<f64>,
}

impl Walk<'_, '_> {
    fn elements(&self, id: StepId) -> &[Interval] {
        &self.bounds[id].elements
    }

    /// Adds coefficients to those of a step.
    fn add(&mut self, id: StepId, more: Vec<f64>) {
        let Some(mut sum) = self.coefficients[id].take() else {
            self.coefficients[id] = Some(more);
            return;
        };
        sum.iter_mut().zip(&more).for_each(|(sum, more)| *sum += more);
        let bounds = self.bounds;
        self.charge(&sum, |at| EPSILON * bounds[id].elements[at].magnitude());
        self.coefficients[id] = Some(sum);
    }

    /// Adds Σ |coefficient| · `per_unit` to the error of each row.
    fn charge(&mut self, coefficients: &[f64], per_unit: impl Fn(usize) -> f64) {
        let numel = coefficients.len() / self.count.max(1);
        for (row, coefficients) in coefficients.chunks_exact(numel.max(1)).enumerate() {
            let cost = |(at, a): (usize, &f64)| if *a == 0.0 { 0.0 } else { a.abs() * per_unit(at) };
            self.error[row] += coefficients.iter().enumerate().map(cost).sum::<f64>();
        }
    }

    /// Replaces a step by its interval.
    fn replace(&mut self, id: StepId, coefficients: &[f64]) {
        let bounds = self.bounds;
        let elements = &bounds[id].elements;
        self.terms += elements.len();
        for (row, coefficients) in coefficients.chunks_exact(elements.len().max(1)).enumerate() {
            for (a, x) in coefficients.iter().zip(elements.iter()) {
                // A coefficient of 0 does not cancel an unknown value: the product can be undefined, or the coefficient an underflow.
                if x.magnitude() < MAX_MAGNITUDE {
                    let term = if *a > 0.0 { a * x.lo } else { a * x.hi };
                    self.constant[row] += term;
                    self.magnitude[row] += term.abs();
                } else {
                    self.constant[row] = f64::NEG_INFINITY;
                }
            }
        }
    }

    /// Propagates the coefficients of a step to its operands.
    fn pass(&mut self, steps: &Steps, id: StepId, a: &[f64]) {
        let entry = &steps.steps[id];
        let linear = match &entry.step {
            Step::Move(x, from) => {
                self.add_moved(*x, a, from);
                true
            }
            Step::Reduce(ReduceOp::Sum, x, to) => {
                let numel = entry.numel;
                let spread = a.chunks_exact(numel.max(1)).flat_map(|row| to.iter().map(|to| row[*to as usize]));
                self.add(*x, spread.collect());
                true
            }
            Step::Cast(x) => {
                self.add(*x, a.to_vec());
                true
            }
            Step::Linear(x, matrix) => {
                self.add(*x, transposed(a, matrix, self.count));
                true
            }
            Step::Alu(op, operands) => self.pass_scalar(steps, *op, operands, a),
            Step::Relu(x) => {
                self.pass_relu(*x, a);
                return;
            }
            _ => false,
        };
        if linear {
            let bounds = self.bounds;
            self.charge(a, |at| bounds[id].slack[at]);
        } else {
            self.replace(id, a);
        }
    }

    fn add_moved(&mut self, x: StepId, a: &[f64], from: &[u32]) {
        let numel = self.elements(x).len();
        let mut sum = vec![0.0; self.count * numel];
        for (row, a) in a.chunks_exact(from.len().max(1)).enumerate() {
            for (a, from) in a.iter().zip(from).filter(|(_, from)| **from != ZERO) {
                sum[row * numel + *from as usize] += a;
            }
        }
        self.add(x, sum);
    }

    /// Propagates through a linear scalar operation; returns false if it is not linear.
    fn pass_scalar(&mut self, steps: &Steps, op: Alu, operands: &[StepId], a: &[f64]) -> bool {
        let is_constant = |id: &StepId| matches!(steps.steps[*id].step, Step::Constant(_));
        match (op, operands) {
            (Alu::Neg, [x]) => self.add(*x, a.iter().map(|a| -a).collect()),
            (Alu::Add, [x, y]) => {
                self.add(*x, a.to_vec());
                self.add(*y, a.to_vec());
            }
            (Alu::Sub, [x, y]) => {
                self.add(*x, a.to_vec());
                self.add(*y, a.iter().map(|a| -a).collect());
            }
            (Alu::Mul, [x, by]) if is_constant(by) => return self.pass_product(*x, *by, |by| by, a),
            (Alu::Mul, [by, x]) if is_constant(by) => return self.pass_product(*x, *by, |by| by, a),
            (Alu::Div, [x, by]) if is_constant(by) => return self.pass_product(*x, *by, Interval::recip, a),
            _ => return false,
        }
        true
    }

    /// Propagates through x times constants that are intervals; returns false if one is unbounded.
    fn pass_product(&mut self, x: StepId, by: StepId, factor: fn(Interval) -> Interval, a: &[f64]) -> bool {
        let bounds = self.bounds;
        let factors: Vec<Interval> = bounds[by].elements.iter().map(|by| factor(*by)).collect();
        if !factors.iter().all(|factor| factor.magnitude() < MAX_MAGNITUDE) {
            return false;
        }
        let middle = |factor: &Interval| 0.5 * (factor.lo + factor.hi);
        let numel = factors.len();
        let scaled =
            a.chunks_exact(numel.max(1)).flat_map(|row| row.iter().zip(&factors).map(|(a, by)| a * middle(by)));
        let scaled = scaled.collect();
        self.charge(a, |at| (factors[at].hi - factors[at].lo) * bounds[x].elements[at].magnitude());
        self.add(x, scaled);
        true
    }

    /// Propagates through max(x, 0): 0 or x if the sign of x is known, else the lower line or, for a negative coefficient, the upper line.
    fn pass_relu(&mut self, x: StepId, a: &[f64]) {
        let bounds = self.bounds;
        let lines: Vec<Relaxed> = bounds[x].elements.iter().map(|x| Relaxed::of(*x)).collect();
        let numel = lines.len();
        let mut passed = vec![0.0; a.len()];
        self.terms += numel;
        for row in 0..self.count {
            let cells = row * numel..(row + 1) * numel;
            for ((a, passed), line) in a[cells.clone()].iter().zip(&mut passed[cells]).zip(&lines) {
                if *a > 0.0 {
                    *passed = a * line.below;
                } else if *a < 0.0 {
                    *passed = a * line.above;
                    self.constant[row] += a * line.offset;
                    self.magnitude[row] += (a * line.offset).abs();
                } else if a.is_nan() {
                    self.constant[row] = f64::NEG_INFINITY;
                }
            }
        }
        self.charge(&passed, |at| EPSILON * bounds[x].elements[at].magnitude());
        self.add(x, passed);
    }
}

/// Linear relaxation of max(x, 0) on an interval: `below`·x ≤ max(x, 0) ≤ `above`·x + `offset`.
struct Relaxed {
    below: f64,
    above: f64,
    offset: f64,
}

impl Relaxed {
    fn of(x: Interval) -> Relaxed {
        if !x.is_finite() {
            // A value that is possibly undefined has no relaxation.
            return Relaxed { below: f64::NAN, above: f64::NAN, offset: f64::NAN };
        }
        if x.hi <= 0.0 {
            return Relaxed { below: 0.0, above: 0.0, offset: 0.0 };
        }
        if x.lo >= 0.0 {
            return Relaxed { below: 1.0, above: 1.0, offset: 0.0 };
        }
        // Any slope between 0 and 1 is sound below, and any slope above: the function is convex, so the ends determine the offset.
        let above = (x.hi / (x.hi - x.lo)).clamp(0.0, 1.0);
        let offset = (-above * x.lo).max(x.hi - above * x.hi);
        let below = if x.hi > -x.lo { 1.0 } else { 0.0 };
        Relaxed { below, above, offset: (offset + EPSILON * x.magnitude()).next_up() }
    }
}

/// Returns the coefficients of x from those of x × w.
fn transposed(a: &[f64], matrix: &Matrix, count: usize) -> Vec<f64> {
    let Sizes { batch, m, k, n } = matrix.sizes;
    let mut result = vec![0.0; count * batch * m * k];
    for (line, (a, result)) in a.chunks_exact(n.max(1)).zip(result.chunks_exact_mut(k.max(1))).enumerate() {
        let product = line / m % batch;
        let weights = &matrix.backward[product * k * n..][..k * n];
        for (column, a) in a.iter().enumerate().filter(|(_, a)| **a != 0.0) {
            for (result, weight) in result.iter_mut().zip(&weights[column * k..][..k]) {
                *result += a * weight;
            }
        }
    }
    result
}
