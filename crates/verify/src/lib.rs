//! Proofs of properties of networks: no input of a set has an output that violates the property.
//!
//! In the order of data flow: [`vnnlib`] and [`claim`] (the property as cases of forbidden outputs), [`Program`](panoply_tensor::Program) (the graph of
//! the function), [`steps`] (the graph with inlined calls, over flat arrays), [`fuse`] (functions of one element), [`values`] (interval bounds of
//! every step), [`univariate`], `growth`, `enclosure` and `planes` (linear bounds of scalar operations), [`backward`] (linear bounds of the network), [`split`] and [`dual`] (splits of ReLUs, optimized slopes), [`leaf`] (linear programs), `lanes` (their inner
//! loops), [`attack`] (counterexamples), `device_bounds` and `device_check` (outputs of the device beside their bounds), [`search`] (branch and bound over boxes of inputs), [`radius`] (bisection of the size of a ball), `prove` (claims stated in Rust). [`vnncomp`] reads and writes the competition's files. [`interval`], [`functions`] and [`decimal`] enclose
//! numbers that floats do not represent.
//!
//! This crate does not depend on networks, model files or the command line. Every bound is rounded outwards, an operation without a rule is
//! unknown, and a comparison with NaN proves nothing: imprecision can prevent a proof, but never causes a wrong one.

#![forbid(unsafe_code)]

pub mod attack;
pub mod backward;
pub mod claim;
pub mod decimal;
mod device_bounds;
mod device_check;
pub mod dual;
mod enclosure;
#[cfg(test)]
mod fault;
pub mod functions;
pub mod fuse;
mod growth;
pub mod interval;
mod lanes;
pub mod leaf;
mod planes;
mod property;
mod prove;
pub mod radius;
mod region;
mod report;
pub mod rounding;
#[cfg(test)]
mod sabotage;
mod search;
pub mod split;
pub mod steps;
pub mod univariate;
pub mod values;
pub mod vnncomp;
pub mod vnnlib;

pub use attack::Function;
pub use interval::Interval;
pub use property::{Case, Constraint, Property, Range};
pub use prove::{Condition, InputBox, prove};
pub use report::{Counterexample, Progress, Report, Verdict};
pub use search::{Options, check, verify, verify_function};
pub use values::Arithmetic;
