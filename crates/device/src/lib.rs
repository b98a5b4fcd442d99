//! The contract that every Panoply device implements, and the suite that tests it.
//!
//! A device receives **programs and bytes, not operations**: it allocates memory, accepts programs, and executes lists of
//! [`DeviceCommand`]s. It knows nothing of tensors, and only the CPU's driver uses the kernel IR. `runtime` validates everything before
//! it calls a device; a device validates nothing. Its errors cover only conditions that the caller cannot predict: out of memory, a
//! lost device, a compile error.
//!
//! In reading order: [`info`] (device properties), [`program`] and [`host`] (programs), [`host_bytes`] and [`aligned_buffer`] (memory used in place), [`command`] and [`command_buffer`] (commands,
//! executed once and repeatedly), [`driver_api`] (the traits), [`wire`] (messages between processes), [`null`] (a device that records
//! commands without computing), [`conformance`] (the conformance suite).

#![deny(unsafe_code)]

pub mod aligned_buffer;
pub mod command;
pub mod command_buffer;
pub mod conformance;
pub mod driver_api;
pub mod host;
pub mod host_bytes;
pub mod info;
pub mod null;
pub mod program;
pub mod wire;

pub use aligned_buffer::AlignedBuffer;
pub use command::{AllocId, Arg, DeviceCommand, Dispatch, Epilogue, GridPart, Peer, ProgramId, QueueId, Region};
pub use command_buffer::RawCommandBuffer;
pub use driver_api::{Driver, Pending, RawDevice, StepTime, Ticket};
pub use host::{HostCall, HostFunction};
pub use host_bytes::HostBytes;
pub use info::{Backend, DeviceInfo, MemoryInfo};
/// The parts of the IR that drivers use: plain descriptions, not kernels.
pub use panoply_ir::{
    DType, Error, ErrorKind, Result, Scalar, Target, Type,
    routine::{Gemm, Layout, Routine},
    target::{Language, Style},
};
pub use program::{BinaryFormat, Image, ParamType, Program, ProgramForm, Signature, SourceText};
pub use wire::Wire;
