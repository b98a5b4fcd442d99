//! Lowers tensor graphs to kernels, and renders kernels as source text or assembly.
//!
//! Two pipelines, each made of a few pure functions over plain data:
//!
//! * **Graph to kernels** ([`plan`]): a tensor graph is divided into steps ([`schedule`], the only module that decides
//!   fusion). Each step becomes a loop nest, whose axes are mapped to the target and lowered to kernel IR ([`lower`]).
//! * **Kernel to text**: passes optimize a kernel without changing its semantics ([`opt`]), and a renderer writes it in
//!   the language of a device ([`render`]). Devices that execute the IR directly need no text.
//!
//! This crate does not depend on devices, buffers or files; a device is described only by its `Target`.

#![deny(unsafe_code)]

mod library_kernels;
pub mod lower;
pub mod opt;
pub mod plan;
mod proven;
pub mod render;
pub mod schedule;
