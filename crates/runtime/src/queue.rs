//! Queues: the order in which a device executes work.
//!
//! Work on one queue executes in submission order. Work on different queues can overlap; `hazard` orders conflicting uses of the
//! same bytes automatically.

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
use crate::memory::storage::{Storage, StorageAccess};
use crate::profile::entry::{ActivityKind, Entry};
use event::Event;
use hazard::{Accessor, Submission};
use readback::Readback;

/// A queue of a device. Clones refer to the same queue. Dropping the last clone returns the queue for reuse by [`Device::queue`].
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
        self.device.queues().free.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// The non-default queues of a device.
#[derive(Default)]
pub(crate) struct Queues {
    free: Mutex<Vec<QueueId>>,
    /// True once a second queue exists; until then host copies need no tickets.
    has_several: AtomicBool,
}

impl Device {
    /// Returns the queue that is used where none is specified.
    pub fn default_queue(&self) -> Queue {
        Queue { device: self.clone(), id: QueueId::DEFAULT, _lease: None }
    }

    /// Returns another queue, whose work can overlap with that of other queues.
    ///
    /// # Errors
    /// The device cannot create another queue, or pending work failed.
    pub fn queue(&self) -> Result<Queue> {
        let queues = self.queues();
        let free = queues.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let id = match free {
            Some(id) => id,
            None => {
                let id = self.raw().queue()?;
                if !queues.has_several.swap(true, Ordering::AcqRel) {
                    self.raw().synchronize()?;
                }
                id
            }
        };
        Ok(Queue { device: self.clone(), id, _lease: Some(Arc::new(Lease { device: self.clone(), id })) })
    }

    /// Submits commands that access the given storages, after the work they depend on. `name` describes each command for the profiler.
    pub(crate) fn enqueue<'s>(
        &self,
        queue: QueueId,
        commands: &[DeviceCommand],
        accesses: impl Iterator<Item = StorageAccess<'s>> + Clone,
        timed: bool,
        name: impl Fn(usize) -> Entry,
    ) -> Result<Ticket> {
        self.in_order(queue, accesses, || match self.profiler().recording() {
            None => self.raw().submit(queue, commands, timed),
            Some(recording) => recording.submit(self, queue, commands, name),
        })
    }

    /// Calls `submit`, whose work accesses the given storages, after the queue waits for the work it depends on.
    pub(crate) fn in_order<'s>(
        &self,
        queue: QueueId,
        accesses: impl Iterator<Item = StorageAccess<'s>> + Clone,
        submit: impl FnOnce() -> Result<Ticket>,
    ) -> Result<Ticket> {
        let _locks = access::lock(accesses.clone())?;
        self.in_order_locked(queue, accesses, submit)
    }

    /// Like [`Device::in_order`], for a caller that holds the locks of these storages.
    fn in_order_locked<'s>(
        &self,
        queue: QueueId,
        accesses: impl Iterator<Item = StorageAccess<'s>> + Clone,
        submit: impl FnOnce() -> Result<Ticket>,
    ) -> Result<Ticket> {
        self.wait_for_hazards(Accessor::Command, queue, accesses.clone())?;
        let started = self.submissions();
        match submit() {
            Ok(ticket) => {
                self.record_uses(queue, started, &ticket, accesses);
                Ok(ticket)
            }
            Err(error) => {
                // Some commands can be executing without a ticket. An error here means that the device is lost, and they with it.
                let _ = self.raw().synchronize();
                Err(error)
            }
        }
    }

    fn wait_for_hazards<'s>(
        &self,
        by: Accessor,
        queue: QueueId,
        accesses: impl Iterator<Item = StorageAccess<'s>>,
    ) -> Result<()> {
        let mut waits = Vec::new();
        for (storage, access) in accesses {
            storage.with_uses(|uses, bytes| uses.before(by, queue, bytes, access, &mut waits))?;
        }
        if !waits.is_empty() {
            let commands: Vec<DeviceCommand> = waits.into_iter().map(DeviceCommand::Wait).collect();
            self.raw().submit(queue, &commands, false)?;
        }
        Ok(())
    }

    fn record_uses<'s>(
        &self,
        queue: QueueId,
        started: u64,
        ticket: &Ticket,
        accesses: impl Iterator<Item = StorageAccess<'s>>,
    ) {
        let ended = self.count_submission();
        if matches!(ticket, Ticket::Pending(_)) {
            let submission = Submission { queue, started, ended, ticket: ticket.clone() };
            for (storage, access) in accesses {
                storage.with_uses(|uses, bytes| uses.after(&submission, bytes, access));
            }
        }
    }
}

