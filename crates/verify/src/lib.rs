//! Proofs of properties of networks: no input of a set has an output that violates the property.
//!
//! In the order of data flow: [`vnnlib`] and [`claim`] (the property as cases of forbidden outputs), [`Program`](panoply_tensor::Program) (the graph of
//! the function), [`steps`] (the graph with inlined calls, over flat arrays), [`values`] (interval bounds of every step), [`backward`]
//! (linear bounds), `lanes` (their inner loops), [`attack`] (counterexamples), [`search`] (branch and bound over boxes of inputs). [`interval`] and [`decimal`] enclose
//! numbers that floats do not represent.
//!
//! This crate does not depend on networks, model files or the command line. Every bound is rounded outwards, an operation without a rule is
//! unknown, and a comparison with NaN proves nothing: imprecision can prevent a proof, but never causes a wrong one.

#![forbid(unsafe_code)]

pub mod attack;
pub mod backward;
pub mod claim;
pub mod decimal;
#[cfg(test)]
mod fault;
pub mod interval;
mod lanes;
mod property;
mod region;
#[cfg(test)]
mod sabotage;
mod search;
pub mod steps;
pub mod values;
pub mod vnnlib;

pub use interval::Interval;
pub use property::{Case, Constraint, Property, Range};
pub use search::{Counterexample, Options, Progress, Report, Verdict, verify};
pub use values::Arithmetic;
