//! Element-wise functions of one varying value, such as activations, whatever primitives they are composed of.
//!
//! A function is enclosed in cells of its interval. In a cell without a change of branch, its values follow from those at the ends and an
//! enclosure of the derivative (mean value form; Neumaier, *Interval Methods for Systems of Equations*, 1990, section 2.3), whose error is
//! quadratic in the width of the cell; in other cells from the interval of the values. Cells that limit a bound are bisected.
//!
//! A line bounds the function and what a device computes of it: errors of the arithmetic inside are accumulated and subtracted.

use std::sync::Arc;

use panoply_ir::{Alu, DType};

use crate::functions::{derivative, math, power};
use crate::interval::Interval;
use crate::rounding::{Arithmetic, Rounding, relu};

/// Number of cells at first.
const CELLS: usize = 16;
/// Maximum number of bisections per bound.
const MAX_BISECTIONS: usize = 48;
/// Error of a bound, as a fraction of the range of the function minus the line, below which no cell is bisected.
const TOLERANCE: f64 = 1e-3;
/// The same as a fraction of the largest value.
const ABSOLUTE_TOLERANCE: f64 = 1e-10;
/// Maximum number of constants that are tried as ends of cells.
const MAX_KINKS: usize = 8;

/// A function as a list of operations, the last of which is its value.
#[derive(Debug)]
pub struct Univariate {
    /// Operations in topological order.
    pub nodes: Vec<Node>,
}

/// An operation.
#[derive(Debug)]
pub struct Node {
    /// The operation.
    pub operation: Operation,
    /// Indices of the operands.
    pub operands: Vec<usize>,
    /// Type of the result.
    pub dtype: DType,
    /// Number of rounding errors u·|result| of the result.
    pub units: usize,
}

/// The operation of a node.
#[derive(Debug)]
pub enum Operation {
    /// The varying value.
    Root,
    /// Constants of the elements, or one for all.
    Constant(Arc<[Interval]>),
    /// A scalar operation.
    Alu(Alu),
    /// max(x, 0).
    Relu,
    /// A conversion to a float.
    Cast,
}

/// Lines below and above a function, each a slope and an offset: `below[0]`·x + `below[1]` ≤ f(x) ≤ `above[0]`·x + `above[1]`.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The lower line.
    pub below: [f64; 2],
    /// The upper line.
    pub above: [f64; 2],
}

impl Line {
    /// Lines of an unknown function.
    const UNKNOWN: Line = Line { below: [f64::NAN; 2], above: [f64::NAN; 2] };
}

/// The values of a node on a cell.
#[derive(Clone, Copy, Debug)]
struct Value {
    /// Contains the values in real arithmetic.
    exact: Interval,
    /// Contains the derivatives; unknown if a branch can change in the cell.
    slope: Interval,
    /// Computed values are in `exact` widened by this. If the slope is known, it bounds the error of each value.
    error: f64,
    /// If the error is infinite because of an overflow: computed values are above this, possibly infinite. Otherwise NaN.
    floor: f64,
    /// True if the ends of `exact` are not values.
    is_open: bool,
    /// The result of a comparison or rounding that is the same in the whole cell; otherwise NaN.
    decision: f64,
}

impl Value {
    fn constant(exact: Interval) -> Value {
        let slope = Interval::point(0.0);
        Value { exact, slope, error: 0.0, floor: f64::NAN, is_open: false, decision: f64::NAN }
    }

    /// Returns the varying value on a cell. A cell of numbers that a device can replace by 0, in some operations and not in others, has no
    /// derivative.
    fn root(x: Interval, is_open: bool, rounding: Rounding) -> Value {
        match rounding.is_flushed(x) {
            true => Value { slope: Interval::ENTIRE, ..Value::constant(rounding.flushed(x)) },
            false => Value { is_open, slope: Interval::point(1.0), ..Value::constant(x) },
        }
    }

    fn new(exact: Interval, slope: Interval, error: f64) -> Value {
        let error = match error {
            0.0 => 0.0,
            error if error.is_finite() => error.next_up(),
            _ => f64::INFINITY,
        };
        Value { exact, slope, error, floor: f64::NAN, is_open: false, decision: f64::NAN }
    }

    fn decided(value: f64) -> Value {
        Value { decision: value, ..Value::constant(Interval::point(value)) }
    }

