//! Dependencies between tasks, without threads and devices.
//!
//! A task depends on every earlier one that accesses an overlapping region, if either of them writes it. Finished tasks are
//! removed. Failed and dropped ones are kept, so that all tasks that depend on them are dropped too, even those added later.

use std::collections::{BTreeMap, VecDeque};

use panoply_tensor::{Error, Result, Tensor};

use crate::arguments::Access;

/// Closure of a task, over one tensor per region.
pub type Work = Box<dyn FnOnce(&mut [Tensor]) -> Result<()> + Send>;

/// A task that is ready to run.
pub struct Job {
    /// Number of the task in program order.
    pub id: u64,
    /// Regions of the task.
    pub accesses: Vec<Access>,
    /// Closure of the task.
    pub work: Work,
}

struct Task {
    name: String,
    accesses: Vec<Access>,
    /// Numbers of the devices that can run it.
    devices: Vec<usize>,
    /// Closure; taken when the task starts.
    work: Option<Work>,
    /// Number of unfinished tasks that it depends on.
    waits: usize,
    followers: Vec<u64>,
    /// Index of the failure because of which it never finishes.
    lost: Option<usize>,
}

/// A task that failed.
struct Failure {
    task: String,
    device: String,
    error: Error,
    dropped: usize,
}

/// State of the tasks that a caller waits for.
pub enum Progress {
    /// All are finished.
    Done,
    /// Some are not finished.
    Pending,
    /// One failed.
    Failed(Error),
}

/// The tasks of a mesh.
#[derive(Default)]
pub struct Graph {
    tasks: BTreeMap<u64, Task>,
    ready: VecDeque<u64>,
    failures: Vec<Failure>,
    next: u64,
}

/// Returns true if a later access depends on an earlier one.
fn must_follow(earlier: &Access, later: &Access) -> bool {
    let read_after_write = earlier.writes() && later.reads();
    let write_after_read = earlier.reads() && later.writes();
    let write_after_write = earlier.writes() && later.writes();
    (read_after_write || write_after_read || write_after_write) && earlier.view.overlaps(&later.view)
}

fn any_must_follow(earlier: &[Access], later: &[Access]) -> bool {
    later.iter().any(|later| earlier.iter().any(|earlier| must_follow(earlier, later)))
}

impl Graph {
    /// Returns the number of the next task, which is larger than all earlier ones.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Appends a task. If it depends on a lost task it is lost too, and its closure is returned, to be dropped without locks.
    pub fn add(&mut self, name: String, accesses: Vec<Access>, devices: Vec<usize>, work: Work) -> Option<Work> {
        let id = self.next;
        self.next += 1;
        let (mut waits, mut lost) = (0, None);
        for earlier in self.tasks.values_mut().filter(|earlier| any_must_follow(&earlier.accesses, &accesses)) {
            match earlier.lost {
                Some(failure) => lost = lost.or(Some(failure)),
                None => {
                    earlier.followers.push(id);
                    waits += 1;
                }
            }
        }
        let mut task = Task { name, accesses, devices, work: Some(work), waits, followers: Vec::new(), lost };
        let mut dropped = None;
        if let Some(failure) = lost {
            self.failures[failure].dropped += 1;
            dropped = task.work.take();
        } else if waits == 0 {
            self.ready.push_back(id);
        }
        self.tasks.insert(id, task);
        dropped
    }

    /// Takes the first ready task that this device can run.
    pub fn take(&mut self, device: usize) -> Option<Job> {
        let at = self.ready.iter().position(|id| self.tasks[id].devices.contains(&device))?;
        let id = self.ready.remove(at)?;
        let task = self.tasks.get_mut(&id)?;
        Some(Job { id, accesses: task.accesses.clone(), work: task.work.take()? })
    }

    /// Records the result of a task. Returns the closures of dropped tasks, to be dropped without locks.
    pub fn finish(&mut self, id: u64, device: &str, result: Result<()>) -> Vec<Work> {
        match result {
            Ok(()) => {
                let followers = self.tasks.remove(&id).map(|task| task.followers).unwrap_or_default();
                for follower in followers {
                    let Some(task) = self.tasks.get_mut(&follower) else { continue };
                    task.waits -= 1;
                    if task.waits == 0 && task.lost.is_none() {
                        self.ready.push_back(follower);
                    }
                }
                Vec::new()
            }
            Err(error) => {
                let task = self.tasks[&id].name.clone();
                self.failures.push(Failure { task, device: device.to_string(), error, dropped: 0 });
                self.lose(id, self.failures.len() - 1)
            }
        }
    }

