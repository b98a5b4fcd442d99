//! The mesh handle: data, tasks, device scopes, and the other processes.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use panoply_ir::kernel::Kernel;
use panoply_nn::ProcessGroup;
use panoply_runtime::{Grid, env};
use panoply_tensor::{Device, Error, Result, Tensor};

use crate::arguments::{Access, Arguments, Mode, Outcome};
use crate::data::{Data, Future, View};
use crate::engine::Engine;
use crate::group::RankGroup;
use crate::kernel_task::{self, KernelArguments};
use crate::launch::{self, MpiLauncher};
use crate::move_counter::MoveCounter;
use crate::place::Place;
use crate::scope::Scope;
use crate::timeline::TimelineRecording;

/// Devices that run tasks, and the other processes of a launcher. Clones share both.
#[derive(Clone)]
pub struct Mesh {
    engine: Arc<Engine>,
    /// Numbers of the devices that run spawned tasks.
    scope: Vec<usize>,
}

/// Statistics of copies between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Number of copies.
    pub count: u64,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Number of copies among these between two GPUs of one vendor, which do not pass through the host.
    pub direct: u64,
}

impl Mesh {
    /// Creates a mesh whose tasks run on the CPU, connected to the other ranks if a launcher such as `mpirun` started several.
    ///
    /// # Errors
    /// The launcher's MPI library cannot be opened, or does not belong to the launcher.
    pub fn open() -> Result<Mesh> {
        Mesh::with_group(RankGroup::open()?)
    }

    /// Creates a mesh of several processes (ranks): starts this program again that many times under the MPI launcher of this machine
    /// (`mpirun`, `mpiexec` or the one that `PANOPLY_LAUNCHER` names), with the same arguments. Call it first in `main`.
    ///
    /// It returns in the ranks only: the first process waits for them and ends with exit code 0 when they have. If a launcher started the
    /// program, its number of ranks counts; with one rank nothing is started.
    ///
    /// ```no_run
    /// use panoply_mesh::{DArray, Layout, Mesh};
    ///
    /// fn main() -> panoply_tensor::Result<()> {
    ///     let mesh = Mesh::launch_ranks(4)?;
    ///     // From here on, in each of four processes.
    ///     let a = DArray::uniform(&mesh, 7, [1000, 1000], &Layout::blocks([250, 250]))?;
    ///     let product = a.matmul(&a.t()?)?;
    ///     println!("mean {}", product.mean()?.item::<f64>()?);
    ///     mesh.group().map_or(Ok(()), |group| group.close())
    /// }
    /// ```
    ///
    /// # Errors
    /// If no launcher is found, or a rank fails; the error names the rank. MPICH's launcher can name a rank that it stopped itself after
    /// another one failed. In a rank, as for [`Mesh::open`].
    pub fn launch_ranks(ranks: usize) -> Result<Mesh> {
        let launcher = env::launcher()?;
        match NonZeroUsize::new(ranks) {
            Some(ranks) if ranks.get() > 1 && launcher.is_none() => {
                if let Some(launched) = env::settings()?.launched_ranks {
                    let message = format!(
                        "the launcher started {launched} ranks, but sets no variable that tells a rank its number"
                    );
                    return Err(Error::unavailable(message).note("choose another launcher by PANOPLY_LAUNCHER"));
                }
                let program = std::env::current_exe().map_err(|error| Error::io("cannot find this program", error))?;
                let arguments: Vec<_> = std::env::args_os().skip(1).collect();
                MpiLauncher::find()?.run(ranks, &program, &arguments)?;
                std::process::exit(0)
            }
            Some(_) => {
                launch::announce()?;
                let opened = Mesh::open();
                if let (Err(error), Some(rank)) = (&opened, launcher.and_then(|launcher| launcher.rank)) {
                    // The first process stops the other ranks, which wait for this one.
                    eprintln!("panoply: rank {rank}: {error}");
                }
                opened
            }
            None => Err(Error::mistake("a mesh needs at least one rank")),
        }
    }

