//! Drivers: the vendor libraries behind the device contract.
//!
//! One folder per interface, each behind a feature that only makes a smaller binary. A library is opened at run time; a
//! missing or old one is the ordinary answer `Unavailable`. A driver takes text, binaries and bytes and **never hears
//! kernel IR**. Nearly all of Panoply's `unsafe` is here: `runtime` validates every argument before it calls.

#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
mod arguments;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
mod codes;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm"))]
mod fill;
#[cfg(feature = "rocm")]
pub mod hip;
#[cfg(feature = "oneapi")]
pub mod level_zero;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "rocm"))]
mod library;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm", feature = "wgpu"))]
mod lock;
#[cfg(feature = "oneapi")]
pub mod oneapi;
#[cfg(feature = "opencl")]
pub mod opencl;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm", feature = "wgpu"))]
mod seal;
#[cfg(any(feature = "oneapi", feature = "opencl"))]
pub mod spirv;
#[cfg(any(feature = "cuda", feature = "rocm"))]
mod stream;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm", feature = "wgpu"))]
mod table;
#[cfg(feature = "wgpu")]
pub mod wgpu;

#[cfg(feature = "wgpu")]
pub use self::wgpu::WgpuDriver;
#[cfg(feature = "cuda")]
pub use cuda::CudaDriver;
#[cfg(feature = "rocm")]
pub use hip::HipDriver;
#[cfg(feature = "oneapi")]
pub use level_zero::LevelZeroDriver;
#[cfg(feature = "oneapi")]
pub use oneapi::OneApiDriver;
#[cfg(feature = "opencl")]
pub use opencl::OpenClDriver;
