//! Linear lower bounds by backward propagation from a step to the input (CROWN; Zhang et al., *Efficient Neural Network Robustness
//! Certification with General Activation Functions*, 2018, and its generalization to graphs, Xu et al., 2020).
//!
//! For each row, the propagation keeps coefficients of steps whose weighted sum plus a constant is a lower bound of the row. A linear step
//! is replaced by its operands through the transposed coefficients, a function of one element by one of its two lines, a product, minimum or
//! maximum by one of its two planes, and any other step by its interval. The computation uses f64; its rounding errors are accumulated in
//! `error` and subtracted at the end.

use panoply_ir::reduce::ReduceOp;
use panoply_ir::{Alu, DType};

use crate::interval::Interval;
use crate::lanes::{self, LANES, RelaxationLanes, Sums};
use crate::planes::{Plane, planes};
use crate::property::Constraint;
use crate::rounding::Rounding;
use crate::split::{Duals, Layer, Split};
use crate::steps::{Step, StepId, Steps, ZERO};
use crate::univariate::LinearRelaxation;
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

impl Rows {
    /// Returns the centers of the coefficients of constraints.
    pub fn of(constraints: &[&Constraint]) -> Rows {
        let middle = |x: &Interval| 0.5 * (x.lo + x.hi);
        let output = constraints.iter().flat_map(|constraint| constraint.output.iter().map(middle)).collect();
        let is_read = |constraint: &&Constraint| constraint.input.iter().any(|x| *x != Interval::point(0.0));
        let input = constraints.iter().flat_map(|constraint| constraint.input.iter().map(middle));
        let input = if constraints.iter().any(is_read) { input.collect() } else { Vec::new() };
        Rows { count: constraints.len(), output, input }
    }
}

/// Bounds of the operands of ReLUs and other functions, in the order of their use.
pub type Known = Vec<Vec<Interval>>;

/// Returns bounds of all steps over a box. The operands of ReLUs and other functions are tightened by linear bounds and by the bounds
/// `known` for an enclosing box.
pub fn tightened<'a>(steps: &'a Steps, input: &[Interval], known: &[Vec<Interval>]) -> (Vec<Bounds<'a>>, Known) {
    // Without splits a set of inputs is not empty.
    tightened_with(steps, input, known, &[], 0).unwrap_or_default()
}

/// Returns bounds of all steps over the inputs of a box that satisfy `splits`; `None` if no input does. Operands with bounds in `known` are
/// not tightened again for functions up to the step `first`.
pub fn tightened_with<'a>(
    steps: &'a Steps,
    input: &[Interval],
    known: &[Vec<Interval>],
    splits: &[Split],
    first: StepId,
) -> Option<(Vec<Bounds<'a>>, Known)> {
    let mut bounds: Vec<Bounds<'a>> = Vec::with_capacity(steps.steps.len());
    let mut found = Known::new();
    // The operand of the first function is an affine function of the input, for which intervals are as tight as linear bounds.
    let mut is_affine = true;
    let mut is_tight = vec![false; steps.steps.len()];
    for (id, entry) in steps.steps.iter().enumerate() {
        let relaxed = relaxed_operands(steps, &entry.step);
        let is_relu = matches!(entry.step, Step::Relu(_));
        for x in relaxed.iter().copied().filter(|x| *x != steps.input && !is_constant(steps, *x)) {
            if std::mem::replace(&mut is_tight[x], !is_relu) {
                continue;
            }
            if let Some(known) = known.get(found.len()) {
                for (element, known) in bounds[x].elements.to_mut().iter_mut().zip(known) {
                    *element = intersection(*element, *known, splits)?;
                }
            }
            if !is_affine && (id > first || known.len() <= found.len()) {
                tighten(steps, &mut bounds, x, is_relu, splits)?;
            }
            for split in splits.iter().filter(|split| split.relu == id) {
                let element = &mut bounds[x].elements.to_mut()[split.element];
                *element = split.clipped(*element)?;
            }
            found.push(bounds[x].elements.to_vec());
        }
        is_affine &= relaxed.is_empty();
        let next = values::step(entry, &bounds, input, steps.arithmetic);
        bounds.push(next);
    }
    Some((bounds, found))
}

fn is_constant(steps: &Steps, id: StepId) -> bool {
    matches!(steps.steps[id].step, Step::Constant(_))
}

