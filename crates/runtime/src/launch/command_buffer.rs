//! Command buffers: work that is validated once and replayed with other buffers and scalars.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use panoply_device::command_buffer::{BindingKind, BindingSlot, RawCommandBuffer};
use panoply_device::{Arg, DeviceCommand, QueueId, Region};
use panoply_ir::kernel::Access;
use panoply_ir::{DType, Error, Result, Scalar, Target};

use super::command::Command;
use crate::device::Device;
use crate::memory::storage::{Storage, StorageAccess};
use crate::profile::entry::Entry;
use crate::program::compiled_kernel::CompiledKernel;
use crate::queue::event::Event;

/// Bindings whose bytes end below this offset are within the range of every index type.
const REACH: u64 = 1 << 31;

/// The offsets of a replayed and the recorded binding must be equal modulo this alignment. Elements then stay aligned, and the
/// parts of a split launch see the same bytes.
const ALIGN: u64 = Target::BINDING_ALIGN;

/// Recorded work. Its buffers are ranges of bindings that each replay supplies, and some of its scalars are slots.
pub struct CommandBuffer {
    device: Device,
    /// `Some` until drop.
    command_buffer: Mutex<Option<RawCommandBuffer>>,
    entries: Vec<Entry>,
    bindings: Vec<Binding>,
    slots: Vec<DType>,
    /// Keeps the programs alive as long as the command buffer.
    _programs: Vec<Arc<CompiledKernel>>,
}

/// Requirements of a binding.
struct Binding {
    bytes: u64,
    offset: u64,
    /// Access of the work to the binding; `None` if unused.
    access: Option<Access>,
}

