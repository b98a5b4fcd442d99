//! Queues: the order in which a device works.
//!
//! Work on one queue happens in the order it was submitted. Work on different queues overlaps where it may: what one writes
//! and another uses is ordered by `hazard`, without the caller's doing.

pub mod event;
pub(crate) mod hazard;
pub mod readback;
mod waker;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use panoply_device::{DeviceCommand, QueueId, Region, Ticket};
use panoply_ir::kernel::Access;
use panoply_ir::{Element, Error, Result};

use crate::device::Device;
use crate::memory::access;
use crate::memory::storage::{Storage, Touch};
use crate::profile::entry::{ActivityKind, Entry};
use event::Event;
use hazard::{Accessor, Submission};
use readback::Readback;

/// A queue of a device. Clones are the same queue; the last to go lends it to the next who asks for one.
#[derive(Clone)]
pub struct Queue {
    device: Device,
    id: QueueId,
    _lease: Option<Arc<Lease>>,
}

struct Lease {
    device: Device,
    id: QueueId,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.device.queues().vacant.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// The further queues of a device.
#[derive(Default)]
pub(crate) struct Queues {
    vacant: Mutex<Vec<QueueId>>,
    /// Whether there ever was more than the default queue; until then host copies need no tickets.
    several: AtomicBool,
}

impl Device {
    /// The queue on which everything happens that names none.
    pub fn default_queue(&self) -> Queue {
        Queue { device: self.clone(), id: QueueId::DEFAULT, _lease: None }
    }

    /// A further queue, whose work may overlap with others'.
    pub fn queue(&self) -> Result<Queue> {
        let queues = self.queues();
        let vacant = queues.vacant.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let id = match vacant {
            Some(id) => id,
            None => {
                let id = self.raw().queue()?;
                if !queues.several.swap(true, Ordering::AcqRel) {
                    self.raw().synchronize()?;
                }
                id
            }
        };
        Ok(Queue { device: self.clone(), id, _lease: Some(Arc::new(Lease { device: self.clone(), id })) })
    }

    /// Submits steps that touch these storages, after what they must wait for. `name` says what each step is.
    pub(crate) fn enqueue<'s>(
        &self,
        queue: QueueId,
        steps: &[DeviceCommand],
        touches: impl Iterator<Item = Touch<'s>> + Clone,
        timed: bool,
        name: impl Fn(usize) -> Entry,
    ) -> Result<Ticket> {
        self.in_order(queue, touches, || match self.profiler().recording() {
            None => self.raw().submit(queue, steps, timed),
            Some(recording) => recording.submit(self, queue, steps, name),
        })
    }

    /// Submits what touches these storages, after what it must wait for.
    pub(crate) fn in_order<'s>(
        &self,
        queue: QueueId,
        touches: impl Iterator<Item = Touch<'s>> + Clone,
        submit: impl FnOnce() -> Result<Ticket>,
    ) -> Result<Ticket> {
        let _locks = access::lock(touches.clone());
        self.in_order_locked(queue, touches, submit)
    }

    /// [`Device::in_order`] for who holds the locks of these storages.
    fn in_order_locked<'s>(
        &self,
        queue: QueueId,
        touches: impl Iterator<Item = Touch<'s>> + Clone,
        submit: impl FnOnce() -> Result<Ticket>,
    ) -> Result<Ticket> {
        self.wait_for_hazards(Accessor::Step, queue, touches.clone())?;
        let started = self.submissions();
        match submit() {
            Ok(ticket) => {
                self.remember(queue, started, &ticket, touches);
                Ok(ticket)
            }
            Err(error) => {
                // Some of the steps may be under way without a ticket to wait for; if the device is lost, so are they.
                let _ = self.raw().synchronize();
                Err(error)
            }
        }
    }

    fn wait_for_hazards<'s>(
        &self,
        by: Accessor,
        queue: QueueId,
        touches: impl Iterator<Item = Touch<'s>>,
    ) -> Result<()> {
        let mut waits = Vec::new();
        for (storage, access) in touches {
            storage.with_uses(|uses, bytes| uses.before(by, queue, bytes, access, &mut waits))?;
        }
        if !waits.is_empty() {
            let steps: Vec<DeviceCommand> = waits.into_iter().map(DeviceCommand::Wait).collect();
            self.raw().submit(queue, &steps, false)?;
        }
        Ok(())
    }

    fn remember<'s>(&self, queue: QueueId, started: u64, ticket: &Ticket, touches: impl Iterator<Item = Touch<'s>>) {
        let ended = self.count_submission();
        if matches!(ticket, Ticket::Pending(_)) {
            let submission = Submission { queue, started, ended, ticket: ticket.clone() };
            for (storage, access) in touches {
                storage.with_uses(|uses, bytes| uses.after(&submission, bytes, access));
            }
        }
    }
}

