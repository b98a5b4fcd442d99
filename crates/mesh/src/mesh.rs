//! The handle: data, tasks, scopes of devices, and the other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use panoply_tensor::{Device, Error, Result, Tensor};

use crate::arguments::{Access, Arguments, Mode, Outcome};
use crate::data::{Data, View};
use crate::engine::Engine;
use crate::group::RankGroup;

/// Devices that run tasks, and the other processes that a launcher started. Clones share both.
#[derive(Clone)]
pub struct Mesh {
    engine: Arc<Engine>,
    /// Numbers of the devices that run what is spawned.
    scope: Vec<usize>,
    group: Option<RankGroup>,
}

/// Copies of values between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The number of copies.
    pub count: u64,
    /// Bytes copied.
    pub bytes: u64,
}

/// Counts [`Moves`].
#[derive(Debug, Default)]
pub(crate) struct MoveCounter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl MoveCounter {
    pub fn count(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Mesh {
    /// A mesh whose tasks run on the CPU, connected to the other ranks if a launcher such as `mpirun` started several.
    ///
    /// # Errors
    /// The launcher's library of MPI cannot be opened, or does not belong to the launcher.
    pub fn open() -> Result<Mesh> {
        let engine = Engine::new(false);
        let scope = vec![engine.device(&Device::get("cpu")?)?];
        Ok(Mesh { engine: Arc::new(engine), scope, group: RankGroup::open()? })
    }

    /// A mesh that runs each task when it is spawned, in program order, on the first device of this one's scope: what
    /// results are compared with.
    pub fn serial(&self) -> Result<Mesh> {
        let engine = Engine::new(true);
        let scope = vec![engine.device(&self.first_device())?];
        Ok(Mesh { engine: Arc::new(engine), scope, group: self.group.clone() })
    }

    /// Runs a program whose tasks may run on any of these devices, as [`Device::get`] spells them, separated by commas:
    /// `cpu,opencl:0`. A serial mesh takes the first of them.
    ///
    /// # Errors
    /// A device is not here, or the program fails.
    pub fn within<T>(&self, devices: &str, program: impl FnOnce(&Mesh) -> Result<T>) -> Result<T> {
        let names = devices.split(',').map(str::trim);
        let scope = names.map(|name| self.engine.device(&Device::get(name)?)).collect::<Result<Vec<usize>>>()?;
        program(&Mesh { scope, ..self.clone() })
    }

    /// Data that begin with the values of a tensor, which stays as it is.
    pub fn data(&self, values: &Tensor) -> Result<Data> {
        Data::new(values)
    }

    /// Spawns a task: a closure that gets the values of its regions as tensors on the device that runs it. The call returns
    /// at once. A failure is reported by [`Mesh::fetch`] and [`Mesh::wait`]; tasks that would follow it are dropped.
    ///
    /// # Errors
    /// Two arguments are overlapping regions of which one is written.
    pub fn spawn<A, F, R>(&self, name: &str, arguments: A, body: F) -> Result<()>
    where
        A: Arguments,
        F: for<'a> FnOnce(A::Values<'a>) -> R + Send + 'static,
        R: Outcome,
    {
        let accesses = arguments.accesses();
        for (at, a) in accesses.iter().enumerate() {
            if accesses[..at].iter().any(|b| (a.writes() || b.writes()) && a.view.overlaps(&b.view)) {
                let message = format!("task {name}: argument {at} overlaps one before it, and one of both is written");
                return Err(Error::mistake(message).note("use one InOut that contains both"));
            }
        }
        let work = move |tensors: &mut [Tensor]| body(A::values(tensors)).outcome();
        self.engine.spawn(name, accesses, self.scope.clone(), Box::new(work));
        Ok(())
    }

    /// The values of data or of a view, once all tasks spawned before that write it are done, on the first device of the
    /// scope.
    ///
    /// # Errors
    /// One of these tasks failed or was dropped: the error names the task that failed, its device, and the number of tasks
    /// dropped after it.
    pub fn fetch(&self, view: impl Into<View>) -> Result<Tensor> {
        let access = Access { view: view.into(), mode: Mode::In };
        self.engine.wait(Some(&access))?;
        let device = self.first_device();
        device.scope(|| access.view.read(&device, self.engine.moves()))
    }

    /// Waits for all tasks spawned before.
    ///
    /// # Errors
    /// The first failure of a task.
    pub fn wait(&self) -> Result<()> {
        self.engine.wait(None)
    }

    /// Copies between devices that arguments and results took so far.
    pub fn moves(&self) -> Moves {
        let MoveCounter { count, bytes } = self.engine.moves();
        Moves { count: count.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// The ranks that train together, as [`panoply_nn::TrainConfig::group`] takes them, if there are several. Tasks stay in their
    /// process.
    pub fn group(&self) -> Option<&RankGroup> {
        self.group.as_ref()
    }

    fn first_device(&self) -> Device {
        self.engine.device_at(self.scope[0])
    }
}
