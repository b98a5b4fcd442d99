//! Tasks on several devices, and distributed training in several processes.
//!
//! A program spawns *tasks* that read and write regions of data. Tasks whose regions overlap run in program order; the
//! others run concurrently, each on a device of its scope. Results equal those of [`Mesh::serial`], which runs the
//! same program on one device in order.
//!
//! ```
//! use panoply_mesh::{In, InOut, Mesh, Out};
//! use panoply_tensor::Tensor;
//!
//! let mesh = Mesh::open()?;
//! let a = mesh.data(&Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4]))?;
//! let sum = mesh.data(&Tensor::from_slice(&[0.0f32], [1]))?;
//! let sums = mesh.within("cpu,cpu:checked", |m| {
//!     m.spawn("left", InOut(a.view((..2,))?), |x| *x = &*x + 1.0)?;
//!     m.spawn("right", InOut(a.view((2..,))?), |x| *x = &*x * 2.0)?; // concurrently
//!     m.spawn("sum", (In(&a), Out(&sum)), |(x, sum)| *sum = x.sum(..).unsqueeze(0))?; // waits for both
//!     m.fetch(&sum)
//! })?;
//! assert_eq!(sums.to_vec::<f32>()?, [2.0 + 3.0 + 6.0 + 8.0]);
//! # Ok::<(), panoply_tensor::Error>(())
//! ```
//!
//! In reading order: [`span`] (a region along one axis), [`data`] (shared data), [`arguments`] (access by tasks),
//! [`kernel_task`] (kernels as tasks), [`scope`] (device scopes), [`mesh`] (the handle), `graph` (dependencies between tasks),
//! `engine` (threads that run tasks), [`mod@array`] (distributed arrays), [`group`] (the processes of a launcher, or the threads of [`thread_wire`]), [`launch`]
//! (starts these processes), `events` and [`timeline`] (what all ranks did when), `waits` (reports of long waits).

#![forbid(unsafe_code)]

pub mod arguments;
pub mod array;
pub mod data;
mod engine;
mod events;
mod graph;
pub mod group;
mod history;
pub mod kernel_task;
pub mod launch;
pub mod mesh;
mod move_counter;
pub mod place;
pub mod scope;
pub mod span;
pub mod thread_wire;
pub mod timeline;
mod waits;

pub use arguments::{Arguments, In, InOut, Out};
pub use array::{DArray, Layout};
pub use data::{Data, Future, View};
pub use group::RankGroup;
pub use kernel_task::{KernelArgument, KernelArguments};
pub use launch::MpiLauncher;
pub use mesh::{Mesh, Moves};
pub use place::Place;
pub use scope::Scope;
pub use span::Span;
pub use thread_wire::ThreadWire;
pub use timeline::{Timeline, TimelineRecording};
