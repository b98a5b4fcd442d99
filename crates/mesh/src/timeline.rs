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
use std::sync::Arc;
use std::time::Duration;

use panoply_runtime::Profiler;
use panoply_runtime::profile::report::ActivityKind;
use panoply_tensor::{Device, Error, Result};
use serde::{Deserialize, Serialize};

pub use crate::events::{Event, EventKind};
use crate::events::{Recorder, TimelineSwitch};
use crate::group::RankGroup;

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

/// The events of one rank.
#[derive(Default, Serialize, Deserialize)]
struct Part {
    events: Vec<Event>,
    duration: Duration,
    dropped: u64,
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
            let offset = recording.recorder.now();
            recording.profiles.push((device.clone(), profiler, offset));
        }
        Ok(recording)
    }

    /// Waits for the devices and returns the timeline: on rank 0 with the events of all ranks, on the others with their own. All ranks must
    /// call it.
    ///
    /// # Errors
    /// If work on a device, or the communication, failed; on rank 0 also if work on a device of another rank failed.
    pub fn finish(mut self) -> Result<Timeline> {
        let profiled = self.add_profiles();
        let duration = self.recorder.now();
        self.switch.stop();
        let (events, dropped) = self.recorder.take();
        let own = Part { events, duration, dropped };
        let Some(group) = &self.group else { return profiled.map(|()| Timeline::of(1, [own])) };
        // A rank that failed takes part in the exchange, so that no other rank waits for it.
        let bytes = profiled.and_then(|()| serde_json::to_vec(&own).map_err(|error| Error::mistake(error.to_string())));
        let lengths = group.gather_counts(bytes.as_ref().map_or(0, Vec::len))?;
        if group.own_rank() > 0 {
            group.send_value(0, LABEL, &bytes)?;
            return bytes.map(|_| Timeline::of(lengths.len(), [own]));
        }
        let others = lengths.iter().enumerate().skip(1);
        let received = others.map(|(rank, length)| group.receive_value(rank, LABEL, *length));
        let received = received.collect::<Result<Vec<Result<Vec<u8>>>>>()?;
        bytes?;
        let mut parts = vec![own];
        for (rank, bytes) in (1..).zip(received) {
            let bytes = bytes.map_err(|error| error.note(format!("on rank {rank}")))?;
            let wrong = |error: serde_json::Error| Error::corrupt(format!("the timeline of rank {rank}: {error}"));
            parts.push(serde_json::from_slice(&bytes).map_err(wrong)?);
        }
        Ok(Timeline::of(lengths.len(), parts))
    }

    /// Ends the profiles of the devices, of which all are ended if one fails, and adds their commands to the events.
    fn add_profiles(&mut self) -> Result<()> {
        let mut done = Ok(());
        for (device, profiler, offset) in std::mem::take(&mut self.profiles) {
            let report = match profiler.finish() {
                Ok(report) => report,
                Err(error) => {
                    done = done.and(Err(error));
                    continue;
                }
            };
            for command in &report.commands {
                let kind = match command.kind {
                    ActivityKind::Kernel | ActivityKind::Routine => EventKind::Kernel,
                    ActivityKind::Copy | ActivityKind::Fill | ActivityKind::Upload | ActivityKind::Download => {
                        EventKind::Copy
                    }
                };
                let (begin, end) = (offset + command.begin, offset + command.begin + command.time);
                let lane = format!("{} queue {}", device.device_string(), command.queue);
                let (rank, name, bytes) = (self.recorder.rank(), command.name.clone(), command.bytes);
                self.recorder.push(Event { rank, lane, kind, name, begin, end, bytes });
            }
        }
        done
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
