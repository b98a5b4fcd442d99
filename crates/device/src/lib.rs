//! The contract every Panoply device implements, and the suite that checks it.
//!
//! A device receives **programs and bytes, never operations**: it allocates memory, takes programs, and runs lists of
//! [`Step`]s. It never hears "tensor", and a driver never hears "kernel IR" (only the CPU takes it). `runtime` validates
//! everything before it calls; a device validates nothing and says so, and its errors cover only what the caller could
//! not know: out of memory, a lost device, a compiler's refusal.
//!
//! In reading order: [`info`] (which device this is), [`program`] and [`host`] (what it is given to run), [`step`] and [`tape`] (what it is asked
//! to do, once and many times), [`contract`] (the traits), [`null`] (a device that records and computes nothing), [`conformance`] (everything
//! an implementation must do, as tests that are given a renderer).

#![deny(unsafe_code)]

pub mod conformance;
pub mod contract;
pub mod host;
pub mod info;
pub mod null;
pub mod program;
pub mod step;
pub mod tape;

pub use contract::{Device, Driver, Pending, StepTime, Ticket};
pub use host::{HostCall, HostFunction};
pub use info::{DeviceInfo, Kind, MemoryInfo};
/// What a driver needs of the IR: plain descriptions, never a kernel.
pub use panoply_ir::{
    DType, Error, ErrorKind, Result, Scalar, Target, Type,
    routine::{Gemm, Layout, Routine},
    target::{Language, Style},
};
pub use program::{Form, Format, Image, ParamType, Program, Signature, SourceText};
pub use step::{AllocId, Arg, Dispatch, Epilogue, Part, Peer, ProgramId, QueueId, Region, Step};
pub use tape::Tape;
