//! Enqueues commands on a stream.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

use panoply_device::{DeviceCommand, Dispatch, Error, Region, Result, Routine, Ticket};

use super::blas::Products;
use super::graph::Graph;
use super::handles::{Context, Event};
use super::memory::Allocation;
use super::program::Program;
use super::queue::Queue;
use super::ticket::{Submitted, Times};
use super::vendor::{Brand, Launch};
use crate::arguments::values;
use crate::fill::parts;
use crate::library::DevicePtr;
use crate::table::Table;

/// The objects behind a device's ids.
#[derive(Default)]
pub struct Tables {
    /// Programs.
    pub programs: Table<Arc<Program>>,
    /// Memory.
    pub memory: Table<Allocation>,
    /// Queues, by position.
    pub queues: Vec<Arc<Queue>>,
    /// Graphs of command buffers.
    pub graphs: Table<Arc<Mutex<Graph>>>,
}

/// A launch, or a part of its grid.
pub struct SubLaunch<'a> {
    /// The program.
    pub program: &'a Arc<Program>,
    /// The values of all parameters in little-endian order. The last two are the start of the part along the second and third axis;
    /// programs that are not launched in parts do not use them.
    pub values: &'a [u64],
    groups: [u32; 3],
    size: [u32; 3],
}

impl SubLaunch<'_> {
    fn pointers(&self) -> Vec<*const c_void> {
        self.values.iter().map(|value| ptr::from_ref(value).cast()).collect()
    }

    /// Calls `act` with the driver's structure for a kernel node of a graph.
    pub fn described<R>(&self, brand: &Brand, act: impl FnOnce(*const c_void) -> R) -> R {
        let pointers = self.pointers();
        let SubLaunch { program, groups, size, .. } = *self;
        let node = (brand.node)(&Launch { function: program.function, groups, size, params: pointers.as_ptr() });
        act(node.as_ptr().cast())
    }
}

impl Tables {
    /// Returns the device address of a region.
    pub fn address(&self, region: &Region, label: &str) -> Result<DevicePtr> {
        let found = self.memory.get(region.alloc.0);
        let allocation = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was freed", region.alloc)))?;
        Ok(allocation.memory.address + region.offset)
    }
}

/// Enqueues the commands of one submission on a stream.
pub struct Encoder<'a> {
    /// The queue to enqueue to.
    pub queue: &'a Arc<Queue>,
    /// The device's memory and programs.
    pub tables: &'a Tables,
    /// Matrix products by libraries, if there are any.
    pub products: Option<&'a Products>,
}

