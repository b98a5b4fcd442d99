//! Submits commands to the API's queue.

use std::time::Instant;

use panoply_device::{DeviceCommand, Result, StepTime};
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, CommandEncoderDescriptor, ComputePass,
    ComputePassDescriptor, Features, QuerySetDescriptor, QueryType, SubmissionIndex,
};

use super::encode::{Command, Encoder};
use super::memory::landing;
use super::open::{IN_BROWSER, Open};

/// Size in bytes of the buffer for launches' argument words; a longer submission is split.
pub const WORDS_BYTES: u64 = 256 << 10;
/// Maximum number of timestamps of a query set, as specified by the API.
const MAX_STAMPS: u32 = 4096;

/// Times of the commands of a submission.
pub enum Times {
    /// Timestamps before and after each command in the device's ticks, in host memory once the work is complete.
    Ticks { at: Buffer, steps: usize, ns_per_tick: f64 },
    /// Measurements on the host, for devices without timestamps: each command ran alone.
    Measured(Vec<StepTime>),
}

/// Creates the uniform buffer for launches' argument words.
pub fn words_buffer(open: &Open) -> Result<Buffer> {
    let descriptor = BufferDescriptor {
        label: Some("words of launches"),
        size: WORDS_BYTES,
        usage: BufferUsages::UNIFORM | BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    open.checked("opening the device", || open.device.create_buffer(&descriptor))
}

impl Encoder<'_> {
    /// Submits commands.
    pub fn run(mut self, steps: &[DeviceCommand]) -> Result<SubmissionIndex> {
        for step in steps {
            self.step(step)?;
        }
        self.flush()
    }

    /// Submits commands and measures their times.
    pub fn run_timed(mut self, steps: &[DeviceCommand]) -> Result<(SubmissionIndex, Times)> {
        let stamps = u32::try_from(2 * steps.len()).unwrap_or(u32::MAX);
        let tells = self.open.features.contains(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);
        if !tells || stamps == 0 || stamps > MAX_STAMPS {
            return self.run_measured(steps);
        }
        let open = self.open;
        let set = QuerySetDescriptor { label: None, ty: QueryType::Timestamp, count: stamps };
        let set = open.checked("measuring", || open.device.create_query_set(&set))?;
        for (step, number) in steps.iter().zip((0..).step_by(2)) {
            self.commands.push(Command::Stamp { set: set.clone(), number });
            self.step(step)?;
            self.commands.push(Command::Stamp { set: set.clone(), number: number + 1 });
            self.flush()?;
        }
        let bytes = u64::from(stamps) * 8;
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let resolved = BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
        let resolved = open.checked("measuring", || open.device.create_buffer(&resolved))?;
        let at = landing(open, bytes)?;
        let resolve = |encoder: &mut CommandEncoder| {
            encoder.resolve_query_set(&set, 0..stamps, &resolved, 0);
            encoder.copy_buffer_to_buffer(&resolved, 0, &at, 0, bytes);
        };
        let index = self.submit(Some(&resolve))?;
        let ns_per_tick = f64::from(open.queue.get_timestamp_period());
        Ok((index, Times::Ticks { at, steps: steps.len(), ns_per_tick }))
    }

    /// Runs each command alone and measures it with the host's clock. In browsers, where that would block, nothing is measured.
    fn run_measured(mut self, steps: &[DeviceCommand]) -> Result<(SubmissionIndex, Times)> {
        if IN_BROWSER {
            return Ok((self.run(steps)?, Times::Measured(Vec::new())));
        }
        let mut index = self.flush()?;
        self.open.is_done(&index, true)?;
        let clock = Instant::now();
        let now = || clock.elapsed().as_nanos() as u64;
        let mut times = Vec::with_capacity(steps.len());
        for step in steps {
            let start_ns = now();
            self.step(step)?;
            index = self.flush()?;
            self.open.is_done(&index, true)?;
            times.push(StepTime { start_ns, end_ns: now() });
        }
        Ok((index, Times::Measured(times)))
    }

    /// Submits the commands encoded so far.
    pub fn flush(&mut self) -> Result<SubmissionIndex> {
        self.submit(None)
    }

    /// Submits the commands encoded so far, followed by those that `last` adds.
    pub fn submit(&mut self, last: Option<&dyn Fn(&mut CommandEncoder)>) -> Result<SubmissionIndex> {
        let (commands, words) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.words));
        let open = self.open;
        open.checked("submitting work", || {
            if !words.is_empty() {
                open.queue.write_buffer(self.words_buffer, 0, &words);
            }
            if commands.is_empty() && last.is_none() {
                return open.submit([]);
            }
            let mut encoder = open.device.create_command_encoder(&CommandEncoderDescriptor { label: None });
            let mut pass = None;
            commands.iter().for_each(|command| encode(command, &mut encoder, &mut pass));
            drop(pass);
            if let Some(last) = last {
                last(&mut encoder);
            }
            open.submit([encoder.finish()])
        })
    }
}

/// Encodes a command. Consecutive launches share a compute pass; the API orders accesses to the same memory.
fn encode(command: &Command, encoder: &mut CommandEncoder, pass: &mut Option<ComputePass<'static>>) {
    match command {
        Command::Launch { pipeline, bound, words, groups: [x, y, z] } => {
            let begin = || encoder.begin_compute_pass(&ComputePassDescriptor::default()).forget_lifetime();
            let pass = pass.get_or_insert_with(begin);
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, bound, &[*words]);
            pass.dispatch_workgroups(*x, *y, *z);
        }
        Command::Copy { from: (from, start), to: (to, place), bytes } => {
            *pass = None;
            encoder.copy_buffer_to_buffer(from, *start, to, *place, *bytes);
        }
        Command::Clear { to: (to, place), bytes } => {
            *pass = None;
            encoder.clear_buffer(to, *place, Some(*bytes));
        }
        Command::Stamp { set, number } => {
            *pass = None;
            encoder.write_timestamp(set, *number);
        }
    }
}
