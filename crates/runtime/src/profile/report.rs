//! Reports of finished profiles.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use panoply_ir::Result;

pub use super::entry::ActivityKind;
use super::recording::{Recording, Row, Span};
use super::trace;
use crate::byte_size::human;
use crate::device::Device;

/// Report of a device's work during a profile.
#[derive(Clone, Debug)]
pub struct ProfileReport {
    /// Name of the device, such as `opencl:0`.
    pub device: String,
    /// Host time from start to finish.
    pub wall: Duration,
    /// Work by name, the most expensive first.
    pub work: Vec<ActivitySummary>,
    /// Spans by name, in order of first entry; a nested span is named `outer/inner`.
    pub spans: Vec<SpanSummary>,
    /// Peak memory held by buffers, in bytes.
    pub peak_bytes: u64,
    /// All commands, in the order of their submission.
    pub commands: Vec<CommandRecord>,
    pub(super) host_spans: Vec<HostSpan>,
}

/// Summary of all runs of one kernel or one type of transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivitySummary {
    /// Type of the work.
    pub kind: ActivityKind,
    /// Name of the kernel or the type of transfer.
    pub name: String,
    /// Number of runs.
    pub calls: u64,
    /// Total time on the device.
    pub time: Duration,
    /// Bytes of the buffers that the work reads and writes, over all runs.
    pub bytes: u64,
    /// Floating-point operations of all runs, from the kernel's IR or the routine's sizes; `None` if unknown for any run.
    pub flops: Option<u64>,
}

impl ActivitySummary {
    /// Returns floating-point operations per second; `None` for work without operations or time.
    pub fn flops_per_second(&self) -> Option<f64> {
        let (flops, seconds) = (self.flops.filter(|flops| *flops > 0)?, self.time.as_secs_f64());
        (seconds > 0.0).then(|| flops as f64 / seconds)
    }

    /// Returns bytes per second if each byte of the buffers moves once; `None` for work without bytes or time.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (self.bytes > 0 && seconds > 0.0).then(|| self.bytes as f64 / seconds)
    }
}

/// Summary of all spans of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanSummary {
    /// Path of the span, such as `outer/inner`.
    pub name: String,
    /// Number of entries.
    pub count: u64,
    /// Total host time.
    pub host_time: Duration,
    /// Device time of the work submitted in the span, including nested spans.
    pub device_time: Duration,
    /// Kernels launched in the span, including nested spans.
    pub launches: u64,
}

/// A command with its position on the time axis of the profile.
#[derive(Clone, Debug)]
pub struct CommandRecord {
    /// Type of the command.
    pub kind: ActivityKind,
    /// Name of the kernel or routine, or the type of transfer.
    pub name: String,
    /// Number of the device's queue.
    pub queue: u32,
    /// Start, since the profile was started.
    pub begin: Duration,
    /// Time on the device.
    pub time: Duration,
    /// Bytes of the buffers that it reads and writes.
    pub bytes: u64,
    /// Floating-point operations; `None` if unknown.
    pub flops: Option<u64>,
}

/// A span with its position on the time axis.
#[derive(Clone, Debug)]
pub(super) struct HostSpan {
    pub name: String,
    pub begin: Duration,
    pub end: Duration,
}

impl ProfileReport {
    pub(super) fn of(device: &Device, recording: &Recording, wall: Duration) -> Result<ProfileReport> {
        let rows = std::mem::take(&mut *recording.rows());
        let spans = std::mem::take(&mut *recording.spans());
        let steps = place(&rows)?;
        let host_spans = spans
            .iter()
            .map(|span| HostSpan { name: span.name.to_string(), begin: span.begin, end: span.end.unwrap_or(wall) })
            .collect();
        Ok(ProfileReport {
            device: device.to_string(),
            wall,
            work: sum_work(&steps),
            spans: sum_spans(&spans, &rows, &steps, wall),
            peak_bytes: device.memory_stats().peak_allocated,
            commands: steps,
            host_spans,
        })
    }

    /// Returns the number of kernel launches.
    pub fn launches(&self) -> u64 {
        self.work.iter().filter(|work| work.kind == ActivityKind::Kernel).map(|work| work.calls).sum()
    }

    /// Returns the profile as JSON in Chrome's trace event format, which Perfetto opens.
    pub fn chrome_trace(&self) -> String {
        trace::json(self)
    }
}

