//! The CPU backend of Panoply.
//!
//! It executes the kernel IR directly and needs no compiler at run time. Modules in reading order:
//! - [`device`]: implementation of the device traits.
//! - [`vm`]: the vector machine that runs kernels.
//! - [`math`]: scalar math functions that LLVM vectorizes.
//! - [`pool`]: the thread pool.
//! - [`routine`]: matrix products, convolution, attention, linear algebra and copies, built on [`simd`].
//! - [`checked`]: the checking interpreter behind the device `cpu:checked`.
//! - [`memory`]: device memory; [`host_info`] and [`peak`]: properties of the machine.

#[cfg(target_endian = "big")]
compile_error!("slots are written as 64 bits and read through their low bytes, which requires a little-endian target");

pub mod checked;
mod command_buffer;
pub mod device;
mod file_map;
pub mod host_info;
mod huge_pages;
pub mod math;
pub mod memory;
pub mod peak;
pub mod pool;
pub mod routine;
mod scratch;
pub mod simd;
pub mod vm;

pub use device::{CpuDevice, CpuDriver, CpuOptions};
pub use file_map::map_file;
