//! Bounds and linear relaxations of functions of one element on an interval.
//!
//! A function is enclosed in cells of its interval. In a cell without a change of branch, its values follow from those at the ends and an
//! enclosure of the derivative (mean value form; Neumaier, *Interval Methods for Systems of Equations*, 1990, section 2.3), whose error is
//! quadratic in the width of the cell; in other cells from the interval of the values. Cells that limit a bound are bisected.

use crate::interval::Interval;
use crate::rounding::{Arithmetic, Rounding};
use crate::univariate::{LinearRelaxation, Node, Operation, Univariate, Value};

/// Number of cells at first.
const CELLS: usize = 16;
/// Maximum number of bisections per bound.
const MAX_BISECTIONS: usize = 48;
/// Error of a bound, as a fraction of the range of the function minus the line, below which no cell is bisected.
const TOLERANCE: f64 = 1e-3;
/// The same as a fraction of the largest value.
const ABSOLUTE_TOLERANCE: f64 = 1e-10;
/// Error of a bound, as a fraction of the function and the line, below which it is due to rounding.
const ROUNDING: f64 = 16.0 * f64::EPSILON;
/// Maximum number of constants that are tried as ends of cells.
const MAX_KINKS: usize = 8;

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
    /// True if the function is linear in the cell, up to rounding.
    fn is_linear(&self) -> bool {
        self.slope.is_finite() && self.slope.hi - self.slope.lo <= ROUNDING * self.slope.magnitude()
    }

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
    exact: Interval,
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
    /// Returns bounds of the values of an element on an interval, and their linear relaxation.
    pub fn enclose(&self, x: Interval, element: usize, arithmetic: Arithmetic) -> (Interval, LinearRelaxation) {
        if !x.is_finite() {
            return (Interval::ENTIRE, LinearRelaxation::UNKNOWN);
        }
        if x.is_point() {
            return self.at_point(x, element, arithmetic);
        }
        Enclosure::new(self, x, element, arithmetic).bounds(x)
    }

    /// Returns the value at a point, and as relaxation the tangent if there is one.
    fn at_point(&self, x: Interval, element: usize, arithmetic: Arithmetic) -> (Interval, LinearRelaxation) {
        let value = self.evaluate(x, false, element, arithmetic, None, &mut Vec::with_capacity(self.nodes.len()));
        let bounds = value.computed();
        if !bounds.is_finite() {
            return (Interval::ENTIRE, LinearRelaxation::UNKNOWN);
        }
        let slope = if value.slope.is_finite() { 0.5 * (value.slope.lo + value.slope.hi) } else { 0.0 };
        let offset = bounds - Interval::point(slope) * x;
        match offset.is_finite() {
            true => (bounds, LinearRelaxation { lower: [slope, offset.lo], upper: [slope, offset.hi] }),
            false => (bounds, LinearRelaxation { lower: [0.0, bounds.lo], upper: [0.0, bounds.hi] }),
        }
    }
}

impl<'f> Enclosure<'f> {
    /// Encloses a function of an element on an interval, which is not a point.
    fn new(function: &'f Univariate, x: Interval, element: usize, arithmetic: Arithmetic) -> Enclosure<'f> {
        let values = || Vec::with_capacity(function.nodes.len());
        let mut enclosure = Enclosure {
            function,
            element,
            arithmetic,
            has_branches: function.has_branches(),
            cells: Vec::new(),
            samples: Vec::new(),
            values: values(),
            ends: values(),
        };
        enclosure.start(x);
        enclosure
    }
}

impl Enclosure<'_> {
    /// Makes the first samples and cells.
    fn start(&mut self, x: Interval) {
        // Branches often change at a constant of the function.
        let constant = |node: &Node| match &node.operation {
            Operation::Constant(constants) => Some(constants[self.element % constants.len().max(1)]),
            _ => None,
        };
        let constants = self.function.nodes.iter().filter_map(constant).filter(|constant| constant.is_point());
        let mut ends: Vec<f64> = constants.take(MAX_KINKS).flat_map(|constant| [constant.lo, -constant.lo]).collect();
        ends.extend([0.0, x.lo, x.hi]);
        let root = self.function.nodes.iter().find(|node| matches!(node.operation, Operation::Root));
        let least = root.map_or(0.0, |root| Rounding { arithmetic: self.arithmetic, dtype: root.dtype }.least());
        ends.extend([least, -least]);
        ends.retain(|end| x.lo <= *end && *end <= x.hi);
        // A piecewise linear function needs no other cells.
        if self.function.has_kinks() {
            self.divide(ends.clone());
            if self.cells.iter().all(Cell::is_linear) {
                return;
            }
            self.samples.clear();
            self.cells.clear();
        }
        let step = |n: usize| x.lo + (x.hi - x.lo) * (n as f64 / CELLS as f64);
        ends.extend((1..CELLS).map(step).filter(|end| x.lo <= *end && *end <= x.hi));
        self.divide(ends);
    }

