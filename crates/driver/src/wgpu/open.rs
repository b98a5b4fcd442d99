//! The API's device: created at first use, with every feature and limit of the adapter that is useful for computing.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use panoply_device::{Backend, Error, ErrorKind, Result};
use wgpu::{
    DeviceDescriptor, DeviceLostReason, ErrorFilter, ExperimentalFeatures, MemoryHints, PollError, PollType,
    SubmissionIndex, Trace,
};

use super::discovery::DiscoveredDevice;
use super::errors::DeviceStatus;
use super::info;
use crate::lock::locked;

/// An open device.
pub struct Open {
    /// The API's device.
    pub device: wgpu::Device,
    /// Its only queue.
    pub queue: wgpu::Queue,
    /// The device's name, and errors that are not returned by calls.
    pub status: Arc<DeviceStatus>,
    /// Its limits.
    pub limits: wgpu::Limits,
    /// Its features.
    pub features: wgpu::Features,
    /// True if programs are translated to SPIR-V here and not in `wgpu`.
    pub translates: bool,
    /// Widths in bits of the floats for which a program can require that NaN, infinity and -0 are kept.
    pub preserved: Vec<u32>,
    /// Number of this device, unique in the process.
    number: u64,
    tickets: AtomicU64,
    /// Held while the API is polled or commands are submitted: polling on two threads at once makes wgpu-core 30 panic, because one thread
    /// finds no submissions left while the other's index is not reached yet.
    polling: Mutex<()>,
}

/// True in a browser, where nothing can block and the API uses callbacks.
pub const IN_BROWSER: bool = cfg!(target_family = "wasm");

/// Longest time that a waiting thread keeps others from submitting.
const TURN: Duration = Duration::from_millis(1);

/// Number of low bits of a token, which count the tickets of a device.
const TICKET_BITS: u32 = 40;

static OPENED: AtomicU64 = AtomicU64::new(1);

