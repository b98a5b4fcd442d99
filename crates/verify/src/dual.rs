//! Optimization of linear bounds over the lower lines of ReLUs (α) and the multipliers of splits (β), and the choice of the next split.
//!
//! The slope α of the lower line of an unstable ReLU is any number from 0 to 1 (Xu et al., *Fast and Complete*, 2021). A split sign·x ≥ 0 has a
//! multiplier β ≥ 0, whose product with the split is subtracted from a bound (Wang et al., *Beta-CROWN*, 2021). Every choice is sound, so that
//! the optimization needs no rigor: it ascends by Adam (Kingma and Ba, 2015) along the gradients of the bounds, which are the values of the relaxed
//! network at the corner of the box where a bound is least.

use panoply_ir::Alu;
use panoply_ir::reduce::ReduceOp;

use crate::backward::{Lower, Rows, Trace, lower_with};
use crate::interval::Interval;
use crate::lanes;
use crate::split::{Duals, Layer};
use crate::steps::{Step, StepId, Steps, ZERO};
use crate::values::Bounds;

/// Step lengths of slopes, and of multipliers as a fraction of the largest coefficient.
const ALPHA_RATE: f64 = 0.15;
const BETA_RATE: f64 = 0.1;
/// Factor of the step lengths after each step.
const DECAY: f64 = 0.93;
/// Weight of the lower line in the choice of a split, relative to the upper one.
const LOWER_WEIGHT: f64 = 0.5;
/// Decay rates of Adam's moments.
const MOMENTS: [f64; 2] = [0.9, 0.98];

/// The best bounds of an optimization.
pub struct Optimized {
    /// The largest bound of each row, with its coefficients.
    pub lower: Lower,
    /// The last slopes and multipliers.
    pub duals: Duals,
    /// The trace of the last propagation.
    pub trace: Trace,
}