/// Maps the time of every command to the host's clock. The device's clock has an arbitrary origin; the offset is the smallest for
/// which no command begins before its submission.
fn place(rows: &[Row]) -> Result<Vec<CommandRecord>> {
    let times: Vec<_> =
        rows.iter().map(|row| row.ticket.times().map(|times| times.first().copied())).collect::<Result<_>>()?;
    let nanoseconds = |time: Duration| time.as_nanos() as i128;
    let tightest = rows.iter().zip(&times).filter_map(|(row, time)| {
        let start = time.as_ref()?.start_ns as i128;
        Some(nanoseconds(row.begin) - start)
    });
    let shift = tightest.max().unwrap_or(0);
    let record = |(row, time): (&Row, &Option<panoply_device::StepTime>)| {
        let (begin, time) = match time {
            Some(time) => {
                let begin = (time.start_ns as i128 + shift).clamp(0, u64::MAX as i128) as u64;
                (Duration::from_nanos(begin), Duration::from_nanos(time.end_ns.saturating_sub(time.start_ns)))
            }
            None => (row.begin, row.end.saturating_sub(row.begin)),
        };
        let (kind, name, bytes, flops) = (row.entry.kind, row.entry.name.to_string(), row.entry.bytes, row.entry.flops);
        CommandRecord { kind, name, queue: row.queue.0, begin, time, bytes, flops }
    };
    Ok(rows.iter().zip(&times).map(record).collect())
}

fn sum_work(steps: &[CommandRecord]) -> Vec<ActivitySummary> {
    let mut positions: HashMap<(ActivityKind, &str), usize> = HashMap::new();
    let mut sums: Vec<ActivitySummary> = Vec::new();
    for step in steps {
        let position = *positions.entry((step.kind, &step.name)).or_insert_with(|| {
            let (kind, name) = (step.kind, step.name.clone());
            sums.push(ActivitySummary { kind, name, calls: 0, time: Duration::ZERO, bytes: 0, flops: Some(0) });
            sums.len() - 1
        });
        let sum = &mut sums[position];
        sum.flops = sum.flops.zip(step.flops).map(|(sum, flops)| sum + flops);
        sum.calls += 1;
        sum.time += step.time;
        sum.bytes += step.bytes;
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.time));
    sums
}

fn sum_spans(spans: &[Span], rows: &[Row], steps: &[CommandRecord], wall: Duration) -> Vec<SpanSummary> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut sums: Vec<SpanSummary> = Vec::new();
    let mut summary: Vec<usize> = Vec::new();
    let mut paths: Vec<String> = Vec::new();
    for span in spans {
        let path = span.parent.map_or(span.name.to_string(), |parent| format!("{}/{}", paths[parent], span.name));
        let position = *positions.entry(path.clone()).or_insert_with(|| {
            let (host, device) = (Duration::ZERO, Duration::ZERO);
            sums.push(SpanSummary { name: path.clone(), count: 0, host_time: host, device_time: device, launches: 0 });
            sums.len() - 1
        });
        sums[position].count += 1;
        sums[position].host_time += span.end.unwrap_or(wall).saturating_sub(span.begin);
        summary.push(position);
        paths.push(path);
    }
    for (row, step) in rows.iter().zip(steps) {
        let mut inside = row.span;
        while let Some(span) = inside {
            let sum = &mut sums[summary[span]];
            sum.device_time += step.time;
            sum.launches += u64::from(step.kind == ActivityKind::Kernel);
            inside = spans[span].parent;
        }
    }
    sums
}

impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: Duration = self.work.iter().map(|work| work.time).sum();
        let (wall, busy) = (millis(self.wall), millis(total));
        let (launches, peak) = (self.launches(), human(self.peak_bytes));
        writeln!(f, "{}: {wall} ms, {busy} ms of work, {launches} launches, {peak} at most", self.device)?;
        let width = self.work.iter().map(|work| work.name.chars().count()).max().unwrap_or(0).max(4);
        if !self.work.is_empty() {
            writeln!(
                f,
                "{:8}  {:width$}  {:>7}  {:>10}  {:>10}  {:>5}  {:>7}  {:>8}",
                "", "name", "runs", "ms", "µs each", "%", "GB/s", "GFLOP/s"
            )?;
        }
        for work in &self.work {
            let each = work.time.as_secs_f64() * 1e6 / work.calls as f64;
            let share = 100.0 * work.time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
            let giga = |rate: Option<f64>| rate.map_or("-".to_string(), |rate| format!("{:.1}", rate / 1e9));
            let (rate, flops) = (giga(work.bytes_per_second()), giga(work.flops_per_second()));
            let (kind, name, runs, time) = (work.kind, &work.name, work.calls, millis(work.time));
            writeln!(
                f,
                "{kind:8}  {name:width$}  {runs:>7}  {time:>10}  {each:>10.1}  {share:>5.1}  {rate:>7}  {flops:>8}"
            )?;
        }
        let width = self.spans.iter().map(|span| span.name.chars().count()).max().unwrap_or(0).max(4);
        if !self.spans.is_empty() {
            writeln!(
                f,
                "{:width$}  {:>7}  {:>10}  {:>10}  {:>8}",
                "span", "entered", "host ms", "device ms", "launches"
            )?;
        }
        for span in &self.spans {
            let SpanSummary { name, count: entered, launches, .. } = span;
            let (host, device) = (millis(span.host_time), millis(span.device_time));
            writeln!(f, "{name:width$}  {entered:>7}  {host:>10}  {device:>10}  {launches:>8}")?;
        }
        Ok(())
    }
}

fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}