    /// Adds samples at these ends of cells, and the cells.
    fn divide(&mut self, mut ends: Vec<f64>) {
        ends.sort_by(f64::total_cmp);
        ends.dedup_by(|a, b| a == b);
        for end in ends {
            self.sample(end);
        }
        for at in 1..self.samples.len() {
            let [left, right] = [at - 1, at].map(|at| self.samples[at]);
            let cell = self.cell([left.x, right.x], [left.exact, right.exact]);
            self.cells.push(cell);
        }
    }

    fn point(&mut self, x: f64, is_forced: bool) -> Value {
        let forced = is_forced.then_some(&self.values[..]);
        self.function.evaluate(Interval::point(x), false, self.element, self.arithmetic, forced, &mut self.ends)
    }

    /// Adds a sample and returns its exact value.
    fn sample(&mut self, x: f64) -> Interval {
        let value = self.point(x, false);
        self.samples.push(Sample { x, exact: value.exact, value: value.computed() });
        value.exact
    }

    /// Returns a cell; `at_ends` are the exact values at its ends.
    fn cell(&mut self, [lo, hi]: [f64; 2], at_ends: [Interval; 2]) -> Cell {
        let (element, arithmetic) = (self.element, self.arithmetic);
        let value = self.function.evaluate(Interval { lo, hi }, true, element, arithmetic, None, &mut self.values);
        // Limits at the ends, of the branches of the cell.
        let is_forced = self.has_branches;
        #[cfg(test)]
        let is_forced = is_forced && !crate::fault::is(crate::fault::Fault::Limit);
        let ends = if is_forced { [lo, hi].map(|end| self.point(end, true).exact) } else { at_ends };
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
            let Cell { lo: left, hi: right, ends: [first, last], .. } = self.cells[at];
            let middle = 0.5 * (left + right);
            // A difference of about the rounding errors is not less in smaller cells.
            let rounding =
                self.samples.iter().map(|x| x.value.magnitude() + (a * x.x).abs()).fold(0.0, f64::max) * ROUNDING;
            let error = lo - bound - rounding;
            let is_tight = error <= TOLERANCE * (hi - lo) + ABSOLUTE_TOLERANCE * lo.abs().max(hi.abs());
            if is_tight || bisections >= MAX_BISECTIONS || !(left < middle && middle < right) {
                let least = bound.min(lo);
                return if least.is_nan() { f64::NEG_INFINITY } else { least };
            }
            let value = self.sample(middle);
            let halves = [self.cell([left, middle], [first, value]), self.cell([middle, right], [value, last])];
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

    /// Returns the bounds and the linear relaxation.
    fn bounds(&mut self, x: Interval) -> (Interval, LinearRelaxation) {
        let bounds = Interval { lo: self.least(0.0, false), hi: -self.least(0.0, true) };
        if !bounds.is_finite() {
            return (Interval::ENTIRE, LinearRelaxation::UNKNOWN);
        }
        self.samples.sort_by(|a, b| a.x.total_cmp(&b.x));
        let slopes = [self.slope(x, false), self.slope(x, true)];
        let lower = [slopes[0], self.least(slopes[0], false)];
        let upper = [slopes[1], -self.least(-slopes[1], true)];
        let or_constant = |line: [f64; 2], constant: f64| if line[1].is_finite() { line } else { [0.0, constant] };
        (bounds, LinearRelaxation { lower: or_constant(lower, bounds.lo), upper: or_constant(upper, bounds.hi) })
    }

    /// Returns the slope of the convex hull of the function (or of the concave one) at the middle of the interval: the line below with the
    /// smallest area between them.
    fn slope(&self, x: Interval, is_negated: bool) -> f64 {
        let mut hull: Vec<(f64, f64)> = Vec::with_capacity(self.samples.len());
        for Sample { x, value, .. } in &self.samples {
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
