//! A running profile.
//!
//! During profiling, commands are submitted individually so that each gets its own times. If the device completes a command within
//! `submit` and returns no times, the host's clock is used.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use panoply_device::{DeviceCommand, QueueId, Ticket};
use panoply_ir::Result;
use web_time::Instant;

use super::entry::{ActivityKind, Entry};
use crate::device::Device;

/// The running profile of a device, if any. Checking for one costs a single atomic load when none runs.
#[derive(Default)]
pub(crate) struct Profiler {
    active: AtomicBool,
    recording: Mutex<Option<Arc<Recording>>>,
}

impl Profiler {
    pub fn recording(&self) -> Option<Arc<Recording>> {
        if !self.active.load(Ordering::Acquire) {
            return None;
        }
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a profile; `None` if one is already running.
    pub fn start(&self) -> Option<Arc<Recording>> {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if recording.is_some() {
            return None;
        }
        let new = Arc::new(Recording::new());
        *recording = Some(new.clone());
        self.active.store(true, Ordering::Release);
        Some(new)
    }

    /// Stops this profile; a different profile started since then keeps running.
    pub fn stop(&self, ended: &Arc<Recording>) {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if recording.as_ref().is_some_and(|running| Arc::ptr_eq(running, ended)) {
            self.active.store(false, Ordering::Release);
            *recording = None;
        }
    }

    /// Runs a transfer, timed on the host until the call returns.
    pub fn transfer<R>(
        &self,
        kind: ActivityKind,
        queue: QueueId,
        bytes: u64,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Some(recording) = self.recording() else { return work() };
        let begin = recording.now();
        let done = work()?;
        recording.push(Entry::new(kind, kind.to_string(), bytes), queue, begin, Ticket::Done);
        Ok(done)
    }
}

pub(crate) struct Recording {
    begun: Instant,
    rows: Mutex<Vec<Row>>,
    spans: Mutex<Vec<Span>>,
}

/// A submitted command.
pub(crate) struct Row {
    pub entry: Entry,
    pub queue: QueueId,
    /// Innermost span in which it was submitted.
    pub span: Option<usize>,
    /// Submission time since the start of the profile.
    pub begin: Duration,
    /// Time at which `submit` returned.
    pub end: Duration,
    pub ticket: Ticket,
}

/// A named interval of host time.
#[derive(Clone)]
pub(crate) struct Span {
    pub name: Arc<str>,
    pub parent: Option<usize>,
    pub begin: Duration,
    /// End of the span; `None` while it is open.
    pub end: Option<Duration>,
}

thread_local! {
    /// Open spans of this thread, as pairs of the recording's address and the index in its list.
    static OPEN: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

impl Recording {
    fn new() -> Recording {
        Recording { begun: Instant::now(), rows: Mutex::default(), spans: Mutex::default() }
    }

    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_span(&self) -> Option<usize> {
        let address = std::ptr::from_ref(self).addr();
        OPEN.with_borrow(|open| open.iter().rev().find(|(recording, _)| *recording == address).map(|(_, span)| *span))
    }

    fn push(&self, entry: Entry, queue: QueueId, begin: Duration, ticket: Ticket) {
        let row = Row { entry, queue, span: self.open_span(), begin, end: self.now(), ticket };
        self.rows().push(row);
    }

    /// Submits commands individually, with times. Returns the last ticket, which covers all of them because a queue works in order.
    pub fn submit(
        &self,
        device: &Device,
        queue: QueueId,
        steps: &[DeviceCommand],
        name: impl Fn(usize) -> Entry,
    ) -> Result<Ticket> {
        let mut last = Ticket::Done;
        for (position, step) in steps.iter().enumerate() {
            let begin = self.now();
            last = device.raw().submit(queue, std::slice::from_ref(step), true)?;
            self.push(name(position), queue, begin, last.clone());
        }
        Ok(last)
    }

    /// Runs `work` within a span. The span ends when `work` returns or panics.
    pub fn span<R>(&self, name: &str, work: impl FnOnce() -> R) -> R {
        struct Close<'a>(&'a Recording, usize);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                OPEN.with_borrow_mut(|open| open.pop());
                self.0.spans()[self.1].end = Some(self.0.now());
            }
        }
        let span = Span { name: name.into(), parent: self.open_span(), begin: self.now(), end: None };
        let position = {
            let mut spans = self.spans();
            spans.push(span);
            spans.len() - 1
        };
        OPEN.with_borrow_mut(|open| open.push((std::ptr::from_ref(self).addr(), position)));
        let _close = Close(self, position);
        work()
    }
}
