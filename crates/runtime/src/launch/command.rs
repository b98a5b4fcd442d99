//! Lists of commands that are submitted together.

use std::sync::Arc;

use panoply_device::{DeviceCommand, Region};
use panoply_ir::flops;
use panoply_ir::kernel::Access;
use panoply_ir::routine::Routine;
use panoply_ir::{Error, Result};

use super::argument::{LaunchArg, StorageView, accesses};
use super::{Grid, check, entry};
use crate::device::Device;
use crate::memory::storage::{Storage, StorageAccess};
use crate::profile::entry::{ActivityKind, Entry};
use crate::program::compiled_kernel::CompiledKernel;
use crate::queue::event::Event;
use crate::queue::{Queue, copy_command, fill_command};

/// A command for a device.
#[derive(Debug)]
pub enum Command<'a> {
    /// Launch of a kernel.
    Kernel {
        /// The kernel.
        prepared: &'a Arc<CompiledKernel>,
        /// The work-items.
        grid: Grid,
        /// The arguments.
        args: Vec<LaunchArg<'a>>,
    },
    /// Execution of a routine that the device supports.
    Routine {
        /// The routine.
        routine: Routine,
        /// Its buffers, in the order of the routine's operands.
        buffers: Vec<&'a Storage>,
        /// Kernel applied to the first output, if any.
        epilogue: Option<Box<Epilogue<'a>>>,
    },
    /// Copy of bytes within the device.
    Copy {
        /// Source.
        from: &'a Storage,
        /// Destination, of equal length and disjoint from the source.
        to: &'a Storage,
    },
    /// Fill with a repeated pattern of 1, 2, 4 or 8 bytes.
    Fill {
        /// Destination.
        to: &'a Storage,
        /// The pattern.
        pattern: &'a [u8],
    },
}

/// A kernel that is fused into a routine and applied element by element to its first output.
#[derive(Debug)]
pub struct Epilogue<'a> {
    /// The kernel; each work-item reads the element of the routine's first output at its own linear index.
    pub prepared: &'a Arc<CompiledKernel>,
    /// The work-items: one per element of the output.
    pub grid: Grid,
    /// The arguments, which include the output.
    pub args: Vec<LaunchArg<'a>>,
    /// True if the output itself is also needed. Otherwise the contents of its buffer are undefined afterwards.
    pub keep_output: bool,
}

