//! Steps to work on a stream.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use panoply_device::{Dispatch, Error, Region, Result, Step, Ticket};

use super::handles::{Context, Event};
use super::memory::Allocation;
use super::program::Program;
use super::queue::Queue;
use super::ticket::{Submitted, Times};
use crate::arguments::{Value, values};
use crate::fill::parts;
use crate::library::DevicePtr;
use crate::table::Table;

/// What a device's ids mean.
#[derive(Default)]
pub struct Tables {
    /// Programs.
    pub programs: Table<Arc<Program>>,
    /// Memory.
    pub memory: Table<Allocation>,
    /// Queues, by position.
    pub queues: Vec<Arc<Queue>>,
}

impl Tables {
    /// The address of a region.
    pub fn address(&self, region: &Region, label: &str) -> Result<DevicePtr> {
        let found = self.memory.get(region.alloc.0);
        let allocation = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was freed", region.alloc)))?;
        Ok(allocation.memory.address + region.offset)
    }
}

/// Gives the steps of one submission to a stream.
pub struct Encoder<'a> {
    /// Where to.
    pub queue: &'a Arc<Queue>,
    /// The device's memory and programs.
    pub tables: &'a Tables,
}

impl Encoder<'_> {
    /// Gives the steps; with a clock the ticket knows each one's time.
    pub fn run(&self, steps: &[Step], clock: Option<&Arc<Event>>) -> Result<Ticket> {
        let stream = &self.queue.stream;
        let mut times = match clock {
            Some(clock) => Some(Times { clock: clock.clone(), first: Event::timed(stream)?, spans: Vec::new() }),
            None => None,
        };
        for step in steps {
            let measured = times.is_some() && !matches!(step, Step::Wait(_));
            let start = if measured { Some(Event::timed(stream)?) } else { None };
            self.step(step)?;
            if let Some(times) = &mut times {
                times.spans.push((start, Event::timed(stream)?));
            }
        }
        Ok(Submitted::ticket(self.queue, stream.mark()?, times, None))
    }

    fn step(&self, step: &Step) -> Result<()> {
        let label = &self.context().label;
        match step {
            Step::Dispatch(dispatch) => self.dispatch(dispatch),
            Step::Copy { from, to } => self.copy(from, to),
            Step::Fill { to, pattern } => self.fill(to, pattern),
            Step::Wait(Ticket::Done) => Ok(()),
            Step::Wait(Ticket::Pending(pending)) => {
                let event = self.context().tickets.event(pending.token()).ok_or_else(|| {
                    Error::mistake(format!("{label}: the ticket to wait for belongs to another device"))
                })?;
                self.queue.stream.wait(&event)
            }
            Step::Routine(routine, _) => {
                Err(Error::unsupported(format!("{label}: offers no routine, {routine:?} neither")))
            }
        }
    }

    fn dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        let (label, brand) = (&self.context().label, self.context().api.brand());
        let max_groups = self.context().traits.max_groups;
        let found = self.tables.programs.get(dispatch.program.0);
        let program = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was released", dispatch.program)))?;
        let values = values(label, &program.signature, dispatch, |region| self.tables.address(region, label))?;
        // Whole groups; the size asked for is an argument of its own.
        let count = |axis: usize| {
            let width = u64::from(dispatch.group[axis].max(1));
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
        for z in starts(2) {
            for y in starts(1) {
                let part = [groups[0], (groups[1] - y).min(max_groups[1]), (groups[2] - z).min(max_groups[2])];
                self.launch(program, dispatch, &values, [y, z], part.map(|count| count as u32))?;
            }
        }
        Ok(())
    }

    /// Launches some of the groups: those from the given ones on along the second and third axis.
    fn launch(
        &self,
        program: &Program,
        dispatch: &Dispatch,
        values: &[Value],
        first: [u64; 2],
        [gx, gy, gz]: [u32; 3],
    ) -> Result<()> {
        let first = first.map(u64::to_le);
        let pointers: Vec<*const c_void> =
            values.iter().map(|value| &value.bits).chain(&first).map(|bits| ptr::from_ref(bits).cast()).collect();
        let [bx, by, bz] = dispatch.group;
        let doing =
            format_args!("launching {} over {:?} in groups of {:?}", program.entry, dispatch.grid, dispatch.group);
        // SAFETY: function and stream are live and of one context; there is a pointer for every parameter, to as many bytes as it
        // has, which the driver copies. What is not launched in parts has no use for the last two.
        self.queue.stream.ask(doing, |functions, stream| unsafe {
            let params = pointers.as_ptr();
            (functions.launch)(program.function, gx, gy, gz, bx, by, bz, 0, stream, params, ptr::null())
        })
    }

    fn copy(&self, from: &Region, to: &Region) -> Result<()> {
        let label = &self.context().label;
        let (source, target) = (self.tables.address(from, label)?, self.tables.address(to, label)?);
        let bytes = from.bytes as usize;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the ranges lie inside live allocations.
        self.queue.stream.ask(format_args!("copying {bytes} bytes"), |functions, stream| unsafe {
            (functions.copy)(target, source, bytes, stream)
        })
    }

    fn fill(&self, to: &Region, pattern: &[u8]) -> Result<()> {
        let start = self.tables.address(to, &self.context().label)?;
        // Allocations are aligned, so a place in one is aligned as its offset is.
        for part in parts(to.offset, to.bytes, pattern) {
            let at = start + (part.offset - to.offset);
            let count = part.bytes as usize / part.pattern.len();
            let doing = format_args!("filling {} bytes", part.bytes);
            let word =
                |from: usize| part.pattern[from..].iter().take(4).rev().fold(0, |word, b| word << 8 | u32::from(*b));
            // SAFETY: the range lies inside a live allocation and is a multiple of the pattern, as its place is.
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

    fn context(&self) -> &Arc<Context> {
        &self.queue.stream.context
    }
}
