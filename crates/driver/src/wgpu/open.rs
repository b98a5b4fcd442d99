//! The interface's own device: created at the first use, with every feature and limit of the adapter that computing has a use for.

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
use super::errors::Fate;
use super::info;
use crate::lock::locked;

/// A device in use.
pub struct Open {
    /// The interface's device.
    pub device: wgpu::Device,
    /// Its only queue.
    pub queue: wgpu::Queue,
    /// What went wrong with it.
    pub fate: Arc<Fate>,
    /// Its limits.
    pub limits: wgpu::Limits,
    /// Its features.
    pub features: wgpu::Features,
    /// Whether programs become SPIR-V here and not in `wgpu`.
    pub translates: bool,
    /// Which device of this process it is, counted over all.
    number: u64,
    tickets: AtomicU64,
    /// Held while the interface looks after its submissions: doing so on two threads at once makes wgpu-core 30 panic, for
    /// one of them finds none left and the other's number not reached yet.
    looking: Mutex<()>,
}

/// Whether this is a program in a browser, where nothing may wait and the interface calls back.
pub const IN_BROWSER: bool = cfg!(target_family = "wasm");

/// How long a thread that waits keeps others from submitting.
const TURN: Duration = Duration::from_millis(1);

/// Bits of a token that count the tickets of one device.
const TICKET_BITS: u32 = 40;

static OPENED: AtomicU64 = AtomicU64::new(1);

impl Open {
    /// Opens the device at a place.
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
        let fate = Arc::new(Fate::new(label));
        let (lost, stray) = (Arc::downgrade(&fate), Arc::downgrade(&fate));
        device.set_device_lost_callback(move |reason, why| {
            // Dropping the last handle counts as losing it.
            if let (Some(fate), DeviceLostReason::Unknown) = (lost.upgrade(), reason) {
                fate.lose(why);
            }
        });
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            if let Some(fate) = stray.upgrade() {
                fate.note_stray(error.to_string());
            }
        }));
        let number = OPENED.fetch_add(1, Relaxed);
        let translates = place.kind == Backend::Vulkan && features.contains(wgpu::Features::PASSTHROUGH_SHADERS);
        Ok(Open {
            device,
            queue,
            fate,
            limits,
            features,
            translates,
            number,
            tickets: AtomicU64::new(0),
            looking: Mutex::new(()),
        })
    }

    /// Calls the interface; the first error of any kind is the answer's.
    pub fn ask<T>(&self, doing: impl Display, call: impl FnOnce() -> T) -> Result<T> {
        let (answer, error) = self.observed(call);
        match error {
            Some(error) => Err(self.fate.failed(doing, &error)),
            None => self.fate.check(doing).map(|()| answer),
        }
    }

    /// Calls the interface to make a program; what it refuses is the program's fault.
    pub fn build<T>(&self, entry: &str, call: impl FnOnce() -> T) -> Result<T> {
        let (answer, error) = self.observed(call);
        let Some(error) = error else { return Ok(answer) };
        let label = &self.fate.label;
        match self.fate.failed(format_args!("compiling {entry}"), &error) {
            lost if lost.is_device_lost() || lost.is_out_of_memory() => Err(lost),
            _ => {
                let refusal = format!("{label}: the driver's compiler refused {entry}; its log follows");
                Err(Error::new(ErrorKind::CompileFailed, refusal).note(error.to_string()))
            }
        }
    }

    fn observed<T>(&self, call: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        // A browser answers when the program has given way to it: then an error is a stray one of the device.
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

    /// Gives work to the queue.
    pub fn submit(&self, commands: impl IntoIterator<Item = wgpu::CommandBuffer>) -> SubmissionIndex {
        let _alone = locked(&self.looking);
        self.queue.submit(commands)
    }

    /// Has the interface look whether a submission, or the last one, is done, again and again if asked to wait.
    pub fn look(
        &self,
        index: Option<&SubmissionIndex>,
        wait: bool,
    ) -> std::result::Result<wgpu::PollStatus, PollError> {
        let timeout = Some(if wait { TURN } else { Duration::ZERO });
        loop {
            let polled = {
                let _alone = locked(&self.looking);
                self.device.poll(PollType::Wait { submission_index: index.cloned(), timeout })
            };
            match polled {
                Err(PollError::Timeout) if wait => {}
                polled => return polled,
            }
        }
    }

    /// Whether a submission is done, after waiting for it if asked to.
    pub fn is_done(&self, index: &SubmissionIndex, wait: bool) -> Result<bool> {
        let polled = self.look(Some(index), wait);
        self.fate.check("waiting")?;
        match polled {
            Ok(_) => Ok(true),
            Err(PollError::Timeout) => Ok(false),
            Err(PollError::WrongSubmissionIndex(..)) => Err(Error::new(
                ErrorKind::Driver,
                format!("{}: waiting: no such submission; report this", self.fate.label),
            )),
        }
    }

    /// The error of what waits in a browser.
    pub fn cannot_wait(&self) -> Error {
        let label = &self.fate.label;
        Error::unsupported(format!(
            "{label}: a browser lets no program wait; `.await` what `Buffer::read` and `Queue::mark` give"
        ))
    }

    /// Waits for everything.
    pub fn wait_for_all(&self) -> Result<()> {
        if IN_BROWSER {
            return Err(self.cannot_wait());
        }
        // Writes go with the next submission, so there is one.
        self.ask("waiting", || self.submit([]))?;
        let waited = self.look(None, true);
        self.fate.check("waiting")?;
        waited.map(drop).map_err(|error| {
            Error::new(ErrorKind::Driver, format!("{}: waiting: {error}; report this", self.fate.label))
        })
    }

    /// A token that no other ticket of this process has.
    pub fn next_token(&self) -> u64 {
        self.number << TICKET_BITS | self.tickets.fetch_add(1, Relaxed)
    }

    /// Whether a token is of this device.
    pub fn gave(&self, token: u64) -> bool {
        token >> TICKET_BITS == self.number
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Work under way is waited for, not torn from under the device.
        let _ = self.look(None, true);
    }
}

/// The result of a future that needs nobody: outside browsers `wgpu`'s are ready when they are made.
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
