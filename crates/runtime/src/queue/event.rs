//! Events that mark a position in a queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use panoply_device::{QueueId, Ticket};
use panoply_ir::Result;

use super::waker::Waiting;
use crate::device::Device;

/// The work on a queue up to a point: poll it, wait for it, or `.await` it.
pub struct Event {
    pub(crate) device: Device,
    pub(crate) queue: QueueId,
    pub(crate) ticket: Ticket,
    waiting: Waiting,
}

impl Event {
    pub(crate) fn new(device: Device, queue: QueueId, ticket: Ticket) -> Event {
        Event { device, queue, ticket, waiting: Waiting::default() }
    }

    /// Returns true if the work is complete.
    ///
    /// # Errors
    /// The work failed.
    pub fn is_done(&self) -> Result<bool> {
        self.ticket.poll()
    }

    /// Waits for the work.
    ///
    /// # Errors
    /// The work failed.
    pub fn wait(&self) -> Result<()> {
        self.ticket.wait()
    }

    /// Waits for the work and returns its duration on the device's clock. `None` for work submitted without timing (see
    /// [`crate::Launch::launch_timed`]) and for devices without a clock.
    ///
    /// # Errors
    /// The work failed.
    pub fn elapsed_time(&self) -> Result<Option<Duration>> {
        let times = self.ticket.times()?;
        let start = times.iter().map(|time| time.start_ns).min();
        let end = times.iter().map(|time| time.end_ns).max();
        Ok(start.zip(end).map(|(start, end)| Duration::from_nanos(end.saturating_sub(start))))
    }
}

impl Future for Event {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let ticket = self.ticket.clone();
        self.waiting.poll(&ticket, context)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?} on {})", self.ticket, self.device)
    }
}
