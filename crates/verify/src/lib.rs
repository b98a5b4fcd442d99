//! Proofs of properties of networks: for all inputs of a set, no output violates the property.
//!
//! In the order the data flows: [`vnnlib`] (the property as cases of forbidden outputs), [`Program`](panoply_tensor::Program) (the graph of the
//! function), [`steps`] (the graph with calls inlined, over flat arrays), [`values`] (interval bounds of every step), [`backward`] (linear
//! bounds), [`attack`] (counterexamples), [`search`] (branch and bound over boxes of inputs). [`interval`] and [`decimal`] enclose what
//! floats do not hold.
//!
//! Nothing here knows networks, files of models or the command line. A bound is rounded outwards wherever it is computed, what has no rule is
//! unknown, and a comparison with NaN proves nothing: an error of this crate may cost a proof, never make one.

#![forbid(unsafe_code)]

pub mod attack;
pub mod backward;
pub mod decimal;
pub mod interval;
mod property;
mod region;
mod search;
pub mod steps;
pub mod values;
pub mod vnnlib;

pub use interval::Interval;
pub use property::{Case, Constraint, Property, Range};
pub use search::{Counterexample, Options, Progress, Report, Verdict, verify};
pub use values::Arithmetic;
