//! Which task waits for which. No threads, no devices: the rules only.
//!
//! A task follows every earlier one that uses an overlapping region if one of both writes it. Finished tasks are forgotten.
//! Failed and dropped ones stay, so that whatever follows them is dropped too, however late it comes.

use std::collections::{BTreeMap, VecDeque};

use panoply_tensor::{Error, Result, Tensor};

use crate::arguments::Access;

/// The closure of a task, over one tensor for each of its regions.
pub type Work = Box<dyn FnOnce(&mut [Tensor]) -> Result<()> + Send>;

/// A task that may run.
pub struct Job {
    /// Its number in program order.
    pub id: u64,
    /// Its regions.
    pub accesses: Vec<Access>,
    /// Its closure.
    pub work: Work,
}

struct Task {
    name: String,
    accesses: Vec<Access>,
    /// Numbers of the devices that may run it.
    devices: Vec<usize>,
    /// Taken when it starts.
    work: Option<Work>,
    /// The number of unfinished tasks that it follows.
    waits: usize,
    followers: Vec<u64>,
    /// The failure because of which it will never finish.
    lost: Option<usize>,
}

/// A task that failed.
struct Failure {
    task: String,
    device: String,
    error: Error,
    dropped: usize,
}

/// Whether what a caller waits for is done.
pub enum Progress {
    /// It is.
    Done,
    /// Not yet.
    Pending,
    /// It will never be.
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

/// Whether a later access must wait for an earlier one.
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
    /// The number of the next task: all before have smaller ones.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Adds a task behind all others. One that follows a lost task is lost; its closure is returned, to be dropped without
    /// locks.
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

    /// Takes the first ready task that this device may run.
    pub fn take(&mut self, device: usize) -> Option<Job> {
        let at = self.ready.iter().position(|id| self.tasks[id].devices.contains(&device))?;
        let id = self.ready.remove(at)?;
        let task = self.tasks.get_mut(&id)?;
        Some(Job { id, accesses: task.accesses.clone(), work: task.work.take()? })
    }

    /// Records how a task ended on a device. Returns closures of tasks that were dropped, to be dropped without locks.
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

    /// Marks a task and all that follow it as lost.
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

    /// Whether all tasks before a number that a later access would follow are done.
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

    /// Whether all tasks before a number are done.
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

    /// Each rule by itself: without one of them, one of these rows fails.
    #[test]
    fn a_task_follows_another_if_one_of_both_writes_what_they_share() {
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
    fn what_follows_a_failure_is_dropped_whenever_it_comes() {
        let data = data();
        let mut graph = Graph::default();
        graph.add("a".to_string(), access(&data, 0..4, Mode::Out), vec![0], nothing());
        graph.add("b".to_string(), access(&data, 2..6, Mode::InOut), vec![0], nothing());
        graph.add("c".to_string(), access(&data, 6..8, Mode::Out), vec![0], nothing());
        graph.take(0).unwrap();
        assert_eq!(graph.finish(0, "cpu", Err(Error::mistake("wrong"))).len(), 1);
        assert!(graph.add("d".to_string(), access(&data, 5..6, Mode::In), vec![0], nothing()).is_some());
        let whole = Access { view: View::from(&data), mode: Mode::In };
        let Progress::Failed(error) = graph.progress(&whole, graph.next()) else { panic!("it failed") };
        assert_eq!(error.message(), "task a on cpu: wrong; 2 tasks after it were dropped");
        assert_eq!(graph.take(0).map(|job| job.id), Some(2), "what does not follow it runs");
    }
}
