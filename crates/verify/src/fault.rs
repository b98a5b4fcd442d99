//! Rules of bounding that are made wrong in tests, one at a time, to show that the tests notice (mutation testing).

use std::cell::Cell;

use panoply_ir::Alu;
use panoply_ir::reduce::ReduceOp;

use crate::interval::Interval;
use crate::steps::{Entry, Step};
use crate::univariate::{Node, Operation};

/// A rule, by the operation that it bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    Move,
    Relu,
    Cast,
    Alu(Alu),
    Reduce(ReduceOp),
    Linear,
    MatMul,
    Univariate,
}

/// One way of being wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The lower bound of an operation's interval is too high.
    Low(Rule),
    /// The upper bound of an operation's interval is too low.
    High(Rule),
    /// Backward propagation through an operation returns coefficients that are too small.
    Coefficients(Rule),
    /// The derivative of an operation inside a function of one element is 0.
    Derivative(Rule),
    /// The plane below an operation of two operands is too high.
    LowPlane(Alu),
    /// The plane above an operation of two operands is too low.
    HighPlane(Alu),
    /// The errors of arithmetic inside a function of one element are omitted.
    FloatError,
    /// The values at the ends of a cell are those of another branch.
    Limit,
    /// The lines of a function of one element are bounded at the ends of its interval only.
    Ends,
    /// The multiplier of a split has the wrong sign.
    Multiplier,
    /// A split excludes more than the inputs with the other sign.
    Split,
    /// The upper line of an unstable ReLU is too low.
    UpperLine,
    /// The lower line of an unstable ReLU has a slope above 1.
    LowerLine,
    /// An unstable ReLU counts as inactive.
    Inactive,
    /// Backward propagation omits the constants.
    Constants,
    /// A constraint's constant has the wrong end.
    Constraint,
    /// Linear bounds clip more of a box than they exclude.
    Clip,
    /// A NaN or an infinite bound counts as a proof.
    Infinite,
    /// Constraints are combined with negative multipliers.
    Combination,
}

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Runs a function in which a rule is wrong.
pub fn with<T>(fault: Fault, run: impl FnOnce() -> T) -> T {
    FAULT.set(Some(fault));
    let result = run();
    FAULT.set(None);
    result
}

/// Returns true if this fault is present.
pub fn is(fault: Fault) -> bool {
    FAULT.get() == Some(fault)
}

/// Returns the rule of a step.
pub fn rule(step: &Step) -> Option<Rule> {
    Some(match step {
        Step::Move(..) => Rule::Move,
        Step::Relu(_) => Rule::Relu,
        Step::Cast(_) => Rule::Cast,
        Step::Alu(op, _) => Rule::Alu(*op),
        Step::Reduce(op, ..) => Rule::Reduce(*op),
        Step::Linear(..) => Rule::Linear,
        Step::MatMul(..) => Rule::MatMul,
        Step::Univariate(..) => Rule::Univariate,
        Step::Input | Step::Constant(_) | Step::Unknown => return None,
    })
}

/// Moves bounds of a step inwards if its rule is wrong.
pub fn narrow(entry: &Entry, elements: &mut [Interval]) {
    let Some(rule) = rule(&entry.step) else { return };
    let (low, high) = (is(Fault::Low(rule)), is(Fault::High(rule)));
    for x in elements.iter_mut().filter(|x| x.is_finite()) {
        let by = 0.3 * (x.hi - x.lo);
        *x = Interval { lo: if low { x.lo + by } else { x.lo }, hi: if high { x.hi - by } else { x.hi } };
    }
}

/// Scales coefficients if the rule of a step is wrong.
pub fn scale(step: &Step, coefficients: &mut [f64]) {
    if rule(step).is_some_and(|rule| is(Fault::Coefficients(rule))) {
        coefficients.iter_mut().for_each(|a| *a *= 0.8);
    }
}

/// Returns the derivative of a node, 0 if its rule is wrong.
pub fn slope(node: &Node, slope: Interval) -> Interval {
    let rule = match &node.operation {
        Operation::Alu(op) => Rule::Alu(*op),
        Operation::Relu => Rule::Relu,
        Operation::Cast => Rule::Cast,
        Operation::Root | Operation::Constant(_) => return slope,
    };
    if is(Fault::Derivative(rule)) { Interval::point(0.0) } else { slope }
}

/// Returns the error of a node, or 0 if errors are omitted.
pub fn error(error: f64) -> f64 {
    if is(Fault::FloatError) { 0.0 } else { error }
}

/// Moves planes towards each other if their rule is wrong.
pub fn shift(op: Alu, low: &mut f64, high: &mut f64) {
    *low += if is(Fault::LowPlane(op)) { 0.05 } else { 0.0 };
    *high -= if is(Fault::HighPlane(op)) { 0.05 } else { 0.0 };
}
