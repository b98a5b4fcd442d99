//! The CPU backend of Panoply.
//!
//! It executes the kernel IR directly and needs no compiler at run time. Modules in reading order:
//! - [`device`]: implementation of the device traits.
//! - [`vm`]: the vector machine that runs kernels.
//! - [`checked`]: the checking interpreter behind the device `cpu:checked`.
//! - [`memory`]: device memory.
//!
//! Threads, instruction sets and math functions are those of [`panoply_host`]; operations written by hand are in [`panoply_routines`].

#[cfg(target_endian = "big")]
compile_error!("slots are written as 64 bits and read through their low bytes, which requires a little-endian target");

pub mod checked;
mod command_buffer;
pub mod device;
mod file_map;
pub mod memory;
pub mod vm;

pub use device::{CpuDevice, CpuDriver, CpuOptions};
pub use file_map::map_file;
