//! A profile while it runs.
//!
//! Steps are submitted one by one while a profile runs, so that each has times of its own; a device that answers without
//! times (it was done before `submit` returned) is timed by the host's clock.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use panoply_device::{DeviceCommand, QueueId, Ticket};
use panoply_ir::Result;
use web_time::Instant;

use super::entry::{ActivityKind, Entry};
use crate::device::Device;

/// The profile of a device, if one runs. Asking costs one load when none does.
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

    /// Starts one; none if one runs already.
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

    /// Ends this one; another that runs since goes on.
    pub fn stop(&self, ended: &Arc<Recording>) {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if recording.as_ref().is_some_and(|running| Arc::ptr_eq(running, ended)) {
            self.active.store(false, Ordering::Release);
            *recording = None;
        }
    }

    /// Runs a transfer, timed by the host until the call returns.
    pub fn transfer<R>(
        &self,
        what: ActivityKind,
        queue: QueueId,
        bytes: u64,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Some(recording) = self.recording() else { return work() };
        let begin = recording.now();
        let done = work()?;
        recording.push(Entry::new(what, what.to_string(), bytes), queue, begin, Ticket::Done);
        Ok(done)
    }
}

pub(crate) struct Recording {
    begun: Instant,
    rows: Mutex<Vec<Row>>,
    spans: Mutex<Vec<Span>>,
}

/// A step that was submitted.
pub(crate) struct Row {
    pub entry: Entry,
    pub queue: QueueId,
    /// The innermost span it was submitted in.
    pub span: Option<usize>,
    /// When it was submitted, since the profile began.
    pub begin: Duration,
    /// When `submit` returned.
    pub end: Duration,
    pub ticket: Ticket,
}

/// A named stretch of the host's time.
#[derive(Clone)]
pub(crate) struct Span {
    pub name: Arc<str>,
    pub parent: Option<usize>,
    pub begin: Duration,
    /// The profile's end until it is over.
    pub end: Option<Duration>,
}

thread_local! {
    /// Spans open on this thread: the recording, by address, and the position in its list.
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

    /// Submits steps one by one, with times. The last ticket stands for all: a queue works in order.
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

    /// Runs work within a span; the span ends with it, by a panic too.
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