    /// Contains the computed values.
    fn computed(&self) -> Interval {
        if self.error.is_finite() { self.exact.widened(self.error) } else { Interval::ENTIRE }
    }
}

/// Returns true if every exact and computed value of a is below every one of b.
fn below(a: &Value, b: &Value) -> bool {
    match a.error == 0.0 && b.error == 0.0 {
        true => a.exact.hi < b.exact.lo || (a.exact.hi <= b.exact.lo && (a.is_open || b.is_open)),
        false => a.computed().hi < b.computed().lo,
    }
}

fn at_most(a: &Value, b: &Value) -> bool {
    (a.error == 0.0 && b.error == 0.0 && a.exact.hi <= b.exact.lo) || below(a, b)
}

fn compared(op: Alu, a: &Value, b: &Value) -> Option<bool> {
    let is_apart = || below(a, b) || below(b, a);
    let is_same = || a.exact.is_point() && a.exact == b.exact && a.error == 0.0 && b.error == 0.0;
    match op {
        Alu::Lt if below(a, b) => Some(true),
        Alu::Lt if at_most(b, a) => Some(false),
        Alu::Le if at_most(a, b) => Some(true),
        Alu::Le if below(b, a) => Some(false),
        Alu::Eq | Alu::Ne if is_apart() => Some(op == Alu::Ne),
        Alu::Eq | Alu::Ne if is_same() => Some(op == Alu::Eq),
        _ => None,
    }
}

/// Part of an interval on which a function is enclosed.
#[derive(Clone, Copy)]
struct Cell {
    lo: f64,
    hi: f64,
    /// Contains all exact values.
    exact: Interval,
    /// Limits of the exact values at the ends.
    ends: [Interval; 2],
    /// Contains the derivatives.
    slope: Interval,
    /// Error of computed values.
    error: f64,
}

impl Cell {
    /// Returns the cell of the negated function.
    fn negated(&self) -> Cell {
        Cell { exact: -self.exact, ends: self.ends.map(|end| -end), slope: -self.slope, ..*self }
    }

    /// Returns a lower bound of the computed and exact values minus a·x.
    fn least(&self, a: f64) -> f64 {
        if !self.exact.is_finite() || !self.error.is_finite() {
            return f64::NEG_INFINITY;
        }
        let line = |x: f64| if a == 0.0 { Interval::point(0.0) } else { Interval::point(a) * Interval::point(x) };
        let mut least = (self.exact.lo - line(self.lo).hi.max(line(self.hi).hi)).next_down();
        if self.slope.is_finite() && self.ends.iter().all(|end| end.is_finite()) {
            let number = Interval::point;
            let (p, q) = ((self.slope - number(a)).lo, (self.slope - number(a)).hi);
            let first = (self.ends[0].lo - line(self.lo).hi).next_down();
            let last = (self.ends[1].lo - line(self.hi).hi).next_down();
            let width = number(self.hi) - number(self.lo);
            // The function minus the line is above first + p·t and last - q·(width - t).
            let bound = if p >= 0.0 {
                first
            } else if q <= 0.0 {
                last
            } else {
                let (p, q) = (number(p), number(q));
                let meeting = (q * number(first) - p * number(last) + p * q * width) * (q - p).recip();
                let outer = (number(first) + p * width).lo.max((number(last) - q * width).lo);
                meeting.lo.max(outer)
            };
            least = least.max(bound);
        }
        (least - self.error).next_down()
    }
}

/// A point with the exact and computed values there.
#[derive(Clone, Copy)]
struct Sample {
    x: f64,
    value: Interval,
}

/// The enclosure of a function on an interval.
struct Enclosure<'f> {
    function: &'f Univariate,
    element: usize,
    arithmetic: Arithmetic,
    has_branches: bool,
    cells: Vec<Cell>,
    samples: Vec<Sample>,
    values: Vec<Value>,
    ends: Vec<Value>,
}

impl Univariate {
    /// Returns bounds of the values of an element on an interval, and lines below and above them.
    pub fn enclose(&self, x: Interval, element: usize, arithmetic: Arithmetic) -> (Interval, Line) {
        if !x.is_finite() {
            return (Interval::ENTIRE, Line::UNKNOWN);
        }
        let mut values = Vec::with_capacity(self.nodes.len());
        if x.is_point() {
            return self.at_point(x, element, arithmetic, &mut values);
        }
        let has_branches = self.nodes.iter().any(|node| matches!(node.operation, Operation::Alu(op) if is_branch(op)));
        let mut enclosure = Enclosure {
            function: self,
            element,
            arithmetic,
            has_branches,
            cells: Vec::new(),
            samples: Vec::new(),
            values,
            ends: Vec::with_capacity(self.nodes.len()),
        };
        enclosure.start(x);
        enclosure.bounds(x)
    }