/// Returns the operands on whose bounds the linear relaxation of a step depends.
fn relaxed_operands(steps: &Steps, step: &Step) -> Vec<StepId> {
    match step {
        Step::Relu(x) | Step::Univariate(x, _) => vec![*x],
        Step::Alu(op, x) if is_joint(steps, *op, x) => x.clone(),
        _ => Vec::new(),
    }
}

/// Returns true for operations of two operands that have planes below and above.
fn is_joint(steps: &Steps, op: Alu, operands: &[StepId]) -> bool {
    match op {
        Alu::Mul => !operands.iter().any(|id| is_constant(steps, *id)),
        Alu::Min | Alu::Max => steps.steps[operands[0]].dtype.is_float(),
        _ => false,
    }
}

/// Returns the intersection of two bounds of one value. It is empty only if no input satisfies the splits; then `None` is returned.
fn intersection(x: Interval, other: Interval, splits: &[Split]) -> Option<Interval> {
    let lo = if other.lo > x.lo { other.lo } else { x.lo };
    let hi = if other.hi < x.hi { other.hi } else { x.hi };
    if lo <= hi {
        return Some(Interval { lo, hi });
    }
    debug_assert!(!splits.is_empty(), "{other:?} contradicts {x:?}");
    // Without splits one of the bounds is wrong: nothing follows from it.
    if splits.is_empty() { Some(x) } else { None }
}

