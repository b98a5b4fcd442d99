//! Plans against the graph interpreter: what a plan computes, and how many kernels it takes.
//!
//! Kernels are executed by the kernel interpreter, which shares nothing with the lowering, under an observer that fails on
//! any access beyond a buffer and on index arithmetic that wraps.

mod attention;
mod build;
mod counts;
mod custom_kernel;
mod donation;
mod execute;
mod fragments;
mod operands;
mod optimized;
mod random;
mod values;
mod variants;
