//! Finding devices, and running kernels on their buffers.
//!
//! The device contract validates nothing; **everything is validated here**, once, before a device hears of it. What crosses this
//! crate is kernels, bytes and numbers; it never hears "tensor".
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
//! In the order in which a launch passes through: [`choice`] (which devices are here, which is taken and why), [`device`] (the
//! handle), [`memory`] (pool, storage, buffers), [`program`] (kernels to programs, cached), [`launch`] (arguments checked),
//! [`queue`] (order and hazards), [`profile`] (where the time went). [`mod@env`] reads the environment.

#![deny(unsafe_code)]

pub mod bytes;
pub mod choice;
pub mod device;
pub mod env;
pub mod launch;
pub mod log;
pub mod memory;
pub mod profile;
pub mod program;
pub mod queue;

pub use choice::registry::Registry;
#[cfg(all(feature = "wgpu", target_family = "wasm"))]
pub use choice::registry::open_browser;
pub use choice::report::{Backend, Refusal, Report, report};
pub use choice::select::{How, Selection, select};
pub use device::{Device, DeviceOptions};
pub use launch::record::Recorded;
pub use launch::work::{Epilogue, Work};
pub use launch::{Grid, Launch, LaunchArg, StorageView};
pub use memory::buffer::{AsBuffer, AsBufferMut, Buffer, View, ViewMut};
pub use memory::stats::{Estimate, Holder, Stats};
pub use memory::storage::Storage;
pub use panoply_device::conformance::Verdict;
pub use panoply_device::tape::{Place, Source};
pub use panoply_device::{DeviceInfo, Driver, HostCall, Kind, MemoryInfo};
#[doc(hidden)]
pub use panoply_driver::loader;
pub use panoply_ir::{Accuracy, Element, Error, ErrorKind, Result};
pub use profile::Profile;
pub use profile::report::{ProfileReport, SpanSummary, What, WorkSummary};
pub use program::compiler::ProgramCounts;
pub use program::package::Package;
pub use program::prepared::{Parameter, ParameterKind, Prepared};
pub use queue::Queue;
pub use queue::event::Event;
pub use queue::reading::Reading;
