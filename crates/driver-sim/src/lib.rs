//! Test-only stand-ins for vendor libraries: a `libcuda` that computes, a `libamdhip64` that computes if clang is
//! here, and a `libze_loader` that computes if Intel's CPU runtime for OpenCL is.
//!
//! As a shared library this answers NVIDIA's driver API ([`cuda`]): devices that are asked for in the environment, memory as host
//! bytes, streams whose work is done as late as the API allows, events, and modules of PTX text, which an interpreter runs ([`ptx`]).
//! The interpreter was written from NVIDIA's *PTX ISA* and shares nothing with the renderer it checks; what it does not know it
//! refuses with the line. It answers AMD's HIP as well ([`hip`]), over the same memory, streams and events; kernels of HIP are checked, and
//! executed on request by clang for the host. And it answers Level Zero ([`level_zero`]), whose SPIR-V Intel's CPU runtime for OpenCL
//! executes where it is here. Beside a driver's library it answers cuBLASLt, hipBLASLt and rocBLAS ([`blas`]). Calls are counted, and fail on request ([`Control`]).
//!
//! As a Rust library it only says where the shared one is and steers it. No program that ships depends on it.

mod blas;
mod control;
mod cuda;
mod hip;
mod level_zero;
mod ptx;

pub use control::{Control, library};
