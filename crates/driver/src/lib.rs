//! Drivers: the vendor libraries behind the device contract.
//!
//! One folder per API, each behind a feature that only reduces the size of the binary. A library is opened at run time; a missing or
//! outdated one is the ordinary error `Unavailable`. A driver takes source text, binaries and bytes and **never sees kernel IR**. Nearly
//! all of Panoply's `unsafe` is here: `runtime` validates every argument before the call.

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
