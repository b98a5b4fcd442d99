//! The engine's thread: the slots of the cache, and the composition of steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use panoply_tensor::{Error, Result};

use super::{Completion, Event, Job, Shared, Sink, State};
use crate::decoder::Cache;
use crate::generation::Sequence;
use crate::model::{Batch, Model};

/// Runs the sequences of an engine.
pub(super) struct Scheduler {
    model: Arc<Model>,
    cache: Cache,
    slots: Vec<Slot>,
    /// Running sequences, the oldest first.
    running: Vec<Running>,
    /// Sizes of steps that have not run yet.
    cold: Vec<StepSize>,
}

/// Size of a step: the number of prompt tokens, and of other sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepSize {
    piece: usize,
    others: usize,
}

/// Slot of the cache.
#[derive(Default)]
struct Slot {
    /// Tokens whose keys and values are in the slot.
    tokens: Vec<u32>,
    is_used: bool,
    /// Number of requests before its last one.
    last_use: u64,
}

/// Sequence in a slot.
struct Running {
    sequence: Sequence,
    slot: usize,
    /// Tokens whose keys and values are not in the cache yet.
    pending: Vec<u32>,
    reused: usize,
    sink: Sink,
    /// Events that were not sent yet.
    events: Vec<Event>,
    is_cancelled: Arc<AtomicBool>,
    /// Number of log probabilities that have been sent.
    sent_logprobs: usize,
}

/// Rejects all requests after the thread has ended, also by a panic.
struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_stopping, state.is_closed) = (true, true);
        (state.stats.running, state.stats.waiting) = (0, 0);
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        // Receivers see the end when the sinks are dropped.
        drop(waiting);
        self.0.changed.notify_all();
    }
}

impl Scheduler {
    pub fn new(model: Arc<Model>, slots: usize) -> Result<Scheduler> {
        let note =
            || format!("{slots} requests at once need as many key-value caches; allow fewer or a shorter context");
        let cache = model.allocate_cache(slots).map_err(|error| error.note(note()))?;
        let sizes = |piece: usize, others: std::ops::Range<usize>| {
            let mut sizes: Vec<usize> = others.map(|others| padded(others, slots)).collect();
            sizes.dedup();
            sizes.into_iter().map(move |others| StepSize { piece, others })
        };
        let mut cold: Vec<StepSize> = sizes(0, 1..slots + 1).collect();
        let (smallest, larger) = model.pieces().split_first().expect("there is a size");
        if *smallest > 1 {
            cold.extend(sizes(*smallest, 0..slots));
        }
        // Larger pieces than the context are never used.
        let used = larger.iter().filter(|piece| **piece <= model.context_length());
        cold.extend(used.map(|piece| StepSize { piece: *piece, others: 0 }));
        cold.reverse();
        let slots = (0..slots).map(|_| Slot::default()).collect();
        Ok(Scheduler { model, cache, slots, running: Vec::new(), cold })
    }

    /// Runs steps until the engine is closed.
    pub fn run(mut self, shared: &Shared) {
        let _close = CloseOnDrop(shared);
        while self.admit(shared) {
            if self.running.is_empty() {
                self.warm_up(shared);
            } else {
                self.step(shared);
            }
        }
    }

