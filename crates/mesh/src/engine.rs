//! Threads that run tasks, one per device.
//!
//! A task can spawn tasks and wait for them: its thread then runs other nested tasks. Nested tasks only access data that
//! their parent created, so what a task waits for started after it, and no wait can depend on itself.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use panoply_nn::ProcessGroup;
use panoply_tensor::{Device, Error, Result, Tensor, eval};

use crate::arguments::{Access, Mode};
use crate::data::on_its_device;
use crate::events::EventKind;
use crate::graph::{Graph, Job, NewTask, Progress, Work};
use crate::group::RankGroup;
use crate::move_counter::MoveCounter;

thread_local! {
    /// The tasks that this thread runs, the innermost last.
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// A task that a thread runs.
struct Running {
    engine: Weak<Engine>,
    id: u64,
    /// Numbers of the devices of the task.
    scope: Vec<usize>,
    /// Number of the device of the thread.
    device: usize,
    /// Tasks that it spawned.
    spawned: Vec<u64>,
}

/// The devices of a mesh with their threads. Dropping it waits for running tasks and drops those that have not started.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True if each task runs on the thread that spawns it.
    serial: bool,
    group: Option<RankGroup>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    moves: MoveCounter,
    engine: Weak<Engine>,
    /// `rank 2, ` in front of devices in messages, if there are several ranks.
    rank: String,
}

#[derive(Default)]
struct State {
    graph: Graph,
    devices: Vec<Device>,
    closed: bool,
}

impl Engine {
    /// Creates an engine without devices.
    pub fn new(serial: bool, group: Option<RankGroup>) -> Arc<Engine> {
        let rank = group.as_ref().map_or(String::new(), |group| format!("rank {}, ", group.rank()));
        Arc::new_cyclic(|engine| {
            let timeline = group.as_ref().map_or_else(Arc::default, |group| group.timeline().clone());
            let (state, changed) = (Mutex::default(), Condvar::new());
            let moves = MoveCounter { timeline, ..MoveCounter::default() };
            let shared = Shared { state, changed, moves, engine: engine.clone(), rank };
            Engine { shared: Arc::new(shared), threads: Mutex::default(), serial, group }
        })
    }

    /// Returns the engine and the devices of the task that this thread runs.
    pub fn current() -> Result<(Arc<Engine>, Vec<usize>)> {
        let running = |stack: &Vec<Running>| stack.last().map(|task| (task.engine.upgrade(), task.scope.clone()));
        match RUNNING.with_borrow(running) {
            Some((Some(engine), scope)) => Ok((engine, scope)),
            Some((None, _)) => Err(Error::mistake("the last handle of the mesh of this task was dropped")),
            None => Err(Error::mistake("this thread runs no task of a mesh; use `Mesh::open`")),
        }
    }

    /// Returns the number of a device, whose thread is started if it is new.
    pub fn device(&self, device: &Device) -> Result<usize> {
        let mut state = self.shared.lock();
        if let Some(known) = state.devices.iter().position(|known| known == device) {
            return Ok(known);
        }
        let number = state.devices.len();
        if !self.serial {
            let (shared, own) = (self.shared.clone(), device.clone());
            let thread = Builder::new().name(format!("mesh {}", device.device_string()));
            let started = thread.spawn(move || shared.work(number, &own));
            let started = started.map_err(|error| Error::io(format!("cannot start a thread for {device}"), error))?;
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(started);
        }
        state.devices.push(device.clone());
        Ok(number)
    }

    /// Returns the device with this number.
    pub fn device_at(&self, number: usize) -> Device {
        self.shared.lock().devices[number].clone()
    }

    /// Returns the counter of copies between devices.
    pub fn moves(&self) -> &MoveCounter {
        &self.shared.moves
    }

    /// Returns the other processes.
    pub fn group(&self) -> Option<&RankGroup> {
        self.group.as_ref()
    }

