//! The two program representations of Panoply, and the reference interpreters that define their semantics.
//!
//! A **graph** ([`graph`]) is a program over tensors; a **kernel** ([`kernel`]) is the program of one work-item of a device. `compile`
//! lowers graphs to kernels. `tensor` builds graphs, and devices run kernels. This crate accesses no device, file or environment
//! variable; everything is plain data.
//!
//! The modules, from graph to kernel: [`dtype`] and [`alu`] (element types and scalar operations), [`shape`], [`graph`],
//! [`custom_kernel`] (user-written kernels as graph nodes), [`graph_interpret`] (the graph's semantics in f64), [`target`] (device
//! capabilities), [`math_mode`] (allowed floating-point transformations), [`builder`] → [`kernel`] (with [`collective`]) → [`verify`] →
//! [`text`], [`strides`] (access analysis), [`interpret`] (the kernel's semantics, one work-group at a time), [`random`] (random kernels
//! for testing executors). [`quant`] decodes quantized weights. [`error`] is the common error type.

#![deny(unsafe_code)]

pub mod accuracy;
pub mod alu;
pub mod builder;
pub mod collective;
pub mod custom_kernel;
pub mod dtype;
pub mod error;
pub mod flops;
pub mod graph;
pub mod graph_interpret;
pub mod graph_verify;
pub mod interpret;
pub mod kernel;
pub mod math_mode;
pub mod polynomials;
pub mod quant;
pub mod random;
pub mod reduce;
pub mod routine;
pub mod shape;
pub mod strides;
pub mod target;
pub mod text;
pub mod verify;

pub use alu::{Alu, Math};
pub use dtype::{DType, Element, Scalar, Type};
pub use error::{Error, ErrorKind, Result};
pub use half::{bf16, f16};
pub use math_mode::MathMode;
pub use quant::{Encoding, INTERLEAVED_ROWS};
pub use shape::Shape;
pub use target::Target;
pub use text::hash;
pub use verify::Verified;
