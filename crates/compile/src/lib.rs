//! From tensor graphs to kernels, and from kernels to text.

#![forbid(unsafe_code)]

pub mod lower;
pub mod opt;
pub mod plan;
pub mod render;
pub mod schedule;
