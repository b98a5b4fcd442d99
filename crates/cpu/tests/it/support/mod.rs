//! Comparison of executors.

pub mod differential;