impl Device {
    /// Submits commands to the default queue, in order. Either all are valid and submitted, or none.
    ///
    /// # Errors
    /// A command is invalid, or the device rejects the submission.
    pub fn submit(&self, work: &[Command<'_>]) -> Result<()> {
        self.submit_to(&self.default_queue(), work).map(drop)
    }

    /// Like [`Device::submit`], to a given queue of this device.
    ///
    /// # Errors
    /// A command is invalid, the queue belongs to another device, or the device rejects the submission.
    pub fn submit_to(&self, queue: &Queue, work: &[Command<'_>]) -> Result<Event> {
        self.submit_with_timing(queue, work, false)
    }

    /// Like [`Device::submit_to`], with an event that measures the time on the device.
    ///
    /// # Errors
    /// As for [`Device::submit_to`].
    pub fn submit_timed(&self, queue: &Queue, work: &[Command<'_>]) -> Result<Event> {
        self.submit_with_timing(queue, work, true)
    }

    fn submit_with_timing(&self, queue: &Queue, work: &[Command<'_>], is_timed: bool) -> Result<Event> {
        if queue.device() != self {
            let theirs = queue.device();
            return Err(Error::mistake(format!(
                "work for {self} was submitted to a queue of {theirs}; use a queue of {self}"
            )));
        }
        let mut steps = Vec::with_capacity(work.len());
        for one in work {
            steps.push(one.step(self)?);
        }
        let accesses = work.iter().flat_map(Command::accesses);
        let ticket = self.enqueue(queue.id(), &steps, accesses, is_timed, |position| work[position].entry())?;
        Ok(Event::new(self.clone(), queue.id(), ticket))
    }
}

impl Command<'_> {
    pub(super) fn step(&self, device: &Device) -> Result<DeviceCommand> {
        let at_home = |storage: &Storage| {
            let home = storage.device() == device;
            let message = || format!("a buffer on {} was passed to work for {device}", storage.device());
            if home { Ok(()) } else { Err(Error::mistake(message() + "; copy it with `.to(&device)`")) }
        };
        match self {
            Command::Kernel { prepared, grid, args } => {
                check_harmless(prepared)?;
                check::dispatch(device, prepared, *grid, args).map(DeviceCommand::Dispatch)
            }
            Command::Routine { routine, buffers, epilogue } => {
                buffers.iter().try_for_each(|storage| at_home(storage))?;
                let regions = routine_regions(device, routine, buffers)?;
                let end = epilogue.as_ref().map(|epilogue| epilogue.step(device, routine, buffers)).transpose()?;
                Ok(DeviceCommand::Routine(*routine, regions, end.map(Box::new)))
            }
            Command::Copy { from, to } => {
                at_home(from)?;
                at_home(to)?;
                copy_command(from, to)
            }
            Command::Fill { to, pattern } => {
                at_home(to)?;
                fill_command(to, pattern)
            }
        }
    }

    /// Returns the access to an operand, numbered as in [`DeviceCommand::region`]; `None` for a scalar.
    pub(super) fn access(&self, operand: usize) -> Option<Access> {
        match (self, operand) {
            (Command::Kernel { prepared, .. }, _) => prepared.params().get(operand)?.access(),
            (Command::Routine { routine, buffers, epilogue }, _) => match operand.checked_sub(buffers.len()) {
                None => routine.operands().nth(operand).map(|operand| operand.access),
                Some(arg) => epilogue.as_ref()?.prepared.params().get(arg)?.access(),
            },
            (Command::Copy { .. }, 0) => Some(Access::In),
            (Command::Copy { .. }, 1) | (Command::Fill { .. }, 0) => Some(Access::Out),
            (Command::Copy { .. } | Command::Fill { .. }, _) => None,
        }
    }

    pub(super) fn accesses(&self) -> impl Iterator<Item = StorageAccess<'_>> + Clone {
        let mut kernel = None;
        let mut routine = None;
        let mut others: [Option<StorageAccess<'_>>; 2] = [None; 2];
        match self {
            Command::Kernel { prepared, args, .. } => kernel = Some(accesses(prepared, args)),
            Command::Routine { routine: done, buffers, epilogue } => {
                routine = Some(buffers.iter().copied().zip(done.operands().map(|operand| operand.access)));
                kernel = epilogue.as_ref().map(|epilogue| accesses(epilogue.prepared, &epilogue.args));
            }
            Command::Copy { from, to } => others = [Some((*from, Access::In)), Some((*to, Access::Out))],
            Command::Fill { to, .. } => others = [Some((*to, Access::Out)), None],
        }
        kernel.into_iter().flatten().chain(routine.into_iter().flatten()).chain(others.into_iter().flatten())
    }

    pub(super) fn entry(&self) -> Entry {
        match self {
            Command::Kernel { prepared, grid, args } => entry(prepared, *grid, args),
            Command::Routine { routine, buffers, epilogue: None } => {
                let bytes = buffers.iter().map(|storage| storage.bytes()).sum();
                Entry { flops: flops::of(routine), ..Entry::new(ActivityKind::Routine, routine.to_string(), bytes) }
            }
            Command::Routine { routine, buffers, epilogue: Some(epilogue) } => {
                let Epilogue { prepared, grid, args, .. } = &**epilogue;
                // The output's buffer is already counted among the epilogue's arguments.
                let read = routine.operands().zip(buffers).filter(|(operand, _)| operand.access == Access::In);
                let Entry { bytes, flops: after, .. } = entry(prepared, *grid, args);
                let flops = flops::of(routine).zip(after).map(|(routine, after)| routine + after);
                let name = format!("{routine}, {}", prepared.name());
                let bytes = bytes + read.map(|(_, storage)| storage.bytes()).sum::<u64>();
                Entry { flops, ..Entry::new(ActivityKind::Routine, name, bytes) }
            }
            Command::Copy { to, .. } => Entry::new(ActivityKind::Copy, "copy", 2 * to.bytes()),
            Command::Fill { to, .. } => Entry::new(ActivityKind::Fill, "fill", to.bytes()),
        }
    }
}

/// Rejects kernels whose launch is unsafe.
fn check_harmless(prepared: &CompiledKernel) -> Result<()> {
    let name = prepared.name();
    prepared
        .unchecked()
        .map_or(Ok(()), |why| Err(Error::mistake(format!("kernel {name}: {why}; it cannot be part of a command list"))))
}

impl Epilogue<'_> {
    /// Returns the epilogue's dispatch, after validating what the device assumes of epilogues.
    fn step(&self, device: &Device, routine: &Routine, buffers: &[&Storage]) -> Result<panoply_device::Epilogue> {
        let Epilogue { prepared, grid, args, keep_output: keeps } = self;
        check_harmless(prepared)?;
        let dispatch = check::dispatch(device, prepared, *grid, args)?;
        let (name, kernel) = (routine.name(), prepared.name());
        let first = routine.operands().position(|operand| operand.access != Access::In);
        let result = first.map(|at| buffers[at]);
        let elems = first.and_then(|at| routine.operands().nth(at)?.elems);
        let is_result = |arg: &LaunchArg<'_>| {
            let same = |view: &StorageView<'_>| result.is_some_and(|result| view.storage.region() == result.region());
            matches!(arg, LaunchArg::In(view) if same(view))
        };
        let own = args.iter().position(is_result);
        let walks = own.is_some_and(|own| prepared.is_elementwise_on(own, grid.0)) && prepared.group_size().is_none();
        if !walks || Some(grid.0.iter().product()) != elems {
            return Err(Error::mistake(format!(
                "{name}: in its epilogue {kernel} over {grid} work-items, not every work-item reads the element at its own index of the \
                 output; launch it as a separate kernel"
            )));
        }
        let others = args.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        for view in others.filter_map(|(_, arg)| Some((arg.view()?, matches!(arg, LaunchArg::InOut(_))))) {
            let (view, written) = view;
            let shared = routine
                .operands()
                .zip(buffers)
                .find(|(operand, storage)| (written || operand.access != Access::In) && view.storage.overlaps(storage));
            if let Some((operand, _)) = shared {
                return Err(Error::mistake(format!(
                    "{name}: its epilogue {kernel} shares bytes with {}, and one of them is written; use a separate buffer",
                    operand.name
                )));
            }
        }
        Ok(panoply_device::Epilogue { dispatch, keep_output: *keeps })
    }
}

/// Returns the regions of a routine's buffers, after checking that they contain all elements that it accesses.
fn routine_regions(device: &Device, routine: &Routine, buffers: &[&Storage]) -> Result<Vec<Region>> {
    routine.check()?;
    if !device.supports_routine(routine) {
        return Err(Error::unsupported(format!("{device} does not support {routine}; use the equivalent kernel")));
    }
    let (name, operands) = (routine.name(), routine.operands());
    let count = operands.clone().count();
    if buffers.len() != count {
        let names: Vec<&str> = operands.map(|operand| operand.name).collect();
        return Err(Error::mistake(format!(
            "{name} takes {count} buffers ({}), not {}",
            names.join(", "),
            buffers.len()
        )));
    }
    for (operand, storage) in operands.clone().zip(buffers) {
        let (what, bytes) = (operand.name, operand.dtype.bytes() as u64);
        let have = storage.bytes() / bytes;
        if operand.elems.is_none_or(|needs| needs > have) {
            let needs = operand.elems.map_or("more than 2^64".to_string(), |needs| needs.to_string());
            return Err(Error::mistake(format!("{name}: {what} reaches {needs} elements, its buffer has {have}")));
        }
        if !storage.offset().is_multiple_of(bytes) {
            return Err(Error::mistake(format!("{name}: {what} is not aligned to {} elements", operand.dtype)));
        }
    }
    for (at, (operand, written)) in operands.clone().zip(buffers).enumerate() {
        let mut others = operands.clone().zip(buffers).enumerate();
        let shared = others.find(|(other, (_, storage))| *other != at && written.overlaps(storage));
        if let (Access::Out | Access::InOut, Some((_, (other, _)))) = (operand.access, shared) {
            return Err(Error::mistake(format!(
                "{name}: {} is written and shares bytes with {}; use a separate buffer",
                operand.name, other.name
            )));
        }
    }
    Ok(buffers.iter().map(|storage| storage.region()).collect())
}