impl Queue {
    /// Returns the queue's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// Returns an event that completes after all work submitted to this queue so far.
    ///
    /// # Errors
    /// The device rejects the submission.
    pub fn record_event(&self) -> Result<Event> {
        let ticket = self.device.raw().submit(self.id, &[], false)?;
        Ok(Event::new(self.device.clone(), self.id, ticket))
    }

    /// Makes work submitted to this queue from now on wait for an event of another queue of the same device. Accesses to buffers need
    /// no events; they are ordered automatically.
    ///
    /// # Errors
    /// The event belongs to another device, or the device rejects the submission.
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

    /// Waits for all work submitted to this queue so far.
    ///
    /// # Errors
    /// That work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.record_event()?.wait()
    }

    pub(crate) fn write(&self, to: &Storage, bytes: &[u8]) -> Result<()> {
        self.check_device(to)?;
        same_length("write", to.bytes(), bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        let accesses = std::iter::once((to, Access::Out));
        let _locks = access::lock(accesses.clone())?;
        device.wait_for_hazards(Accessor::Host, self.id, accesses.clone())?;
        let started = device.submissions();
        device
            .profiler()
            .transfer(ActivityKind::Upload, self.id, to.bytes(), || device.raw().write(self.id, to.region(), bytes))?;
        device.count_upload(to.bytes());
        if device.queues().has_several.load(Ordering::Acquire) {
            let ticket = device.raw().submit(self.id, &[], false)?;
            device.record_uses(self.id, started, &ticket, accesses);
        }
        Ok(())
    }

    pub(crate) fn read_into(&self, from: &Storage, bytes: &mut [u8]) -> Result<()> {
        self.check_device(from)?;
        same_length("read", from.bytes(), bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        let _locks = access::lock(std::iter::once((from, Access::In)))?;
        device.wait_for_hazards(Accessor::Host, self.id, std::iter::once((from, Access::In)))?;
        device.profiler().transfer(ActivityKind::Download, self.id, from.bytes(), || {
            device.raw().read_into(self.id, from.region(), bytes)
        })?;
        device.count_download(from.bytes());
        // The work that wrote these bytes is complete now and can have failed during the wait.
        device.wait_for_hazards(Accessor::Host, self.id, std::iter::once((from, Access::In)))
    }

    pub(crate) fn read<T: Element>(&self, from: &Storage) -> Result<Readback<T>> {
        self.check_device(from)?;
        let device = &self.device;
        let accesses = std::iter::once((from, Access::In));
        let _locks = access::lock(accesses.clone())?;
        device.wait_for_hazards(Accessor::Host, self.id, accesses.clone())?;
        let started = device.submissions();
        let read = || device.raw().read(self.id, from.region());
        let ticket = match from.bytes() {
            0 => Ticket::Done,
            bytes => device.profiler().transfer(ActivityKind::Download, self.id, bytes, read)?,
        };
        device.count_download(from.bytes());
        device.record_uses(self.id, started, &ticket, accesses);
        Ok(Readback::new(ticket, from.clone()))
    }

    pub(crate) fn fill(&self, to: &Storage, pattern: &[u8]) -> Result<()> {
        self.check_device(to)?;
        let command = fill_command(to, pattern)?;
        if to.bytes() == 0 {
            return Ok(());
        }
        let accesses = std::iter::once((to, Access::Out));
        let name = |_| Entry::new(ActivityKind::Fill, "fill", to.bytes());
        self.device.enqueue(self.id, &[command], accesses, false, name).map(drop)
    }

    pub(crate) fn copy(&self, from: &Storage, to: &Storage) -> Result<()> {
        self.check_device(to)?;
        same_length("copy", to.bytes(), from.bytes())?;
        if to.bytes() == 0 {
            return Ok(());
        }
        if from.device() != to.device() {
            return self.copy_between(from, to);
        }
        let command = copy_command(from, to)?;
        let accesses = [(from, Access::In), (to, Access::Out)];
        let name = |_| Entry::new(ActivityKind::Copy, "copy", 2 * to.bytes());
        self.device.enqueue(self.id, &[command], accesses.into_iter(), false, name).map(drop)
    }

    /// Copies from another device: peer to peer if both belong to one driver that supports it, else through the host.
    fn copy_between(&self, from: &Storage, to: &Storage) -> Result<()> {
        let (device, other) = (&self.device, from.device());
        let peer = other.raw().peer(from.region());
        let here = device.raw().peer(to.region());
        let Some(peer) = peer.filter(|peer| here.is_some_and(|here| here.driver == peer.driver)) else {
            let bytes = from.read()?;
            return self.write(to, &bytes);
        };
        // A queue cannot wait for a ticket of another device, so the host waits: before the copy, and after it until the bytes can
        // be reused.
        let reads = std::iter::once((from, Access::In));
        let writes = std::iter::once((to, Access::Out));
        let _locks = access::lock(reads.clone().chain(writes.clone()))?;
        other.wait_for_hazards(Accessor::Host, QueueId::DEFAULT, reads.clone())?;
        other.default_queue().synchronize()?;
        other.wait_for_hazards(Accessor::Host, QueueId::DEFAULT, reads)?;
        let copy = || device.raw().copy_peer(self.id, to.region(), peer);
        let ticket = device.in_order_locked(self.id, writes, || {
            device.profiler().transfer(ActivityKind::Copy, self.id, 2 * to.bytes(), copy)
        })?;
        ticket.wait()
    }

    fn check_device(&self, storage: &Storage) -> Result<()> {
        if *storage.device() == self.device {
            return Ok(());
        }
        let (theirs, ours) = (storage.device(), &self.device);
        Err(Error::mistake(format!(
            "a buffer on {theirs} cannot be used on a queue of {ours}; copy it with `.to(&device)`"
        )))
    }
}

/// Returns a copy between disjoint bytes of one device.
pub(crate) fn copy_command(from: &Storage, to: &Storage) -> Result<DeviceCommand> {
    same_length("copy", to.bytes(), from.bytes())?;
    if from.overlaps(to) {
        return Err(Error::mistake("copy: the source and the destination share bytes; copy through a third buffer"));
    }
    Ok(DeviceCommand::Copy { from: from.region(), to: to.region() })
}

/// Returns a fill with a repeated pattern of 1, 2, 4 or 8 bytes.
pub(crate) fn fill_command(to: &Storage, pattern: &[u8]) -> Result<DeviceCommand> {
    let Region { offset, bytes, .. } = to.region();
    let size = pattern.len() as u64;
    if !matches!(size, 1 | 2 | 4 | 8) || bytes % size != 0 || offset % size != 0 {
        return Err(Error::mistake(format!(
            "fill: a pattern of {size} bytes does not fit {bytes} bytes at offset {offset}; its length must be 1, 2, 4 or 8 and divide both"
        )));
    }
    Ok(DeviceCommand::Fill { to: to.region(), pattern: pattern.to_vec() })
}

fn same_length(what: &str, device_bytes: u64, other_bytes: u64) -> Result<()> {
    if device_bytes == other_bytes {
        return Ok(());
    }
    Err(Error::mistake(format!(
        "{what}: {device_bytes} bytes on the device, but {other_bytes} bytes given; the sizes must be equal"
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
