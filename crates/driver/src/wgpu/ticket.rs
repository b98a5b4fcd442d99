//! Tickets of submitted work, and the bytes and times that they return.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use panoply_device::{Error, ErrorKind, Pending, Result, StepTime, Ticket};
use wgpu::{Buffer, MapMode, SubmissionIndex};

use super::open::{IN_BROWSER, Open};
use super::submit::Times;
use crate::lock::locked;

/// Bytes that a submission copied to the host.
pub struct HostBytes {
    buffer: Buffer,
    /// Number of bytes before the requested ones.
    head: u64,
    /// Number of requested bytes.
    bytes: u64,
    /// Completion of the mapping.
    callback: Arc<Callback>,
}

/// The state of a callback, which is called once.
#[derive(Default)]
struct Callback {
    fine: OnceLock<bool>,
    /// Tasks that wait for the callback.
    waiting: Mutex<Vec<Waker>>,
}

impl Callback {
    fn complete(&self, fine: bool) {
        let _ = self.fine.set(fine);
        std::mem::take(&mut *locked(&self.waiting)).into_iter().for_each(Waker::wake);
    }

    /// Wakes a task when the callback was called.
    fn wake(&self, waker: &Waker) {
        match self.fine.get() {
            Some(_) => waker.wake_by_ref(),
            None => locked(&self.waiting).push(waker.clone()),
        }
    }
}

impl HostBytes {
    /// Maps a host buffer, after the submitted work.
    pub fn ask(open: &Open, buffer: Buffer, head: u64, bytes: u64) -> Result<HostBytes> {
        let callback = Arc::new(Callback::default());
        let completed = callback.clone();
        open.ask("reading", || {
            buffer.slice(..).map_async(MapMode::Read, move |done| completed.complete(done.is_ok()))
        })?;
        Ok(HostBytes { buffer, head, bytes, callback })
    }

    /// Waits for the bytes and passes them to `with`.
    pub fn take<T>(&self, open: &Open, with: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let wrong = |what: &str| Error::new(ErrorKind::Driver, format!("{}: reading: {what}", open.fate.label));
        loop {
            let looked = if IN_BROWSER { None } else { Some(open.look(None, true)) };
            open.fate.check("reading")?;
            match (self.callback.fine.get(), looked) {
                (Some(true), _) => break,
                (Some(false), _) => return Err(wrong("the copy failed")),
                (None, None) => return Err(open.cannot_wait()),
                (None, Some(_)) => {}
            }
        }
        let view = self.buffer.slice(..).get_mapped_range();
        let view = view.map_err(|error| wrong(&format!("{error}; report this")))?;
        let (head, bytes) = (self.head as usize, self.bytes as usize);
        Ok(with(&view[head..head + bytes]))
    }
}

/// A pending submission or read.
pub struct Submitted {
    token: OnceLock<u64>,
    index: SubmissionIndex,
    times: Option<Times>,
    landed: Mutex<Option<HostBytes>>,
    /// In browsers: the callback of the read, or of the submission, which is registered on request.
    callback: OnceLock<Arc<Callback>>,
    open: Arc<Open>,
}

impl Submitted {
    /// Creates the ticket of a submission.
    pub fn ticket(open: &Arc<Open>, index: SubmissionIndex, times: Option<Times>, landed: Option<HostBytes>) -> Ticket {
        let callback = landed.as_ref().map_or_else(OnceLock::new, |landed| OnceLock::from(landed.callback.clone()));
        let (open, landed, token) = (open.clone(), Mutex::new(landed), OnceLock::new());
        Ticket::Pending(Arc::new(Submitted { token, index, times, landed, callback, open }))
    }

    fn callback(&self) -> &Callback {
        self.callback.get_or_init(|| {
            let callback = Arc::new(Callback::default());
            let completed = callback.clone();
            self.open.queue.on_submitted_work_done(move || completed.complete(true));
            callback
        })
    }
}

impl Pending for Submitted {
    fn poll(&self) -> Result<bool> {
        if IN_BROWSER {
            let callback = self.callback().fine.get().is_some();
            return self.open.fate.check("waiting").map(|()| callback);
        }
        self.open.is_done(&self.index, false)
    }

    fn wait(&self) -> Result<()> {
        if IN_BROWSER {
            return if self.poll()? { Ok(()) } else { Err(self.open.cannot_wait()) };
        }
        self.open.is_done(&self.index, true).map(drop)
    }

    fn wake(&self, waker: &Waker) -> bool {
        if IN_BROWSER {
            self.callback().wake(waker);
        }
        IN_BROWSER
    }

    fn take(&self) -> Option<Vec<u8>> {
        if !matches!(self.poll(), Ok(true)) {
            return None;
        }
        let landed = locked(&self.landed).take()?;
        landed.take(&self.open, <[u8]>::to_vec).ok()
    }

    fn times(&self) -> Vec<StepTime> {
        match &self.times {
            None => Vec::new(),
            Some(Times::Measured(times)) => times.clone(),
            Some(Times::Ticks { at, steps, ns_per_tick }) => {
                let landed = HostBytes::ask(&self.open, at.clone(), 0, *steps as u64 * 16);
                let read = landed.and_then(|landed| {
                    landed.take(&self.open, |bytes| {
                        let ticks =
                            bytes.chunks_exact(8).map(|tick| u64::from_le_bytes(tick.try_into().unwrap_or_default()));
                        ticks.map(|tick| (tick as f64 * ns_per_tick) as u64).collect::<Vec<u64>>()
                    })
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
