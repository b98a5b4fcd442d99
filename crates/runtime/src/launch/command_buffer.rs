//! Work that is submitted many times: checked once, then replayed over other memory and with other numbers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use panoply_device::command_buffer::{BindingKind, BindingSlot, RawCommandBuffer};
use panoply_device::{Arg, DeviceCommand, QueueId, Region};
use panoply_ir::kernel::Access;
use panoply_ir::{DType, Error, Result, Scalar, Target};

use super::command::Command;
use crate::device::Device;
use crate::memory::storage::{Storage, Touch};
use crate::profile::entry::Entry;
use crate::program::compiled_kernel::CompiledKernel;
use crate::queue::event::Event;

/// Bindings whose bytes end below this are within reach of any index.
const REACH: u64 = 1 << 31;

/// Every binding begins as far from such a multiple as the recorded one, so that elements stay aligned, and parts of a launch see what
/// they did.
const ALIGN: u64 = Target::BINDING_ALIGN;

/// Work that was recorded. Its buffers are parts of bindings, of which every replay gives its own, and some of its numbers are slots.
pub struct CommandBuffer {
    device: Device,
    /// Present until drop.
    command_buffer: Mutex<Option<RawCommandBuffer>>,
    entries: Vec<Entry>,
    bindings: Vec<Binding>,
    slots: Vec<DType>,
    /// Programs live as long as the command buffer.
    _programs: Vec<Arc<CompiledKernel>>,
}

/// What a binding must be like.
struct Binding {
    bytes: u64,
    offset: u64,
    /// What the work does to it; nothing if it has no part in it.
    access: Option<Access>,
}

impl Device {
    /// Records work. Nothing runs. Each place says that an operand is a part of one of the bindings, or is one of the slots; every
    /// buffer has one, numbers without one stay as they are.
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
                return Err(Error::mistake(format!("record: {place:?} is the second for its operand; give each one")));
            }
            let access = check_place(place, work, &steps, bindings, slots)?;
            if let (BindingKind::Binding { binding, .. }, Some(access)) = (place.source, access) {
                let before = &mut known[binding as usize].access;
                *before = Some(if before.is_none_or(|before| before == access) { access } else { Access::InOut });
            }
        }
        let buffers: usize = work.iter().map(|one| one.touches().count()).sum();
        let placed = places.iter().filter(|place| matches!(place.source, BindingKind::Binding { .. })).count();
        if buffers != placed {
            return Err(Error::mistake(format!(
                "record: the work has {buffers} buffers, {placed} were said to be parts of bindings; say so of each"
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

/// What a step does to the binding of a place, if it has one; that the place fits what was recorded.
fn check_place(
    place: &BindingSlot,
    work: &[Command<'_>],
    steps: &[DeviceCommand],
    bindings: &[&Storage],
    slots: &[Scalar],
) -> Result<Option<Access>> {
    let wrong = || Error::mistake(format!("record: {place:?} is no operand of the work, or another than the work has"));
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
            // What lies beyond a part stays as it was.
            let part = region.bytes < binding.bytes;
            Ok(access.map(|access| if part && access == Access::Out { Access::InOut } else { access }))
        }
    }
}

impl CommandBuffer {
    /// Submits the work to the default queue, over these bindings and with these numbers: as many, as large and of the same types as
    /// those that were recorded.
    pub fn replay(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<Event> {
        self.check(bindings, slots)?;
        self.submit(bindings, slots)
    }

    /// [`CommandBuffer::replay`], or nothing if these are otherwise than those that were recorded.
    pub fn try_replay(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<Option<Event>> {
        match self.check(bindings, slots) {
            Ok(()) => self.submit(bindings, slots).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn submit(&self, bindings: &[&Storage], slots: &[Scalar]) -> Result<Event> {
        let regions: Vec<Region> = bindings.iter().map(|storage| storage.region()).collect();
        let touches = bindings.iter().zip(&self.bindings);
        let touches = touches.filter_map(|(storage, binding)| Some((*storage, binding.access?) as Touch<'_>));
        let (device, queue) = (&self.device, QueueId::DEFAULT);
        let mut held = self.command_buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let command_buffer = held.as_mut().expect("a recording keeps its command buffer until drop");
        let ticket = device.in_order(queue, touches, || match device.profiler().recording() {
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
                "replay: {} bindings and {} slots were given for {} and {}; give as many, of the same types",
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
                    "replay: binding {position} is {bytes} bytes at offset {offset} on {}, {} bytes at {} on {} were recorded; record \
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

    /// A binding that is written shares no bytes with another.
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
        write!(f, "Recorded({} steps over {} bindings on {})", self.entries.len(), self.bindings.len(), self.device)
    }
}