/// Tightens the elements of a step, if `is_relu` only those that can have either sign.
fn tighten(steps: &Steps, bounds: &mut [Bounds<'_>], id: StepId, is_relu: bool, splits: &[Split]) -> Option<()> {
    let is_wide = |x: &Interval| if is_relu { x.lo < 0.0 && x.hi > 0.0 } else { x.lo < x.hi };
    let unstable = |(at, x): (usize, &Interval)| is_wide(x).then_some(at);
    let unstable: Vec<usize> = bounds[id].elements.iter().enumerate().filter_map(unstable).collect();
    if unstable.is_empty() {
        return Some(());
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
        elements[at] = intersection(elements[at], Interval { lo: found[2 * row], hi: -found[2 * row + 1] }, splits)?;
    }
    Some(())
}

/// Returns lower bounds of rows over the step `start`.
pub fn lower(steps: &Steps, bounds: &[Bounds<'_>], start: StepId, rows: Rows) -> Lower {
    lower_with(steps, bounds, start, rows, None).0
}

/// The coefficients of ReLUs and other functions where a propagation reached them, by step.
pub type Trace = Vec<(StepId, Vec<f64>)>;

/// Returns lower bounds of rows over the step `start`. `duals` replaces the default slopes of the lower lines and adds multipliers of the
/// splits; then the trace of the propagation is returned as well, otherwise an empty one.
pub fn lower_with(
    steps: &Steps,
    bounds: &[Bounds<'_>],
    start: StepId,
    rows: Rows,
    duals: Option<&Duals>,
) -> (Lower, Trace) {
    let count = rows.count;
    let mut walk = Walk {
        count,
        bounds,
        duals,
        trace: Trace::new(),
        coefficients: vec![None; start.max(steps.input) + 1],
        sums: Sums { constant: vec![0.0; count], magnitude: vec![0.0; count], error: vec![0.0; count] },
        terms: 0,
        least: Rounding { arithmetic: steps.arithmetic, dtype: DType::F32 }.least(),
    };
    walk.add(start, rows.output);
    if !rows.input.is_empty() {
        walk.add(steps.input, rows.input);
    }
    for id in (0..walk.coefficients.len()).rev().filter(|id| *id != steps.input) {
        if let Some(coefficients) = walk.coefficients[id].take() {
            walk.pass(steps, id, coefficients);
        }
    }
    let inputs = steps.steps[steps.input].numel;
    let slopes = walk.coefficients[steps.input].take().unwrap_or_else(|| vec![0.0; count * inputs]);
    walk.replace(steps.input, &slopes);
    let bound = |row: usize| {
        let Sums { constant, magnitude, error } = &walk.sums;
        let lost = 2.0 * error[row] + (walk.terms + 8) as f64 * EPSILON * magnitude[row] + TINY;
        let bound = constant[row] - lost;
        #[cfg(test)]
        if crate::fault::is(crate::fault::Fault::Infinite) && !bound.is_finite() {
            return f64::INFINITY;
        }
        if bound.is_finite() { bound.next_down() } else { f64::NEG_INFINITY }
    };
    (Lower { bounds: (0..count).map(bound).collect(), slopes }, walk.trace)
}

struct Walk<'b, 'a> {
    count: usize,
    bounds: &'b [Bounds<'a>],
    duals: Option<&'b Duals>,
    trace: Trace,
    /// Coefficients of each step that is not yet propagated, row by row.
    coefficients: Vec<Option<Vec<f64>>>,
    /// Accumulated constants and errors of the rows.
    sums: Sums,
    /// Maximum number of terms in a constant.
    terms: usize,
    /// Magnitude below which an operation can replace an element by 0.
    least: f64,
}

impl<'b> Walk<'b, '_> {
    fn elements(&self, id: StepId) -> &'b [Interval] {
        let bounds = self.bounds;
        &bounds[id].elements
    }

    /// Adds coefficients to those of a step. Each operation that reads an element can replace it by 0 if it is subnormal.
    fn add(&mut self, id: StepId, more: Vec<f64>) {
        if self.least > 0.0 {
            let (least, elements) = (self.least, self.elements(id));
            self.charge(&more, elements.iter().map(|_| least));
        }
        let Some(mut sum) = self.coefficients[id].take() else {
            self.coefficients[id] = Some(more);
            return;
        };
        sum.iter_mut().zip(&more).for_each(|(sum, more)| *sum += more);
        self.charge(&sum, self.elements(id).iter().map(|x| EPSILON * x.magnitude()));
        self.coefficients[id] = Some(sum);
    }

    /// Adds Σ |coefficient| · `per_unit` to the error of each row.
    fn charge(&mut self, coefficients: &[f64], per_unit: impl ExactSizeIterator<Item = f64>) {
        let numel = per_unit.len();
        lanes::add_errors(coefficients, numel, &lanes::in_lanes(per_unit), &mut self.sums.error);
    }

    /// Replaces a step by its interval.
    fn replace(&mut self, id: StepId, coefficients: &[f64]) {
        let elements = self.elements(id);
        self.terms += elements.len();
        // A coefficient of 0 does not cancel an unknown value: the product can be undefined, or the coefficient an underflow.
        if elements.iter().all(|x| x.magnitude() < MAX_MAGNITUDE) {
            let lo = lanes::in_lanes(elements.iter().map(|x| x.lo));
            let hi = lanes::in_lanes(elements.iter().map(|x| x.hi));
            let endpoints: Vec<_> = lo.into_iter().zip(hi).map(<[_; 2]>::from).collect();
            lanes::add_minimum(coefficients, elements.len(), &endpoints, &mut self.sums);
        } else {
            self.sums.constant.fill(f64::NEG_INFINITY);
        }
    }

    /// Propagates the coefficients of a step to its operands.
    #[cfg_attr(not(test), expect(unused_mut, reason = "tests make coefficients wrong"))]
    fn pass(&mut self, steps: &Steps, id: StepId, mut a: Vec<f64>) {
        let (entry, bounds) = (&steps.steps[id], self.bounds);
        #[cfg(test)]
        crate::fault::scale(&entry.step, &mut a);
        if self.duals.is_some() && matches!(entry.step, Step::Relu(_) | Step::Univariate(..)) {
            self.trace.push((id, a.clone()));
        }
        if let Step::Relu(x) = &entry.step {
            return match self.duals.and_then(|duals| duals.of(id)) {
                Some(layer) => self.pass_split(*x, layer, &a),
                None => self.pass_relu(*x, a),
            };
        }
        if let Step::Univariate(x, _) = &entry.step {
            return self.pass_univariate(*x, id, a);
        }
        let joint = match &entry.step {
            Step::Alu(op, x) if is_joint(steps, *op, x) => self.planes(*op, x).map(|planes| (x, planes)),
            _ => None,
        };
        if joint.is_none() && !self.is_linear(steps, &entry.step) {
            return self.replace(id, &a);
        }
        self.charge(&a, bounds[id].slack.iter().copied());
        if let Some((x, planes)) = joint {
            return self.pass_joint(steps, [x[0], x[1]], &planes, &a);
        }
        match &entry.step {
            Step::Move(x, from) => self.add_moved(*x, &a, from),
            Step::Reduce(ReduceOp::Sum, x, to) => {
                let spread = a.chunks_exact(entry.numel.max(1)).flat_map(|row| to.iter().map(|to| row[*to as usize]));
                self.add(*x, spread.collect());
            }
            Step::Cast(x) => self.add(*x, a),
            Step::Linear(x, matrix) => {
                let sizes = matrix.sizes;
                self.add(*x, lanes::multiply(&a, &matrix.backward, sizes.batch, sizes.m));
            }
            Step::Alu(op, operands) => self.pass_scalar(steps, *op, operands, a),
            _ => {}
        }
    }

    /// Returns true if a step is linear and its constant factors are bounded.
    fn is_linear(&self, steps: &Steps, step: &Step) -> bool {
        let factors = |id: &StepId, factor: fn(Interval) -> Interval| {
            is_constant(steps, *id) && self.elements(*id).iter().all(|x| factor(*x).magnitude() < MAX_MAGNITUDE)
        };
        match step {
            Step::Move(..) | Step::Reduce(ReduceOp::Sum, ..) | Step::Cast(_) | Step::Linear(..) => true,
            Step::Alu(Alu::Neg | Alu::Add | Alu::Sub, _) => true,
            Step::Alu(Alu::Mul, x) => x.iter().any(|x| factors(x, |x| x)),
            Step::Alu(Alu::Div, x) => factors(&x[1], Interval::recip),
            _ => false,
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

    /// Adds coefficients to those of an operand, or replaces the operand if it is a constant.
    fn add_operand(&mut self, steps: &Steps, id: StepId, a: Vec<f64>) {
        match steps.steps[id].step {
            Step::Constant(_) => self.replace_constant(id, &a),
            _ => self.add(id, a),
        }
    }

    fn replace_constant(&mut self, id: StepId, a: &[f64]) {
        #[cfg(test)]
        if crate::fault::is(crate::fault::Fault::Constants) {
            return;
        }
        self.replace(id, a);
    }

    /// Propagates through a linear scalar operation.
    fn pass_scalar(&mut self, steps: &Steps, op: Alu, operands: &[StepId], mut a: Vec<f64>) {
        let is_constant = |id: &StepId| is_constant(steps, *id);
        let negate = |a: &mut Vec<f64>| a.iter_mut().for_each(|a| *a = -*a);
        match (op, operands) {
            (Alu::Neg, [x]) => {
                negate(&mut a);
                self.add(*x, a);
            }
            (Alu::Add, [x, y] | [y, x]) if is_constant(y) => {
                self.replace_constant(*y, &a);
                self.add(*x, a);
            }
            (Alu::Add, [x, y]) => {
                self.add(*x, a.clone());
                self.add(*y, a);
            }
            (Alu::Sub, [x, y]) => {
                self.add_operand(steps, *x, a.clone());
                negate(&mut a);
                self.add_operand(steps, *y, a);
            }
            (Alu::Mul, [x, by]) if is_constant(by) => self.pass_product(*x, *by, |by| by, a),
            (Alu::Mul, [by, x]) => self.pass_product(*x, *by, |by| by, a),
            (Alu::Div, [x, by]) => self.pass_product(*x, *by, Interval::recip, a),
            _ => self.sums.constant.fill(f64::NEG_INFINITY),
        }
    }

    /// Propagates through x times constants that are intervals.
    fn pass_product(&mut self, x: StepId, by: StepId, factor: fn(Interval) -> Interval, mut a: Vec<f64>) {
        let bounds = self.bounds;
        let factors: Vec<Interval> = bounds[by].elements.iter().map(|by| factor(*by)).collect();
        let width = |(factor, x): (&Interval, &Interval)| (factor.hi - factor.lo) * x.magnitude();
        self.charge(&a, factors.iter().zip(bounds[x].elements.iter()).map(width));
        for a in a.chunks_exact_mut(factors.len().max(1)) {
            a.iter_mut().zip(&factors).for_each(|(a, by)| *a *= 0.5 * (by.lo + by.hi));
        }
        self.add(x, a);
    }

    /// Returns the planes of an operation's elements; `None` if one has none.
    fn planes(&self, op: Alu, operands: &[StepId]) -> Option<Vec<[Plane; 2]>> {
        let (x, y) = (self.elements(operands[0]), self.elements(operands[1]));
        let is_bounded = |x: &Interval| x.magnitude() < MAX_MAGNITUDE;
        if !x.iter().chain(y).all(is_bounded) {
            return None;
        }
        x.iter().zip(y).map(|(x, y)| planes(op, *x, *y)).collect()
    }

    /// Propagates through an operation of two operands by the lower plane or, for a negative coefficient, the upper plane.
    fn pass_joint(&mut self, steps: &Steps, operands: [StepId; 2], planes: &[[Plane; 2]], a: &[f64]) {
        let numel = planes.len().max(1);
        self.terms += planes.len();
        for (row, a) in a.chunks_exact(numel).enumerate() {
            for (a, [below, above]) in a.iter().zip(planes).filter(|(a, _)| **a != 0.0) {
                let term = a * if *a > 0.0 { below.offset } else { above.offset };
                self.sums.constant[row] += term;
                self.sums.magnitude[row] += term.abs();
            }
        }
        for (operand, slope) in [(operands[0], (|plane| plane.x) as fn(&Plane) -> f64), (operands[1], |plane| plane.y)]
        {
            let moved = |(a, [below, above]): (&f64, &[Plane; 2])| match () {
                () if *a == 0.0 => 0.0,
                () if *a > 0.0 => a * slope(below),
                () => a * slope(above),
            };
            let moved: Vec<f64> = a.chunks_exact(numel).flat_map(|a| a.iter().zip(planes).map(moved)).collect();
            self.charge(&moved, self.elements(operand).iter().map(|x| EPSILON * x.magnitude()));
            self.add_operand(steps, operand, moved);
        }
    }

    /// Propagates through a function by its lower line or, for a negative coefficient, its upper line.
    fn pass_univariate(&mut self, x: StepId, id: StepId, mut a: Vec<f64>) {
        let (elements, found) = (self.elements(x), &self.bounds[id].relaxations);
        // As in `replace`, a coefficient of 0 does not cancel an unknown value.
        if found.iter().any(|relaxation| relaxation.lower[1].is_nan()) {
            self.sums.constant.fill(f64::NEG_INFINITY);
        }
        let relaxations = found.chunks(LANES).zip(elements.chunks(LANES)).map(|(found, x)| {
            let of =
                |value: fn(&LinearRelaxation) -> f64| std::array::from_fn(|lane| found.get(lane).map_or(0.0, value));
            RelaxationLanes {
                lower_slope: of(|relaxation| relaxation.lower[0]),
                lower_intercept: of(|relaxation| relaxation.lower[1]),
                upper_slope: of(|relaxation| relaxation.upper[0]),
                upper_intercept: of(|relaxation| relaxation.upper[1]),
                error_per_unit: rounding_per_unit(x),
            }
        });
        self.terms += elements.len();
        let relaxations: Vec<RelaxationLanes> = relaxations.collect();
        lanes::relax::<true>(&mut a, elements.len(), &relaxations, &mut self.sums);
        self.add(x, a);
    }

    /// Propagates through max(x, 0) with the lower lines of `layer`, and subtracts `beta`·sign·x, which is at least 0 for inputs that satisfy
    /// the splits.
    fn pass_split(&mut self, x: StepId, layer: &Layer, a: &[f64]) {
        let elements = self.elements(x);
        let numel = elements.len();
        self.terms += numel;
        let mut result = vec![0.0; a.len()];
        for (row, a) in a.chunks_exact(numel.max(1)).enumerate() {
            for (at, (a, x)) in a.iter().zip(elements).enumerate() {
                let index = row * numel + at;
                let relaxation = ReluRelaxation::of(*x);
                let is_unstable = x.lo < 0.0 && x.hi > 0.0;
                // Any slope from 0 to 1 is sound below an unstable ReLU.
                let alpha = f64::from(layer.alpha[index]).clamp(0.0, 1.0);
                let lower_slope = if is_unstable { alpha } else { relaxation.lower_slope };
                let slope = if *a > 0.0 { lower_slope } else { relaxation.upper_slope };
                let term = if *a < 0.0 { a * relaxation.upper_intercept } else { 0.0 };
                let passed = if *a == 0.0 { 0.0 } else { a * slope };
                let multiplier = f64::from(layer.sign[at]) * f64::from(layer.beta[index]).max(0.0);
                #[cfg(test)]
                let multiplier =
                    if crate::fault::is(crate::fault::Fault::Multiplier) { -multiplier } else { multiplier };
                result[index] = passed - multiplier;
                self.sums.constant[row] += term;
                self.sums.magnitude[row] += term.abs();
                let cost = (passed.abs() + multiplier.abs()) * EPSILON * x.magnitude();
                self.sums.error[row] += if passed == 0.0 && multiplier == 0.0 { 0.0 } else { cost };
            }
        }
        self.add(x, result);
    }

    /// Propagates through max(x, 0): 0 or x if the sign of x is known, else the lower line or, for a negative coefficient, the upper line.
    fn pass_relu(&mut self, x: StepId, mut a: Vec<f64>) {
        let elements = self.elements(x);
        let found: Vec<ReluRelaxation> = elements.iter().map(|x| ReluRelaxation::of(*x)).collect();
        let relaxations = found.chunks(LANES).zip(elements.chunks(LANES)).map(|(found, x)| {
            let of = |value: fn(&ReluRelaxation) -> f64| std::array::from_fn(|lane| found.get(lane).map_or(0.0, value));
            RelaxationLanes {
                lower_slope: of(|relaxation| relaxation.lower_slope),
                lower_intercept: [0.0; LANES],
                upper_slope: of(|relaxation| relaxation.upper_slope),
                upper_intercept: of(|relaxation| relaxation.upper_intercept),
                error_per_unit: rounding_per_unit(x),
            }
        });
        self.terms += elements.len();
        let relaxations: Vec<RelaxationLanes> = relaxations.collect();
        lanes::relax::<false>(&mut a, elements.len(), &relaxations, &mut self.sums);
        self.add(x, a);
    }
}

/// Returns ε · |x| for up to [`LANES`] elements: the rounding error per unit of their coefficients.
fn rounding_per_unit(x: &[Interval]) -> [f64; LANES] {
    std::array::from_fn(|lane| x.get(lane).map_or(0.0, |x| EPSILON * x.magnitude()))
}

/// Linear relaxation of max(x, 0) on an interval: `lower_slope`·x ≤ max(x, 0) ≤ `upper_slope`·x + `upper_intercept`.
struct ReluRelaxation {
    lower_slope: f64,
    upper_slope: f64,
    upper_intercept: f64,
}

impl ReluRelaxation {
    fn of(x: Interval) -> ReluRelaxation {
        #[cfg(test)]
        if let Some(wrong) = ReluRelaxation::wrong(x) {
            return wrong;
        }
        if !x.is_finite() {
            // A value that is possibly undefined has no relaxation.
            return ReluRelaxation { lower_slope: f64::NAN, upper_slope: f64::NAN, upper_intercept: f64::NAN };
        }
        if x.hi <= 0.0 {
            return ReluRelaxation { lower_slope: 0.0, upper_slope: 0.0, upper_intercept: 0.0 };
        }
        if x.lo >= 0.0 {
            return ReluRelaxation { lower_slope: 1.0, upper_slope: 1.0, upper_intercept: 0.0 };
        }
        // Any slope from 0 to 1 gives a lower bound, and any slope an upper one: the function is convex, so the ends determine the
        // intercept.
        let upper_slope = (x.hi / (x.hi - x.lo)).clamp(0.0, 1.0);
        let intercept = (-upper_slope * x.lo).max(x.hi - upper_slope * x.hi);
        let lower_slope = if x.hi > -x.lo { 1.0 } else { 0.0 };
        ReluRelaxation { lower_slope, upper_slope, upper_intercept: (intercept + EPSILON * x.magnitude()).next_up() }
    }

    /// Returns the relaxation of an unstable ReLU if a test makes it wrong.
    #[cfg(test)]
    fn wrong(x: Interval) -> Option<ReluRelaxation> {
        use crate::fault::{Fault, is};
        if !(x.is_finite() && x.lo < 0.0 && x.hi > 0.0) {
            return None;
        }
        let upper_slope = x.hi / (x.hi - x.lo);
        let right = ReluRelaxation { lower_slope: 0.0, upper_slope, upper_intercept: -upper_slope * x.lo };
        match () {
            () if is(Fault::UpperLine) => {
                Some(ReluRelaxation { upper_intercept: 0.8 * right.upper_intercept, ..right })
            }
            () if is(Fault::LowerLine) => Some(ReluRelaxation { lower_slope: 1.2, ..right }),
            () if is(Fault::Inactive) => Some(ReluRelaxation { upper_slope: 0.0, upper_intercept: 0.0, ..right }),
            () => None,
        }
    }
}
