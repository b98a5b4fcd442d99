//! Events of a timeline, and their recording on one rank.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use panoply_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

/// Events that a rank keeps, at most.
const MAX_EVENTS: usize = 1 << 20;

/// Type of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The closure of a task, from the reading of its arguments to the writing of its results.
    Task,
    /// A kernel or a routine on a device.
    Kernel,
    /// A copy or a fill on a device, or a copy between the host and a device.
    Copy,
    /// A copy between the memories of two devices for the argument of a task.
    Transfer,
    /// A message to another rank, a message from one, or a sum over all ranks, with the wait for the other ranks.
    Message,
}

impl EventKind {
    /// All types.
    pub const ALL: [EventKind; 5] =
        [EventKind::Task, EventKind::Kernel, EventKind::Copy, EventKind::Transfer, EventKind::Message];
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EventKind::Task => "task",
            EventKind::Kernel => "kernel",
            EventKind::Copy => "copy",
            EventKind::Transfer => "transfer",
            EventKind::Message => "message",
        })
    }
}

/// Something that took time on one lane of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The rank, 0 without a launcher.
    pub rank: usize,
    /// The tasks or a queue of a device, such as `cpu tasks` or `cuda:0 queue 0`, or `messages`.
    pub lane: String,
    /// Its type.
    pub kind: EventKind,
    /// Name of the task or kernel, or what was copied or sent.
    pub name: String,
    /// Start, since the timeline was started.
    pub begin: Duration,
    /// End, since the timeline was started.
    pub end: Duration,
    /// Bytes that were copied or sent, or that a kernel reads and writes; 0 for tasks.
    pub bytes: u64,
}

/// The timeline that is being recorded, if any. A check for one is an atomic load.
#[derive(Debug, Default)]
pub(crate) struct TimelineSwitch {
    is_on: AtomicBool,
    recorder: Mutex<Option<Arc<Recorder>>>,
}

/// Events since a start.
#[derive(Debug)]
pub(crate) struct Recorder {
    begun: Instant,
    rank: usize,
    events: Mutex<Vec<Event>>,
    dropped: AtomicU64,
}

/// An event that goes on.
pub(crate) struct OpenEvent {
    recorder: Arc<Recorder>,
    begin: Duration,
}

impl TimelineSwitch {
    /// Begins an event, if a timeline is recorded.
    pub fn begin(&self) -> Option<OpenEvent> {
        if !self.is_on.load(Ordering::Acquire) {
            return None;
        }
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let begin = recorder.begun.elapsed();
        Some(OpenEvent { recorder, begin })
    }

    /// Starts recording the events of a rank.
    pub fn start(&self, rank: usize) -> Result<Arc<Recorder>> {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        if recorder.is_some() {
            return Err(Error::mistake("a timeline is already being recorded; finish that one first"));
        }
        let (events, dropped) = (Mutex::default(), AtomicU64::new(0));
        let new = Arc::new(Recorder { begun: Instant::now(), rank, events, dropped });
        *recorder = Some(new.clone());
        self.is_on.store(true, Ordering::Release);
        Ok(new)
    }

    /// Stops recording.
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Release);
        *self.recorder.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl OpenEvent {
    /// Ends the event.
    pub fn end(self, lane: impl Into<String>, kind: EventKind, name: impl Into<String>, bytes: u64) {
        let OpenEvent { recorder, begin } = self;
        let (rank, end) = (recorder.rank, recorder.begun.elapsed());
        recorder.push(Event { rank, lane: lane.into(), kind, name: name.into(), begin, end, bytes });
    }
}

impl Recorder {
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the events, and how many were not kept.
    pub fn take(&self) -> (Vec<Event>, u64) {
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        (events, self.dropped.load(Ordering::Relaxed))
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match events.len() < MAX_EVENTS {
            true => events.push(event),
            false => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