    /// Marks a task and all that depend on it as lost.
    fn lose(&mut self, first: u64, failure: usize) -> Vec<Work> {
        let (mut lost, mut dropped) = (vec![first], Vec::new());
        while let Some(id) = lost.pop() {
            let Some(task) = self.tasks.get_mut(&id).filter(|task| task.lost.is_none()) else { continue };
            task.lost = Some(failure);
            lost.append(&mut task.followers);
            if id != first {
                self.failures[failure].dropped += 1;
                dropped.extend(task.work.take());
            }
        }
        dropped
    }

    /// Returns the state of the tasks before `before` that a later access depends on.
    pub fn progress(&self, later: &Access, before: u64) -> Progress {
        let mut progress = Progress::Done;
        for earlier in self.tasks.range(..before).map(|(_, task)| task) {
            if earlier.accesses.iter().any(|earlier| must_follow(earlier, later)) {
                match earlier.lost {
                    Some(failure) => return Progress::Failed(self.failures[failure].report()),
                    None => progress = Progress::Pending,
                }
            }
        }
        progress
    }

    /// Returns the state of all tasks before `before`.
    pub fn all_progress(&self, before: u64) -> Progress {
        if self.tasks.range(..before).any(|(_, task)| task.lost.is_none()) {
            return Progress::Pending;
        }
        self.failures.first().map_or(Progress::Done, |failure| Progress::Failed(failure.report()))
    }
}

impl Failure {
    fn report(&self) -> Error {
        let Failure { task, device, error, dropped } = self;
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
mod tests {
    use panoply_tensor::Device;

    use super::*;
    use crate::arguments::Mode;
    use crate::data::{Data, View};

    fn nothing() -> Work {
        Box::new(|_| Ok(()))
    }

    fn access(data: &Data, range: std::ops::Range<isize>, mode: Mode) -> Vec<Access> {
        vec![Access { view: data.view((range,)).unwrap(), mode }]
    }

    fn data() -> Data {
        let values = Device::get("cpu").unwrap().scope(|| Tensor::from_slice(&[0f32; 8], [8]));
        Data::new(&values).unwrap()
    }

    /// One row per rule: without any of the rules, a row fails.
    #[test]
    fn tasks_depend_on_each_other_if_one_writes_a_shared_region() {
        let (data, other) = (data(), data());
        for (first, second, follows) in [
            (Mode::In, Mode::In, false),
            (Mode::Out, Mode::In, true),
            (Mode::In, Mode::Out, true),
            (Mode::Out, Mode::Out, true),
            (Mode::InOut, Mode::InOut, true),
        ] {
            for (view, overlaps) in [(0..4, true), (3..8, true), (4..8, false)] {
                let mut graph = Graph::default();
                graph.add("first".to_string(), access(&data, 0..4, first), vec![0], nothing());
                graph.add("second".to_string(), access(&data, view.clone(), second), vec![0], nothing());
                graph.add("third".to_string(), access(&other, 0..8, Mode::InOut), vec![0], nothing());
                assert_eq!(graph.take(0).map(|job| job.id), Some(0));
                let waits = follows && overlaps;
                assert_eq!(
                    graph.take(0).map(|job| job.id),
                    Some(if waits { 2 } else { 1 }),
                    "{first:?} {second:?} {view:?}"
                );
                graph.finish(0, "cpu", Ok(()));
                assert_eq!(graph.take(0).map(|job| job.id), Some(if waits { 1 } else { 2 }));
            }
        }
    }

    #[test]
    fn dependents_of_a_failed_task_are_dropped() {
        let data = data();
        let mut graph = Graph::default();
        graph.add("a".to_string(), access(&data, 0..4, Mode::Out), vec![0], nothing());
        graph.add("b".to_string(), access(&data, 2..6, Mode::InOut), vec![0], nothing());
        graph.add("c".to_string(), access(&data, 6..8, Mode::Out), vec![0], nothing());
        graph.take(0).unwrap();
        assert_eq!(graph.finish(0, "cpu", Err(Error::mistake("wrong"))).len(), 1);
        assert!(graph.add("d".to_string(), access(&data, 5..6, Mode::In), vec![0], nothing()).is_some());
        let whole = Access { view: View::from(&data), mode: Mode::In };
        let Progress::Failed(error) = graph.progress(&whole, graph.next()) else { panic!("expected a failure") };
        assert_eq!(error.message(), "task a on cpu: wrong; 2 tasks after it were dropped");
        assert_eq!(graph.take(0).map(|job| job.id), Some(2), "an independent task runs");
    }
}
