//! The contract over an interface of streams, events and modules, which CUDA's driver library and AMD's HIP have in common.
//!
//! HIP was made after CUDA: their functions have the same arguments under other names, so there is one table of them ([`functions`])
//! and one driver over it. What the two do differently is [`vendor`], and a folder for each: which library, which devices, how a
//! thread makes a device its own, and how text becomes machine code.
//!
//! In the order of a program's life: `discovery` (which devices are here) → `device` (the contract) → `program` (text to a module) →
//! `submit` (steps to work on a stream) → `queue` and `ticket` (who waits for what); `graph` (command buffers as the driver's graphs); `product` and
//! `products` (matrix products by a vendor's libraries) over `blaslt` (cuBLASLt and hipBLASLt).
//!
//! Invariants: a device is made the thread's own for the length of a call, and what was before is put back after it
//! ([`handles::Context`]); an id is looked up before it is used; pinned memory that a copy touches is kept until the event behind the
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