    /// Creates a mesh whose tasks run on the CPU, connected to these ranks.
    ///
    /// # Errors
    /// The CPU cannot be used.
    pub fn with_group(group: Option<RankGroup>) -> Result<Mesh> {
        let engine = Engine::new(false, group);
        let scope = vec![engine.device(&Device::get("cpu")?)?];
        Ok(Mesh { engine, scope })
    }

    /// Returns the mesh of the task that runs on this thread, with the devices of that task. Tasks that it spawns are nested: they
    /// access data and results created in the task, and the task ends after them.
    ///
    /// # Errors
    /// This thread does not run a task, or the last handle of its mesh was dropped.
    pub fn current() -> Result<Mesh> {
        Engine::current().map(|(engine, scope)| Mesh { engine, scope })
    }

    /// Returns a mesh that runs each task when it is spawned, in program order, on the first device of this scope: the
    /// reference for results.
    pub fn serial(&self) -> Result<Mesh> {
        let engine = Engine::new(true, self.group().cloned());
        let scope = vec![engine.device(&self.first_device())?];
        Ok(Mesh { engine, scope })
    }

    /// Runs a program whose tasks can run on any device of a scope, such as `cpu,opencl:0`, `cuda:*`, `all`, or a list of
    /// [`Device`]s. A serial mesh uses the first one.
    ///
    /// # Errors
    /// No device matches a part of the scope (the notes list the devices of this machine), or the program fails.
    pub fn within<T>(&self, scope: &(impl Scope + ?Sized), program: impl FnOnce(&Mesh) -> Result<T>) -> Result<T> {
        let devices = scope.devices()?;
        let scope = devices.iter().map(|device| self.engine.device(device)).collect::<Result<Vec<usize>>>()?;
        program(&Mesh { scope, ..self.clone() })
    }

    /// Returns the devices that can run spawned tasks.
    pub fn devices(&self) -> Vec<Device> {
        self.scope.iter().map(|number| self.engine.device_at(*number)).collect()
    }

    /// Creates shared data with the values of a tensor; the tensor itself is not changed.
    pub fn data(&self, values: &Tensor) -> Result<Data> {
        Data::new(values, self.engine.task())
    }

