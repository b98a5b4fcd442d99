//! Tickets of submitted work, and waiting for them across queues.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cl3::event::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START, get_event_profiling_info, retain_event, wait_for_events,
};
use cl3::info_type::InfoType;
use cl3::types::cl_event;
use panoply_device::{Pending, Result, StepTime};

use super::errors::ErrorPhase;
use super::handles::Event;
use super::queue::{Queue, status};
use crate::lock::locked;
use crate::table::Table;

/// The submissions that another queue waits for. Only those are registered here, which is rare.
#[derive(Default)]
pub struct Tickets(Mutex<Table<TicketEvent>>);

/// An event that the [`Submitted`] of the same token owns; it is removed from the table before it is released.
struct TicketEvent(cl_event);

// SAFETY: events are not bound to a thread.
unsafe impl Send for TicketEvent {}

impl Tickets {
    /// Returns the event of a token with a reference of its own, or `None` if no ticket of this device has the token.
    pub fn event(&self, token: u64) -> Option<Event> {
        let list = locked(&self.0);
        let event = list.get(token)?.0;
        // SAFETY: the event is live: its owner removes it from the table, whose lock is held here, before it releases it.
        unsafe { retain_event(event) }.ok()?;
        // SAFETY: ownership of the reference just taken passes to the handle.
        Some(unsafe { Event::own(event) })
    }
}

/// A pending submission or read.
pub struct Submitted {
    /// Its id in the device's table of tickets, assigned on request.
    token: OnceLock<u64>,
    /// Complete when the last command is; commands of a queue complete in order.
    event: Event,
    /// For timed submissions, the event of each command; `None` for one that enqueued nothing.
    steps: Vec<Option<Event>>,
    /// The destination of a read, which the command writes until it is complete.
    bytes: Mutex<Option<Vec<u8>>>,
    queue: Arc<Queue>,
}

impl Submitted {
    /// Creates the ticket of a submission whose last command has this event.
    pub fn new(queue: Arc<Queue>, event: Event, steps: Vec<Option<Event>>, bytes: Option<Vec<u8>>) -> Submitted {
        Submitted { token: OnceLock::new(), event, steps, bytes: Mutex::new(bytes), queue }
    }
}

impl Pending for Submitted {
    fn poll(&self) -> Result<bool> {
        self.queue.flush()?;
        status(&self.event).map_err(|code| self.queue.shared().failed("running commands", code, ErrorPhase::Waiting))
    }

    fn wait(&self) -> Result<()> {
        self.queue.wait(&self.event)
    }

    fn take(&self) -> Option<Vec<u8>> {
        // Until it is complete the command writes into the bytes, so they must not be taken.
        if status(&self.event) == Ok(true) { locked(&self.bytes).take() } else { None }
    }

    fn times(&self) -> Vec<StepTime> {
        let known: Vec<Option<StepTime>> = self.steps.iter().map(|step| step.as_ref().map(ran)).collect();
        (0..known.len()).map(|i| known[i].unwrap_or_else(|| moment(&known, i))).collect()
    }

    fn token(&self) -> u64 {
        *self.token.get_or_init(|| locked(&self.queue.shared().tickets.0).insert(TicketEvent(self.event.raw())))
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if let Some(token) = self.token.get() {
            locked(&self.queue.shared().tickets.0).remove(*token);
        }
        let Some(bytes) = self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // The command writes into the bytes until it ends; if waiting fails they are leaked.
        let _ = wait_for_events(&[self.event.raw()]);
        if status(&self.event) == Ok(false) {
            std::mem::forget(bytes);
        }
    }
}

fn ran(event: &Event) -> StepTime {
    let at = |what| match get_event_profiling_info(event.raw(), what) {
        Ok(InfoType::Ulong(ns)) => ns,
        _ => 0,
    };
    StepTime { start_ns: at(CL_PROFILING_COMMAND_START), end_ns: at(CL_PROFILING_COMMAND_END) }
}

/// Returns the time of a command that enqueued nothing: an empty interval at the end of the previous command, or at the start of the next.
fn moment(known: &[Option<StepTime>], i: usize) -> StepTime {
    let before = known[..i].iter().flatten().last().map(|time| time.end_ns);
    let after = known[i..].iter().flatten().next().map(|time| time.start_ns);
    let ns = before.or(after).unwrap_or(0);
    StepTime { start_ns: ns, end_ns: ns }
}
