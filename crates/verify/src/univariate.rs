//! Element-wise functions of one varying value, such as activations, whatever primitives they are composed of.
//!
//! Here are the functions, with their values, derivatives and rounding errors on an interval; `enclosure` finds the bounds. A line bounds the function and what a device computes of it: errors of the arithmetic inside are accumulated and subtracted.

use std::sync::Arc;

use panoply_ir::alu::Math;
use panoply_ir::{Alu, DType};

use crate::functions::{derivative, math, power};
use crate::growth::{Growth, common};
use crate::interval::Interval;
use crate::rounding::{Arithmetic, Rounding, relu};

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

/// Linear relaxation of a function on an interval: `lower[0]`·x + `lower[1]` ≤ f(x) ≤ `upper[0]`·x + `upper[1]`.
#[derive(Clone, Copy, Debug)]
pub struct LinearRelaxation {
    /// Slope and intercept of the lower line.
    pub lower: [f64; 2],
    /// Slope and intercept of the upper line.
    pub upper: [f64; 2],
}

impl LinearRelaxation {
    /// Relaxation of an unknown function: NaN.
    pub(crate) const UNKNOWN: LinearRelaxation = LinearRelaxation { lower: [f64::NAN; 2], upper: [f64::NAN; 2] };
}

/// The values of a node on a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    /// Contains the values in real arithmetic.
    pub exact: Interval,
    /// Contains the derivatives; unknown if a branch can change in the cell.
    pub slope: Interval,
    /// Computed values are in `exact` widened by this. If the slope is known, it bounds the error of each value.
    pub error: f64,
    /// If the error is infinite because of an overflow: computed values are above this, possibly infinite. Otherwise NaN.
    pub floor: f64,
    /// True if the ends of `exact` are not values.
    pub is_open: bool,
    /// The result of a comparison or rounding that is the same in the whole cell; otherwise NaN.
    pub decision: f64,
    /// The derivative as a function of the value, if it is known for an exponential in it.
    pub growth: Option<Growth>,
}

impl Value {
    fn constant(exact: Interval) -> Value {
        let slope = Interval::point(0.0);
        Value { exact, slope, error: 0.0, floor: f64::NAN, is_open: false, decision: f64::NAN, growth: None }
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
        Value { exact, slope, error, floor: f64::NAN, is_open: false, decision: f64::NAN, growth: None }
    }

    fn decided(value: f64) -> Value {
        Value { decision: value, ..Value::constant(Interval::point(value)) }
    }

    /// Contains the computed values.
    pub fn computed(&self) -> Interval {
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

impl Univariate {
    /// Returns true if the function can be discontinuous.
    pub(crate) fn has_branches(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.operation, Operation::Alu(op) if is_branch(op)))
    }

    /// Returns true if the function can have kinks.
    pub(crate) fn has_kinks(&self) -> bool {
        let kinked = [Alu::Abs, Alu::Min, Alu::Max, Alu::Select];
        self.nodes.iter().any(|node| match &node.operation {
            Operation::Alu(op) => kinked.contains(op),
            operation => matches!(operation, Operation::Relu),
        })
    }

    /// Evaluates all nodes on a cell. `forced` has the decisions of comparisons and roundings of the cell that this point is an end of.
    pub(crate) fn evaluate(
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
        Alu::Neg => {
            let growth = a.growth.map(Growth::negated);
            return Value { is_open: a.is_open, growth, ..Value::new(exact, -a.slope, a.error) };
        }
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
            let signed = if op == Alu::Sub { -b.exact } else { b.exact };
            let growth = match (a.growth, b.growth) {
                (Some(growth), _) if b.slope == zero => Some(growth.plus(signed)),
                (_, Some(growth)) if a.slope == zero && op == Alu::Sub => Some(growth.negated().plus(a.exact)),
                (_, Some(growth)) if a.slope == zero => Some(growth.plus(a.exact)),
                _ => None,
            };
            return Value { floor: if is_tall { floor } else { f64::NAN }, growth, ..sum };
        }
        Alu::Mul => {
            let slope = a.slope * b.exact + a.exact * b.slope;
            let growth = match (a.growth, b.growth) {
                (Some(growth), _) if b.slope == zero => Some(growth.times(b.exact)),
                (_, Some(growth)) if a.slope == zero => Some(growth.times(a.exact)),
                _ => None,
            };
            return Value { growth, ..Value::new(exact, slope, product() + round(exact.magnitude() + product())) };
        }
        Alu::Fma => {
            let error = product() + c.error;
            let slope = a.slope * b.exact + a.exact * b.slope + c.slope;
            (slope, error + round(size(a) * size(b) + size(c) + error))
        }
        Alu::Div => {
            let inverse = b.exact.recip();
            let slope = (a.slope - exact * b.slope) * inverse;
            let slope = match b.growth.filter(|_| a.slope == zero) {
                Some(growth) => common(slope, growth.of_quotient(a.exact, exact)),
                None => slope,
            };
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
            let slope = a.slope * derivative(function, a.exact, exact);
            let slope = match (function, a.growth) {
                (Math::Log, Some(growth)) => common(slope, growth.of_log(0.0, a.exact)),
                (Math::Log1p, Some(growth)) => common(slope, growth.of_log(1.0, a.exact)),
                _ => slope,
            };
            let growth = match function {
                Math::Exp => Some(Growth::exponential(a.slope)),
                Math::Expm1 => Some(Growth::exponential(a.slope).plus(Interval::point(-1.0))),
                _ => None,
            };
            let value = Value { growth, ..Value::new(exact, slope, error) };
            let is_tall = function == Math::Exp && wide.is_finite() && error.is_infinite();
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
