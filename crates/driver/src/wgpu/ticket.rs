//! Work under way, and what comes back from it.

use std::sync::{Arc, Mutex, OnceLock};

use panoply_device::{Error, ErrorKind, Pending, Result, StepTime, Ticket};
use wgpu::{Buffer, BufferView, MapMode, SubmissionIndex};

use super::open::Open;
use super::submit::Times;
use crate::lock::locked;

/// Bytes that a submission copied to the host.
pub struct Landed {
    /// Where to.
    pub buffer: Buffer,
    /// Bytes before those that were asked for.
    pub head: u64,
    /// How many were asked for.
    pub bytes: u64,
}

/// A submission or read under way.
pub struct Submitted {
    token: OnceLock<u64>,
    index: SubmissionIndex,
    times: Option<Times>,
    landed: Mutex<Option<Landed>>,
    open: Arc<Open>,
}

impl Submitted {
    /// The ticket of a submission.
    pub fn ticket(open: &Arc<Open>, index: SubmissionIndex, times: Option<Times>, landed: Option<Landed>) -> Ticket {
        let (open, landed) = (open.clone(), Mutex::new(landed));
        Ticket::Pending(Arc::new(Submitted { token: OnceLock::new(), index, times, landed, open }))
    }
}

/// Gives a submission's bytes to a function.
pub fn take<T>(open: &Open, landed: &Landed, with: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let view = mapped(open, &landed.buffer)?;
    let (head, bytes) = (landed.head as usize, landed.bytes as usize);
    Ok(with(&view[head..head + bytes]))
}

/// The bytes of host memory that the device copies into, when it has.
fn mapped(open: &Open, buffer: &Buffer) -> Result<BufferView> {
    let answer = Arc::new(OnceLock::new());
    let told = answer.clone();
    open.ask("reading", || {
        buffer.slice(..).map_async(MapMode::Read, move |done| {
            let _ = told.set(done.is_ok());
        })
    })?;
    loop {
        let polled = open.look(None, true);
        open.fate.check("reading")?;
        match answer.get() {
            Some(true) => break,
            Some(false) => {
                return Err(Error::new(ErrorKind::Driver, format!("{}: reading: the copy failed", open.fate.label)));
            }
            None => drop(polled),
        }
    }
    buffer
        .slice(..)
        .get_mapped_range()
        .map_err(|error| Error::new(ErrorKind::Driver, format!("{}: reading: {error}; report this", open.fate.label)))
}

impl Pending for Submitted {
    fn poll(&self) -> Result<bool> {
        self.open.is_done(&self.index, false)
    }

    fn wait(&self) -> Result<()> {
        self.open.is_done(&self.index, true).map(drop)
    }

    fn take(&self) -> Option<Vec<u8>> {
        if !matches!(self.poll(), Ok(true)) {
            return None;
        }
        let landed = locked(&self.landed).take()?;
        take(&self.open, &landed, <[u8]>::to_vec).ok()
    }

    fn times(&self) -> Vec<StepTime> {
        match &self.times {
            None => Vec::new(),
            Some(Times::Measured(times)) => times.clone(),
            Some(Times::Ticks { at, steps, ns_per_tick }) => {
                let bytes = *steps as u64 * 16;
                let landed = Landed { buffer: at.clone(), head: 0, bytes };
                let read = take(&self.open, &landed, |bytes| {
                    let ticks =
                        bytes.chunks_exact(8).map(|tick| u64::from_le_bytes(tick.try_into().unwrap_or_default()));
                    ticks.map(|tick| (tick as f64 * ns_per_tick) as u64).collect::<Vec<u64>>()
                });
                at.unmap();
                let Ok(moments) = read else { return vec![StepTime::default(); *steps] };
                moments
                    .chunks_exact(2)
                    .map(|span| StepTime { start_ns: span[0], end_ns: span[1].max(span[0]) })
                    .collect()
            }
        }
    }

    fn token(&self) -> u64 {
        *self.token.get_or_init(|| self.open.next_token())
    }
}