    /// Returns the value at a point, and as lines the tangent if there is one.
    fn at_point(
        &self,
        x: Interval,
        element: usize,
        arithmetic: Arithmetic,
        values: &mut Vec<Value>,
    ) -> (Interval, Line) {
        let value = self.evaluate(x, false, element, arithmetic, None, values);
        let bounds = value.computed();
        if !bounds.is_finite() {
            return (Interval::ENTIRE, Line::UNKNOWN);
        }
        let slope = if value.slope.is_finite() { 0.5 * (value.slope.lo + value.slope.hi) } else { 0.0 };
        let offset = bounds - Interval::point(slope) * x;
        match offset.is_finite() {
            true => (bounds, Line { below: [slope, offset.lo], above: [slope, offset.hi] }),
            false => (bounds, Line { below: [0.0, bounds.lo], above: [0.0, bounds.hi] }),
        }
    }

    /// Evaluates all nodes on a cell. `forced` has the decisions of comparisons and roundings of the cell that this point is an end of.
    fn evaluate(
        &self,
        x: Interval,
        is_open: bool,
        element: usize,
        arithmetic: Arithmetic,
        forced: Option<&[Value]>,
        values: &mut Vec<Value>,
    ) -> Value {
        values.clear();
        for (at, node) in self.nodes.iter().enumerate() {
            let decision = forced.map_or(f64::NAN, |forced| forced[at].decision);
            let value = match &node.operation {
                Operation::Root => Value::root(x, is_open, Rounding { arithmetic, dtype: node.dtype }),
                Operation::Constant(constants) => Value::constant(constants[element % constants.len().max(1)]),
                _ if !decision.is_nan() => Value::decided(decision),
                _ => node.apply(values, Rounding { arithmetic, dtype: node.dtype }),
            };
            #[cfg(test)]
            let value = Value {
                slope: crate::fault::slope(node, value.slope),
                error: crate::fault::error(value.error),
                ..value
            };
            values.push(value);
        }
        values.last().copied().unwrap_or(Value::new(Interval::ENTIRE, Interval::ENTIRE, f64::INFINITY))
    }
}

/// Returns true for operations that can be discontinuous.
fn is_branch(op: Alu) -> bool {
    op.is_comparison() || matches!(op, Alu::Floor | Alu::Ceil | Alu::Round | Alu::Trunc)
}

impl Node {
    fn apply(&self, values: &[Value], rounding: Rounding) -> Value {
        let x: [&Value; 3] = std::array::from_fn(|n| &values[self.operands.get(n).copied().unwrap_or(0)]);
        let round = |magnitude: f64| rounding.error(magnitude, self.units);
        match &self.operation {
            Operation::Relu => {
                let slope = match () {
                    () if x[0].exact.lo >= 0.0 => x[0].slope,
                    () if x[0].exact.hi <= 0.0 => Interval::point(0.0),
                    () => x[0].slope.hull(Interval::point(0.0)),
                };
                let is_open = x[0].is_open && x[0].exact.lo >= 0.0;
                Value { is_open, ..Value::new(relu(x[0].exact), slope, x[0].error) }
            }
            Operation::Cast => {
                let error = x[0].error + round(x[0].computed().magnitude());
                Value { is_open: x[0].is_open && error == 0.0, ..Value::new(x[0].exact, x[0].slope, error) }
            }
            Operation::Alu(op) if op.is_comparison() => match compared(*op, x[0], x[1]) {
                Some(truth) => Value::decided(f64::from(u8::from(truth))),
                None => Value::new(Interval { lo: 0.0, hi: 1.0 }, Interval::ENTIRE, 0.0),
            },
            Operation::Alu(Alu::Select) => match x[0].decision {
                1.0 => Value { decision: f64::NAN, ..*x[1] },
                0.0 => Value { decision: f64::NAN, ..*x[2] },
                _ => Value::new(x[1].exact.hull(x[2].exact), Interval::ENTIRE, x[1].error.max(x[2].error)),
            },
            Operation::Alu(op) if is_branch(*op) => {
                let exact = Interval::alu(*op, &[x[0].computed()]).unwrap_or(Interval::ENTIRE);
                if exact.is_point() { Value::decided(exact.lo) } else { Value::new(exact, Interval::ENTIRE, 0.0) }
            }
            Operation::Alu(op) => smooth(*op, x, rounding, &round),
            Operation::Root | Operation::Constant(_) => Value::new(Interval::ENTIRE, Interval::ENTIRE, f64::INFINITY),
        }
    }
}

