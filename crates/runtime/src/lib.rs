//! Discovers devices, manages their memory and runs kernels on it.
//!
//! The device contract validates nothing, so **this crate validates every argument** once, before it calls a device. Its interface
//! consists of kernels, bytes and numbers; tensors are a concept of the crates above.
//!
//! ```
//! use panoply_runtime::Device;
//!
//! let device = Device::auto()?;
//! let x = device.buffer(&[1.0f32, 2.0, 3.0])?;
//! assert_eq!(x.to(&device)?.to_vec()?, [1.0, 2.0, 3.0]);
//! # Ok::<(), panoply_runtime::Error>(())
//! ```
//!
//! The modules, in the order in which a launch passes through them: [`selection`] (device discovery and choice), [`device`] (the
//! handle), [`memory`] (pool, storage, buffers), [`program`] (compilation and caching), [`launch`] (argument checks), [`queue`]
//! (ordering and hazards), [`profile`] (timing). [`mod@env`] reads the environment, [`ranks`] connects to the other processes of an
//! MPI launcher.

#![deny(unsafe_code)]

mod build_profile;
pub mod byte_size;
pub mod device;
pub mod env;
pub mod launch;
pub mod log;
pub mod memory;
mod parallel;
pub mod profile;
pub mod program;
pub mod queue;
pub mod ranks;
pub mod selection;

pub use build_profile::OPT_LEVEL;
pub use device::{Device, DeviceOptions};
pub use launch::command::{Command, Epilogue};
pub use launch::command_buffer::CommandBuffer;
pub use launch::{Grid, Launch, LaunchArg, StorageView};
pub use memory::buffer::{AsBuffer, AsBufferMut, Buffer, BufferSlice, BufferSliceMut};
pub use memory::stats::{MemoryEstimate, MemoryStats, TaggedMemory};
pub use memory::storage::Storage;
pub use panoply_cpu::map_file;
pub use panoply_device::command_buffer::{BindingKind, BindingSlot};
pub use panoply_device::conformance::CaseResult;
pub use panoply_device::{AlignedBuffer, Backend, DeviceInfo, Driver, HostBytes, HostCall, MemoryInfo};
#[doc(hidden)]
pub use panoply_driver::library_search;
#[doc(hidden)]
pub use panoply_host::huge_pages::{large_vec, prefer_huge_pages};
pub use panoply_ir::{Element, Error, ErrorKind, MathMode, Result};
#[doc(hidden)]
pub use parallel::parallel_map;
pub use profile::Profiler;
pub use profile::report::{ActivityKind, ActivitySummary, ProfileReport, SpanSummary};
pub use program::compiled_kernel::{CompiledKernel, Parameter, ParameterKind};
pub use program::compiler::ProgramCacheStats;
pub use program::external_kernel::ExternalKernel;
pub use queue::Queue;
pub use queue::event::Event;
pub use queue::readback::Readback;
pub use ranks::wire;
pub use selection::registry::Registry;
#[cfg(all(feature = "wgpu", target_family = "wasm"))]
pub use selection::registry::request_webgpu_device;
pub use selection::report::{BackendReport, DeviceReport, Rejection, device_report};
pub use selection::select::{SelectedBy, Selection, select_device};