impl Encoder<'_> {
    /// Enqueues the commands; with a clock the ticket holds the time of each one.
    pub fn run(&self, steps: &[DeviceCommand], clock: Option<&Arc<Event>>) -> Result<Ticket> {
        let stream = &self.queue.stream;
        let mut times = match clock {
            Some(clock) => Some(Times { clock: clock.clone(), first: Event::timed(stream)?, spans: Vec::new() }),
            None => None,
        };
        for step in steps {
            let measured = times.is_some() && !matches!(step, DeviceCommand::Wait(_));
            let start = if measured { Some(Event::timed(stream)?) } else { None };
            self.step(step)?;
            if let Some(times) = &mut times {
                times.spans.push((start, Event::timed(stream)?));
            }
        }
        Ok(Submitted::ticket(self.queue, stream.mark()?, times, None))
    }

    /// Enqueues one command.
    pub fn step(&self, step: &DeviceCommand) -> Result<()> {
        let label = &self.context().label;
        match step {
            DeviceCommand::Dispatch(dispatch) => self.dispatch(dispatch),
            DeviceCommand::Copy { from, to } => self.copy(from, to),
            DeviceCommand::Fill { to, pattern } => self.fill(to, pattern),
            DeviceCommand::Wait(Ticket::Done) => Ok(()),
            DeviceCommand::Wait(Ticket::Pending(pending)) => {
                let event = self.context().tickets.event(pending.token()).ok_or_else(|| {
                    Error::mistake(format!("{label}: the ticket to wait for belongs to another device"))
                })?;
                self.queue.stream.wait(&event)
            }
            DeviceCommand::Routine(routine, regions, epilogue) => {
                self.routine(routine, regions)?;
                epilogue.as_ref().map_or(Ok(()), |epilogue| self.dispatch(&epilogue.dispatch))
            }
        }
    }

    fn dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        self.parts(dispatch, &mut |part| self.launch(dispatch, part))
    }

    /// Calls `each` for a launch, or for each part of it if there are too many work-groups along the second or third axis.
    pub fn parts(&self, dispatch: &Dispatch, each: &mut dyn FnMut(&SubLaunch<'_>) -> Result<()>) -> Result<()> {
        let (label, brand) = (&self.context().label, self.context().api.brand());
        let max_groups = self.context().traits.max_groups;
        let found = self.tables.programs.get(dispatch.program.0);
        let program = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was released", dispatch.program)))?;
        let values = values(label, &program.signature, dispatch, |region| self.tables.address(region, label))?;
        let mut values: Vec<u64> = values.into_iter().map(|value| value.bits).collect();
        // The number of work-groups is rounded up; the requested grid size is passed as an argument.
        let count = |axis: usize| {
            let width = u64::from(dispatch.group_size[axis].max(1));
            let count = dispatch.grid[axis].div_ceil(width);
            let in_parts = axis > 0 && program.signature.hidden && brand.launches_in_parts;
            let most = if in_parts { u64::from(u32::MAX) } else { max_groups[axis].min(brand.max_items / width) };
            if count <= most {
                return Ok(count);
            }
            Err(Error::unsupported(format!(
                "{label}: {count} groups along axis {axis}, {most} at most; use larger groups or split the launch"
            )))
        };
        let groups = [count(0)?, count(1)?, count(2)?];
        let starts = |axis: usize| (0..groups[axis]).step_by(max_groups[axis] as usize);
        let arguments = values.len();
        values.extend([0; 2]);
        for z in starts(2) {
            for y in starts(1) {
                values[arguments..].copy_from_slice(&[y.to_le(), z.to_le()]);
                let part = [groups[0], (groups[1] - y).min(max_groups[1]), (groups[2] - z).min(max_groups[2])];
                let groups = part.map(|count| count as u32);
                each(&SubLaunch { program, values: &values, groups, size: dispatch.group_size })?;
            }
        }
        Ok(())
    }

    fn launch(&self, dispatch: &Dispatch, part: &SubLaunch<'_>) -> Result<()> {
        let pointers = part.pointers();
        let SubLaunch { program, groups: [gx, gy, gz], size: [bx, by, bz], .. } = *part;
        let doing =
            format_args!("launching {} over {:?} in groups of {:?}", program.entry, dispatch.grid, dispatch.group_size);
        // SAFETY: function and stream are live and of one context; there is a pointer for every parameter, to a value of its size, which
        // the driver copies.
        self.queue.stream.ask(doing, |functions, stream| unsafe {
            let params = pointers.as_ptr();
            (functions.launch)(program.function, gx, gy, gz, bx, by, bz, 0, stream, params, ptr::null())
        })
    }

    fn routine(&self, routine: &Routine, regions: &[Region]) -> Result<()> {
        let label = &self.context().label;
        let (Routine::Gemm(gemm), [a, b, bias @ .., c], Some(products)) = (routine, regions, self.products) else {
            return Err(Error::unsupported(format!("{label}: {routine} is not supported")));
        };
        let address = |region| self.tables.address(region, label);
        let bias = bias.first().map_or(Ok(0), address)?;
        products.run(gemm, [address(a)?, address(b)?, address(c)?], bias, self.queue)
    }

    fn copy(&self, from: &Region, to: &Region) -> Result<()> {
        let label = &self.context().label;
        let (source, target) = (self.tables.address(from, label)?, self.tables.address(to, label)?);
        let bytes = from.bytes as usize;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the ranges are inside live allocations.
        self.queue.stream.ask(format_args!("copying {bytes} bytes"), |functions, stream| unsafe {
            (functions.copy)(target, source, bytes, stream)
        })
    }

    fn fill(&self, to: &Region, pattern: &[u8]) -> Result<()> {
        let start = self.tables.address(to, &self.context().label)?;
        // Allocations are aligned, so an address in one is aligned as its offset is.
        for part in parts(to.offset, to.bytes, pattern) {
            let at = start + (part.offset - to.offset);
            let count = part.bytes as usize / part.pattern.len();
            let doing = format_args!("filling {} bytes", part.bytes);
            let word =
                |from: usize| part.pattern[from..].iter().take(4).rev().fold(0, |word, b| word << 8 | u32::from(*b));
            // SAFETY: the range is inside a live allocation, and its address and length are multiples of the pattern's length.
            self.queue.stream.ask(doing, |functions, stream| unsafe {
                match part.pattern.len() {
                    1 => (functions.fill_8)(at, word(0) as u8, count, stream),
                    2 => (functions.fill_16)(at, word(0) as u16, count, stream),
                    4 => (functions.fill_32)(at, word(0), count, stream),
                    _ => {
                        let word = u64::from(word(4)) << 32 | u64::from(word(0));
                        self.context().api.vendor.fill_64(functions, at, word, count, stream)
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Returns the context of the stream.
    pub fn context(&self) -> &Arc<Context> {
        &self.queue.stream.context
    }
}
