//! From tensor graphs to kernels, and from kernels to text.
//!
//! Two pipelines, each a few pure functions over plain data:
//!
//! * **graph to kernels** ([`plan`]): a tensor graph is divided into steps ([`schedule`], the only place where anything is
//!   fused), each step becomes a loop nest, its axes are mapped to the target, and it becomes kernel IR ([`lower`]);
//! * **kernel to text**: passes make a kernel cheaper without changing what it means ([`opt`]), and a renderer writes it in
//!   the language of a device ([`render`]). Devices that take the IR itself need no text.
//!
//! Nothing here knows a device, a buffer or a file: all that is known of a device is its `Target`.

#![deny(unsafe_code)]

mod library_kernels;
pub mod lower;
pub mod opt;
pub mod plan;
mod proven;
pub mod render;
pub mod schedule;
