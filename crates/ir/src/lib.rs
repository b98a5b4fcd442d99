//! The two program representations of Panoply, and the oracles that say what they mean.
//!
//! A **graph** ([`graph`]) says what a user asked for; a **kernel** ([`kernel`]) says what one work-item of a device does.
//! Between them stands `compile`, above the graph `tensor`, below the kernel the devices. Nothing here touches a device,
//! a file or the environment; everything is plain data.
//!
//! In the order the data flows: [`dtype`] and [`alu`] (elements and what can be done to one), [`shape`], [`graph`],
//! [`custom_kernel`] (an author's kernel in it), [`graph_interpret`] (its
//! meaning in f64), [`target`] (what a device can do), [`math_mode`] (what a user lets it do), [`builder`] → [`kernel`] (with [`collective`]) →
//! [`verify`] → [`text`], [`strides`] (who touches what), and [`interpret`] (the kernel's meaning, one group at a time), [`random`] (kernels for
//! executors to agree on). [`quant`] decodes packed weights. [`error`] is the one error.

#![deny(unsafe_code)]

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
pub use quant::Encoding;
pub use shape::Shape;
pub use target::Target;
pub use text::hash;
pub use verify::Verified;