impl Open {
    /// Opens a device.
    pub async fn new(place: &DiscoveredDevice, label: String) -> Result<Open> {
        let (features, limits) = (info::features(&place.adapter), info::limits(&place.adapter));
        let descriptor = DeviceDescriptor {
            label: Some("panoply"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features: ExperimentalFeatures::disabled(),
            memory_hints: MemoryHints::MemoryUsage,
            trace: Trace::Off,
        };
        let (device, queue) = place.adapter.request_device(&descriptor).await.map_err(|error| {
            Error::new(ErrorKind::Driver, format!("{label}: opening the device: {error}; update its driver"))
        })?;
        let status = Arc::new(DeviceStatus::new(label));
        let (lost, stray) = (Arc::downgrade(&status), Arc::downgrade(&status));
        device.set_device_lost_callback(move |reason, why| {
            // Dropping the last handle is reported as a loss too.
            if let (Some(status), DeviceLostReason::Unknown) = (lost.upgrade(), reason) {
                status.lose(why);
            }
        });
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            if let Some(status) = stray.upgrade() {
                status.note_stray(error.to_string());
            }
        }));
        let number = OPENED.fetch_add(1, Relaxed);
        let translates = place.kind == Backend::Vulkan && features.contains(wgpu::Features::PASSTHROUGH_SHADERS);
        Ok(Open {
            device,
            queue,
            status,
            limits,
            features,
            translates,
            // SwiftShader keeps NaN without the mode, which would lengthen its compilation.
            preserved: match translates && !place.adapter.get_info().name.contains("SwiftShader") {
                true => info::preserved_widths(&place.adapter),
                false => Vec::new(),
            },
            number,
            tickets: AtomicU64::new(0),
            polling: Mutex::new(()),
        })
    }

    /// Calls the API within error scopes, and returns the first error. `doing` names the action in its message.
    pub fn checked<T>(&self, doing: impl Display, call: impl FnOnce() -> T) -> Result<T> {
        let (answer, error) = self.observed(call);
        match error {
            Some(error) => Err(self.status.failed(doing, &error)),
            None => self.status.check(doing).map(|()| answer),
        }
    }

    /// Calls the API to compile a program; a validation error is a compilation error of the program.
    pub fn build<T>(&self, entry: &str, call: impl FnOnce() -> T) -> Result<T> {
        let (answer, error) = self.observed(call);
        let Some(error) = error else { return Ok(answer) };
        let label = &self.status.label;
        match self.status.failed(format_args!("compiling {entry}"), &error) {
            lost if lost.is_device_lost() || lost.is_out_of_memory() => Err(lost),
            _ => {
                let refusal = format!("{label}: the driver's compiler refused {entry}; its log follows");
                Err(Error::new(ErrorKind::CompileFailed, refusal).note(error.to_string()))
            }
        }
    }

    fn observed<T>(&self, call: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        // Error scopes are asynchronous in a browser, so there errors are recorded as stray errors of the device.
        if IN_BROWSER {
            return (call(), None);
        }
        let filters = [ErrorFilter::OutOfMemory, ErrorFilter::Internal, ErrorFilter::Validation];
        let [memory, internal, validation] = filters.map(|filter| self.device.push_error_scope(filter));
        let answer = call();
        let mut error = None;
        for scope in [validation, internal, memory] {
            let found = now(scope.pop());
            error = error.or(found);
        }
        (answer, error)
    }

    /// Submits command buffers to the queue.
    pub fn submit(&self, commands: impl IntoIterator<Item = wgpu::CommandBuffer>) -> SubmissionIndex {
        let _alone = locked(&self.polling);
        self.queue.submit(commands)
    }

    /// Polls the API for the completion of a submission, or of the last one; with `wait` until it is complete.
    pub fn poll(
        &self,
        index: Option<&SubmissionIndex>,
        wait: bool,
    ) -> std::result::Result<wgpu::PollStatus, PollError> {
        let timeout = Some(if wait { TURN } else { Duration::ZERO });
        loop {
            let polled = {
                let _alone = locked(&self.polling);
                self.device.poll(PollType::Wait { submission_index: index.cloned(), timeout })
            };
            match polled {
                Err(PollError::Timeout) if wait => {}
                polled => return polled,
            }
        }
    }

    /// Returns true if a submission is complete; with `wait` waits for it.
    pub fn is_done(&self, index: &SubmissionIndex, wait: bool) -> Result<bool> {
        let polled = self.poll(Some(index), wait);
        self.status.check("waiting")?;
        match polled {
            Ok(_) => Ok(true),
            Err(PollError::Timeout) => Ok(false),
            Err(PollError::WrongSubmissionIndex(..)) => Err(Error::new(
                ErrorKind::Driver,
                format!("{}: waiting: no such submission; report this", self.status.label),
            )),
        }
    }

    /// Returns the error for a blocking call in a browser.
    pub fn cannot_wait(&self) -> Error {
        let label = &self.status.label;
        Error::unsupported(format!(
            "{label}: programs cannot block in a browser; `.await` the results of `Buffer::read_async` and `Queue::record_event`"
        ))
    }

    /// Waits for all submissions.
    pub fn wait_for_all(&self) -> Result<()> {
        if IN_BROWSER {
            return Err(self.cannot_wait());
        }
        // Writes are executed with the next submission, so an empty one is made.
        self.checked("waiting", || self.submit([]))?;
        let waited = self.poll(None, true);
        self.status.check("waiting")?;
        waited.map(drop).map_err(|error| {
            Error::new(ErrorKind::Driver, format!("{}: waiting: {error}; report this", self.status.label))
        })
    }

    /// Returns a token that is unique in this process.
    pub fn next_token(&self) -> u64 {
        self.number << TICKET_BITS | self.tickets.fetch_add(1, Relaxed)
    }

    /// Returns true if a token belongs to this device.
    pub fn gave(&self, token: u64) -> bool {
        token >> TICKET_BITS == self.number
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Pending work is waited for before the device is dropped.
        let _ = self.poll(None, true);
    }
}

/// Returns the result of a future that is ready without an executor: outside browsers `wgpu`'s futures are ready when they are created.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
