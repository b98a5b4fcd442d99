//! Dependencies between tasks, without threads and devices.
//!
//! A task depends on every earlier one that accesses an overlapping region, if either of them writes it. A failed task is lost,
//! and so are all tasks that depend on a lost one, even those added later. A lost task counts as settled when all tasks that it
//! depends on are; so the failure that is reported does not depend on the order in which tasks ran.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use panoply_tensor::{Error, Result, Tensor};

use crate::arguments::Access;
use crate::span;

/// Closure of a task, over one tensor per region.
pub type Work = Box<dyn FnOnce(&mut [Tensor]) -> Result<()> + Send>;

/// A task for [`Graph::add`].
pub struct NewTask {
    /// Name for messages.
    pub name: String,
    /// Regions that the task accesses.
    pub accesses: Vec<Access>,
    /// Numbers of the devices that can run it.
    pub devices: Vec<usize>,
    /// The task whose closure spawned it.
    pub parent: Option<u64>,
    /// Closure of the task.
    pub work: Work,
}

/// A task that is ready to run.
pub struct Job {
    /// Number of the task in program order.
    pub id: u64,
    /// Regions of the task.
    pub accesses: Arc<[Access]>,
    /// Numbers of the devices that can run it, which tasks spawned by it inherit.
    pub devices: Vec<usize>,
    /// Closure of the task.
    pub work: Work,
}

struct Task {
    name: String,
    accesses: Arc<[Access]>,
    /// Numbers of the devices that can run it.
    devices: Vec<usize>,
    /// Closure; taken when the task starts.
    work: Option<Work>,
    /// Number of unsettled tasks that it depends on.
    waits: usize,
    followers: Vec<u64>,
    parent: Option<u64>,
    /// Number of the failure because of which it never runs.
    lost: Option<u64>,
}

/// A task that failed, or a cancellation.
struct Failure {
    /// Name and device of the failed task, and its error; `None` for a cancellation.
    cause: Option<(String, String, Error)>,
    /// Number of tasks that never run because of it.
    dropped: usize,
}

/// State of the tasks that a caller waits for.
pub enum Progress {
    /// All are finished.
    Done,
    /// Some are not finished.
    Pending,
    /// All are settled, and one failed.
    Failed(Error),
}

/// The rules by which a later access must follow an earlier one to the same region. Tests leave out one at a time.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Reads follow writes.
    pub read_after_write: bool,
    /// Writes follow reads.
    pub write_after_read: bool,
    /// Writes follow writes.
    pub write_after_write: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { read_after_write: true, write_after_read: true, write_after_write: true }
    }
}

impl Rules {
    /// Returns true if a later access to the same datum must follow an earlier one.
    fn must_follow(&self, earlier: &Access, later: &Access) -> bool {
        let ordered = (self.read_after_write && earlier.writes() && later.reads())
            || (self.write_after_read && earlier.reads() && later.writes())
            || (self.write_after_write && earlier.writes() && later.writes());
        ordered && span::overlap(&earlier.view.region, &later.view.region)
    }
}

/// The tasks of a mesh.
#[derive(Default)]
pub struct Graph {
    tasks: BTreeMap<u64, Task>,
    /// For each datum, by its address, the accesses of unsettled and lost tasks, in program order. An access that a later write
    /// covers is left out: whatever must follow it also follows the write.
    accesses: HashMap<usize, Vec<(u64, Access)>>,
    ready: VecDeque<u64>,
    /// The failure of each settled task that is lost.
    lost: BTreeMap<u64, u64>,
    /// Failures by the number of the failed task.
    failures: BTreeMap<u64, Failure>,
    next: u64,
    rules: Rules,
}

impl Graph {
    /// Returns the name of a task; empty once it is settled.
    pub fn name(&self, id: u64) -> String {
        self.tasks.get(&id).map_or_else(String::new, |task| task.name.clone())
    }

    /// Returns the number of the next task, which is larger than all earlier ones.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Appends a task. If it depends on a lost task it is lost too, and its closure is returned, to be dropped without locks.
    pub fn add(&mut self, NewTask { name, accesses, devices, parent, work }: NewTask) -> Vec<Work> {
        let id = self.next;
        self.next += 1;
        let (mut waits, mut lost) = (0, None);
        for earlier in self.dependencies(&accesses) {
            match self.tasks.get_mut(&earlier) {
                Some(task) => {
                    task.followers.push(id);
                    waits += 1;
                }
                None => lost = smallest(lost, self.lost.get(&earlier).copied()),
            }
        }
        for access in &accesses {
            let known = self.accesses.entry(access.view.datum()).or_default();
            if access.writes() {
                known.retain(|(_, earlier)| !span::contains(&access.view.region, &earlier.view.region));
            }
            known.push((id, access.clone()));
        }
        let accesses = accesses.into();
        let task = Task { name, accesses, devices, work: Some(work), waits, followers: Vec::new(), parent, lost };
        self.tasks.insert(id, task);
        let mut dropped = Vec::new();
        match (waits, lost) {
            (0, None) => self.ready.push_back(id),
            (0, Some(failure)) => self.settle(id, Some(failure), &mut dropped),
            (_, _) => {}
        }
        dropped
    }

