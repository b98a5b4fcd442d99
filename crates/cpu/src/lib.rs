//! The CPU as a Panoply device.
//!
//! It takes the kernel IR itself and needs no compiler at run time. In reading order: [`device`] (the contract's side),
//! [`vm`] (the vector machine that runs kernels), [`math`] (scalar functions that become vector code), [`pool`] (the
//! threads), [`routine`] (matrix products, convolution, attention, copies) on [`simd`], [`checked`] (the interpreter, watched: the device `cpu:checked`),
//! [`memory`], [`host_info`] and [`peak`] (what the machine has).

#[cfg(target_endian = "big")]
compile_error!(
    "slots are written as 64 bits and read by their low bytes, which come first only in little-endian order"
);

pub mod checked;
mod command_buffer;
pub mod device;
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