    /// Spawns a task: a closure that receives the values of its regions as tensors on the device that runs it. Returns at once.
    /// If the closure returns a tensor, the result is a [`Future`], which later tasks take as
    /// [`In`](crate::In). A failure is reported by [`Mesh::fetch`] and [`Mesh::wait`]; tasks that depend on it are dropped.
    ///
    /// # Errors
    /// Two arguments overlap and one of them is written, or a nested task accesses data that its parent did not create.
    pub fn spawn<A, F, R>(&self, name: &str, arguments: A, body: F) -> Result<R::Handle>
    where
        A: Arguments,
        F: for<'a> FnOnce(A::Values<'a>) -> R + Send + 'static,
        R: Outcome,
    {
        let mut accesses = arguments.accesses();
        check_overlap(name, &accesses)?;
        let (result, handle) = R::handle(self.engine.task());
        let count = accesses.len();
        accesses.extend(result.map(|data| Access { view: data.into(), mode: Mode::Out }));
        let work = move |tensors: &mut [Tensor]| {
            let (values, results) = tensors.split_at_mut(count);
            let value = body(A::values(values)).outcome()?;
            results.iter_mut().zip(value).for_each(|(result, value)| *result = value);
            Ok(())
        };
        self.engine.spawn(name, accesses, self.scope.clone(), Box::new(work))?;
        Ok(handle)
    }

    /// Spawns a kernel as a task: `mesh.launch(saxpy::build, (2.0f32, &x, &y), n)`. The kernel's signature determines the type of
    /// access to each region: `&[T]` is read, `&mut [T]` is read and written. A region is passed as a contiguous buffer of its
    /// elements in row-major order.
    ///
    /// # Errors
    /// The arguments do not fit the parameters, two of them overlap and one is written, or the kernel does not compile.
    pub fn launch(
        &self,
        build: fn() -> Result<Kernel>,
        arguments: impl KernelArguments,
        grid: impl Into<Grid>,
    ) -> Result<()> {
        let task = kernel_task::new(&self.first_device(), build, arguments.list(), grid.into())?;
        check_overlap(&task.name, &task.accesses)?;
        self.engine.spawn(&task.name, task.accesses, self.scope.clone(), task.work)
    }

    /// Returns the values of data, of a view or of a task's result on the first device of the scope, after all tasks spawned before
    /// that write it.
    ///
    /// # Errors
    /// One of these tasks failed or was dropped: the error names the task that failed, its rank and device, and the number of
    /// tasks dropped after it.
    pub fn fetch(&self, view: impl Into<View>) -> Result<Tensor> {
        let access = Access { view: view.into(), mode: Mode::In };
        self.engine.wait(Some(&access))?;
        let device = self.first_device();
        device.scope(|| access.view.read(&device, self.engine.moves()))
    }

    /// Waits for all tasks spawned so far; in a task, for those that it spawned.
    ///
    /// # Errors
    /// The first failure of a task in program order.
    pub fn wait(&self) -> Result<()> {
        self.engine.wait(None)
    }

    /// Cancels all tasks of this mesh that have not started, and returns their number. Reading what they would have written is an
    /// error; tasks that run are completed.
    pub fn cancel(&self) -> usize {
        self.engine.cancel()
    }

    /// Returns the statistics of copies between devices for arguments and results.
    pub fn moves(&self) -> Moves {
        let MoveCounter { count, bytes, direct, .. } = self.engine.moves();
        let [count, bytes, direct] = [count, bytes, direct].map(|counter| counter.load(Ordering::Relaxed));
        Moves { count, bytes, direct }
    }

    /// Starts recording a timeline: tasks, transfers and messages of all devices, kernels and copies of those of this scope; see
    /// [`TimelineRecording::start`]. All ranks must call it.
    ///
    /// # Errors
    /// If a timeline of this mesh is being recorded, or a device is being profiled.
    pub fn record_timeline(&self) -> Result<TimelineRecording> {
        let switch = self.engine.moves().timeline.clone();
        TimelineRecording::start_with(switch, self.group().cloned(), &self.devices())
    }

    /// Returns the process group for [`panoply_nn::TrainConfig::group`], if there are several processes. Tasks run within their
    /// process.
    pub fn group(&self) -> Option<&RankGroup> {
        self.engine.group()
    }

    /// Returns the places of this scope on all ranks. All ranks must call it.
    pub(crate) fn places(&self) -> Result<Arc<[Place]>> {
        let counts = match self.group() {
            Some(group) => group.gather_counts(self.scope.len())?,
            None => vec![self.scope.len()],
        };
        let place = |rank: usize, index: usize| {
            let device = (rank == self.rank()).then(|| self.engine.device_at(self.scope[index]));
            Place { rank, index, device }
        };
        let places =
            counts.iter().enumerate().flat_map(|(rank, count)| (0..*count).map(move |index| place(rank, index)));
        Ok(places.collect())
    }

    /// Returns this mesh with one device of its scope.
    pub(crate) fn only(&self, index: usize) -> Mesh {
        Mesh { engine: self.engine.clone(), scope: vec![self.scope[index]] }
    }

    /// Returns the rank of this process, 0 without a launcher.
    pub(crate) fn rank(&self) -> usize {
        self.group().map_or(0, ProcessGroup::rank)
    }

    /// Returns the task that this thread runs.
    pub(crate) fn task(&self) -> Option<u64> {
        self.engine.task()
    }

    /// Waits for a result without reading it.
    pub(crate) fn settle(&self, result: &Future) -> Result<()> {
        self.engine.wait(Some(&Access { view: result.into(), mode: Mode::In }))
    }

    pub(crate) fn first_device(&self) -> Device {
        self.engine.device_at(self.scope[0])
    }
}

fn check_overlap(name: &str, accesses: &[Access]) -> Result<()> {
    for (at, a) in accesses.iter().enumerate() {
        if accesses[..at].iter().any(|b| (a.writes() || b.writes()) && a.view.overlaps(&b.view)) {
            let message = format!("task {name}: argument {at} overlaps an earlier one, and one of them is written");
            return Err(Error::mistake(message).note("use one InOut that contains both"));
        }
    }
    Ok(())
}
