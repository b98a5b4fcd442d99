//! Tickets of submitted work, and waiting for them across queues.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use panoply_device::{Pending, Result, StepTime, Ticket};

use super::handles::{Block, Event};
use super::queue::Queue;
use crate::lock::locked;
use crate::table::Table;

/// The submissions that another queue waits for. Only those are registered here, which is rare.
#[derive(Default)]
pub struct Tickets(Mutex<Table<Arc<Event>>>);

impl Tickets {
    /// Returns the event of a token, or `None` if no ticket of this device has the token.
    pub fn event(&self, token: u64) -> Option<Arc<Event>> {
        locked(&self.0).get(token).cloned()
    }
}

/// The destination of a read.
pub enum Data {
    /// Pinned memory, and the number of bytes that were requested.
    Pinned(Block, usize),
    /// Bytes that were already read.
    Here(Vec<u8>),
}

/// Events that measure the commands of a timed submission.
pub struct Times {
    /// The event that the device's times are relative to.
    pub clock: Arc<Event>,
    /// The start of the submission, which its commands are measured from: milliseconds in f32 are too coarse far from the clock's event.
    pub first: Event,
    /// The events before and after each command; a wait has only the second.
    pub spans: Vec<(Option<Event>, Event)>,
}

/// A pending submission or read.
pub struct Submitted {
    token: OnceLock<u64>,
    event: Arc<Event>,
    times: Option<Times>,
    data: Mutex<Option<Data>>,
    queue: Arc<Queue>,
}

impl Submitted {
    /// Creates the ticket of work that ends with an event.
    pub fn ticket(queue: &Arc<Queue>, event: Event, times: Option<Times>, data: Option<Data>) -> Ticket {
        let queue = queue.clone();
        let (event, data) = (Arc::new(event), Mutex::new(data));
        Ticket::Pending(Arc::new(Submitted { token: OnceLock::new(), event, times, data, queue }))
    }
}

impl Pending for Submitted {
    fn poll(&self) -> Result<bool> {
        self.event.is_done()
    }

    fn wait(&self) -> Result<()> {
        self.event.wait()
    }

    fn take(&self) -> Option<Vec<u8>> {
        if !matches!(self.event.is_done(), Ok(true)) {
            return None;
        }
        match locked(&self.data).take()? {
            // SAFETY: the copy into the block is complete, and the block has that number of bytes.
            Data::Pinned(block, bytes) => Some(unsafe { block.bytes(bytes) }.to_vec()),
            Data::Here(bytes) => Some(bytes),
        }
    }

    fn times(&self) -> Vec<StepTime> {
        let Some(Times { clock, first, spans }) = &self.times else { return Vec::new() };
        let base = first.ns_after(clock).unwrap_or(0.0);
        let at = |event: &Event| (base + event.ns_after(first).unwrap_or(0.0)).max(0.0) as u64;
        let ran = |(start, end): &(Option<Event>, Event)| StepTime {
            start_ns: at(start.as_ref().unwrap_or(end)),
            end_ns: at(end),
        };
        spans.iter().map(ran).collect()
    }

    fn token(&self) -> u64 {
        let tickets = &self.queue.stream.context.tickets;
        *self.token.get_or_init(|| locked(&tickets.0).insert(self.event.clone()))
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if let Some(token) = self.token.get() {
            locked(&self.queue.stream.context.tickets.0).remove(*token);
        }
        let data = self.data.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The copy writes into the block until it ends; if waiting fails the block is leaked.
        if let Some(data) = data
            && self.event.wait().is_err()
        {
            std::mem::forget(data);
        }
    }
}
