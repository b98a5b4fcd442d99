//! Timelines of a program: tasks, kernels, copies and messages of all ranks on one axis, as a trace for Perfetto or as an image.
//!
//! ```
//! use panoply_mesh::{In, Mesh};
//! use panoply_tensor::{DType, Tensor};
//!
//! let mesh = Mesh::open()?;
//! let x = mesh.data(&Tensor::ones([64, 64], DType::F32))?;
//! let recording = mesh.record_timeline()?;
//! mesh.spawn("square", In(&x), |x| x.matmul(&x))?;
//! mesh.wait()?;
//! let timeline = recording.finish()?;
//! assert!(timeline.events.iter().any(|event| event.name == "square"));
//! std::fs::write(std::env::temp_dir().join("timeline.json"), timeline.chrome_trace()?).unwrap();
//! std::fs::write(std::env::temp_dir().join("timeline.svg"), timeline.svg()).unwrap();
//! # Ok::<(), panoply_tensor::Error>(())
//! ```

mod chart;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use panoply_runtime::Profiler;
use panoply_runtime::profile::report::ActivityKind;
use panoply_tensor::{Device, Error, Result};
use serde::{Deserialize, Serialize};

use crate::group::RankGroup;

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
    /// Where it happened: the tasks or a queue of a device, such as `cpu tasks` or `cuda:0 queue 0`, or `messages`.
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

/// The events of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Number of ranks.
    pub ranks: usize,
    /// Events by rank, lane and start.
    pub events: Vec<Event>,
    /// Time from the start to the end of the longest rank.
    pub duration: Duration,
    /// Events that were not kept, since a rank had more than a million.
    pub dropped: u64,
}

/// What a rank recorded.
#[derive(Default, Serialize, Deserialize)]
struct Part {
    events: Vec<Event>,
    duration: Duration,
    dropped: u64,
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

