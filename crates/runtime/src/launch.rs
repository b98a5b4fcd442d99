//! Kernel launches.
//!
//! [`Launch`] is one kernel with its arguments, [`command`] a list of commands submitted together, and [`command_buffer`] a list that
//! is recorded once and replayed. All pass through `check`: the device contract validates nothing, so everything that reaches a
//! device has been validated there.

mod argument;
mod check;
pub mod command;
pub mod command_buffer;
mod grid;
pub mod group_size;
mod split_grid;
mod tuning;

use std::panic::Location;

use panoply_device::DeviceCommand;
use panoply_ir::kernel::Kernel;
use panoply_ir::{Error, Result};

pub use argument::{LaunchArg, StorageView};
pub use grid::Grid;

use crate::device::Device;
use crate::profile::entry::{ActivityKind, Entry};
use crate::program::compiled_kernel::CompiledKernel;
use crate::program::external_kernel::{self, ExternalKernel};
use crate::queue::Queue;
use crate::queue::event::Event;

/// A kernel with its arguments. Nothing runs before [`Launch::launch`].
///
/// The device is that of the buffers among the arguments, or the current device if there are none. `#[kernel]` generates a function
/// that returns a launch; without the macro:
///
/// ```
/// use panoply_ir::builder::Builder;
/// use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
/// use panoply_ir::{Alu, DType};
/// use panoply_runtime::{Buffer, Device, Launch, Result};
///
/// fn build() -> Result<Kernel> {
///     let mut b = Builder::new("double");
///     let x = b.buffer("x", DType::F32, Access::In);
///     let y = b.buffer("y", DType::F32, Access::Out);
///     let i = b.builtin(Builtin::GlobalId(0));
///     let value = b.load(x, i, Guard::Checked);
///     let sum = b.alu(Alu::Add, &[value, value]);
///     b.store(y, i, sum, Guard::Checked);
///     b.finish()
/// }
///
/// fn double<'a>(x: &'a Buffer<f32>, y: &'a mut Buffer<f32>) -> Launch<'a> {
///     Launch::new(build, vec![x.into(), y.into()])
/// }
///
/// let device = Device::auto()?;
/// let x = device.buffer(&[1.0, 2.0, 3.0])?;
/// let mut y = device.zeros(3)?;
/// double(&x, &mut y).launch(3)?;
/// assert_eq!(y.to_vec()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), panoply_runtime::Error>(())
/// ```
#[must_use = "a kernel runs when it is launched: `.launch(n)`"]
pub struct Launch<'a> {
    kernel: LaunchTarget<'a>,
    args: Vec<LaunchArg<'a>>,
    queue: Option<&'a Queue>,
    place: &'static Location<'static>,
}

/// The kernel to launch.
#[derive(Clone, Copy)]
enum LaunchTarget<'a> {
    Built(fn() -> Result<Kernel>),
    External(&'a ExternalKernel),
}

impl<'a> Launch<'a> {
    /// Creates a launch of the kernel that `build` constructs. The function identifies the kernel: it is called once per device.
    #[track_caller]
    pub fn new(build: fn() -> Result<Kernel>, args: Vec<LaunchArg<'a>>) -> Launch<'a> {
        Launch { kernel: LaunchTarget::Built(build), args, queue: None, place: Location::caller() }
    }

    /// Creates a launch of a user-supplied kernel.
    #[track_caller]
    pub fn external(kernel: &'a ExternalKernel, args: Vec<LaunchArg<'a>>) -> Launch<'a> {
        Launch { kernel: LaunchTarget::External(kernel), args, queue: None, place: Location::caller() }
    }

