//! What must be over before bytes may be touched.
//!
//! Each allocation keeps the pending uses of its byte ranges. Work on one queue happens in order by itself; work on another
//! queue waits for the uses it conflicts with: those that overlap, one of the two writing.
//!
//! A use whose work failed poisons what it should have written, until that is overwritten. A failure is noticed when the host
//! reads or another queue waits, because to ask a driver on every launch would cost more than the launch; what a queue did
//! meanwhile with the bytes of its own failed work is as the driver left it.
//!
//! Of two submissions to one queue the later is done last and can stand for both, if it is known which was later: threads
//! that submit at the same time are told apart by [`Submission::started`] and [`Submission::ended`], and both are kept.

use std::ops::Range;
use std::sync::Arc;

use panoply_device::{Pending, QueueId, Ticket};
use panoply_ir::kernel::Access;
use panoply_ir::{Error, Result};

/// Uses kept apart; beyond it those of one queue are joined.
const MOST: usize = 16;

/// Work handed to a queue.
pub(crate) struct Submission {
    pub queue: QueueId,
    /// Submissions to the device that had returned when this one began.
    pub started: u64,
    /// Submissions to the device that had returned when this one did, itself included.
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
    /// Whether a failure concerns the present holder of the memory.
    poisons: bool,
    /// The failure, once it was noticed.
    failure: Option<Error>,
    pending: Arc<dyn Pending>,
}

/// Who is about to touch bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accessor {
    /// A step of a queue.
    Step,
    /// The host, which notices failures.
    Host,
}

impl Use {
    fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }

    fn is_within(&self, bytes: &Range<u64>) -> bool {
        bytes.start <= self.bytes.start && self.bytes.end <= bytes.end
    }

    /// Whether it is done; its failure if it failed.
    fn poll(&mut self) -> Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.pending.poll().inspect_err(|failure| self.failure = Some(failure.clone()))
    }
}

impl Uses {
    /// Adds to `waits` what work on `queue` must wait for before it touches the bytes. The error of the work that should have
    /// written them, if it failed and they are to be read.
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
            // What is about to be overwritten whole is nobody's loss.
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

    /// Remembers that a submission uses the bytes until it is done.
    pub fn after(&mut self, submission: &Submission, bytes: Range<u64>, access: Access) {
        let Ticket::Pending(pending) = &submission.ticket else { return };
        if bytes.is_empty() {
            return;
        }
        let &Submission { queue, started, ended, .. } = submission;
        let writes = access != Access::In;
        // One submission often uses the same bytes many times.
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
        if self.0.len() > MOST {
            self.join();
        }
    }

    /// Makes the list short: what is done leaves, and what one queue reads, or writes, becomes one use.
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

    /// The memory has no holder any more: what is pending must still be waited for, but its failure concerns nobody.
    pub fn detach_owner(&mut self) {
        self.0.iter_mut().for_each(|earlier| earlier.poisons = false);
    }
}
