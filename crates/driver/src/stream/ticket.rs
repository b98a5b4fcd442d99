//! Work under way, and how others wait for it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use panoply_device::{Pending, Result, StepTime, Ticket};

use super::handles::{Block, Event};
use super::queue::Queue;
use crate::lock::locked;
use crate::table::Table;

/// Submissions that somebody named in a wait. The others, nearly all, never take a place.
#[derive(Default)]
pub struct Tickets(Mutex<Table<Arc<Event>>>);

impl Tickets {
    /// The event of a token; none if no ticket of this device has the token.
    pub fn event(&self, token: u64) -> Option<Arc<Event>> {
        locked(&self.0).get(token).cloned()
    }
}

/// Where a read puts its bytes.
pub enum Data {
    /// Pinned memory, of which so many bytes were asked for.
    Pinned(Block, usize),
    /// They are here already.
    Here(Vec<u8>),
}

/// When the steps of a timed submission ran.
pub struct Times {
    /// The moment from which the device's times count.
    pub clock: Arc<Event>,
    /// The submission's first moment, from which its steps count: milliseconds in f32 are too coarse far from the clock's.
    pub first: Event,
    /// The moments before and after each step; a wait has the second only.
    pub spans: Vec<(Option<Event>, Event)>,
}

/// A submission or read under way.
pub struct Submitted {
    token: OnceLock<u64>,
    event: Arc<Event>,
    times: Option<Times>,
    data: Mutex<Option<Data>>,
    queue: Arc<Queue>,
}

impl Submitted {
    /// The ticket of what ends with an event.
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
            // SAFETY: the copy into the block is done, and it has as many bytes.
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
        // The copy writes into the block until it ends; if it cannot be waited for the block is never given back.
        if let Some(data) = data
            && self.event.wait().is_err()
        {
            std::mem::forget(data);
        }
    }
}