impl Device {
    /// Records commands without running them. Each entry of `places` makes an operand a range of one of the bindings, or one of the
    /// slots. Every buffer needs an entry; scalars without one are constant.
    ///
    /// # Errors
    /// A command is invalid, a buffer has no entry, or an entry does not match the work.
    pub fn record_commands(
        &self,
        work: &[Command<'_>],
        bindings: &[&Storage],
        slots: &[Scalar],
        places: Vec<BindingSlot>,
    ) -> Result<CommandBuffer> {
        let steps = work.iter().map(|one| one.step(self)).collect::<Result<Vec<DeviceCommand>>>()?;
        let mut known: Vec<Binding> = bindings
            .iter()
            .map(|storage| Binding { bytes: storage.bytes(), offset: storage.offset(), access: None })
            .collect();
        let mut placed = HashSet::new();
        for place in &places {
            if !placed.insert((place.step, place.operand)) {
                return Err(Error::mistake(format!(
                    "record: {place:?} is a duplicate for its operand; pass one for each operand"
                )));
            }
            let access = check_place(place, work, &steps, bindings, slots)?;
            if let (BindingKind::Binding { binding, .. }, Some(access)) = (place.source, access) {
                let before = &mut known[binding as usize].access;
                *before = Some(if before.is_none_or(|before| before == access) { access } else { Access::InOut });
            }
        }
        let buffers: usize = work.iter().map(|one| one.accesses().count()).sum();
        let placed = places.iter().filter(|place| matches!(place.source, BindingKind::Binding { .. })).count();
        if buffers != placed {
            return Err(Error::mistake(format!(
                "record: the work has {buffers} buffers, but {placed} are parts of bindings; pass a place for each"
            )));
        }
        let programs = work.iter().filter_map(|one| match one {
            Command::Kernel { prepared, .. } => Some((*prepared).clone()),
            Command::Routine { epilogue, .. } => epilogue.as_ref().map(|epilogue| epilogue.prepared.clone()),
            Command::Copy { .. } | Command::Fill { .. } => None,
        });
        let recorded = CommandBuffer {
            device: self.clone(),
            entries: work.iter().map(Command::entry).collect(),
            bindings: known,
            slots: slots.iter().map(|slot| slot.dtype).collect(),
            _programs: programs.collect(),
            command_buffer: Mutex::new(Some(self.raw().record(steps, places)?)),
        };
        recorded.check(bindings, slots)?;
        Ok(recorded)
    }
}

/// Checks that a place matches the recorded work; returns the command's access to its binding, if it has one.
fn check_place(
    place: &BindingSlot,
    work: &[Command<'_>],
    steps: &[DeviceCommand],
    bindings: &[&Storage],
    slots: &[Scalar],
) -> Result<Option<Access>> {
    let wrong = || Error::mistake(format!("record: {place:?} does not match an operand of the work"));
    let step = steps.get(place.step as usize).ok_or_else(wrong)?;
    match place.source {
        BindingKind::Slot(slot) => {
            let wanted = slots.get(slot as usize).ok_or_else(wrong)?;
            match step.arg(place.operand as usize) {
                Some(Arg::Scalar(recorded)) if recorded == wanted => Ok(None),
                _ => Err(wrong()),
            }
        }
        BindingKind::Binding { binding, offset } => {
            let binding = bindings.get(binding as usize).ok_or_else(wrong)?.region();
            let region = step.region(place.operand as usize).ok_or_else(wrong)?;
            let inside = offset.checked_add(region.bytes).is_some_and(|end| end <= binding.bytes);
            if !inside || (region.alloc, region.offset) != (binding.alloc, binding.offset + offset) {
                return Err(wrong());
            }
            let access = work[place.step as usize].access(place.operand as usize);
            // Bytes beyond the range keep their contents, so the access counts as read-write.
            let part = region.bytes < binding.bytes;
            Ok(access.map(|access| if part && access == Access::Out { Access::InOut } else { access }))
        }
    }
}

impl CommandBuffer {
    /// Submits the work to the default queue with these bindings and scalars, which must match the recorded ones in number, size and
    /// type.
    ///
    /// # Errors
    /// They do not match, a written binding overlaps another, or the device rejects the submission.
    pub fn replay(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<Event> {
        self.check(bindings, slots)?;
        self.submit(bindings, slots)
    }

    /// Like [`CommandBuffer::replay`], but returns `None` if the bindings or scalars do not match the recorded ones.
    ///
    /// # Errors
    /// The device rejects the submission.
    pub fn try_replay(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<Option<Event>> {
        match self.check(bindings, slots) {
            Ok(()) => self.submit(bindings, slots).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn submit(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<Event> {
        let regions: Vec<Region> = bindings.iter().map(|storage| storage.region()).collect();
        let accesses = bindings.iter().zip(&self.bindings);
        let accesses = accesses.filter_map(|(storage, binding)| Some((*storage, binding.access?) as StorageAccess<'_>));
        let (device, queue) = (&self.device, QueueId::DEFAULT);
        let mut held = self.command_buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let command_buffer = held.as_mut().expect("the command buffer is present until drop");
        let ticket = device.in_order(queue, accesses, || match device.profiler().recording() {
            None => device.raw().replay(queue, command_buffer, &regions, slots),
            Some(profile) => {
                command_buffer.set(&regions, slots);
                profile.submit(device, queue, command_buffer.steps(), |step| self.entries[step].clone())
            }
        })?;
        Ok(Event::new(device.clone(), queue, ticket))
    }

    fn check(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<()> {
        if bindings.len() != self.bindings.len() || !slots.iter().map(|slot| slot.dtype).eq(self.slots.iter().copied())
        {
            return Err(Error::mistake(format!(
                "replay: got {} bindings and {} slots, expected {} and {}; pass the same number, of the same types",
                bindings.len(),
                slots.len(),
                self.bindings.len(),
                self.slots.len()
            )));
        }
        for (position, (storage, recorded)) in bindings.iter().zip(&self.bindings).enumerate() {
            let (bytes, offset) = (storage.bytes(), storage.offset());
            let aligned = offset % ALIGN == recorded.offset % ALIGN;
            let reached = offset == recorded.offset || offset.saturating_add(bytes) < REACH;
            if storage.device() != &self.device || bytes != recorded.bytes || !aligned || !reached {
                return Err(Error::mistake(format!(
                    "replay: binding {position} is {bytes} bytes at offset {offset} on {}, but {} bytes at {} on {} were recorded; record \
                     again",
                    storage.device(),
                    recorded.bytes,
                    recorded.offset,
                    self.device
                )));
            }
        }
        self.check_aliases(bindings)
    }

    /// Checks that a written binding overlaps no other.
    fn check_aliases(&self, bindings: &[&Storage]) -> Result<()> {
        for (written, (storage, binding)) in bindings.iter().zip(&self.bindings).enumerate() {
            if !matches!(binding.access, Some(Access::Out | Access::InOut)) {
                continue;
            }
            let shares = |(other, another): (usize, &&Storage)| other != written && storage.overlaps(another);
            if let Some(other) = bindings.iter().enumerate().position(shares) {
                return Err(Error::mistake(format!(
                    "replay: binding {written} is written and shares bytes with binding {other}; pass a copy of one"
                )));
            }
        }
        Ok(())
    }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        if let Some(command_buffer) = self.command_buffer.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.device.raw().destroy_command_buffer(command_buffer);
        }
    }
}

impl std::fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "CommandBuffer({} commands over {} bindings on {})",
            self.entries.len(),
            self.bindings.len(),
            self.device
        )
    }
}
