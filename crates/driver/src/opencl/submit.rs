//! Encodes and enqueues commands.

use std::ptr;
use std::sync::Arc;

use cl3::command_queue::{
    enqueue_copy_buffer, enqueue_fill_buffer, enqueue_marker_with_wait_list, enqueue_nd_range_kernel,
    enqueue_read_buffer,
};
use cl3::error_codes::CL_INVALID_WORK_GROUP_SIZE;
use cl3::info_type::InfoType;
use cl3::kernel::{CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_WORK_GROUP_SIZE, get_kernel_work_group_info};
use cl3::types::{CL_NON_BLOCKING, cl_device_id, cl_event};
use panoply_device::{DeviceCommand, Dispatch, Error, ErrorKind, Region, Result, Ticket};

use super::errors::ErrorPhase;
use super::handles::{Buffer, Event, Shared};
use super::memory::Allocation;
use super::program::Program;
use super::queue::Queue;
use super::ticket::Submitted;
use crate::fill::parts;
use crate::lock::locked;
use crate::table::Table;

/// The objects behind a device's ids.
#[derive(Default)]
pub struct Tables {
    /// Programs.
    pub programs: Table<Arc<Program>>,
    /// Buffers.
    pub memory: Table<Arc<Allocation>>,
    /// Queues, by position.
    pub queues: Vec<Arc<Queue>>,
}

/// Enqueues the commands of one submission.
pub struct Encoder<'a> {
    /// The queue to enqueue to.
    pub queue: &'a Arc<Queue>,
    /// The device's buffers and programs.
    pub tables: &'a Tables,
    /// The device.
    pub device: cl_device_id,
    /// Required alignment in bytes of the start of a sub-buffer.
    pub base_align: u64,
    /// Events that the next command waits for.
    pub waits: Vec<Event>,
    /// The last command.
    pub last: Option<Event>,
    /// Number of enqueued commands.
    pub commands: u32,
}

