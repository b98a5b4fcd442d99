//! Drivers: the vendor libraries behind the device contract.
//!
//! One folder per interface, each behind a feature that only makes a smaller binary. A library is opened at run time; a
//! missing or old one is the ordinary answer `Unavailable`. A driver takes text, binaries and bytes and **never hears
//! kernel IR**. Nearly all of Panoply's `unsafe` is here: `runtime` validates every argument before it calls.

#[cfg(all(any(feature = "cuda", feature = "oneapi", feature = "rocm"), not(target_family = "wasm")))]
mod arguments;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm", feature = "wgpu"))]
mod binary_checksum;
#[cfg(all(feature = "cuda", not(target_family = "wasm")))]
pub mod cuda;
#[cfg(all(any(feature = "cuda", feature = "oneapi", feature = "rocm"), not(target_family = "wasm")))]
mod error_codes;
#[cfg(all(
    any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm"),
    not(target_family = "wasm")
))]
mod fill;
#[cfg(all(feature = "rocm", not(target_family = "wasm")))]
pub mod hip;
#[cfg(all(feature = "oneapi", not(target_family = "wasm")))]
pub mod level_zero;
#[cfg(all(
    any(feature = "cuda", feature = "oneapi", feature = "rocm", all(feature = "mpi", unix)),
    not(target_family = "wasm")
))]
mod library;
pub mod library_search;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm", feature = "wgpu"))]
mod lock;
#[cfg(all(feature = "mpi", unix))]
pub mod mpi;
#[cfg(all(feature = "oneapi", not(target_family = "wasm")))]
pub mod oneapi;
#[cfg(all(feature = "opencl", not(target_family = "wasm")))]
pub mod opencl;
#[cfg(all(any(feature = "oneapi", feature = "opencl"), not(target_family = "wasm")))]
pub mod spirv;
#[cfg(any(feature = "oneapi", feature = "opencl", feature = "wgpu"))]
mod spirv_words;
#[cfg(all(any(feature = "cuda", feature = "rocm"), not(target_family = "wasm")))]
mod stream;
#[cfg(any(feature = "cuda", feature = "oneapi", feature = "opencl", feature = "rocm", feature = "wgpu"))]
mod table;
#[cfg(feature = "wgpu")]
pub mod wgpu;

#[cfg(all(feature = "wgpu", target_family = "wasm"))]
pub use self::wgpu::BrowserDriver;
#[cfg(feature = "wgpu")]
pub use self::wgpu::WgpuDriver;
#[cfg(all(feature = "cuda", not(target_family = "wasm")))]
pub use cuda::CudaDriver;
#[cfg(all(feature = "rocm", not(target_family = "wasm")))]
pub use hip::HipDriver;
#[cfg(all(feature = "oneapi", not(target_family = "wasm")))]
pub use level_zero::LevelZeroDriver;
#[cfg(all(feature = "oneapi", not(target_family = "wasm")))]
pub use oneapi::OneApiDriver;
#[cfg(all(feature = "opencl", not(target_family = "wasm")))]
pub use opencl::OpenClDriver;