    fn start(&self, rank: usize) -> Result<Arc<Recorder>> {
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

    fn stop(&self) {
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
    fn push(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match events.len() < MAX_EVENTS {
            true => events.push(event),
            false => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// A timeline that is being recorded. Dropping it without [`TimelineRecording::finish`] discards it.
pub struct TimelineRecording {
    switch: Arc<TimelineSwitch>,
    recorder: Arc<Recorder>,
    group: Option<RankGroup>,
    /// The profile of each device, and when it started.
    profiles: Vec<(Device, Profiler, Duration)>,
}

impl TimelineRecording {
    /// Starts recording the kernels and copies of these devices, and the messages of a group. All ranks of the group must call it, and the
    /// times of each rank count from the moment when all have.
    ///
    /// Commands of the devices are submitted one by one meanwhile, which takes more time.
    ///
    /// # Errors
    /// If a timeline of the group is being recorded, or a device is being profiled.
    pub fn start(group: Option<&RankGroup>, devices: &[Device]) -> Result<TimelineRecording> {
        let switch = group.map_or_else(Arc::default, |group| group.timeline().clone());
        TimelineRecording::start_with(switch, group.cloned(), devices)
    }

    pub(crate) fn start_with(
        switch: Arc<TimelineSwitch>,
        group: Option<RankGroup>,
        devices: &[Device],
    ) -> Result<TimelineRecording> {
        if let Some(group) = &group {
            // No rank goes on before all have come here.
            group.gather_counts(0)?;
        }
        let recorder = switch.start(group.as_ref().map_or(0, RankGroup::own_rank))?;
        let mut recording = TimelineRecording { switch, recorder, group, profiles: Vec::new() };
        for device in devices {
            let profiler = Profiler::start(device)?;
            let offset = recording.recorder.begun.elapsed();
            recording.profiles.push((device.clone(), profiler, offset));
        }
        Ok(recording)
    }

    /// Waits for the devices and returns the timeline: on rank 0 with the events of all ranks, on the others with their own. All ranks must
    /// call it.
    ///
    /// # Errors
    /// If work on a device, or the communication, failed.
    pub fn finish(mut self) -> Result<Timeline> {
        for (device, profiler, offset) in std::mem::take(&mut self.profiles) {
            let report = profiler.finish()?;
            for command in &report.commands {
                let kind = match command.kind {
                    ActivityKind::Kernel | ActivityKind::Routine => EventKind::Kernel,
                    ActivityKind::Copy | ActivityKind::Fill | ActivityKind::Upload | ActivityKind::Download => {
                        EventKind::Copy
                    }
                };
                let (begin, end) = (offset + command.begin, offset + command.begin + command.time);
                let lane = format!("{} queue {}", device.device_string(), command.queue);
                let (rank, name, bytes) = (self.recorder.rank, command.name.clone(), command.bytes);
                self.recorder.push(Event { rank, lane, kind, name, begin, end, bytes });
            }
        }
        let duration = self.recorder.begun.elapsed();
        self.switch.stop();
        let events = std::mem::take(&mut *self.recorder.events.lock().unwrap_or_else(PoisonError::into_inner));
        let own = Part { events, duration, dropped: self.recorder.dropped.load(Ordering::Relaxed) };
        let Some(group) = &self.group else { return Ok(Timeline::of(1, [own])) };
        let bytes = serde_json::to_vec(&own).map_err(|error| Error::mistake(error.to_string()));
        let lengths = group.gather_counts(bytes.as_ref().map_or(0, Vec::len))?;
        if group.own_rank() > 0 {
            group.send_value(0, LABEL, &bytes)?;
            return Ok(Timeline::of(lengths.len(), [own]));
        }
        let mut parts = vec![own];
        for (rank, length) in lengths.iter().enumerate().skip(1) {
            let bytes = group.receive_value(rank, LABEL, *length)??;
            let wrong = |error: serde_json::Error| Error::corrupt(format!("the timeline of rank {rank}: {error}"));
            parts.push(serde_json::from_slice(&bytes).map_err(wrong)?);
        }
        Ok(Timeline::of(lengths.len(), parts))
    }
}

/// Label of the message with a rank's events.
const LABEL: &str = "timeline";

impl Drop for TimelineRecording {
    fn drop(&mut self) {
        self.switch.stop();
    }
}

impl Timeline {
    fn of(ranks: usize, parts: impl IntoIterator<Item = Part>) -> Timeline {
        let mut timeline = Timeline { ranks, events: Vec::new(), duration: Duration::ZERO, dropped: 0 };
        for part in parts {
            timeline.events.extend(part.events);
            timeline.duration = timeline.duration.max(part.duration);
            timeline.dropped += part.dropped;
        }
        timeline.events.sort_by(|a, b| (a.rank, &a.lane, a.begin).cmp(&(b.rank, &b.lane, b.begin)));
        timeline
    }

    /// Returns the share of [`Timeline::duration`] in which a lane is busy, in `0.0..=1.0`, by rank and lane.
    pub fn busy(&self) -> BTreeMap<(usize, &str), f64> {
        let mut lanes: BTreeMap<(usize, &str), (Duration, Duration)> = BTreeMap::new();
        for event in &self.events {
            // Events of a lane are sorted by their start and can overlap.
            let (total, until) = lanes.entry((event.rank, &event.lane)).or_default();
            *total += event.end.saturating_sub(event.begin.max(*until));
            *until = event.end.max(*until);
        }
        let whole = self.duration.as_secs_f64();
        let share = |total: Duration| if whole > 0.0 { (total.as_secs_f64() / whole).min(1.0) } else { 0.0 };
        lanes.into_iter().map(|(lane, (total, _))| (lane, share(total))).collect()
    }

    /// Returns the events in Chrome's trace event format, which Perfetto (<https://ui.perfetto.dev>) opens: a process for each rank and a
    /// thread for each lane.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn chrome_trace(&self) -> Result<String> {
        let lanes: Vec<(usize, &str)> = self.busy().into_keys().collect();
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let named = |what: &str, rank: usize, lane: usize, name: &str| serde_json::json!({"ph": "M", "name": what, "pid": rank, "tid": lane, "args": {"name": name}});
        let ranks = (0..self.ranks).map(|rank| named("process_name", rank, 0, &format!("rank {rank}")));
        let threads = lanes.iter().enumerate().map(|(at, (rank, lane))| named("thread_name", *rank, at, lane));
        let events = self.events.iter().map(|event| {
            let lane = lanes.binary_search(&(event.rank, event.lane.as_str())).unwrap_or(0);
            serde_json::json!({
                "ph": "X", "name": event.name, "cat": event.kind.to_string(), "pid": event.rank, "tid": lane,
                "ts": micros(event.begin), "dur": micros(event.end.saturating_sub(event.begin)),
                "args": {"bytes": event.bytes},
            })
        });
        let events: Vec<serde_json::Value> = ranks.chain(threads).chain(events).collect();
        let trace = serde_json::json!({"displayTimeUnit": "ns", "traceEvents": events});
        serde_json::to_string(&trace).map_err(|error| Error::mistake(error.to_string()))
    }

    /// Returns a Gantt chart as an SVG image: a row for each lane with the share of time in which it is busy.
    pub fn svg(&self) -> String {
        chart::svg(self)
    }
}