/// Raises the bounds of rows over the output by some steps of the optimization, until `is_done` returns true for the bounds.
pub fn optimize(
    steps: &Steps,
    bounds: &[Bounds<'_>],
    rows: &Rows,
    mut duals: Duals,
    count: usize,
    is_done: &dyn Fn(&[f64]) -> bool,
) -> Optimized {
    let inputs = steps.steps[steps.input].numel;
    let moments = |layer: &Layer| [(); 4].map(|()| vec![0.0; layer.alpha.len()]);
    let mut state: Vec<[Vec<f64>; 4]> = duals.layers.iter().map(moments).collect();
    let (mut best, mut trace) = lower_with(steps, bounds, steps.output, rows.clone(), Some(&duals));
    let mut slopes = best.slopes.clone();
    for step in 1..=count {
        if is_done(&best.bounds) {
            break;
        }
        let values = relaxed_values(steps, bounds, &trace, &duals, &slopes);
        for (layer, state) in duals.layers.iter_mut().zip(&mut state) {
            if let Some((_, a)) = trace.iter().find(|(id, _)| *id == layer.relu) {
                ascend(layer, state, a, &values[operand(steps, layer.relu)], step as i32);
            }
        }
        let (found, next) = lower_with(steps, bounds, steps.output, rows.clone(), Some(&duals));
        for row in 0..rows.count {
            if found.bounds[row] > best.bounds[row] {
                best.bounds[row] = found.bounds[row];
                best.slopes[row * inputs..][..inputs].copy_from_slice(&found.slopes[row * inputs..][..inputs]);
            }
        }
        (slopes, trace) = (found.slopes, next);
    }
    Optimized { lower: best, duals, trace }
}

fn operand(steps: &Steps, relu: StepId) -> StepId {
    match steps.steps[relu].step {
        Step::Relu(x) => x,
        _ => relu,
    }
}

/// Moves slopes and multipliers by one step of Adam; `a` are the coefficients of the ReLU and `x` the values of its operand.
fn ascend(layer: &mut Layer, state: &mut [Vec<f64>; 4], a: &[f64], x: &[f64], step: i32) {
    let largest = a.iter().fold(0.0, |most: f64, a| most.max(a.abs()));
    let decay = DECAY.powi(step - 1);
    let numel = layer.sign.len().max(1);
    let [alpha_mean, alpha_square, beta_mean, beta_square] = state;
    for at in 0..layer.alpha.len() {
        let sign = f64::from(layer.sign[at % numel]);
        if sign != 0.0 {
            let moved = adam(&mut beta_mean[at], &mut beta_square[at], -sign * x[at], step);
            layer.beta[at] = (f64::from(layer.beta[at]) + BETA_RATE * largest * decay * moved).max(0.0) as f32;
        } else if a[at] > 0.0 {
            let moved = adam(&mut alpha_mean[at], &mut alpha_square[at], a[at] * x[at], step);
            layer.alpha[at] = (f64::from(layer.alpha[at]) + ALPHA_RATE * decay * moved).clamp(0.0, 1.0) as f32;
        }
    }
}

/// Updates the moments by a gradient; returns the direction of the step.
fn adam(mean: &mut f64, square: &mut f64, gradient: f64, step: i32) -> f64 {
    *mean = MOMENTS[0] * *mean + (1.0 - MOMENTS[0]) * gradient;
    *square = MOMENTS[1] * *square + (1.0 - MOMENTS[1]) * gradient * gradient;
    let [first, second] = MOMENTS.map(|rate| 1.0 - rate.powi(step));
    let direction = (*mean / first) / ((*square / second).sqrt() + 1e-12);
    if direction.is_finite() { direction } else { 0.0 }
}

/// Returns the values `[rows, elements]` of all steps of the relaxed network at the corner where the bound of each row is least.
fn relaxed_values(steps: &Steps, bounds: &[Bounds<'_>], trace: &Trace, duals: &Duals, slopes: &[f64]) -> Vec<Vec<f64>> {
    let inputs = steps.steps[steps.input].numel.max(1);
    let count = slopes.len() / inputs;
    let middle = |x: &Interval| if x.is_finite() { 0.5 * (x.lo + x.hi) } else { 0.0 };
    let mut values: Vec<Vec<f64>> = Vec::with_capacity(steps.steps.len());
    for (id, entry) in steps.steps.iter().enumerate() {
        let numel = entry.numel;
        let at_middle = || bounds[id].elements.iter().map(middle).collect::<Vec<f64>>().repeat(count);
        let rows = |x: StepId| values[x].chunks_exact(steps.steps[x].numel.max(1));
        let value = match &entry.step {
            Step::Input => {
                let corner = |(at, slope): (usize, &f64)| {
                    let x = bounds[id].elements[at % inputs];
                    if *slope > 0.0 { x.lo } else { x.hi }
                };
                slopes.iter().enumerate().map(corner).collect()
            }
            Step::Move(x, from) => {
                let read = |row: &[f64], from: &u32| if *from == ZERO { 0.0 } else { row[*from as usize] };
                rows(*x).flat_map(|row| from.iter().map(move |from| read(row, from))).collect()
            }
            Step::Linear(x, matrix) => {
                lanes::multiply(&values[*x], &matrix.forward, matrix.sizes.batch, matrix.sizes.m)
            }
            Step::Cast(x) => values[*x].clone(),
            Step::Reduce(ReduceOp::Sum, x, to) => {
                let mut sums = vec![0.0; count * numel];
                for (row, x) in rows(*x).enumerate() {
                    x.iter().zip(to).for_each(|(x, to)| sums[row * numel + *to as usize] += x);
                }
                sums
            }
            Step::Alu(op, x) => match (op, &x[..]) {
                (Alu::Neg, [x]) => values[*x].iter().map(|x| -x).collect(),
                (Alu::Add, [x, y]) => values[*x].iter().zip(&values[*y]).map(|(x, y)| x + y).collect(),
                (Alu::Sub, [x, y]) => values[*x].iter().zip(&values[*y]).map(|(x, y)| x - y).collect(),
                (Alu::Mul, [x, y]) => values[*x].iter().zip(&values[*y]).map(|(x, y)| x * y).collect(),
                (Alu::Div, [x, y]) => values[*x].iter().zip(&values[*y]).map(|(x, y)| x / y).collect(),
                _ => at_middle(),
            },
            Step::Relu(x) => {
                let a = trace.iter().find(|(step, _)| *step == id).map(|(_, a)| &a[..]);
                let line = |(at, value): (usize, &f64)| {
                    let range = bounds[*x].elements[at % numel.max(1)];
                    if range.lo >= 0.0 {
                        return *value;
                    } else if range.hi <= 0.0 {
                        return 0.0;
                    }
                    let is_below = a.is_none_or(|a| a[at] > 0.0);
                    let alpha = duals.of(id).map_or(0.0, |layer| f64::from(layer.alpha[at]));
                    let above = range.hi / (range.hi - range.lo);
                    if is_below { alpha * value } else { above * (value - range.lo) }
                };
                values[*x].iter().enumerate().map(line).collect()
            }
            Step::Univariate(x, _) => {
                let a = trace.iter().find(|(step, _)| *step == id).map(|(_, a)| &a[..]);
                let line = |(at, value): (usize, &f64)| {
                    let relaxation = bounds[id].relaxations[at % numel.max(1)];
                    let is_lower = a.is_none_or(|a| a[at] > 0.0);
                    let [slope, intercept] = if is_lower { relaxation.lower } else { relaxation.upper };
                    slope * value + intercept
                };
                values[*x].iter().enumerate().map(line).collect()
            }
            _ => at_middle(),
        };
        values.push(value);
    }
    values
}

/// Returns the unstable ReLU whose relaxation costs the bounds of some rows the most (after BaBSR; Bunel et al., 2020). ReLUs of inputs are
/// left to splits of inputs.
pub fn choose(steps: &Steps, bounds: &[Bounds<'_>], optimized: &Optimized, rows: &[usize]) -> Option<(StepId, usize)> {
    let mut best: Option<(f64, (StepId, usize))> = None;
    for (relu, a) in &optimized.trace {
        let Some(layer) = optimized.duals.of(*relu).filter(|_| operand(steps, *relu) != steps.input) else { continue };
        let elements = &bounds[operand(steps, *relu)].elements;
        let is_open = |(at, x): &(usize, &Interval)| x.lo < 0.0 && x.hi > 0.0 && layer.sign[*at] == 0;
        for (at, x) in elements.iter().enumerate().filter(is_open) {
            // The height of the triangle between the lines, weighted by the coefficients; a part of it for lower lines.
            let height = -x.lo * x.hi / (x.hi - x.lo);
            let cost = |row: &usize| {
                let a = a[row * elements.len() + at];
                if a < 0.0 { -a } else { LOWER_WEIGHT * a }
            };
            let cost = height * rows.iter().map(cost).sum::<f64>();
            if cost.is_finite() && best.is_none_or(|(most, _)| cost > most) {
                best = Some((cost, (*relu, at)));
            }
        }
    }
    best.map(|(_, found)| found)
}
