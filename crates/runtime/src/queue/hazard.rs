//! Hazard tracking: dependencies between accesses to the same bytes.
//!
//! Each allocation keeps the pending uses of its byte ranges. A queue executes its own work in order. Work on another queue waits for
//! conflicting uses: those whose ranges overlap and of which at least one writes.
//!
//! A failed write poisons its bytes until they are overwritten. Failures are detected when the host reads or another queue waits,
//! because querying the driver on every launch would cost more than the launch. Until then, later work of the same queue sees
//! whatever bytes the driver left.
//!
//! Of two ordered submissions to one queue, the later one completes last and replaces the earlier one in the list. Submissions of
//! concurrent threads can have no known order: [`Submission::started`] and [`Submission::ended`] then overlap, and both are kept.

use std::ops::Range;
use std::sync::Arc;

use panoply_device::{Pending, QueueId, Ticket};
use panoply_ir::kernel::Access;
use panoply_ir::{Error, Result};

/// Maximum number of separate uses; beyond it the uses of one queue are merged.
const MAX_USES: usize = 16;

/// Work submitted to a queue.
pub(crate) struct Submission {
    pub queue: QueueId,
    /// Number of the device's submissions that had returned when this one began.
    pub started: u64,
    /// Number of the device's submissions that had returned when this one returned, including itself.
    pub ended: u64,
    pub ticket: Ticket,
}

#[derive(Default)]
pub(crate) struct Uses(Vec<Use>);

struct Use {
    queue: QueueId,
    started: u64,
    ended: u64,
    bytes: Range<u64>,
    writes: bool,
    /// True if a failure affects the current owner of the memory.
    poisons: bool,
    /// The failure, once detected.
    failure: Option<Error>,
    pending: Arc<dyn Pending>,
}

/// Accessor of the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accessor {
    /// A command of a queue.
    Command,
    /// The host, which detects failures.
    Host,
}

impl Use {
    fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }

    fn is_within(&self, bytes: &Range<u64>) -> bool {
        bytes.start <= self.bytes.start && self.bytes.end <= bytes.end
    }

    /// Returns true if the work is complete, or its failure.
    fn poll(&mut self) -> Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.pending.poll().inspect_err(|failure| self.failure = Some(failure.clone()))
    }
}

impl Uses {
    /// Adds to `waits` the tickets that work on `queue` must wait for before it accesses the bytes.
    ///
    /// # Errors
    /// The bytes are to be read and the work that should have written them failed.
    pub fn before(
        &mut self,
        by: Accessor,
        queue: QueueId,
        bytes: Range<u64>,
        access: Access,
        waits: &mut Vec<Ticket>,
    ) -> Result<()> {
        let reads = access != Access::Out;
        let mut next = 0;
        while next < self.0.len() {
            let earlier = &mut self.0[next];
            // A failed write no longer matters once all its bytes are overwritten.
            earlier.poisons &= reads || !earlier.is_within(&bytes);
            let conflicts = earlier.overlaps(&bytes) && (earlier.writes || access != Access::In);
            let same = earlier.queue == queue;
            let asks = !same || (earlier.writes && reads && (by == Accessor::Host || earlier.failure.is_some()));
            if !conflicts || !asks {
                next += 1;
                continue;
            }
            match earlier.poll() {
                Ok(false) => {
                    if !same {
                        waits.push(Ticket::Pending(earlier.pending.clone()));
                    }
                    next += 1;
                }
                Err(error) if earlier.writes && earlier.poisons && reads => {
                    return Err(error.note("the work that should have written this buffer failed; write it again"));
                }
                Err(_) if earlier.writes && earlier.poisons => next += 1,
                Ok(true) | Err(_) => {
                    self.0.remove(next);
                }
            }
        }
        Ok(())
    }

    /// Records that a submission uses the bytes until it completes.
    pub fn after(&mut self, submission: &Submission, bytes: Range<u64>, access: Access) {
        let Ticket::Pending(pending) = &submission.ticket else { return };
        if bytes.is_empty() {
            return;
        }
        let &Submission { queue, started, ended, .. } = submission;
        let writes = access != Access::In;
        // One submission often uses the same bytes repeatedly.
        let again = |earlier: &&mut Use| earlier.bytes == bytes && Arc::ptr_eq(&earlier.pending, pending);
        if let Some(earlier) = self.0.iter_mut().rev().find(again) {
            earlier.writes |= writes;
            return;
        }
        self.0.retain(|earlier| {
            if earlier.failure.is_some() && earlier.poisons {
                return true;
            }
            let stood_for = earlier.queue == queue && earlier.ended <= started && (writes || !earlier.writes);
            !(stood_for && earlier.is_within(&bytes))
        });
        self.0.push(Use {
            queue,
            started,
            ended,
            bytes,
            writes,
            poisons: true,
            failure: None,
            pending: pending.clone(),
        });
        if self.0.len() > MAX_USES {
            self.join();
        }
    }

    /// Shortens the list: removes completed uses and merges the reads, and the writes, of each queue.
    fn join(&mut self) {
        self.0.retain_mut(|earlier| match earlier.poll() {
            Ok(done) => !done,
            Err(_) => earlier.writes && earlier.poisons,
        });
        self.0.sort_by_key(|earlier| earlier.started);
        let mut joined: Vec<Use> = Vec::new();
        for later in self.0.drain(..) {
            let stands_for = |one: &&mut Use| {
                let alike = one.queue == later.queue && one.writes == later.writes;
                alike && one.failure.is_none() && later.failure.is_none() && one.ended <= later.started
            };
            match joined.iter_mut().find(stands_for) {
                Some(one) => {
                    let bytes = one.bytes.start.min(later.bytes.start)..one.bytes.end.max(later.bytes.end);
                    *one = Use { bytes, poisons: one.poisons | later.poisons, ..later };
                }
                None => joined.push(later),
            }
        }
        self.0 = joined;
    }

    /// Detaches the uses from the freed memory's owner: pending work must still be waited for, but its failure no longer matters.
    pub fn detach_owner(&mut self) {
        self.0.iter_mut().for_each(|earlier| earlier.poisons = false);
    }
}