    /// Removes cancelled requests and fills free slots; waits if there is nothing to do. Returns false once the engine is closed.
    fn admit(&mut self, shared: &Shared) -> bool {
        let mut state = shared.state();
        loop {
            if state.is_closed {
                return false;
            }
            let cancelled = self.cancel(&mut state);
            if !cancelled.is_empty() {
                // What a sink owns may read the engine's counts when it is dropped.
                drop(state);
                drop(cancelled);
                state = shared.state();
                continue;
            }
            while self.running.len() < self.slots.len()
                && let Some(job) = state.queue.pop_front()
            {
                self.start(job, &mut state);
            }
            (state.stats.running, state.stats.waiting) = (self.running.len(), state.queue.len());
            state.stats.is_warm = self.cold.is_empty();
            shared.changed.notify_all();
            if !self.running.is_empty() || !self.cold.is_empty() {
                return true;
            }
            state = shared.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Removes the cancelled requests and returns their sinks.
    fn cancel(&mut self, state: &mut State) -> Vec<Sink> {
        let mut sinks = Vec::new();
        let is_cancelled = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        for at in (0..state.queue.len()).rev() {
            if is_cancelled(&state.queue[at].is_cancelled) {
                sinks.extend(state.queue.remove(at).map(|job| job.sink));
            }
        }
        for running in self.running.extract_if(.., |running| is_cancelled(&running.is_cancelled)) {
            self.slots[running.slot].is_used = false;
            sinks.push(running.sink);
        }
        state.stats.cancelled += sinks.len() as u64;
        sinks
    }

    /// Puts a request into the free slot that has most of its prompt, if that is at least half of the prompt or of the slot's tokens,
    /// otherwise into the one that was not used for the longest time: the first tokens of a chat template are common to all conversations.
    fn start(&mut self, job: Job, state: &mut State) {
        let Job { sequence, sink, is_cancelled } = job;
        let common = |slot: &Slot| sequence.common_with(&slot.tokens);
        let free = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_used);
        let half = |slot: &Slot| sequence.prompt().len().min(slot.tokens.len()).div_ceil(2).max(1);
        let worth = |slot: &Slot| Some(common(slot)).filter(|common| *common >= half(slot));
        let best = free.max_by_key(|(_, slot)| (worth(slot), std::cmp::Reverse(slot.last_use)));
        let slot = best.expect("there is a free slot").0;
        let reused = common(&self.slots[slot]);
        let last_use = self.slots.iter().map(|slot| slot.last_use).max().unwrap_or(0) + 1;
        let place = &mut self.slots[slot];
        place.tokens.truncate(reused);
        (place.is_used, place.last_use) = (true, last_use);
        state.stats.reused_tokens += reused as u64;
        let pending = sequence.prompt()[reused..].to_vec();
        self.running.push(Running {
            sequence,
            slot,
            pending,
            reused,
            sink,
            events: Vec::new(),
            is_cancelled,
            sent_logprobs: 0,
        });
    }

    /// Runs one of the remaining sizes of steps with rows that are dropped, to compile it.
    fn warm_up(&mut self, shared: &Shared) {
        let Some(size) = self.cold.pop() else { return };
        let outside = (self.slots.len() * self.model.slot_rows()) as i32;
        let sequences = size.others + usize::from(size.piece > 0);
        let batch = Batch { ids: vec![0; size.piece + size.others], starts: vec![outside; sequences], last: 0 };
        if let Err(error) = self.model.step(&mut self.cache, &batch).and_then(|logits| logits.to_vec::<f32>()) {
            shared.state().warm_up_error.get_or_insert(error);
            // The contents of the cache are unknown.
            self.slots.iter_mut().for_each(|slot| slot.tokens.clear());
        }
    }

    /// Runs a step with the next tokens of all sequences that have one, and a piece of the oldest prompt: a small one beside others, so that
    /// they do not wait long.
    fn step(&mut self, shared: &Shared) {
        let (smallest, slot_rows) = (self.model.pieces()[0], self.model.slot_rows());
        let is_single = |running: &Running| smallest == 1 || running.pending.len() == 1;
        let prompt = self.running.iter().position(|running| !is_single(running));
        let singles = (0..self.running.len()).filter(|at| is_single(&self.running[*at]));
        let piece = match prompt {
            Some(at) if singles.clone().next().is_none() => self.model.piece_size(self.running[at].pending.len()),
            _ => smallest,
        };
        // The sequences of the step with the number of their tokens.
        let of_prompt = prompt.map(|at| (at, self.running[at].pending.len().min(piece)));
        let parts: Vec<(usize, usize)> = of_prompt.into_iter().chain(singles.map(|at| (at, 1))).collect();
        let row = |running: &Running| running.slot * slot_rows + self.slots[running.slot].tokens.len();
        let mut batch = Batch::default();
        for (at, count) in &parts {
            let running = &self.running[*at];
            let part = Batch::piece(&running.pending[..*count], row(running), piece);
            batch.last = batch.last.max(part.last);
            batch.ids.extend(part.ids);
            batch.starts.extend(part.starts);
        }
        let others = parts.len() - usize::from(prompt.is_some());
        let size =
            StepSize { piece: if prompt.is_some() { piece } else { 0 }, others: padded(others, self.slots.len()) };
        let padding = size.others - others;
        batch.ids.extend(std::iter::repeat_n(0, padding));
        batch.starts.extend(std::iter::repeat_n((self.slots.len() * slot_rows) as i32, padding));
        self.cold.retain(|cold| *cold != size);
        match self.model.step(&mut self.cache, &batch).and_then(|logits| logits.to_vec::<f32>()) {
            Ok(logits) => self.advance(shared, &parts, &logits),
            Err(error) => self.fail(shared, &error),
        }
    }

    /// Passes the logits of a step to its sequences.
    fn advance(&mut self, shared: &Shared, parts: &[(usize, usize)], logits: &[f32]) {
        let vocab = self.model.config().vocab;
        let (mut finished, mut failed, mut prompt_tokens, mut completion_tokens) = (0, 0, 0, 0);
        let mut is_over = vec![false; self.running.len()];
        for ((at, count), logits) in parts.iter().zip(logits.chunks_exact(vocab)) {
            let running = &mut self.running[*at];
            let slot = &mut self.slots[running.slot];
            slot.tokens.extend(running.pending.drain(..*count));
            prompt_tokens += if running.sequence.tokens().is_empty() { *count as u64 } else { 0 };
            if !running.pending.is_empty() {
                continue;
            }
            let before = running.sequence.tokens().len();
            match running.advance(&self.model, logits) {
                Ok(true) => (finished, is_over[*at]) = (finished + 1, true),
                Ok(false) => {}
                Err(error) => {
                    running.events.push(Event::Failed(error));
                    (failed, is_over[*at]) = (failed + 1, true);
                }
            }
            completion_tokens += (running.sequence.tokens().len() - before) as u64;
        }
        let ended = is_over.iter().filter(|is_over| **is_over).count();
        // Before the events: whoever receives the last one may read the counts.
        let mut state = shared.state();
        state.stats.finished += finished;
        state.stats.failed += failed;
        state.stats.prompt_tokens += prompt_tokens;
        state.stats.completion_tokens += completion_tokens;
        state.stats.steps += 1;
        state.stats.running = self.running.len() - ended;
        drop(state);
        for running in &mut self.running {
            running.events.drain(..).for_each(&mut running.sink);
        }
        let mut over = is_over.into_iter();
        for running in self.running.extract_if(.., |_| over.next() == Some(true)) {
            self.slots[running.slot].is_used = false;
        }
    }

    /// Ends all sequences after a failed step, since the contents of the cache are unknown.
    fn fail(&mut self, shared: &Shared, error: &Error) {
        let mut state = shared.state();
        state.stats.failed += self.running.len() as u64;
        state.stats.running = 0;
        drop(state);
        self.slots.iter_mut().for_each(|slot| *slot = Slot::default());
        self.running.drain(..).for_each(|mut running| (running.sink)(Event::Failed(error.clone())));
    }
}

/// Sequences of the next larger size of a step, of which there is one for each power of two.
fn padded(sequences: usize, slots: usize) -> usize {
    if sequences == 0 { 0 } else { sequences.next_power_of_two().min(slots) }
}

impl Running {
    /// Samples a token and appends the events; returns true if the sequence is finished.
    fn advance(&mut self, model: &Model, logits: &[f32]) -> Result<bool> {
        let text = self.sequence.advance(model.tokenizer(), logits)?;
        let logprobs = self.sequence.logprobs()[self.sent_logprobs..].to_vec();
        self.sent_logprobs += logprobs.len();
        if !text.is_empty() || !logprobs.is_empty() {
            self.events.push(Event::Text { text, logprobs });
        }
        let Some(finish_reason) = self.sequence.finished() else {
            self.pending.extend(self.sequence.tokens().last());
            return Ok(false);
        };
        self.events.push(Event::Finished(Completion {
            finish_reason,
            prompt_tokens: self.sequence.prompt().len(),
            reused_tokens: self.reused,
            completion_tokens: self.sequence.tokens().len(),
        }));
        Ok(true)
    }
}
