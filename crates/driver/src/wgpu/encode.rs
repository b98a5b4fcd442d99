//! Encodes device commands as `wgpu` commands.

use std::ops::Range;
use std::sync::Arc;

use panoply_device::{
    AllocId, Arg, DeviceCommand, Dispatch, Error, GridPart, ParamType, Region, Result, Target, Ticket, Type,
};
use wgpu::{BindGroup, Buffer, ComputePipeline, QuerySet};

use super::bytes;
use super::memory::Allocation;
use super::open::{IN_BROWSER, Open};
use super::program::{Program, Window};
use super::submit::WORDS_BYTES;
use crate::table::Table;

/// The objects behind a device's ids.
#[derive(Default)]
pub struct Tables {
    /// Programs.
    pub programs: Table<Arc<Program>>,
    /// Memory.
    pub memory: Table<Arc<Allocation>>,
    /// Number of queues besides the first; all map to the API's only queue.
    pub queues: u32,
}

/// A command for the API.
pub enum Command {
    /// Launches work-groups of a pipeline; its argument words begin at an offset.
    Launch { pipeline: ComputePipeline, bound: BindGroup, words: u32, groups: [u32; 3] },
    /// Copies whole words.
    Copy { from: (Buffer, u64), to: (Buffer, u64), bytes: u64 },
    /// Fills whole words with zeros.
    Clear { to: (Buffer, u64), bytes: u64 },
    /// Writes a timestamp after all earlier commands.
    Stamp { set: QuerySet, number: u32 },
}

/// The memory that is bound for a launch.
type BoundMemory = Vec<(Window, Arc<Allocation>)>;

/// Commands that were encoded and not yet submitted.
pub struct Encoder<'a> {
    pub open: &'a Open,
    pub tables: &'a Tables,
    /// Largest binding of a buffer in bytes.
    pub most: u64,
    /// The program for regions that are not whole words.
    pub bytes: &'a Program,
    /// The uniform buffer for the launches' argument words.
    pub words_buffer: &'a Buffer,
    /// Future contents of `words_buffer`.
    pub words: Vec<u8>,
    pub commands: Vec<Command>,
}

