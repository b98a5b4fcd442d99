//! Lazy, fused, differentiable tensors.
//!
//! A [`Tensor`] is a cheap handle to a node of a graph; nothing runs until a value is read. Then [`mod@eval`] copies
//! the reachable subgraph into a dense [`panoply_ir::graph::Graph`], looks it up in the plan cache and submits the
//! plan's kernels to `runtime`. No other module runs graphs. A mistake is carried by the tensor instead of a value:
//! an expression never panics and needs no `?`. The first read of a result returns the leftmost mistake, with its
//! operands and source line.
//!
//! Modules in reading order:
//!
//! - [`tensor`]: the handle and its node
//! - [`ops`]: every operation as an expression over the primitives of [`panoply_ir::graph::Op`]
//! - [`call`]: composite operations, traced once and used as one node
//! - [`gradient`]: reverse-mode and forward-mode differentiation, each one match over the primitives
//! - `vmap`: functions of one example applied to a batch
//! - `dynamic_dim`: lengths that are not part of a plan
//! - `jit`: functions that are traced once and replayed
//! - `mistake`: the error that a tensor carries in place of a value
//! - [`random`]: counter-based random numbers
//! - [`eval()`][]: evaluation
//! - `donation`: outputs in the memory of donated buffers
//! - `memory_plan`: memory that an evaluation needs
//! - `read_budget`: limit on the memory that reading a file takes
//! - [`display`][]: printing
//! - [`conformance`]: results that every device must compute

#![forbid(unsafe_code)]

// First, so that rustdoc lists the methods of tensors that a reader looks for first before the others.
pub mod tensor;

pub mod ops;

pub mod call;
pub mod call_attrs;
mod call_with_routine;
mod checkpoint;
pub mod conformance;
pub mod display;
mod donation;
mod dynamic_dim;
pub mod eval;
pub mod gradient;
mod hasher;
mod jit;
mod kernel;
mod memory_plan;
mod mistake;
mod plan_cache;
mod program;
pub mod random;
mod read_budget;
mod vmap;

pub use donation::eval_donated;
pub use dynamic_dim::Dim;
pub use eval::{eval, eval_in_parts};
pub use gradient::no_grad;
pub use jit::{JitFunction, State, StateLeaf, jit, jit_with_state};
pub use memory_plan::MemoryPlan;
pub use ops::attention::{AttentionOptions, RopeOptions, RopeStyle};
pub use ops::axes::{Axes, KeepDim, ReshapeDims};
pub use ops::conv::{ConvOptions, ConvTransposeOptions};
pub use ops::fft_options::{FftNorm, FftOptions};
pub use ops::index::ScatterReduce;
pub use ops::interpolate::{AlignCorners, InterpolateMode};
pub use ops::linalg_factor::{Eig, Eigh, Lu, Qr, Slogdet, Svd, Triangle};
pub use ops::loss::{BceOptions, CrossEntropyOptions, Reduction};
pub use ops::operand::Operand;
pub use ops::pool::{AvgPoolOptions, MaxPoolOptions};
pub use ops::rearrange::Side;
pub use ops::sort::{SortOrder, ValuesWithIndices};
pub use ops::view::TensorIndex;
pub use ops::window::Window;
pub use panoply_ir::{DType, Element, Error, ErrorKind, MathMode, Result, Scalar, Shape, bf16, f16};
pub use panoply_runtime::{AlignedBuffer, Device, HostBytes, Storage, map_file};
#[doc(hidden)]
pub use panoply_runtime::{large_vec, parallel_map, prefer_huge_pages};
pub use plan_cache::{PlanCacheStats, stats as plan_cache_stats};
pub use program::{Program, ProgramLeaf, program};
pub use random::{Replacement, Rng};
pub use read_budget::ReadBudget;
pub use tensor::Tensor;