/// Returns the values, derivatives and errors of a continuous operation.
fn smooth(op: Alu, x: [&Value; 3], rounding: Rounding, round: &dyn Fn(f64) -> f64) -> Value {
    let [a, b, c] = x;
    let operands = [a.exact, b.exact, c.exact];
    let exact = Interval::alu(op, &operands[..op.arity()]).unwrap_or(Interval::ENTIRE);
    let size = |x: &Value| x.exact.magnitude();
    // Error of a·b.
    let product = || size(a) * b.error + size(b) * a.error + a.error * b.error;
    let zero = Interval::point(0.0);
    let (slope, error) = match op {
        Alu::Neg => return Value { is_open: a.is_open, ..Value::new(exact, -a.slope, a.error) },
        Alu::Abs => {
            let slope = match () {
                () if a.exact.lo >= 0.0 => a.slope,
                () if a.exact.hi <= 0.0 => -a.slope,
                () => a.slope.hull(-a.slope),
            };
            let is_open = a.is_open && (a.exact.lo >= 0.0 || a.exact.hi <= 0.0);
            return Value { is_open, ..Value::new(exact, slope, a.error) };
        }
        Alu::Min | Alu::Max => {
            let (first, second) = if op == Alu::Min { (a, b) } else { (b, a) };
            let slope = match () {
                () if first.exact.hi <= second.exact.lo => a.slope,
                () if second.exact.hi <= first.exact.lo => b.slope,
                () => a.slope.hull(b.slope),
            };
            (slope, a.error.max(b.error) + rounding.of_choice(&[a.exact, b.exact]))
        }
        Alu::Add | Alu::Sub => {
            let slope = if op == Alu::Add { a.slope + b.slope } else { a.slope - b.slope };
            let error = a.error + b.error;
            let sum = Value::new(exact, slope, error + round(exact.magnitude() + error));
            // An infinite sum stays above its floor.
            let (tall, other) = if a.floor.is_nan() { (b, a) } else { (a, b) };
            let floor = (tall.floor + other.computed().lo) * 0.99;
            let is_tall = op == Alu::Add && !tall.floor.is_nan() && other.error.is_finite() && floor > 1.0;
            return Value { floor: if is_tall { floor } else { f64::NAN }, ..sum };
        }
        Alu::Mul => (a.slope * b.exact + a.exact * b.slope, product() + round(exact.magnitude() + product())),
        Alu::Fma => {
            let error = product() + c.error;
            let slope = a.slope * b.exact + a.exact * b.slope + c.slope;
            (slope, error + round(size(a) * size(b) + size(c) + error))
        }
        Alu::Div => {
            let inverse = b.exact.recip();
            let slope = (a.slope - exact * b.slope) * inverse;
            let least = b.exact.lo.max(-b.exact.hi) - b.error;
            let error = if !b.floor.is_nan() && b.exact.lo > 0.0 {
                // The computed quotient is between 0 and that by the floor.
                let largest = (size(a) + a.error) / b.floor;
                largest + exact.magnitude() + round(largest)
            } else if least > 0.0 {
                let error = ((a.error + exact.magnitude() * b.error) / least) * (1.0 + 1e-12);
                error + round(exact.magnitude() + error)
            } else {
                f64::INFINITY
            };
            (slope, error)
        }
        Alu::Sqrt => {
            let slope = a.slope * (Interval::point(2.0) * exact).recip();
            let error = if a.exact.lo < a.error {
                f64::INFINITY
            } else if a.error > 0.0 {
                a.error.sqrt().min(a.error / a.exact.lo.sqrt()) * (1.0 + 1e-12)
            } else {
                0.0
            };
            (slope, error + round(exact.magnitude() + error))
        }
        Alu::Math(function) => {
            let near = a.computed();
            let wide = if a.error == 0.0 { exact } else { math(function, near) };
            let moved = if a.error == 0.0 { 0.0 } else { derivative(function, near, wide).magnitude() * a.error };
            let error = if wide.is_finite() { moved + round(wide.magnitude() + moved) } else { f64::INFINITY };
            let value = Value::new(exact, a.slope * derivative(function, a.exact, exact), error);
            let is_tall = op == Alu::Math(panoply_ir::alu::Math::Exp) && wide.is_finite() && error.is_infinite();
            return Value { floor: if is_tall { 0.99 * wide.lo.min(rounding.largest()) } else { f64::NAN }, ..value };
        }
        Alu::Pow => {
            let is_whole = b.exact.is_point() && b.exact.lo.fract() == 0.0 && (1.0..=64.0).contains(&b.exact.lo);
            // The derivative for a constant exponent, where the values are `y`.
            let steep = |x: Interval, y: Interval| match b.slope == zero {
                true if is_whole => b.exact * power(x, b.exact.lo - 1.0),
                true if x.lo > 0.0 => b.exact * y * x.recip(),
                _ => Interval::ENTIRE,
            };
            let near = a.computed();
            let wide = Interval::alu(op, &[near, b.exact]).unwrap_or(Interval::ENTIRE);
            let moved = if a.error == 0.0 { 0.0 } else { steep(near, wide).magnitude() * a.error };
            let error = if b.error == 0.0 { moved + round(wide.magnitude() + moved) } else { f64::INFINITY };
            (steep(a.exact, exact) * a.slope, error)
        }
        _ => (Interval::ENTIRE, f64::INFINITY),
    };
    Value::new(exact, slope, error)
}

