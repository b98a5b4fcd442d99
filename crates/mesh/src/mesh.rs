//! The mesh handle: data, tasks, device scopes, and the other processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use panoply_tensor::{Device, Error, Result, Tensor};

use crate::arguments::{Access, Arguments, Mode, Outcome};
use crate::data::{Data, View};
use crate::engine::Engine;
use crate::group::RankGroup;
use crate::move_counter::MoveCounter;

/// Devices that run tasks, and the other processes of a launcher. Clones share both.
#[derive(Clone)]
pub struct Mesh {
    engine: Arc<Engine>,
    /// Numbers of the devices that run spawned tasks.
    scope: Vec<usize>,
    group: Option<RankGroup>,
}

/// Statistics of copies between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Number of copies.
    pub count: u64,
    /// Number of bytes copied.
    pub bytes: u64,
}

impl Mesh {
    /// Creates a mesh whose tasks run on the CPU, connected to the other ranks if a launcher such as `mpirun` started several.
    ///
    /// # Errors
    /// The launcher's MPI library cannot be opened, or does not belong to the launcher.
    pub fn open() -> Result<Mesh> {
        let engine = Engine::new(false);
        let scope = vec![engine.device(&Device::get("cpu")?)?];
        Ok(Mesh { engine: Arc::new(engine), scope, group: RankGroup::open()? })
    }

    /// Returns a mesh that runs each task when it is spawned, in program order, on the first device of this scope: the
    /// reference for results.
    pub fn serial(&self) -> Result<Mesh> {
        let engine = Engine::new(true);
        let scope = vec![engine.device(&self.first_device())?];
        Ok(Mesh { engine: Arc::new(engine), scope, group: self.group.clone() })
    }

    /// Runs a program whose tasks can run on any of these devices: names for [`Device::get`], separated by commas, such as
    /// `cpu,opencl:0`. A serial mesh uses the first one.
    ///
    /// # Errors
    /// A device is not available, or the program fails.
    pub fn within<T>(&self, devices: &str, program: impl FnOnce(&Mesh) -> Result<T>) -> Result<T> {
        let names = devices.split(',').map(str::trim);
        let scope = names.map(|name| self.engine.device(&Device::get(name)?)).collect::<Result<Vec<usize>>>()?;
        program(&Mesh { scope, ..self.clone() })
    }

    /// Creates shared data with the values of a tensor; the tensor itself is not changed.
    pub fn data(&self, values: &Tensor) -> Result<Data> {
        Data::new(values)
    }

    /// Spawns a task: a closure that receives the values of its regions as tensors on the device that runs it. Returns at once.
    /// A failure is reported by [`Mesh::fetch`] and [`Mesh::wait`]; tasks that depend on it are dropped.
    ///
    /// # Errors
    /// Two arguments overlap and one of them is written.
    pub fn spawn<A, F, R>(&self, name: &str, arguments: A, body: F) -> Result<()>
    where
        A: Arguments,
        F: for<'a> FnOnce(A::Values<'a>) -> R + Send + 'static,
        R: Outcome,
    {
        let accesses = arguments.accesses();
        for (at, a) in accesses.iter().enumerate() {
            if accesses[..at].iter().any(|b| (a.writes() || b.writes()) && a.view.overlaps(&b.view)) {
                let message = format!("task {name}: argument {at} overlaps an earlier one, and one of them is written");
                return Err(Error::mistake(message).note("use one InOut that contains both"));
            }
        }
        let work = move |tensors: &mut [Tensor]| body(A::values(tensors)).outcome();
        self.engine.spawn(name, accesses, self.scope.clone(), Box::new(work));
        Ok(())
    }

    /// Returns the values of data or of a view on the first device of the scope, after all tasks spawned before that write it.
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

    /// Waits for all tasks spawned so far.
    ///
    /// # Errors
    /// The first failure of a task.
    pub fn wait(&self) -> Result<()> {
        self.engine.wait(None)
    }

    /// Returns the statistics of copies between devices for arguments and results.
    pub fn moves(&self) -> Moves {
        let MoveCounter { count, bytes } = self.engine.moves();
        Moves { count: count.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// Returns the process group for [`panoply_nn::TrainConfig::group`], if there are several processes. Tasks run within their
    /// process.
    pub fn group(&self) -> Option<&RankGroup> {
        self.group.as_ref()
    }

    fn first_device(&self) -> Device {
        self.engine.device_at(self.scope[0])
    }
}
