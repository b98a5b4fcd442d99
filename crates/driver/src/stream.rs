//! The device contract on an API of streams, events and modules, which CUDA's driver library and AMD's HIP have in common.
//!
//! HIP is modeled on CUDA: its functions have the same arguments under other names, so there is one function table ([`functions`]) and one
//! driver on it. Differences are in [`vendor`] and in a folder per vendor: the library, device discovery, making a device current on a
//! thread, and compilation to machine code.
//!
//! Modules in the order of a program's life: `discovery` (usable devices) → `device` (the device contract) → `program` (source text to a
//! module) → `submit` (commands to a stream) → `queue` and `ticket` (synchronization); `graph` (command buffers as the driver's graphs);
//! `blas` and `blas_gemm` (matrix products by a vendor's libraries) over `blaslt` (cuBLASLt and hipBLASLt).
//!
//! Invariants: a device is current on the thread for the duration of a call, and the previous one is restored after it
//! ([`handles::Context`]); an id is looked up before it is used; pinned memory that a copy accesses is kept until the event behind the
//! copy. Locks are taken in the order tables, queue, pools.

pub mod blas;
pub mod blas_gemm;
pub mod blaslt;
pub mod compiler;
pub mod device;
pub mod discovery;
pub mod functions;
mod graph;
pub mod handles;
mod memory;
pub mod program;
pub mod queue;
mod submit;
mod ticket;
pub mod vendor;
