//! The contract every Panoply device implements, and the suite that checks it.
//!
//! A device receives **programs and bytes, never operations**: it allocates memory, takes programs, and runs lists of
//! [`DeviceCommand`]s. It never hears "tensor", and a driver never hears "kernel IR" (only the CPU takes it). `runtime` validates
//! everything before it calls; a device validates nothing and says so, and its errors cover only what the caller could
//! not know: out of memory, a lost device, a compiler's refusal.
//!
//! In reading order: [`info`] (which device this is), [`program`] and [`host`] (what it is given to run), [`command`] and [`command_buffer`] (what it is asked
//! to do, once and many times), [`driver_api`] (the traits), [`wire`] (messages between processes), [`null`] (a device that records and computes nothing), [`conformance`] (everything
//! an implementation must do, as tests that are given a renderer).

#![deny(unsafe_code)]

pub mod command;
pub mod command_buffer;
pub mod conformance;
pub mod driver_api;
pub mod host;
pub mod info;
pub mod null;
pub mod program;
pub mod wire;

pub use command::{AllocId, Arg, DeviceCommand, Dispatch, Epilogue, GridPart, Peer, ProgramId, QueueId, Region};
pub use command_buffer::RawCommandBuffer;
pub use driver_api::{Driver, Pending, RawDevice, StepTime, Ticket};
pub use host::{HostCall, HostFunction};
pub use info::{Backend, DeviceInfo, MemoryInfo};
/// What a driver needs of the IR: plain descriptions, never a kernel.
pub use panoply_ir::{
    DType, Error, ErrorKind, Result, Scalar, Target, Type,
    routine::{Gemm, Layout, Routine},
    target::{Language, Style},
};
pub use program::{BinaryFormat, Image, ParamType, Program, ProgramForm, Signature, SourceText};
pub use wire::Wire;
