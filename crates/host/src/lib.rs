//! The CPU that Panoply runs on: instruction sets, vectors, math functions, threads. It knows no operation and no device.
//!
//! Modules in reading order:
//! - [`isa`]: instruction sets, and how one text is compiled for each of them.
//! - [`simd`]: vectors of an instruction set.
//! - [`math`]: scalar math functions that LLVM vectorizes; [`half`]: conversions of 16-bit floats.
//! - [`pool`]: the thread pool; [`scratch`]: its scratch memory; [`huge_pages`]: memory in huge pages.
//! - [`host_info`] and [`peak`]: properties of the machine.

pub mod half;
pub mod host_info;
pub mod huge_pages;
pub mod isa;
pub mod lane_sums;
pub mod math;
pub mod peak;
pub mod pool;
pub mod scratch;
pub mod simd;