    /// Sets the queue to run on; without it the default queue is used.
    pub fn on(mut self, queue: &'a Queue) -> Launch<'a> {
        self.queue = Some(queue);
        self
    }

    /// Submits the kernel over a grid of work-items: `launch(n)`, `launch((nx, ny))` or `launch((nx, ny, nz))`.
    ///
    /// Returns once the work is submitted. Reading a buffer that the kernel writes waits for the work.
    ///
    /// # Errors
    /// The arguments or the grid do not fit the kernel, it does not compile, or the device rejects it.
    pub fn launch(self, grid: impl Into<Grid>) -> Result<()> {
        self.run(grid.into(), false, false).map(drop)
    }

    /// Like [`Launch::launch`], but returns an event that measures the device time.
    ///
    /// # Errors
    /// As of [`Launch::launch`].
    pub fn launch_timed(self, grid: impl Into<Grid>) -> Result<Event> {
        self.run(grid.into(), true, false)
    }

    /// Submits a kernel with properties that its author guarantees and the verifier cannot prove.
    ///
    /// # Safety
    ///
    /// With these arguments and this grid, accesses marked unchecked must stay within their buffers, and all work-items of a work-group
    /// must reach each barrier and collective.
    ///
    /// # Errors
    /// As of [`Launch::launch`].
    #[allow(unsafe_code, reason = "one of two places: it carries the promise of the kernel's author")]
    pub unsafe fn launch_unchecked(self, grid: impl Into<Grid>) -> Result<()> {
        self.run(grid.into(), false, true).map(drop)
    }

    fn run(self, grid: Grid, timed: bool, promised: bool) -> Result<Event> {
        let place = self.place;
        self.submit(grid, timed, promised)
            .map_err(|error| if error.is_mistake() { error.with_location(place) } else { error })
    }

    fn submit(self, grid: Grid, timed: bool, promised: bool) -> Result<Event> {
        let device = self.device()?;
        let prepared = match self.kernel {
            LaunchTarget::Built(build) => device.compile_fn(build)?,
            // An unchecked external kernel is rejected before any compiler or loader runs.
            LaunchTarget::External(kernel) if !promised => {
                return Err(unpromised(&kernel.name, external_kernel::UNCHECKED));
            }
            LaunchTarget::External(kernel) => device.load_external(kernel)?,
        };
        if let (Some(why), false) = (prepared.unchecked(), promised) {
            return Err(unpromised(prepared.name(), why));
        }
        let queue = match self.queue {
            None => panoply_device::QueueId::DEFAULT,
            Some(queue) if *queue.device() == device => queue.id(),
            Some(queue) => {
                return Err(Error::mistake(format!(
                    "kernel {}: its buffers are on {device}, the queue is on {}; take a queue of {device}",
                    prepared.name(),
                    queue.device()
                )));
            }
        };
        let dispatch = check::dispatch(&device, &prepared, grid, &self.args)?;
        let accesses = argument::accesses(&prepared, &self.args);
        let name = |_| entry(&prepared, grid, &self.args);
        let ticket = device.enqueue(queue, &[DeviceCommand::Dispatch(dispatch)], accesses, timed, name)?;
        Ok(Event::new(device, queue, ticket))
    }

    fn device(&self) -> Result<Device> {
        let buffer = self.args.iter().find_map(|arg| arg.view());
        buffer.map_or_else(Device::current, |view| Ok(view.storage.device().clone()))
    }
}

fn unpromised(name: &str, why: &str) -> Error {
    Error::mistake(format!("kernel {name}: {why}; launch it with `unsafe {{ … .launch_unchecked(n) }}`"))
}

/// Returns the profiler entry of the launch.
fn entry(prepared: &CompiledKernel, grid: Grid, args: &[LaunchArg<'_>]) -> Entry {
    let bytes = args.iter().filter_map(|arg| arg.view()).map(|view| view.storage.bytes()).sum();
    let flops = prepared.flops().and_then(|each| grid.0.iter().try_fold(each, |flops, axis| flops.checked_mul(*axis)));
    Entry { flops, ..Entry::new(ActivityKind::Kernel, prepared.shared_name().clone(), bytes) }
}
