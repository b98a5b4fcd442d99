//! Tickets of submitted work (fences), with the bytes that it copied to the host and the times that the device recorded.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use panoply_device::{Error, ErrorKind, Pending, Result, StepTime, Ticket};
use wgpu::{Buffer, MapMode, SubmissionIndex};

use super::open::{IN_BROWSER, Open};
use super::submit::Times;
use crate::lock::locked;

/// A mapped host buffer with bytes that a submission copied from the device.
pub struct Readback {
    buffer: Buffer,
    /// Position of the requested bytes in the buffer, in bytes.
    offset: u64,
    /// Number of requested bytes.
    bytes: u64,
    /// Called when the buffer is mapped, after the copy.
    callback: Arc<Callback>,
}

/// The state of a callback of the API, which is called once.
#[derive(Default)]
struct Callback {
    /// Set by the call: true if the operation succeeded.
    succeeded: OnceLock<bool>,
    /// Tasks that wait for the callback.
    waiting: Mutex<Vec<Waker>>,
}

impl Callback {
    fn complete(&self, succeeded: bool) {
        let _ = self.succeeded.set(succeeded);
        std::mem::take(&mut *locked(&self.waiting)).into_iter().for_each(Waker::wake);
    }

    /// Wakes a task when the callback is called, or now if it was called before.
    fn wake(&self, waker: &Waker) {
        match self.succeeded.get() {
            Some(_) => waker.wake_by_ref(),
            None => locked(&self.waiting).push(waker.clone()),
        }
    }
}

impl Readback {
    /// Starts to map a host buffer; it is mapped after the work submitted so far. `offset` and `bytes` select the bytes that
    /// [`Readback::take`] returns.
    ///
    /// # Errors
    /// The API refuses, or the device is lost.
    pub fn map(open: &Open, buffer: Buffer, offset: u64, bytes: u64) -> Result<Readback> {
        let callback = Arc::new(Callback::default());
        let completed = callback.clone();
        open.checked("reading", || {
            buffer.slice(..).map_async(MapMode::Read, move |done| completed.complete(done.is_ok()))
        })?;
        Ok(Readback { buffer, offset, bytes, callback })
    }

    /// Waits for the bytes and passes them to `with`.
    ///
    /// # Errors
    /// The copy failed, or the device is lost; in a browser also if the bytes have not arrived, because nothing can block there.
    pub fn take<T>(&self, open: &Open, with: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let wrong = |what: &str| Error::new(ErrorKind::Driver, format!("{}: reading: {what}", open.status.label));
        loop {
            let polled = if IN_BROWSER { None } else { Some(open.poll(None, true)) };
            open.status.check("reading")?;
            match (self.callback.succeeded.get(), polled) {
                (Some(true), _) => break,
                (Some(false), _) => return Err(wrong("the copy failed")),
                (None, None) => return Err(open.cannot_wait()),
                (None, Some(_)) => {}
            }
        }
        let view = self.buffer.slice(..).get_mapped_range();
        let view = view.map_err(|error| wrong(&format!("{error}; report this")))?;
        let (offset, bytes) = (self.offset as usize, self.bytes as usize);
        Ok(with(&view[offset..offset + bytes]))
    }
}

/// A pending submission, perhaps with bytes to read.
pub struct Submitted {
    /// Number of this submission, unique in the process; drawn on request.
    token: OnceLock<u64>,
    index: SubmissionIndex,
    times: Option<Times>,
    /// Bytes to read, until they are taken.
    readback: Mutex<Option<Readback>>,
    /// In browsers: the callback of the read, or of the submission, which is registered on request.
    callback: OnceLock<Arc<Callback>>,
    open: Arc<Open>,
}

impl Submitted {
    /// Creates the ticket of a submission.
    pub fn ticket(
        open: &Arc<Open>,
        index: SubmissionIndex,
        times: Option<Times>,
        readback: Option<Readback>,
    ) -> Ticket {
        let callback =
            readback.as_ref().map_or_else(OnceLock::new, |readback| OnceLock::from(readback.callback.clone()));
        let (open, readback, token) = (open.clone(), Mutex::new(readback), OnceLock::new());
        Ticket::Pending(Arc::new(Submitted { token, index, times, readback, callback, open }))
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
            let callback = self.callback().succeeded.get().is_some();
            return self.open.status.check("waiting").map(|()| callback);
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
        let readback = locked(&self.readback).take()?;
        readback.take(&self.open, <[u8]>::to_vec).ok()
    }

    fn times(&self) -> Vec<StepTime> {
        match &self.times {
            None => Vec::new(),
            Some(Times::Measured(times)) => times.clone(),
            Some(Times::Ticks { at, steps, ns_per_tick }) => {
                let readback = Readback::map(&self.open, at.clone(), 0, *steps as u64 * 16);
                let read = readback.and_then(|readback| {
                    readback.take(&self.open, |bytes| {
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