impl Encoder<'_> {
    /// Enqueues the commands; with `timed` the ticket holds the time of each one.
    pub fn run(mut self, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let mut times = Vec::new();
        for step in steps {
            let before = self.commands;
            let done = self.step(step);
            if let Err(error) = done {
                // Commands that were already enqueued run, so the queue must count them.
                self.queue.enqueued(self.commands)?;
                return Err(error);
            }
            if timed {
                let event = self.last.as_ref().filter(|_| self.commands > before);
                times.push(event.map(Event::another));
            }
        }
        if self.last.is_none() || !self.waits.is_empty() {
            self.marker()?;
        }
        self.queue.enqueued(self.commands)?;
        let Some(last) = self.last else { return Ok(Ticket::Done) };
        Ok(Ticket::Pending(Arc::new(Submitted::new(self.queue.clone(), last, times, None))))
    }

    fn step(&mut self, step: &DeviceCommand) -> Result<()> {
        match step {
            DeviceCommand::Dispatch(dispatch) => self.dispatch(dispatch),
            DeviceCommand::Copy { from, to } => self.copy(from, to),
            DeviceCommand::Fill { to, pattern } => self.fill(to, pattern),
            DeviceCommand::Wait(Ticket::Done) => Ok(()),
            DeviceCommand::Wait(Ticket::Pending(pending)) => {
                let shared = self.shared();
                let event = shared.tickets.event(pending.token()).ok_or_else(|| {
                    Error::mistake(format!("{}: the ticket to wait for belongs to another device", shared.label))
                })?;
                self.waits.push(event);
                Ok(())
            }
            DeviceCommand::Routine(routine, ..) => {
                Err(Error::unsupported(format!("{}: supports no library routine: {routine:?}", self.shared().label)))
            }
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<()> {
        let program =
            self.tables.programs.get(dispatch.program.0).ok_or_else(|| {
                Error::mistake(format!("{}: {:?} was released", self.shared().label, dispatch.program))
            })?;
        let mut kernel = locked(&program.kernel);
        kernel.set_arguments(&program.signature, dispatch, &self.tables.memory, self.base_align)?;
        let (grid, group) = (dispatch.grid, dispatch.group_size.map(|size| size as usize));
        // The global size is rounded up to whole work-groups; the requested grid size is passed as an argument.
        let whole = |i: usize| usize::try_from(grid[i]).ok()?.div_ceil(group[i].max(1)).checked_mul(group[i]);
        let (Some(x), Some(y), Some(z)) = (whole(0), whole(1), whole(2)) else {
            return Err(Error::unsupported(format!(
                "{}: a grid of {grid:?} is too large; split it",
                self.shared().label
            )));
        };
        let global = [x, y, z];
        let axes = (1..3).rfind(|i| global[*i] > 1).map_or(1, |i| i + 1) as u32;
        let waits = self.wait_list();
        // SAFETY: kernel and queue are live and of one context; the lock protects the arguments set here; the lists outlive the call and
        // have the lengths that are passed.
        let event = unsafe {
            enqueue_nd_range_kernel(
                self.queue.handle().raw(),
                kernel.handle().raw(),
                axes,
                ptr::null(),
                global.as_ptr(),
                group.as_ptr(),
                waits.count(),
                waits.start(),
            )
        };
        let event = event.map_err(|code| self.not_launched(program, kernel.handle().raw(), dispatch, code))?;
        self.enqueued(event)
    }

    #[cold]
    fn not_launched(&self, program: &Program, kernel: cl3::types::cl_kernel, dispatch: &Dispatch, code: i32) -> Error {
        let (entry, group) = (&program.entry, dispatch.group_size);
        let fixed = get_kernel_work_group_info(kernel, self.device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
        if let (CL_INVALID_WORK_GROUP_SIZE, Ok(InfoType::VecSize(fixed))) = (code, fixed)
            && let [fx, fy, fz] = fixed[..]
            && fx != 0
            && [fx, fy, fz] != group.map(|size| size as usize)
        {
            let (label, [x, y, z]) = (&self.shared().label, group);
            return Error::mistake(format!(
                "{label}: {entry} has groups of {fx}×{fy}×{fz} in its source and {x}×{y}×{z} in the launch; make them equal"
            ));
        }
        let doing = format!("launching {entry} over {:?} in groups of {group:?}", dispatch.grid);
        let error = self.shared().failed(doing, code, ErrorPhase::Asking);
        match get_kernel_work_group_info(kernel, self.device, CL_KERNEL_WORK_GROUP_SIZE) {
            Ok(InfoType::Size(most)) if error.kind() != ErrorKind::DeviceLost => {
                error.note(format!("groups of {entry} have at most {most} work-items on this device"))
            }
            _ => error,
        }
    }

    fn copy(&mut self, from: &Region, to: &Region) -> Result<()> {
        let (source, target) = (self.buffer(from)?, self.buffer(to)?);
        if from.bytes == 0 {
            return Ok(());
        }
        let waits = self.wait_list();
        let (at, offset, bytes) = (from.offset as usize, to.offset as usize, from.bytes as usize);
        // SAFETY: queue and buffers are live and of one context; the ranges are inside them; the list outlives the call.
        let event = unsafe {
            let (queue, count, list) = (self.queue.handle().raw(), waits.count(), waits.start());
            enqueue_copy_buffer(queue, source, target, at, offset, bytes, count, list)
        };
        let event = event
            .map_err(|code| self.shared().failed(format_args!("copying {bytes} bytes"), code, ErrorPhase::Asking))?;
        self.enqueued(event)
    }

    fn fill(&mut self, to: &Region, pattern: &[u8]) -> Result<()> {
        let target = self.buffer(to)?;
        for part in parts(to.offset, to.bytes, pattern) {
            let waits = self.wait_list();
            let (value, length) = (part.pattern.as_ptr().cast(), part.pattern.len());
            let (offset, bytes) = (part.offset as usize, part.bytes as usize);
            // SAFETY: queue and buffer are live and of one context; the range is inside; OpenCL copies the pattern.
            let event = unsafe {
                let (queue, count, list) = (self.queue.handle().raw(), waits.count(), waits.start());
                enqueue_fill_buffer(queue, target, value, length, offset, bytes, count, list)
            };
            let failed = |code| self.shared().failed(format_args!("filling {bytes} bytes"), code, ErrorPhase::Asking);
            self.enqueued(event.map_err(failed)?)?;
        }
        Ok(())
    }

    /// Enqueues a marker, which completes after all earlier commands and all events in the wait list.
    fn marker(&mut self) -> Result<()> {
        let waits = self.wait_list();
        // SAFETY: the queue is live, the list outlives the call.
        let event = unsafe { enqueue_marker_with_wait_list(self.queue.handle().raw(), waits.count(), waits.start()) };
        let event = event.map_err(|code| self.shared().failed("enqueuing a marker", code, ErrorPhase::Asking))?;
        self.enqueued(event)
    }

    fn enqueued(&mut self, event: cl_event) -> Result<()> {
        // SAFETY: an enqueue created the event, and its reference is owned here.
        self.last = Some(unsafe { Event::own(event) });
        self.commands += 1;
        self.waits.clear();
        Ok(())
    }

    fn wait_list(&self) -> WaitList {
        WaitList(self.waits.iter().map(Event::raw).collect())
    }

    fn buffer(&self, region: &Region) -> Result<cl3::types::cl_mem> {
        let buffer = self.tables.memory.get(region.alloc.0);
        let freed = || Error::mistake(format!("{}: {:?} was freed", self.shared().label, region.alloc));
        Ok(buffer.ok_or_else(freed)?.buffer.raw())
    }

    fn shared(&self) -> &Arc<Shared> {
        self.queue.shared()
    }
}

/// An OpenCL wait list; an empty list is passed as a null pointer.
struct WaitList(Vec<cl_event>);

impl WaitList {
    fn count(&self) -> u32 {
        self.0.len() as u32
    }

    fn start(&self) -> *const cl_event {
        if self.0.is_empty() { ptr::null() } else { self.0.as_ptr() }
    }
}

/// Starts an asynchronous read of a region.
pub fn read(queue: &Arc<Queue>, buffer: &Buffer, region: Region) -> Result<Ticket> {
    let mut bytes = vec![0; region.bytes as usize];
    let order = queue.order();
    // SAFETY: queue and buffer are live; the range is inside the buffer; `Submitted` keeps the bytes until the command is complete.
    let event = unsafe {
        let (raw, offset, start) = (queue.handle().raw(), region.offset as usize, bytes.as_mut_ptr().cast());
        enqueue_read_buffer(raw, buffer.raw(), CL_NON_BLOCKING, offset, bytes.len(), start, 0, ptr::null())
    };
    let shared = queue.shared();
    let event = event
        .map_err(|code| shared.failed(format_args!("reading {} bytes", region.bytes), code, ErrorPhase::Asking))?;
    // SAFETY: the enqueue created the event, and its reference is owned here.
    let event = unsafe { Event::own(event) };
    let submitted = Submitted::new(queue.clone(), event, Vec::new(), Some(bytes));
    queue.enqueued(1)?;
    drop(order);
    Ok(Ticket::Pending(Arc::new(submitted)))
}
