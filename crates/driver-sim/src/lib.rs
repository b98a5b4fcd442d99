//! Test-only simulations of vendor libraries: a `libcuda` that executes kernels, a `libamdhip64` that executes them if clang is installed,
//! and a `libze_loader` that executes them if Intel's CPU runtime for OpenCL is installed.
//!
//! As a shared library this implements NVIDIA's driver API ([`cuda`]): devices as configured in the environment, memory as host bytes,
//! streams whose work is executed as late as the API allows, events, and modules of PTX text, which an interpreter runs ([`ptx`]). The
//! interpreter was written from NVIDIA's *PTX ISA* and shares nothing with the renderer that it checks; it rejects unknown syntax with the
//! line. The library also implements AMD's HIP ([`hip`]), with the same memory, streams and events; HIP kernels are checked, and executed
//! on request by clang for the host. And it implements Level Zero ([`level_zero`]), whose SPIR-V is executed by Intel's CPU runtime for
//! OpenCL if it is installed. Beside the driver APIs it implements cuBLASLt, hipBLASLt and rocBLAS ([`blas`]). Calls are counted, and fail
//! on request ([`Control`]).
//!
//! As a Rust library it only locates the shared library and controls it. No shipped program depends on it.

mod blas;
mod control;
mod cuda;
mod hip;
mod level_zero;
mod ptx;

pub use control::{Control, library};
