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

use panoply_tensor::{Error, Result};

use crate::generation::{FinishReason, Request, Sequence};
use crate::model::Model;
use crate::sampling::TokenLogprob;

use scheduler::Scheduler;

/// Maximum number of concurrent sequences. With more, a step would have more sizes than a jitted function keeps traces.
const MAX_CONCURRENT: usize = 32;

/// Limits of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Requests that run at once: each has a part of the key-value cache as long as the context.
    pub max_concurrent: usize,
    /// Requests that wait while as many run; further ones are refused.
    pub max_queue: usize,
}

impl Default for EngineOptions {
    /// 8 requests at once, 64 that wait.
    fn default() -> EngineOptions {
        EngineOptions { max_concurrent: 8, max_queue: 64 }
    }
}

/// An event of a request. Events arrive in the order of the text.
#[derive(Clone, Debug)]
pub enum Event {
    /// A piece of text, perhaps empty, and the probabilities of the tokens since the last event if the request wants them.
    Text {
        /// The text that is complete.
        text: String,
        /// The tokens that were drawn.
        logprobs: Vec<TokenLogprob>,
    },
    /// The text is complete; nothing follows.
    Finished(Completion),
    /// The request failed; nothing follows.
    Failed(Error),
}

/// The end of a request and its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The reason for the end.
    pub finish_reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that an earlier request had left in the cache.
    pub reused_tokens: usize,
    /// Tokens that were generated, without the one that ended the text.
    pub completion_tokens: usize,
}

/// Why a request was not accepted.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// The request is wrong.
    Invalid(Error),
    /// As many requests as allowed run and wait; try later.
    Full,
    /// The engine stops.
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

/// Counts since the start of an engine, and its present load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that ended by themselves.
    pub finished: u64,
    /// Requests whose receiver went away.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were refused because too many were waiting.
    pub refused: u64,
    /// Tokens of prompts that were computed.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were in the cache.
    pub reused_tokens: u64,
    /// Tokens that were generated.
    pub completion_tokens: u64,
    /// Steps of the model.
    pub steps: u64,
    /// True if every size of a step has been run once, successfully or not, so that no later step is delayed by compilation.
    pub is_warm: bool,
}

/// The receiver of a request's events.
type Sink = Box<dyn FnMut(Event) + Send>;

/// A request that waits.
struct Job {
    sequence: Sequence,
    sink: Sink,
    is_cancelled: Arc<AtomicBool>,
}

/// The state that callers and the engine's thread share.
struct Shared {
    state: Mutex<State>,
    /// Notified when a request arrives, when one ends, and when the engine stops.
    changed: Condvar,
    options: EngineOptions,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// No request is accepted any more.
    is_stopping: bool,
    /// The thread ends at once.
    is_closed: bool,
    stats: EngineStats,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A model that serves many requests at once.
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
    /// Starts an engine. The key-value cache is allocated here, for all requests that may run at once.
    ///
    /// # Errors
    ///
    /// If a limit is out of range, or the cache does not fit the device.
    pub fn start(model: Arc<Model>, options: EngineOptions) -> Result<Engine> {
        let count = options.max_concurrent;
        if count == 0 || count > MAX_CONCURRENT {
            return Err(Error::mistake(format!("{count} requests at once; the number is from 1 to {MAX_CONCURRENT}")));
        }
        let scheduler = Scheduler::new(model.clone(), count)?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), options });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("panoply-llm".to_string());
        let thread = thread.spawn(move || scheduler.run(&of_thread));
        let thread = thread.map_err(|error| Error::io("cannot start the thread of the model", error))?;
        Ok(Engine { shared, model, thread: Some(thread) })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Queues a request. `sink` receives its events on the engine's thread and must not block. If no token is to be generated, `sink` is
    /// called before this function returns. Dropping the ticket cancels the request.
    ///
    /// # Errors
    ///
    /// If the request is wrong, too many are waiting, or the engine stops.
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

    /// Begins a request whose events are read from an iterator. Dropping that cancels the request.
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

    /// Counts since the start, and the present load.
    pub fn stats(&self) -> EngineStats {
        self.shared.state().stats
    }

    /// True once no further request is accepted.
    pub fn is_stopping(&self) -> bool {
        self.shared.state().is_stopping
    }

    /// Refuses further requests; those that run or wait are finished.
    pub fn stop(&self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
    }

    /// Waits until no request runs or waits, for at most `timeout`. Returns false if some still do.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let is_busy = |state: &mut State| state.stats.running > 0 || !state.queue.is_empty();
        let waited = self.shared.changed.wait_timeout_while(self.shared.state(), timeout, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !is_busy(&mut state)
    }
}

impl Drop for Engine {
    /// Ends the thread after its present step; requests that run or wait get no further events.
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

/// A request that was accepted. Dropping it cancels the request: its place is free after the present step.
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

/// The events of a request as an iterator, which ends after [`Event::Finished`] and [`Event::Failed`].
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