impl Enclosure<'_> {
    /// Makes the first samples and cells.
    fn start(&mut self, x: Interval) {
        let step = |n: usize| x.lo + (x.hi - x.lo) * (n as f64 / CELLS as f64);
        let mut ends: Vec<f64> = (1..CELLS).map(step).collect();
        // Branches often change at a constant of the function.
        let constant = |node: &Node| match &node.operation {
            Operation::Constant(constants) => Some(constants[self.element % constants.len().max(1)]),
            _ => None,
        };
        let constants = self.function.nodes.iter().filter_map(constant).filter(|constant| constant.is_point());
        ends.extend(constants.take(MAX_KINKS).flat_map(|constant| [constant.lo, -constant.lo]));
        ends.extend([0.0, x.lo, x.hi]);
        let root = self.function.nodes.iter().find(|node| matches!(node.operation, Operation::Root));
        let least = root.map_or(0.0, |root| Rounding { arithmetic: self.arithmetic, dtype: root.dtype }.least());
        ends.extend([least, -least]);
        ends.retain(|end| x.lo <= *end && *end <= x.hi);
        ends.sort_by(f64::total_cmp);
        ends.dedup_by(|a, b| a == b);
        ends.iter().for_each(|end| self.sample(*end));
        for pair in ends.windows(2) {
            let cell = self.cell(pair[0], pair[1]);
            self.cells.push(cell);
        }
    }

    fn point(&mut self, x: f64, is_forced: bool) -> Value {
        let forced = is_forced.then_some(&self.values[..]);
        self.function.evaluate(Interval::point(x), false, self.element, self.arithmetic, forced, &mut self.ends)
    }

    fn sample(&mut self, x: f64) {
        let value = self.point(x, false).computed();
        self.samples.push(Sample { x, value });
    }

    fn cell(&mut self, lo: f64, hi: f64) -> Cell {
        let (element, arithmetic) = (self.element, self.arithmetic);
        let value = self.function.evaluate(Interval { lo, hi }, true, element, arithmetic, None, &mut self.values);
        // Limits at the ends, of the branches of the cell.
        let is_forced = self.has_branches;
        #[cfg(test)]
        let is_forced = is_forced && !crate::fault::is(crate::fault::Fault::Limit);
        let ends = [self.point(lo, is_forced).exact, self.point(hi, is_forced).exact];
        Cell { lo, hi, exact: value.exact, ends, slope: value.slope, error: value.error }
    }

    /// Returns a lower bound of the function (or of its negation) minus a·x, with cells bisected until it is tight.
    fn least(&mut self, a: f64, is_negated: bool) -> f64 {
        let of_cell = |cell: &Cell| if is_negated { cell.negated().least(a) } else { cell.least(a) };
        let of_sample = |sample: &Sample| {
            let value = if is_negated { -sample.value } else { sample.value };
            value - Interval::point(a) * Interval::point(sample.x)
        };
        #[cfg(test)]
        if crate::fault::is(crate::fault::Fault::Ends) && a != 0.0 {
            return self
                .samples
                .iter()
                .filter(|sample| self.is_end(sample.x))
                .map(of_sample)
                .fold(f64::INFINITY, |least, x| least.min(x.lo));
        }
        for bisections in 0.. {
            let smallest = self.cells.iter().map(of_cell).enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
            let Some((at, bound)) = smallest else { return f64::NEG_INFINITY };
            let values = self.samples.iter().map(of_sample);
            let (lo, hi) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), x| (lo.min(x.lo), hi.max(x.hi)));
            let Cell { lo: left, hi: right, .. } = self.cells[at];
            let middle = 0.5 * (left + right);
            let is_tight = lo - bound <= TOLERANCE * (hi - lo) + ABSOLUTE_TOLERANCE * lo.abs().max(hi.abs());
            if is_tight || bisections >= MAX_BISECTIONS || !(left < middle && middle < right) {
                let least = bound.min(lo);
                return if least.is_nan() { f64::NEG_INFINITY } else { least };
            }
            self.sample(middle);
            let halves = [self.cell(left, middle), self.cell(middle, right)];
            self.cells[at] = halves[0];
            self.cells.push(halves[1]);
        }
        f64::NEG_INFINITY
    }

    /// Returns true for the ends of the interval.
    #[cfg(test)]
    fn is_end(&self, x: f64) -> bool {
        let ends = |f: fn(f64, f64) -> f64, of: fn(&Cell) -> f64| self.cells.iter().map(of).fold(of(&self.cells[0]), f);
        x == ends(f64::min, |cell| cell.lo) || x == ends(f64::max, |cell| cell.hi)
    }

    /// Returns the bounds and the lines.
    fn bounds(&mut self, x: Interval) -> (Interval, Line) {
        let bounds = Interval { lo: self.least(0.0, false), hi: -self.least(0.0, true) };
        if !bounds.is_finite() {
            return (Interval::ENTIRE, Line::UNKNOWN);
        }
        self.samples.sort_by(|a, b| a.x.total_cmp(&b.x));
        let slopes = [self.slope(x, false), self.slope(x, true)];
        let below = [slopes[0], self.least(slopes[0], false)];
        let above = [slopes[1], -self.least(-slopes[1], true)];
        let or_constant = |line: [f64; 2], constant: f64| if line[1].is_finite() { line } else { [0.0, constant] };
        (bounds, Line { below: or_constant(below, bounds.lo), above: or_constant(above, bounds.hi) })
    }

    /// Returns the slope of the convex hull of the function (or of the concave one) at the middle of the interval: the line below with the
    /// smallest area between them.
    fn slope(&self, x: Interval, is_negated: bool) -> f64 {
        let mut hull: Vec<(f64, f64)> = Vec::with_capacity(self.samples.len());
        for Sample { x, value } in &self.samples {
            let y = 0.5 * (value.lo + value.hi);
            let next = (*x, if is_negated { -y } else { y });
            let is_left = |a: (f64, f64), b: (f64, f64)| (b.0 - a.0) * (next.1 - a.1) > (b.1 - a.1) * (next.0 - a.0);
            while hull.len() >= 2 && !is_left(hull[hull.len() - 2], hull[hull.len() - 1]) {
                hull.pop();
            }
            hull.push(next);
        }
        let middle = 0.5 * (x.lo + x.hi);
        let rise = |pair: &[(f64, f64)]| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
        let at = hull.windows(2).position(|pair| middle <= pair[1].0).unwrap_or(0);
        let Some(pair) = hull.get(at..at + 2) else { return 0.0 };
        // The middle is a sample: at a vertex of the hull, the mean of the slopes beside it is close to the tangent.
        let slope = match hull.get(at + 1..at + 3) {
            Some(next) if pair[1].0 == middle => 0.5 * (rise(pair) + rise(next)),
            _ => rise(pair),
        };
        let slope = if is_negated { -slope } else { slope };
        if slope.is_finite() { slope } else { 0.0 }
    }
}