    /// Returns the task of this engine that this thread runs.
    pub fn task(&self) -> Option<u64> {
        RUNNING.with_borrow(|stack| {
            let own = |task: &&Running| std::ptr::eq(task.engine.as_ptr(), self);
            stack.last().filter(own).map(|task| task.id)
        })
    }

    /// Adds a task, and runs it if this engine is serial.
    pub fn spawn(&self, name: &str, accesses: Vec<Access>, devices: Vec<usize>, work: Work) -> Result<()> {
        let parent = self.task();
        check_owners(&accesses, parent).map_err(|error| Error::mistake(format!("task {name}: {}", error.message())))?;
        let first = devices[0];
        // Closures are dropped without the lock, since they can hold the last handle of this mesh.
        let (id, dropped) = {
            let mut state = self.shared.lock();
            let id = state.graph.next();
            (id, state.graph.add(NewTask { name: name.to_string(), accesses, devices, parent, work }))
        };
        drop(dropped);
        if parent.is_some() {
            RUNNING.with_borrow_mut(|stack| stack.last_mut().expect("it runs a task").spawned.push(id));
        }
        if self.serial {
            let device = self.device_at(first);
            while let Some(job) = { self.shared.lock().graph.take(first, false) } {
                self.shared.run(job, first, &device);
            }
        } else {
            self.shared.changed.notify_all();
        }
        Ok(())
    }

    /// Waits for all tasks spawned so far, or only for those that `access` depends on. In a task, for those that it spawned.
    ///
    /// # Errors
    /// A task failed, or the caller is a task that did not create the data.
    pub fn wait(&self, access: Option<&Access>) -> Result<()> {
        let parent = self.task();
        check_owners(access.map(std::slice::from_ref).unwrap_or_default(), parent)?;
        let spawned = parent.and_then(|_| RUNNING.with_borrow(|stack| stack.last().map(|task| task.spawned.clone())));
        let state = self.shared.lock();
        let before = state.graph.next();
        let tasks = match access {
            Some(access) => Some(state.graph.dependencies(std::slice::from_ref(access))),
            None => spawned,
        };
        self.shared.wait(state, |graph| match &tasks {
            Some(tasks) => graph.progress(tasks, before, parent),
            None => graph.all_progress(before),
        })
    }

    /// Drops all tasks that have not started; returns their number.
    pub fn cancel(&self) -> usize {
        let (count, dropped) = self.shared.lock().graph.cancel();
        drop(dropped);
        self.shared.changed.notify_all();
        count
    }
}