    /// Returns the numbers of the tasks that a task with these accesses must follow, in order and without duplicates.
    pub fn dependencies(&self, accesses: &[Access]) -> Vec<u64> {
        let mut found = Vec::new();
        for later in accesses {
            let known = self.accesses.get(&later.view.datum()).into_iter().flatten();
            found.extend(known.filter(|(_, earlier)| self.rules.must_follow(earlier, later)).map(|(id, _)| *id));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Takes the first ready task that this device can run, among all or only among those that a task spawned.
    pub fn take(&mut self, device: usize, only_nested: bool) -> Option<Job> {
        let fits = |id: &u64| {
            let task = &self.tasks[id];
            task.devices.contains(&device) && (!only_nested || task.parent.is_some())
        };
        let at = self.ready.iter().position(fits)?;
        let id = self.ready.remove(at)?;
        let task = self.tasks.get_mut(&id)?;
        Some(Job { id, accesses: task.accesses.clone(), devices: task.devices.clone(), work: task.work.take()? })
    }

    /// Records the result of a task. Returns the closures of dropped tasks, to be dropped without locks.
    pub fn finish(&mut self, id: u64, device: &str, result: Result<()>) -> Vec<Work> {
        let failure = result.err().map(|error| {
            let cause = Some((self.tasks[&id].name.clone(), device.to_string(), error));
            self.failures.insert(id, Failure { cause, dropped: 0 });
            id
        });
        let mut dropped = Vec::new();
        self.settle(id, failure, &mut dropped);
        dropped
    }

    /// Cancels all tasks that have not started. Returns their number and their closures, to be dropped without locks.
    pub fn cancel(&mut self) -> (usize, Vec<Work>) {
        let failure = self.next;
        let canceled: Vec<u64> = self.tasks.iter().filter(|(_, task)| task.work.is_some()).map(|(id, _)| *id).collect();
        let mut dropped = Vec::new();
        if canceled.is_empty() {
            return (0, dropped);
        }
        self.next += 1;
        self.failures.insert(failure, Failure { cause: None, dropped: 0 });
        self.ready.clear();
        for id in &canceled {
            // A task before it can have settled it.
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.lost = smallest(task.lost, Some(failure));
            if task.waits == 0 {
                let lost = task.lost;
                self.settle(*id, lost, &mut dropped);
            }
        }
        (canceled.len(), dropped)
    }

    /// Removes a task that is finished or lost, and all that only waited for it and are lost.
    fn settle(&mut self, id: u64, failure: Option<u64>, dropped: &mut Vec<Work>) {
        let mut settled = vec![(id, failure)];
        while let Some((id, failure)) = settled.pop() {
            let Some(task) = self.tasks.remove(&id) else { continue };
            match failure {
                None => self.forget(id, &task.accesses),
                Some(failure) => {
                    self.lost.insert(id, failure);
                    // The failed task itself is not dropped.
                    if let Some(failure) = self.failures.get_mut(&failure).filter(|_| failure != id) {
                        failure.dropped += 1;
                    }
                }
            }
            dropped.extend(task.work);
            for follower in task.followers {
                let Some(task) = self.tasks.get_mut(&follower) else { continue };
                task.waits -= 1;
                task.lost = smallest(task.lost, failure);
                match (task.waits, task.lost) {
                    (0, None) => self.ready.push_back(follower),
                    (0, lost) => settled.push((follower, lost)),
                    (_, _) => {}
                }
            }
        }
    }

    /// Removes the accesses of a finished task.
    fn forget(&mut self, id: u64, accesses: &[Access]) {
        for access in accesses {
            let datum = access.view.datum();
            if let Some(known) = self.accesses.get_mut(&datum) {
                known.retain(|(task, _)| *task != id);
                if known.is_empty() {
                    self.accesses.remove(&datum);
                }
            }
        }
    }

    /// Returns the state of these tasks. A failure is reported when all tasks before `before` with this parent are settled, so that
    /// the number of dropped tasks does not depend on their order.
    pub fn progress(&self, tasks: &[u64], before: u64, parent: Option<u64>) -> Progress {
        if tasks.iter().any(|id| self.tasks.contains_key(id)) {
            return Progress::Pending;
        }
        match tasks.iter().filter_map(|id| self.lost.get(id)).min() {
            None => Progress::Done,
            Some(_) if self.tasks.range(..before).any(|(_, task)| task.parent == parent) => Progress::Pending,
            failure => self.outcome(failure),
        }
    }

    /// Returns the state of all tasks before `before`.
    pub fn all_progress(&self, before: u64) -> Progress {
        match self.tasks.range(..before).next() {
            Some(_) => Progress::Pending,
            None => self.outcome(self.failures.keys().next()),
        }
    }

    fn outcome(&self, failure: Option<&u64>) -> Progress {
        let failure = failure.and_then(|failure| self.failures.get(failure));
        failure.map_or(Progress::Done, |failure| Progress::Failed(failure.report()))
    }
}

fn smallest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

impl Failure {
    fn report(&self) -> Error {
        let Failure { cause, dropped } = self;
        let Some((task, device, error)) = cause else {
            let (tasks, were) = if *dropped == 1 { ("task", "was") } else { ("tasks", "were") };
            return Error::unavailable(format!("{dropped} {tasks} {were} canceled"));
        };
        let tasks = match dropped {
            0 => "no task after it was dropped".to_string(),
            1 => "1 task after it was dropped".to_string(),
            many => format!("{many} tasks after it were dropped"),
        };
        let message = format!("task {task} on {device}: {}; {tasks}", error.message());
        let report = Error::new(error.kind(), message);
        error.notes().iter().fold(report, |report, note| report.note(note)).with_source(error.clone())
    }
}

#[cfg(test)]
mod tests;
