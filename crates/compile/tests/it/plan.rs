//! Plans against the graph interpreter: the results of a plan, and its number of kernels.
//!
//! Kernels are executed by the kernel interpreter, which shares no code with lowering. An observer fails on any access
//! out of bounds and on index arithmetic that wraps.

mod attention;
mod build;
mod counts;
mod custom_kernel;
mod donation;
mod execute;
mod fragments;
mod linear;
mod operands;
mod optimized;
mod random;
mod values;
mod variants;