impl Encoder<'_> {
    /// Encodes a command.
    pub fn step(&mut self, step: &DeviceCommand) -> Result<()> {
        let label = &self.open.status.label;
        match step {
            DeviceCommand::Dispatch(dispatch) => self.dispatch(dispatch),
            DeviceCommand::Copy { from, to } => self.copy(from, to),
            DeviceCommand::Fill { to, pattern } => self.fill(to, pattern),
            DeviceCommand::Wait(Ticket::Done) => Ok(()),
            // There is only one queue, so the work to wait for was submitted earlier.
            DeviceCommand::Wait(Ticket::Pending(pending)) if self.open.gave(pending.token()) => Ok(()),
            DeviceCommand::Wait(Ticket::Pending(_)) => {
                Err(Error::mistake(format!("{label}: the ticket to wait for belongs to another device")))
            }
            DeviceCommand::Routine(routine, ..) => {
                Err(Error::unsupported(format!("{label}: supports no library routine: {routine:?}")))
            }
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<()> {
        let label = &self.open.status.label;
        let found = self.tables.programs.get(dispatch.program.0);
        let program = found.ok_or_else(|| Error::mistake(format!("{label}: {:?} was released", dispatch.program)))?;
        let pipeline = program.pipeline(self.open, dispatch.group_size)?;
        let mut groups = [0; 3];
        let most = u64::from(self.open.limits.max_compute_workgroups_per_dimension);
        let most = if program.signature.hidden { u64::from(u32::MAX) } else { most };
        for (axis, groups) in groups.iter_mut().enumerate() {
            // The number of work-groups is rounded up; the requested grid size is passed as an argument.
            let count = dispatch.grid[axis].div_ceil(u64::from(dispatch.group_size[axis].max(1)));
            if count > most {
                return Err(Error::unsupported(format!(
                    "{label}: {count} groups along axis {axis}, {most} at most; use larger groups or split the launch"
                )));
            }
            *groups = count;
        }
        if dispatch.parts.is_empty() {
            return self.part(program, &pipeline, dispatch, &groups.map(|count| 0..count), None);
        }
        dispatch
            .parts
            .iter()
            .try_for_each(|GridPart { groups, windows }| self.part(program, &pipeline, dispatch, groups, Some(windows)))
    }

    /// Launches work-groups in as many launches as the API's limits require. `touched` is the range of bytes that they access in each
    /// buffer; `None` means all.
    fn part(
        &mut self,
        program: &Program,
        pipeline: &ComputePipeline,
        dispatch: &Dispatch,
        groups: &[Range<u64>; 3],
        touched: Option<&[Range<u64>]>,
    ) -> Result<()> {
        let (words, windows) = self.arguments(program, dispatch, touched)?;
        let held: Vec<(Window, &Buffer)> = windows.iter().map(|(window, memory)| (*window, &memory.buffer)).collect();
        let bound = program.bind(self.open, self.words_buffer, &held)?;
        let most = u64::from(self.open.limits.max_compute_workgroups_per_dimension);
        let starts = |axis: usize| groups[axis].clone().step_by(most as usize);
        for z in starts(2) {
            for y in starts(1) {
                for x in starts(0) {
                    let first = [x, y, z];
                    let part = [0, 1, 2].map(|axis| (groups[axis].end - first[axis]).min(most) as u32);
                    let mut words = words.clone();
                    if program.signature.hidden {
                        words.extend(first.map(|group| group as u32));
                    }
                    self.launch(pipeline.clone(), bound.clone(), program.words, &words, part)?;
                }
            }
        }
        Ok(())
    }

    fn launch(
        &mut self,
        pipeline: ComputePipeline,
        bound: BindGroup,
        bytes: u64,
        words: &[u32],
        groups: [u32; 3],
    ) -> Result<()> {
        let mut at = self.words.len().next_multiple_of(self.slot());
        if at as u64 + bytes > WORDS_BYTES {
            self.flush()?;
            at = 0;
        }
        self.words.resize(at, 0);
        self.words.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.words.resize(at + bytes as usize, 0);
        self.commands.push(Command::Launch { pipeline, bound, words: at as u32, groups });
        Ok(())
    }

    /// Returns the alignment of a launch's words in the uniform buffer, in bytes.
    fn slot(&self) -> usize {
        self.open.limits.min_uniform_buffer_offset_alignment as usize
    }

    /// Returns a launch's argument words, and the memory to bind: for each buffer at least the bytes that are accessed.
    fn arguments(
        &self,
        program: &Program,
        dispatch: &Dispatch,
        touched: Option<&[Range<u64>]>,
    ) -> Result<(Vec<u32>, BoundMemory)> {
        let label = &self.open.status.label;
        let signature = &program.signature;
        let wrong = |what: String| {
            Error::mistake(format!(
                "{label}: a launch was given {what}; pass the arguments that the signature declares"
            ))
        };
        if dispatch.args.len() != signature.params.len() {
            return Err(wrong(format!("{} arguments for {}", dispatch.args.len(), signature.params.len())));
        }
        let (mut words, mut windows) = (Vec::new(), Vec::new());
        let wide = signature.index_bits == 64;
        let push = |words: &mut Vec<u32>, value: u64, wide: bool| {
            words.push(value as u32);
            if wide {
                words.push((value >> 32) as u32);
            }
        };
        for (at, (param, arg)) in signature.params.iter().zip(&dispatch.args).enumerate() {
            match (param, arg) {
                (ParamType::Buffer(dtype), Arg::Buffer(region)) => {
                    let memory = self.memory(region)?;
                    let window = if signature.hidden {
                        let touched = touched.map_or(0..region.bytes, |touched| touched[at].clone());
                        let (window, elem) = (self.around(region, touched, &memory.buffer), dtype.bytes() as u64);
                        // The region can begin before the window, so the offset can wrap around; the indices added to it lead inside.
                        push(&mut words, (region.offset / elem).wrapping_sub(window.offset / elem), wide);
                        push(&mut words, region.bytes / elem, wide);
                        window
                    } else {
                        self.alone(region, &memory.buffer)?
                    };
                    windows.push((window, memory));
                }
                (ParamType::Scalar(Type::Index), Arg::Index(value)) => push(&mut words, *value, wide),
                (ParamType::Scalar(ty), Arg::Scalar(scalar)) if ty.dtype() == Some(scalar.dtype) => {
                    push(&mut words, scalar.bits, scalar.dtype.bytes() == 8);
                }
                _ => return Err(wrong(format!("{arg:?} for {param:?}"))),
            }
        }
        if signature.hidden {
            dispatch.grid.iter().for_each(|size| push(&mut words, *size, wide));
        }
        Ok((words, windows))
    }

    /// Returns the whole buffer, or a window that contains these bytes of a region if the buffer is too large to bind. Browsers reject
    /// windows of a launch that overlap, as windows of one buffer would, so there each region has its own; regions of an arena begin at
    /// valid window offsets.
    fn around(&self, region: &Region, touched: Range<u64>, buffer: &Buffer) -> Window {
        let (alloc, size) = (region.alloc.0, buffer.size());
        if size <= self.most && !IN_BROWSER {
            return Window { alloc, offset: 0, bytes: size };
        }
        let align = |byte: u64| byte / Target::BINDING_ALIGN * Target::BINDING_ALIGN;
        let offset = align((region.offset + touched.start).min(size - 1));
        // A window is not smaller than an element.
        let end = (region.offset + touched.end).max(offset + 16).next_multiple_of(4).min(size);
        Window { alloc, offset, bytes: end - offset }
    }

    /// Returns the window of exactly a region, for a program that takes no offset.
    fn alone(&self, region: &Region, buffer: &Buffer) -> Result<Window> {
        let align = u64::from(self.open.limits.min_storage_buffer_offset_alignment);
        if !region.offset.is_multiple_of(align) {
            return Err(Error::unsupported(format!(
                "{}: a buffer begins {} bytes into its memory, custom programs require multiples of {align}; copy it first",
                self.open.status.label, region.offset
            )));
        }
        let (alloc, size) = (region.alloc.0, buffer.size());
        Ok(match region.bytes.next_multiple_of(4) {
            0 => Window { alloc, offset: 0, bytes: size.min(self.most) },
            bytes => Window { alloc, offset: region.offset, bytes: bytes.min(size - region.offset) },
        })
    }

    fn copy(&mut self, from: &Region, to: &Region) -> Result<()> {
        let (source, target) = (self.memory(from)?, self.memory(to)?);
        let whole = [from.offset, to.offset, from.bytes].iter().all(|number| number.is_multiple_of(4));
        if from.bytes == 0 {
            return Ok(());
        }
        // The API copies only between two different buffers.
        if whole && from.alloc != to.alloc {
            let bytes = from.bytes;
            let (from, to) = ((source.buffer.clone(), from.offset), (target.buffer.clone(), to.offset));
            self.commands.push(Command::Copy { from, to, bytes });
            return Ok(());
        }
        self.by_bytes((to, &target.buffer), Some((from, &source.buffer)), &[])
    }

    fn fill(&mut self, to: &Region, pattern: &[u8]) -> Result<()> {
        let target = self.memory(to)?;
        if to.bytes == 0 {
            return Ok(());
        }
        if to.offset.is_multiple_of(4) && to.bytes.is_multiple_of(4) && pattern.iter().all(|byte| *byte == 0) {
            self.commands.push(Command::Clear { to: (target.buffer.clone(), to.offset), bytes: to.bytes });
            return Ok(());
        }
        self.by_bytes((to, &target.buffer), None, pattern)
    }

    /// Copies from a buffer that is not in the tables.
    pub fn copy_from(&mut self, source: &Buffer, to: &Region) -> Result<()> {
        let target = self.memory(to)?;
        let from = Region { alloc: AllocId(0), offset: 0, bytes: to.bytes };
        self.by_bytes((to, &target.buffer), Some((&from, source)), &[])
    }

    /// Runs the byte program over a region: it copies another region, or repeats a pattern.
    fn by_bytes(
        &mut self,
        (to, target): (&Region, &Buffer),
        from: Option<(&Region, &Buffer)>,
        pattern: &[u8],
    ) -> Result<()> {
        let program = self.bytes;
        let pipeline = program.pipeline(self.open, [bytes::GROUP as u32, 1, 1])?;
        // The largest number of bytes that fits into a window at any offset, and is a multiple of the pattern.
        let step = self.most.saturating_sub(2 * Target::BINDING_ALIGN).max(Target::BINDING_ALIGN) & !7;
        for start in (0..to.bytes).step_by(step as usize) {
            let part = start..(start + step).min(to.bytes);
            let count = part.end - part.start;
            let window = self.around(to, part.clone(), target);
            let source = from.map_or((window, target), |(from, buffer)| (self.around(from, part, buffer), buffer));
            let begin = to.offset + start - window.offset;
            let first_byte = from.map_or(0, |(from, _)| from.offset + start - source.0.offset);
            let bound = program.bind(self.open, self.words_buffer, &[(window, target), source])?;
            let most = u64::from(self.open.limits.max_compute_workgroups_per_dimension);
            let groups = bytes::groups(begin, count);
            for first in (0..groups).step_by(most as usize) {
                let words = match from {
                    Some(_) => bytes::copy(begin, count, first_byte, first),
                    None => bytes::fill(begin, count, pattern, first),
                };
                let groups = (groups - first).min(most) as u32;
                self.launch(pipeline.clone(), bound.clone(), program.words, &words, [groups, 1, 1])?;
            }
        }
        Ok(())
    }

    fn memory(&self, region: &Region) -> Result<Arc<Allocation>> {
        let freed = || Error::mistake(format!("{}: {:?} was freed", self.open.status.label, region.alloc));
        self.tables.memory.get(region.alloc.0).cloned().ok_or_else(freed)
    }
}
