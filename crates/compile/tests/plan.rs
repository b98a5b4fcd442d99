//! Plans against the graph interpreter: what a plan computes, and how many kernels it takes.
//!
//! Kernels are executed by the kernel interpreter, which shares nothing with the lowering, under an observer that fails on
//! any access beyond a buffer and on index arithmetic that wraps.

#[path = "plan/attention.rs"]
mod attention;
#[path = "plan/build.rs"]
mod build;
#[path = "plan/counts.rs"]
mod counts;
#[path = "plan/custom_kernel.rs"]
mod custom_kernel;
#[path = "plan/donation.rs"]
mod donation;
#[path = "plan/execute.rs"]
mod execute;
#[path = "plan/fragments.rs"]
mod fragments;
#[path = "plan/operands.rs"]
mod operands;
#[path = "plan/optimized.rs"]
mod optimized;
#[path = "plan/random.rs"]
mod random;
#[path = "plan/values.rs"]
mod values;
#[path = "plan/variants.rs"]
mod variants;
