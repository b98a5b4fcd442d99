//! Serves many requests at once with one model (continuous batching).
//!
//! A dedicated thread runs the steps. Between steps, waiting requests take free slots of the cache, and requests that are finished or
//! cancelled free theirs. A step processes the next token of every sequence and a piece of one prompt, so each weight is read once for all
//! of them. No operation of a step mixes rows, so on the CPU a result equals that of [`Model::generate`] bit for bit, whatever other
//! requests run.
//!
//! Source: Yu et al., Orca: A Distributed Serving System for Transformer-Based Generative Models, 2022.

mod scheduler;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use panoply_tensor::{Error, ErrorKind, Result};

use crate::generation::{FinishReason, Request, Sequence};
use crate::model::Model;
use crate::sampling::TokenLogprob;

use scheduler::Scheduler;

/// Maximum number of concurrent sequences. With more, a step would have more sizes than a JIT function keeps traces.
const MAX_CONCURRENT: usize = 32;

/// Limits of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Maximum number of running requests. Each has a slot of the key-value cache that is as long as the context.
    pub max_concurrent: usize,
    /// Maximum number of waiting requests; further ones are rejected.
    pub max_queue: usize,
}

impl Default for EngineOptions {
    /// Returns limits of 8 running and 64 waiting requests.
    fn default() -> EngineOptions {
        EngineOptions { max_concurrent: 8, max_queue: 64 }
    }
}

impl EngineOptions {
    /// Checks the limits.
    ///
    /// # Errors
    ///
    /// If the number of running requests is 0 or more than 32.
    pub fn check(&self) -> Result<()> {
        let count = self.max_concurrent;
        if count == 0 || count > MAX_CONCURRENT {
            return Err(Error::mistake(format!("{count} requests at once; the number is from 1 to {MAX_CONCURRENT}")));
        }
        Ok(())
    }
}

/// Event of a request. Events arrive in the order of the text.
#[derive(Clone, Debug)]
pub enum Event {
    /// A piece of text, possibly empty, and the log probabilities of the tokens since the last event if the request asks for them.
    Text {
        /// Text.
        text: String,
        /// Log probabilities of the sampled tokens.
        logprobs: Vec<TokenLogprob>,
    },
    /// The text is complete. This is the last event.
    Finished(Completion),
    /// The request failed. This is the last event.
    Failed(Error),
}

/// Finish reason and token counts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Reason for the end.
    pub finish_reason: FinishReason,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Number of tokens of the prompt that were in the cache from an earlier request.
    pub reused_tokens: usize,
    /// Number of generated tokens, without the one that ended the text.
    pub completion_tokens: usize,
}

/// Reason why a request was not accepted.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// The request is invalid.
    Invalid(Error),
    /// The queue is full; try again later.
    Full,
    /// The engine is stopping.
    Stopped,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Invalid(error) => error.fmt(f),
            SubmitError::Full => f.write_str("too many requests are waiting; try again later"),
            SubmitError::Stopped => f.write_str("the server is shutting down"),
        }
    }
}

impl std::error::Error for SubmitError {}

/// Counters since the start of an engine, and its current load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Number of running requests.
    pub running: usize,
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of requests that finished.
    pub finished: u64,
    /// Number of requests that were cancelled.
    pub cancelled: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Number of requests that were rejected because the queue was full.
    pub refused: u64,
    /// Number of prompt tokens that were computed.
    pub prompt_tokens: u64,
    /// Number of prompt tokens that were in the cache.
    pub reused_tokens: u64,
    /// Number of generated tokens.
    pub completion_tokens: u64,
    /// Number of steps of the model.
    pub steps: u64,
    /// True if every size of a step has been run once, successfully or not, so that no later step is delayed by compilation.
    pub is_warm: bool,
}

/// Callback that receives the events of a request.
type Sink = Box<dyn FnMut(Event) + Send>;

/// Waiting request.
struct Job {
    sequence: Sequence,
    sink: Sink,
    is_cancelled: Arc<AtomicBool>,
}

/// State that is shared by the callers and the engine's thread.
struct Shared {
    state: Mutex<State>,
    /// Notified when a request arrives, when one ends, and when the engine stops.
    changed: Condvar,
    options: EngineOptions,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// True if no further request is accepted.
    is_stopping: bool,
    /// True if the thread ends after its current step.
    is_closed: bool,
    /// The first error of a step without requests, which compiles its kernels.
    warm_up_error: Option<Error>,
    stats: EngineStats,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves many requests at once with one model, on its own thread.
pub struct Engine {
    shared: Arc<Shared>,
    model: Arc<Model>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("model", &self.model).field("stats", &self.stats()).finish()
    }
}

