//! Threads that run tasks, one per device.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use panoply_tensor::{Device, Error, Result, Tensor, eval};

use crate::arguments::{Access, Mode};
use crate::graph::{Graph, Job, Progress, Work};
use crate::move_counter::MoveCounter;

thread_local! {
    /// True while this thread runs a task.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// The devices of a mesh with their threads. Dropping it waits for running tasks and drops those that have not started.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True if each task runs on the thread that spawns it.
    serial: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    moves: MoveCounter,
}

#[derive(Default)]
struct State {
    graph: Graph,
    devices: Vec<Device>,
    closed: bool,
}

impl Engine {
    /// Creates an engine without devices.
    pub fn new(serial: bool) -> Engine {
        let (state, changed, moves) = (Mutex::default(), Condvar::new(), MoveCounter::default());
        Engine { shared: Arc::new(Shared { state, changed, moves }), threads: Mutex::default(), serial }
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

    /// Adds a task, and runs it if this engine is serial.
    pub fn spawn(&self, name: &str, accesses: Vec<Access>, devices: Vec<usize>, work: Work) {
        let first = devices[0];
        // Closures are dropped without the lock, since they can hold the last handle of this mesh.
        let dropped = self.shared.lock().graph.add(name.to_string(), accesses, devices, work);
        drop(dropped);
        self.shared.changed.notify_all();
        if self.serial {
            let device = self.device_at(first);
            while let Some(job) = { self.shared.lock().graph.take(first) } {
                self.shared.run(job, &device);
            }
        }
    }

    /// Waits for all tasks spawned so far, or only for those that `access` depends on.
    ///
    /// # Errors
    /// A task failed, or the caller is a task, which could wait for itself.
    pub fn wait(&self, access: Option<&Access>) -> Result<()> {
        if IN_TASK.get() {
            let error = Error::mistake("a task cannot wait for tasks of its mesh, which can depend on it");
            return Err(error.note("make the data an argument of the task"));
        }
        let mut state = self.shared.lock();
        let before = state.graph.next();
        loop {
            let progress = match access {
                Some(access) => state.graph.progress(access, before),
                None => state.graph.all_progress(before),
            };
            match progress {
                Progress::Done => return Ok(()),
                Progress::Failed(error) => return Err(error),
                Progress::Pending => {
                    state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
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
                if let Some(job) = state.graph.take(number) {
                    break job;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            self.run(job, device);
        }
    }

    /// Runs a task, catches panics, and records the result.
    fn run(&self, Job { id, accesses, work }: Job, device: &Device) {
        let outer = IN_TASK.replace(true);
        let run = || device.scope(|| execute(&accesses, work, device, &self.moves));
        let result = catch_unwind(AssertUnwindSafe(run));
        IN_TASK.set(outer);
        let result = result.unwrap_or_else(|panic| Err(Error::mistake(format!("panicked: {}", text(&*panic)))));
        let dropped = self.lock().graph.finish(id, device.device_string(), result);
        self.changed.notify_all();
        drop(dropped);
    }
}

/// Reads the regions, runs the closure, and writes all results or none.
fn execute(accesses: &[Access], work: Work, device: &Device, moves: &MoveCounter) -> Result<()> {
    let read = |access: &Access| match access.mode {
        Mode::In | Mode::InOut => access.view.read(device, moves),
        Mode::Out => Ok(Tensor::zeros(access.view.shape(), access.view.data.dtype())),
    };
    let mut tensors = accesses.iter().map(read).collect::<Result<Vec<Tensor>>>()?;
    work(&mut tensors)?;
    let mut written = Vec::new();
    for (number, (access, tensor)) in accesses.iter().zip(&tensors).enumerate().filter(|(_, (a, _))| a.writes()) {
        let (shape, dtype) = (access.view.shape(), access.view.data.dtype());
        if tensor.shape()?.dims() != shape || tensor.dtype() != dtype {
            let message = format!("argument {number}, {dtype} of shape {shape:?}, cannot become {tensor:?}");
            return Err(Error::mistake(message));
        }
        written.push((access, tensor.to(device).detach()));
    }
    eval(&written.iter().map(|(_, tensor)| tensor).collect::<Vec<&Tensor>>())?;
    written.iter().for_each(|(access, tensor)| access.view.write(tensor));
    Ok(())
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
