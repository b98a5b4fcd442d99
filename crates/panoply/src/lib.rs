//! Tensors, neural networks and GPU kernels that run on any accelerator of a machine.
//!
//! One binary, built without any vendor SDK, finds the devices of the machine at start-up and computes the same results
//! on each of them. A program is written once, in Rust:
//!
//! ```
//! use panoply::prelude::*;
//!
//! #[kernel]
//! fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
//!     let i = global_index();
//!     if i < y.len() {
//!         y[i] += a * x[i];
//!     }
//! }
//!
//! fn main() -> Result<()> {
//!     let device = Device::auto()?;
//!     let x = device.buffer(&[1.0f32, 2.0, 3.0])?;
//!     let mut y = device.buffer(&[0.5f32, 0.5, 0.5])?;
//!     saxpy(2.0, &x, &mut y).launch(3)?;
//!     assert_eq!(y.to_vec()?, [2.5, 4.5, 6.5]);
//!     Ok(())
//! }
//! ```
//!
//! In a development build, let Cargo optimize dependencies, or everything is many times slower:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! - [`kernel`](mod@kernel) is the kernel language; [`kernels`] are the built-in kernels.
//! - [`Device`] runs kernels, [`Buffer`] is device memory, and [`Launch`] is one kernel launch. [`ExternalKernel`] is a
//!   kernel in CUDA C++, HIP, OpenCL C, WGSL or compiled code.
//! - [`Tensor`] is a lazy array: operations are fused and differentiated, and run when a value is read. [`nn`] trains
//!   neural networks on tensors.
//! - [`Error`] is the error type of every function; its message says how to fix the problem.

#![forbid(unsafe_code)]

// The attribute macros generate paths that start with `panoply`; this makes them resolve in this crate too.
extern crate self as panoply;

pub mod kernel;
pub mod kernels;
pub mod prelude;
#[cfg(not(target_family = "wasm"))]
pub mod verify;

pub use panoply_ir::{DType, Element, Error, ErrorKind, MathMode, Result, Scalar, bf16, f16};
#[cfg(not(target_family = "wasm"))]
#[doc(inline)]
pub use panoply_llm as llm;
pub use panoply_macros::{Module, kernel, kernel_fn, sequential};
#[cfg(not(target_family = "wasm"))]
#[doc(inline)]
pub use panoply_mesh as mesh;
#[doc(inline)]
pub use panoply_nn as nn;
pub use panoply_nn::Module;
#[doc(inline)]
pub use panoply_runtime as runtime;
pub use panoply_runtime::{
    Backend, Buffer, BufferSlice, BufferSliceMut, Device, DeviceInfo, DeviceReport, Event, ExternalKernel, Grid,
    HostCall, Launch, LaunchArg, MemoryEstimate, MemoryStats, ProfileReport, Profiler, Queue, Readback, Rejection,
    SelectedBy, Selection, device_report, select_device,
};
pub use panoply_tensor::{
    AlignCorners, AttentionOptions, AvgPoolOptions, Axes, BceOptions, ConvOptions, ConvTransposeOptions,
    CrossEntropyOptions, Dim, Eig, Eigh, FftNorm, FftOptions, InterpolateMode, JitFunction, KeepDim, Lu,
    MaxPoolOptions, Operand, Program, ProgramLeaf, Qr, Reduction, Replacement, ReshapeDims, Rng, RopeOptions,
    RopeStyle, ScatterReduce, Shape, Side, Slogdet, SortOrder, State, StateLeaf, Svd, Tensor, TensorIndex, Triangle,
    ValuesWithIndices, Window, eval, eval_donated, jit, jit_with_state, no_grad, plan_cache_stats, program,
};

/// Compiler stages that the command `panoply` needs beyond the public API. Not covered by semantic versioning.
#[doc(hidden)]
pub mod internal {
    pub use panoply_compile as compile;
    pub use panoply_cpu::vm;
    pub use panoply_device::null::NullDevice;
    pub use panoply_host::isa;
    pub use panoply_host::peak::flops;
    pub use panoply_ir as ir;
    pub use panoply_routines as routines;
    pub use panoply_runtime::launch::group_size;
    pub use panoply_runtime::library_search;
    pub use panoply_tensor::conformance;
    pub use panoply_tensor::eval::TracedGraph;
}

/// Compiles the programs of README.md as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the programs of the guide as doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/1-tensors.md")]
    struct Tensors;
    #[doc = include_str!("../../../docs/guide/2-network.md")]
    struct Network;
    #[doc = include_str!("../../../docs/guide/3-custom-ops.md")]
    struct Own;
    #[doc = include_str!("../../../docs/guide/4-devices.md")]
    struct Devices;
    #[doc = include_str!("../../../docs/guide/6-data.md")]
    struct Data;
    #[doc = include_str!("../../../docs/guide/7-precision.md")]
    struct Precision;
    #[doc = include_str!("../../../docs/guide/8-tuning.md")]
    struct Tuning;
    #[doc = include_str!("../../../docs/guide/10-verification.md")]
    struct Verification;
    #[cfg(not(target_family = "wasm"))]
    #[doc = include_str!("../../../docs/guide/11-language-models.md")]
    struct LanguageModels;
    #[doc = include_str!("../../../docs/guide/9-mesh.md")]
    struct Mesh;
    #[doc = include_str!("../../../docs/guide/coming-from-pytorch.md")]
    struct ComingFromPyTorch;
    #[doc = include_str!("../../../docs/guide/coming-from-burn-or-candle.md")]
    struct ComingFromBurnOrCandle;
}