impl Engine {
    /// Starts an engine and allocates the key-value cache of all slots.
    ///
    /// # Errors
    ///
    /// If a limit is out of range, or the cache does not fit the device.
    pub fn start(model: Arc<Model>, options: EngineOptions) -> Result<Engine> {
        options.check()?;
        let scheduler = Scheduler::new(model.clone(), options.max_concurrent)?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), options });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("panoply-llm".to_string());
        let thread = thread.spawn(move || scheduler.run(&of_thread));
        let thread = thread.map_err(|error| Error::io("cannot start the thread of the model", error))?;
        Ok(Engine { shared, model, thread: Some(thread) })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Queues a request. `sink` receives its events on the engine's thread and must not block. If no token is to be generated, `sink` is
    /// called before this function returns. Dropping the ticket cancels the request.
    ///
    /// # Errors
    ///
    /// If the request is invalid, the queue is full, or the engine is stopping.
    pub fn submit(
        &self,
        request: &Request<'_>,
        mut sink: impl FnMut(Event) + Send + 'static,
    ) -> std::result::Result<Ticket, SubmitError> {
        let sequence = Sequence::new(&self.model, request).map_err(SubmitError::Invalid)?;
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let ticket = Ticket { is_cancelled: is_cancelled.clone() };
        let mut state = self.shared.state();
        if state.is_stopping {
            return Err(SubmitError::Stopped);
        }
        if let Some(finish_reason) = sequence.finished() {
            state.stats.finished += 1;
            drop(state);
            let prompt_tokens = sequence.prompt().len();
            sink(Event::Finished(Completion { finish_reason, prompt_tokens, reused_tokens: 0, completion_tokens: 0 }));
            return Ok(ticket);
        }
        let EngineOptions { max_concurrent, max_queue } = self.shared.options;
        if state.stats.running + state.queue.len() >= max_concurrent.saturating_add(max_queue) {
            state.stats.refused += 1;
            return Err(SubmitError::Full);
        }
        state.queue.push_back(Job { sequence, sink: Box::new(sink), is_cancelled });
        state.stats.waiting = state.queue.len();
        drop(state);
        self.shared.changed.notify_all();
        Ok(ticket)
    }

    /// Queues a request and returns an iterator over its events. Dropping the iterator cancels the request.
    ///
    /// # Errors
    ///
    /// As for [`Engine::submit`].
    pub fn generate(&self, request: &Request<'_>) -> std::result::Result<EventStream, SubmitError> {
        let (sender, receiver): (Sender<Event>, Receiver<Event>) = channel();
        let ticket = self.submit(request, move |event| {
            // A receiver that is gone cancels the request by its ticket.
            let _ = sender.send(event);
        })?;
        Ok(EventStream { receiver, _ticket: ticket })
    }

    /// Returns the counters since the start, and the current load.
    pub fn stats(&self) -> EngineStats {
        self.shared.state().stats
    }

    /// Waits until every size of a step has been run once, so that no later step is delayed by compilation. Requests can be submitted before.
    ///
    /// # Errors
    ///
    /// If one of these steps fails, or the engine is dropped or its thread ends before.
    pub fn wait_until_warm(&self) -> Result<()> {
        let is_cold = |state: &mut State| !state.stats.is_warm && !state.is_closed;
        let waited = self.shared.changed.wait_while(self.shared.state(), is_cold);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.warm_up_error {
            Some(error) => Err(error.clone()),
            None if state.stats.is_warm => Ok(()),
            None => Err(Error::new(ErrorKind::Driver, "the thread that runs the model ended")),
        }
    }

    /// Returns true if no further request is accepted.
    pub fn is_stopping(&self) -> bool {
        self.shared.state().is_stopping
    }

    /// Rejects further requests. Running and waiting ones are finished.
    pub fn stop(&self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
    }

    /// Waits until no request is running or waiting, for at most `timeout`. Returns false if some still are.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let is_busy = |state: &mut State| state.stats.running > 0 || !state.queue.is_empty();
        let waited = self.shared.changed.wait_timeout_while(self.shared.state(), timeout, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !is_busy(&mut state)
    }
}

impl Drop for Engine {
    /// Ends the thread after its current step. Running and waiting requests get no further events.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        (state.is_stopping, state.is_closed) = (true, true);
        drop(state);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported there.
            let _ = thread.join();
        }
    }
}

/// Handle of an accepted request. Dropping it cancels the request and frees its slot after the current step.
pub struct Ticket {
    is_cancelled: Arc<AtomicBool>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The thread is not notified: it does not wait while a request runs or waits.
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// Iterator over the events of a request. It ends after [`Event::Finished`] or [`Event::Failed`].
#[derive(Debug)]
pub struct EventStream {
    receiver: Receiver<Event>,
    _ticket: Ticket,
}

impl Iterator for EventStream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.receiver.recv().ok()
    }
}