impl Queue {
    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// A moment after everything submitted to this queue so far.
    pub fn record_event(&self) -> Result<Event> {
        let ticket = self.device.raw().submit(self.id, &[], false)?;
        Ok(Event::new(self.device.clone(), self.id, ticket))
    }

    /// Lets what is submitted to this queue from here on wait for a moment of another queue of the same device. Buffers need
    /// no such thing, they are ordered by themselves.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        if event.device != self.device {
            let (theirs, ours) = (&event.device, &self.device);
            return Err(Error::mistake(format!(
                "a queue of {ours} cannot wait for an event of {theirs}; wait for it on the host"
            )));
        }
        if event.queue != self.id && matches!(event.ticket, Ticket::Pending(_)) {
            self.device.raw().submit(self.id, &[DeviceCommand::Wait(event.ticket.clone())], false)?;
        }
        Ok(())
    }

    /// Waits for everything submitted to this queue so far.
    pub fn synchronize(&self) -> Result<()> {
        self.record_event()?.wait()
    }

    pub(crate) fn write(&self, to: &Storage, bytes: &[u8]) -> Result<()> {
        self.is_home_of(to)?;
        same_length("write", to.bytes(), bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        let touches = std::iter::once((to, Access::Out));
        let _locks = access::lock(touches.clone());
        device.wait_for_hazards(Accessor::Host, self.id, touches.clone())?;
        let started = device.submissions();
        device
            .profiler()
            .transfer(ActivityKind::Upload, self.id, to.bytes(), || device.raw().write(self.id, to.region(), bytes))?;
        device.count_upload(to.bytes());
        if device.queues().several.load(Ordering::Acquire) {
            let ticket = device.raw().submit(self.id, &[], false)?;
            device.remember(self.id, started, &ticket, touches);
        }
        Ok(())
    }

    pub(crate) fn read_into(&self, from: &Storage, bytes: &mut [u8]) -> Result<()> {
        self.is_home_of(from)?;
        same_length("read", from.bytes(), bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        let _locks = access::lock(std::iter::once((from, Access::In)));
        device.wait_for_hazards(Accessor::Host, self.id, std::iter::once((from, Access::In)))?;
        device.profiler().transfer(ActivityKind::Download, self.id, from.bytes(), || {
            device.raw().read_into(self.id, from.region(), bytes)
        })?;
        device.count_download(from.bytes());
        // What wrote these bytes is over now, and may have failed while this waited.
        device.wait_for_hazards(Accessor::Host, self.id, std::iter::once((from, Access::In)))
    }

    pub(crate) fn read<T: Element>(&self, from: &Storage) -> Result<Readback<T>> {
        self.is_home_of(from)?;
        let device = &self.device;
        let touches = std::iter::once((from, Access::In));
        let _locks = access::lock(touches.clone());
        device.wait_for_hazards(Accessor::Host, self.id, touches.clone())?;
        let started = device.submissions();
        let read = || device.raw().read(self.id, from.region());
        let ticket = match from.bytes() {
            0 => Ticket::Done,
            bytes => device.profiler().transfer(ActivityKind::Download, self.id, bytes, read)?,
        };
        device.count_download(from.bytes());
        device.remember(self.id, started, &ticket, touches);
        Ok(Readback::new(ticket, from.clone()))
    }

    pub(crate) fn fill(&self, to: &Storage, pattern: &[u8]) -> Result<()> {
        self.is_home_of(to)?;
        let step = fill_step(to, pattern)?;
        if to.bytes() == 0 {
            return Ok(());
        }
        let touches = std::iter::once((to, Access::Out));
        let name = |_| Entry::new(ActivityKind::Fill, "fill", to.bytes());
        self.device.enqueue(self.id, &[step], touches, false, name).map(drop)
    }

    pub(crate) fn copy(&self, from: &Storage, to: &Storage) -> Result<()> {
        self.is_home_of(to)?;
        same_length("copy", to.bytes(), from.bytes())?;
        if to.bytes() == 0 {
            return Ok(());
        }
        if from.device() != to.device() {
            return self.copy_between(from, to);
        }
        let step = copy_step(from, to)?;
        let touches = [(from, Access::In), (to, Access::Out)];
        let name = |_| Entry::new(ActivityKind::Copy, "copy", 2 * to.bytes());
        self.device.enqueue(self.id, &[step], touches.into_iter(), false, name).map(drop)
    }

    /// A copy from another device: between the two where their driver can, else through the host.
    fn copy_between(&self, from: &Storage, to: &Storage) -> Result<()> {
        let (device, other) = (&self.device, from.device());
        let peer = other.raw().peer(from.region());
        let here = device.raw().peer(to.region());
        let Some(peer) = peer.filter(|peer| here.is_some_and(|here| here.driver == peer.driver)) else {
            let bytes = from.read()?;
            return self.write(to, &bytes);
        };
        // Queues of one device wait for no ticket of another, so the host does: before, and after, when these bytes may be written again.
        let reads = std::iter::once((from, Access::In));
        let writes = std::iter::once((to, Access::Out));
        let _locks = access::lock(reads.clone().chain(writes.clone()));
        other.wait_for_hazards(Accessor::Host, QueueId::DEFAULT, reads.clone())?;
        other.default_queue().synchronize()?;
        other.wait_for_hazards(Accessor::Host, QueueId::DEFAULT, reads)?;
        let copy = || device.raw().copy_peer(self.id, to.region(), peer);
        let ticket = device.in_order_locked(self.id, writes, || {
            device.profiler().transfer(ActivityKind::Copy, self.id, 2 * to.bytes(), copy)
        })?;
        ticket.wait()
    }

    fn is_home_of(&self, storage: &Storage) -> Result<()> {
        if *storage.device() == self.device {
            return Ok(());
        }
        let (theirs, ours) = (storage.device(), &self.device);
        Err(Error::mistake(format!(
            "a buffer on {theirs} cannot be used on a queue of {ours}; copy it with `.to(&device)`"
        )))
    }
}

/// A copy between different bytes of one device.
pub(crate) fn copy_step(from: &Storage, to: &Storage) -> Result<DeviceCommand> {
    same_length("copy", to.bytes(), from.bytes())?;
    if from.overlaps(to) {
        return Err(Error::mistake("copy: the source and the destination share bytes; copy through a third buffer"));
    }
    Ok(DeviceCommand::Copy { from: from.region(), to: to.region() })
}

/// A repeated pattern of 1, 2, 4 or 8 bytes.
pub(crate) fn fill_step(to: &Storage, pattern: &[u8]) -> Result<DeviceCommand> {
    let Region { offset, bytes, .. } = to.region();
    let size = pattern.len() as u64;
    if !matches!(size, 1 | 2 | 4 | 8) || bytes % size != 0 || offset % size != 0 {
        return Err(Error::mistake(format!(
            "fill: a pattern of {size} bytes does not fill {bytes} bytes at offset {offset}; it has 1, 2, 4 or 8 bytes that divide both"
        )));
    }
    Ok(DeviceCommand::Fill { to: to.region(), pattern: pattern.to_vec() })
}

fn same_length(what: &str, device_bytes: u64, other_bytes: u64) -> Result<()> {
    if device_bytes == other_bytes {
        return Ok(());
    }
    Err(Error::mistake(format!(
        "{what}: {device_bytes} bytes on the device and {other_bytes} bytes; they must be as many"
    )))
}

impl PartialEq for Queue {
    fn eq(&self, other: &Queue) -> bool {
        self.device == other.device && self.id == other.id
    }
}

impl Eq for Queue {}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}", self.id.0, self.device)
    }
}