/// Returns an error if a task accesses data that it did not create, which the tasks before it can be about to write.
fn check_owners(accesses: &[Access], parent: Option<u64>) -> Result<()> {
    let Some(parent) = parent else { return Ok(()) };
    if accesses.iter().all(|access| access.view.owner() == Some(parent)) {
        return Ok(());
    }
    let error = Error::mistake("a task cannot wait for tasks of its mesh, which can depend on it");
    Err(error.note("make the data an argument of the task, and create data from its value"))
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let own = std::thread::current().id();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A closure can have held the last handle; its thread cannot join itself.
            if thread.thread().id() != own {
                // Panics of tasks are caught before they reach the thread.
                let _ = thread.join();
            }
        }
        let unstarted = std::mem::take(&mut self.shared.lock().graph);
        drop(unstarted);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs tasks on a device until the engine is dropped.
    fn work(&self, number: usize, device: &Device) {
        loop {
            let mut state = self.lock();
            let job = loop {
                if state.closed {
                    return;
                }
                if let Some(job) = state.graph.take(number, false) {
                    break job;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            self.run(job, number, device);
        }
    }

    /// Waits until tasks are done. The thread of a task runs nested tasks in the meantime.
    fn wait<'s>(&'s self, mut state: MutexGuard<'s, State>, progress: impl Fn(&Graph) -> Progress) -> Result<()> {
        let helps = RUNNING.with_borrow(|stack| {
            let own = |task: &&Running| std::ptr::eq(task.engine.as_ptr(), self.engine.as_ptr());
            stack.last().filter(own).map(|task| task.device)
        });
        loop {
            match progress(&state.graph) {
                Progress::Done => return Ok(()),
                Progress::Failed(error) => return Err(error),
                Progress::Pending if state.closed => return Err(Error::unavailable("the mesh was dropped")),
                Progress::Pending => {}
            }
            let job = helps.and_then(|device| Some((device, state.graph.take(device, true)?)));
            state = match job {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((number, job)) => {
                    let device = state.devices[number].clone();
                    drop(state);
                    self.run(job, number, &device);
                    self.lock()
                }
            };
        }
    }

    /// Runs a task and waits for those that it spawned, catches panics, and records the result.
    fn run(&self, Job { id, accesses, devices, work }: Job, number: usize, device: &Device) {
        let task = Running { engine: self.engine.clone(), id, scope: devices, device: number, spawned: Vec::new() };
        RUNNING.with_borrow_mut(|stack| stack.push(task));
        let run = || device.scope(|| execute(&accesses, work, device, &self.moves, || self.wait_for_spawned()));
        let event = self.moves.timeline.begin();
        let result = catch_unwind(AssertUnwindSafe(run));
        if let Some(event) = event {
            let name = self.lock().graph.name(id);
            event.end(format!("{} tasks", device.device_string()), EventKind::Task, name, 0);
        }
        RUNNING.with_borrow_mut(Vec::pop);
        let result = result.unwrap_or_else(|panic| Err(Error::mistake(format!("panicked: {}", text(&*panic)))));
        let place = format!("{}{}", self.rank, device.device_string());
        let dropped = self.lock().graph.finish(id, &place, result);
        self.changed.notify_all();
        drop(dropped);
    }

    fn wait_for_spawned(&self) -> Result<()> {
        let take = |task: &mut Running| (task.id, std::mem::take(&mut task.spawned));
        match RUNNING.with_borrow_mut(|stack| stack.last_mut().map(take)) {
            Some((id, spawned)) if !spawned.is_empty() => {
                let state = self.lock();
                let before = state.graph.next();
                self.wait(state, |graph| graph.progress(&spawned, before, Some(id)))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the regions, runs the closure, and writes all results or none.
fn execute(
    accesses: &[Access],
    work: Work,
    device: &Device,
    moves: &MoveCounter,
    nested: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let read = |access: &Access| match (access.mode, access.view.form()) {
        (Mode::In | Mode::InOut, _) => access.view.read(device, moves),
        (Mode::Out, Some((shape, dtype))) => Ok(Tensor::zeros(shape, dtype)),
        (Mode::Out, None) => Ok(Tensor::scalar(0.0f32)),
    };
    let mut tensors = accesses.iter().map(read).collect::<Result<Vec<Tensor>>>()?;
    work(&mut tensors)?;
    nested()?;
    let mut written = Vec::new();
    for (number, (access, tensor)) in accesses.iter().zip(&tensors).enumerate().filter(|(_, (a, _))| a.writes()) {
        if let Some((shape, dtype)) = access.view.form()
            && (tensor.shape()?.dims() != shape || tensor.dtype() != dtype)
        {
            let message = format!("argument {number}, {dtype} of shape {shape:?}, cannot become {tensor:?}");
            return Err(Error::mistake(message));
        }
        written.push((access, tensor.to(device).detach()));
    }
    eval(&written.iter().map(|(_, tensor)| tensor).collect::<Vec<&Tensor>>())?;
    let values = written.iter().map(|(_, tensor)| on_its_device(tensor)).collect::<Result<Vec<Tensor>>>()?;
    written.iter().zip(&values).for_each(|((access, _), values)| access.view.write(values));
    Ok(())
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
