//! Lazy, fused, differentiable tensors.
//!
//! A [`Tensor`] is a cheap handle to a node of a graph; nothing runs until a value is asked for. Then [`realize`] copies the
//! reachable part into a dense [`panoply_ir::graph::Graph`], looks it up in the plan cache, and hands the plan's kernels to
//! `runtime`: that is the only place where graphs become work. Mistakes travel with the value: an expression never panics
//! and needs no `?`; whoever first asks for a result gets the leftmost mistake, with its operands and source line.
//!
//! In reading order: [`tensor`] (the handle and its node), [`ops`] (every operation as an expression over the primitives of
//! [`panoply_ir::graph::Op`]), [`call`] (operations that count as one node), [`gradient`] (one match over the primitives,
//! and one for the forward direction), `batch` (functions of one example for many), `dim` (lengths that a plan does not know),
//! `capture` (functions that are built once), `mistake` (what a tensor carries in place of a value),
//! [`random`], [`realize`], `exchange` (new values in the memory of old ones), `memory_plan`, [`display`], [`conformance`] (what every device must compute).

#![forbid(unsafe_code)]

mod batch;
pub mod call;
mod capture;
mod checkpoint;
pub mod conformance;
mod dim;
pub mod display;
mod exchange;
pub mod gradient;
mod hasher;
mod kernel;
mod memory_plan;
mod mistake;
pub mod ops;
mod plan_cache;
pub mod random;
pub mod realize;
pub mod settings;
pub mod tensor;

pub use capture::{Captured, Piece, State, capture, capture_with_state};
pub use dim::Dim;
pub use exchange::exchange;
pub use gradient::no_grad;
pub use memory_plan::MemoryPlan;
pub use ops::attention::{Attention, Rotary};
pub use ops::conv::Conv;
pub use ops::factor::Triangle;
pub use ops::index::Put;
pub use ops::loss::CrossEntropy;
pub use ops::movement::Range;
pub use ops::pool::AvgPoolOptions;
pub use ops::resize::Ends;
pub use ops::sort::Order;
pub use ops::spectrum::{Fft, Norm};
pub use ops::window::Window;
pub use panoply_ir::{Accuracy, DType, Element, Error, ErrorKind, Result, Scalar, Shape, bf16, f16};
pub use panoply_runtime::Device;
pub use panoply_runtime::env::read_limit;
pub use plan_cache::{PlanCounts, counts as plan_counts};
pub use random::Rng;
pub use realize::eval;
pub use tensor::Tensor;
