//! Task programs on several devices and ranks, compared with the same program in order and with plain arithmetic; after failures also by
//! the tasks that are dropped.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};

use panoply_cpu::{CpuDriver, CpuOptions};
use panoply_driver::CudaDriver;
use panoply_mesh::{Data, Future, In, InOut, Mesh, Out, RankGroup, ThreadWire, View};
use panoply_runtime::{Backend, DeviceOptions, Driver, Registry};
use panoply_tensor::ops::view::TensorIndex;
use panoply_tensor::{Device, Error, Result, Rng, Tensor};

use crate::add_kernel;

const SHAPE: [usize; 2] = [13, 11];
const DATA: usize = 3;
const TASKS: usize = 30;
/// Number of programs on parts of the CPU; with `PANOPLY_TEST_FULL=1` [`MANY`].
const PROGRAMS: u64 = 60;
const MANY: u64 = 300;
/// Number of programs that also use GPUs, on which kernels are compiled for every shape.
const PROGRAMS_ON_GPUS: u64 = 2;

/// A region along one axis: start, length, step.
type Span = (usize, usize, usize);

/// Regions of data.
type Region = (usize, [Span; 2]);

/// A step of a random program.
#[derive(Clone, Debug)]
enum Step {
    /// `to = to * 0.5 + number`
    Scale { to: Region, number: f32 },
    /// `to = from - number`
    Copy { from: Region, to: Region, number: f32 },
    /// `to = to + from * number`
    Add { from: Region, to: Region, number: f32 },
    /// `to[i] += from[i]` as a kernel.
    Kernel { from: Region, to: Region },
    /// `to = to + max(from)`, where a task has the maximum as its result.
    AddMax { from: Region, to: Region },
    /// A task that fails or panics, and writes nothing.
    Fail { from: Region, to: Region, panics: bool },
}

impl Step {
    /// Returns the region that is read and the one that is written.
    fn regions(&self) -> (&Region, &Region) {
        match self {
            Step::Scale { to, .. } => (to, to),
            Step::Copy { from, to, .. }
            | Step::Add { from, to, .. }
            | Step::Kernel { from, to }
            | Step::AddMax { from, to }
            | Step::Fail { from, to, .. } => (from, to),
        }
    }
}

/// Results of a program.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// The bits of each array, or the message of the failure without the device, and after a failure the same for each row of the array.
    values: Vec<Result<Vec<u32>, String>>,
    /// Names of the tasks that ran, those that failed among them. Kernels are not.
    ran: BTreeSet<String>,
}

fn below(rng: &mut Rng, below: usize) -> usize {
    rng.random_below(below as u32) as usize
}

/// Returns a random span of this length that fits the axis.
fn span(rng: &mut Rng, axis: usize, len: usize) -> Span {
    let step = 1 + below(rng, if len > 1 { ((SHAPE[axis] - 1) / (len - 1)).min(3) } else { 3 });
    let start = below(rng, SHAPE[axis] - (len - 1) * step);
    (start, len, step)
}

/// Returns a program, with failing tasks or without.
fn program(rng: &mut Rng, fails: bool) -> Vec<Step> {
    (0..TASKS)
        .map(|_| {
            let lens = [1 + below(rng, 6), 1 + below(rng, 6)];
            let mut region = || [span(rng, 0, lens[0]), span(rng, 1, lens[1])];
            let (from, to) = (region(), region());
            let from_data = below(rng, DATA);
            let to_data = (from_data + 1 + below(rng, DATA - 1)) % DATA;
            let number = (1 + below(rng, 16)) as f32 / 8.0;
            let (from, to) = ((from_data, from), (to_data, to));
            match below(rng, if fails { 16 } else { 15 }) {
                0..3 => Step::Scale { to, number },
                3..6 => Step::Copy { from, to, number },
                6..9 => Step::Add { from, to, number },
                9..12 => Step::Kernel { from, to },
                12..15 => Step::AddMax { from, to },
                _ => Step::Fail { from, to, panics: below(rng, 2) == 0 },
            }
        })
        .collect()
}

fn initial(data: usize) -> Vec<f32> {
    (0..SHAPE[0] * SHAPE[1]).map(|at| (at * (data + 1) % 17) as f32 / 4.0).collect()
}

/// Returns the elements of a region, by array and position.
fn elements((data, spans): &Region) -> Vec<(usize, usize)> {
    let positions = |(start, len, step): Span| (0..len).map(move |at| start + at * step);
    let rows = positions(spans[0]);
    rows.flat_map(|row| positions(spans[1]).map(move |column| (*data, row * SHAPE[1] + column))).collect()
}

/// A task of a program, for the reference.
struct Task {
    /// Number of its step.
    step: usize,
    name: String,
    reads: BTreeSet<(usize, usize)>,
    writes: BTreeSet<(usize, usize)>,
    /// The reason why it fails.
    fails: Option<&'static str>,
}

fn tasks(program: &[Step]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (step, what) in program.iter().enumerate() {
        let (from, to) = what.regions();
        let [from, to] = [from, to].map(|region| elements(region).into_iter().collect::<BTreeSet<(usize, usize)>>());
        let mut add = |name: String, reads, writes, fails| tasks.push(Task { step, name, reads, writes, fails });
        let (name, both) = (step.to_string(), &from | &to);
        match what {
            Step::Copy { .. } => add(name, from, to, None),
            Step::Scale { .. } | Step::Add { .. } => add(name, both, to, None),
            Step::Kernel { .. } => add("add".to_string(), both, to, None),
            Step::AddMax { .. } => {
                // The result of the first task is an array of its own.
                let most = BTreeSet::from([(DATA + step, 0)]);
                add(format!("max {step}"), from, most.clone(), None);
                add(name, &most | &to, to, None);
            }
            Step::Fail { panics, .. } => add(name, both, to, Some(if *panics { "panicked: fails" } else { "fails" })),
        }
    }
    tasks
}

/// Returns for each task the failed one because of which it has no result: itself, or the first one that a task before it was lost by.
fn lost(tasks: &[Task]) -> Vec<Option<usize>> {
    let mut lost: Vec<Option<usize>> = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let must_follow = |earlier: &Task| {
            let apart = earlier.writes.is_disjoint(&task.reads) && earlier.writes.is_disjoint(&task.writes);
            !apart || !earlier.reads.is_disjoint(&task.writes)
        };
        let earlier = tasks[..number].iter().zip(&lost).filter(|(earlier, _)| must_follow(earlier));
        let cause = earlier.filter_map(|(_, cause)| *cause).min();
        lost.push(cause.or(task.fails.map(|_| number)));
    }
    lost
}

/// The reference: plain arithmetic in order, without the tasks that are lost.
fn in_order(program: &[Step]) -> Outcome {
    let tasks = tasks(program);
    let lost = lost(&tasks);
    let mut data: Vec<Vec<f32>> = (0..DATA).map(initial).collect();
    for (number, step) in program.iter().enumerate() {
        if tasks.iter().zip(&lost).any(|(task, cause)| task.step == number && cause.is_some()) {
            continue;
        }
        let (from, to) = step.regions();
        let sources: Vec<f32> = elements(from).into_iter().map(|(array, at)| data[array][at]).collect();
        let most = sources.iter().copied().fold(f32::MIN, f32::max);
        for ((array, at), source) in elements(to).into_iter().zip(sources) {
            let value = &mut data[array][at];
            match step {
                Step::Scale { number, .. } => *value = *value * 0.5 + number,
                Step::Copy { number, .. } => *value = source - number,
                Step::Add { number, .. } => *value += source * number,
                Step::Kernel { .. } => *value += source,
                Step::AddMax { .. } => *value += most,
                Step::Fail { .. } => unreachable!("it is lost"),
            }
        }
    }
    let read = |array: usize, rows: std::ops::Range<usize>| -> Result<Vec<u32>, String> {
        let positions = rows.start * SHAPE[1]..rows.end * SHAPE[1];
        let written = |task: &Task| task.writes.iter().any(|(other, at)| *other == array && positions.contains(at));
        let causes = tasks.iter().zip(&lost).filter(|(task, _)| written(task)).filter_map(|(_, cause)| *cause);
        let Some(cause) = causes.min() else {
            return Ok(data[array][positions.clone()].iter().map(|value| value.to_bits()).collect());
        };
        let dropped = match lost.iter().filter(|other| **other == Some(cause)).count() - 1 {
            0 => "no task after it was dropped".to_string(),
            1 => "1 task after it was dropped".to_string(),
            many => format!("{many} tasks after it were dropped"),
        };
        let Task { name, fails, .. } = &tasks[cause];
        Err(format!("task {name}: {}; {dropped}", fails.expect("it fails")))
    };
    let mut values = Vec::new();
    for array in 0..DATA {
        values.push(read(array, 0..SHAPE[0]));
        if values.last().is_some_and(Result::is_err) {
            values.extend((0..SHAPE[0]).map(|row| read(array, row..row + 1)));
        }
    }
    let runs = |(number, (task, cause)): (usize, (&Task, &Option<usize>))| {
        (task.name != "add" && cause.is_none_or(|cause| cause == number)).then(|| task.name.clone())
    };
    Outcome { values, ran: tasks.iter().zip(&lost).enumerate().filter_map(runs).collect() }
}

/// Runs the program on a mesh.
fn on(mesh: &Mesh, program: &[Step]) -> Result<Outcome> {
    let start = |data| mesh.data(&Tensor::from_slice(&initial(data), SHAPE));
    let data = (0..DATA).map(start).collect::<Result<Vec<Data>>>()?;
    let view = |(at, spans): &Region| -> Result<View> {
        let ranges = spans.map(|(start, len, step)| TensorIndex::Slice {
            start: Some(start as isize),
            end: Some((start + (len - 1) * step + 1) as isize),
            step,
        });
        data[*at].view(ranges.to_vec())
    };
    let ran: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    for (number, step) in program.iter().enumerate() {
        let name = format!("{number}");
        // Each task reports that it runs.
        let report = |name: &str| {
            let (ran, name) = (ran.clone(), name.to_string());
            move || {
                ran.lock().unwrap().insert(name);
            }
        };
        let runs = report(&name);
        match step {
            Step::Scale { to, number } => {
                let number = *number;
                mesh.spawn(&name, InOut(view(to)?), move |x| {
                    runs();
                    *x = &*x * 0.5 + f64::from(number);
                })?;
            }
            Step::Copy { from, to, number } => {
                let number = *number;
                mesh.spawn(&name, (In(view(from)?), Out(view(to)?)), move |(from, to)| {
                    runs();
                    *to = from - f64::from(number);
                })?;
            }
            Step::Add { from, to, number } => {
                let number = *number;
                mesh.spawn(&name, (In(view(from)?), InOut(view(to)?)), move |(from, to)| {
                    runs();
                    *to = &*to + from * f64::from(number);
                })?;
            }
            Step::Kernel { from, to } => {
                mesh.launch(add_kernel, (view(from)?, view(to)?), from.1[0].1 * from.1[1].1)?;
            }
            Step::AddMax { from, to } => {
                let max = format!("max {number}");
                let runs_max = report(&max);
                let most: Future = mesh.spawn(&max, In(view(from)?), move |x| {
                    runs_max();
                    x.max(..)
                })?;
                mesh.spawn(&name, (In(&most), InOut(view(to)?)), move |(most, to)| {
                    runs();
                    *to = &*to + most;
                })?;
            }
            Step::Fail { from, to, panics } => {
                let panics = *panics;
                mesh.spawn(&name, (In(view(from)?), InOut(view(to)?)), move |(from, _)| -> Result<()> {
                    runs();
                    from.eval()?;
                    assert!(!panics, "fails");
                    Err(Error::mistake("fails"))
                })?;
            }
        }
    }
    let message = |error: Error| {
        let (task, rest) = error.message().split_once(" on ").expect("the message names task and device");
        format!("{task}: {}", rest.split_once(": ").expect("a device is followed by the reason").1)
    };
    let read = |view: View| -> Result<Result<Vec<u32>, String>> {
        match mesh.fetch(view) {
            Ok(values) => Ok(Ok(values.to_vec::<f32>()?.iter().map(|value| value.to_bits()).collect())),
            Err(error) => Ok(Err(message(error))),
        }
    };
    let mut values = Vec::new();
    for data in &data {
        values.push(read(data.into())?);
        if values.last().is_some_and(Result::is_err) {
            for row in 0..SHAPE[0] {
                values.push(read(data.view((row..row + 1,))?)?);
            }
        }
    }
    // Its error is that of an array.
    let _ = mesh.wait();
    let ran = ran.lock().unwrap().clone();
    Ok(Outcome { values, ran })
}

/// Runs the program on a mesh of each of several ranks, and returns the results by rank.
fn on_ranks(ranks: usize, scope: &[Device], program: &[Step]) -> Vec<Outcome> {
    let run = |wire: ThreadWire| {
        let group = RankGroup::new(Arc::new(wire));
        Device::get("cpu").unwrap().scope(|| {
            let outcome = Mesh::with_group(Some(group.clone()))?.within(scope, |mesh| on(mesh, program))?;
            group.close().map(|()| outcome)
        })
    };
    std::thread::scope(|threads| {
        let run = &run;
        let wires = ThreadWire::connected(ranks).into_iter();
        let handles: Vec<_> = wires.map(|wire| threads.spawn(move || run(wire))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap().unwrap()).collect()
    })
}

/// Returns the devices of a driver.
fn devices(driver: Arc<dyn Driver>, kind: Backend) -> Vec<Device> {
    Registry::new(vec![driver], DeviceOptions::default()).devices(kind).unwrap()
}

/// Returns five devices that run on the CPU, each with a memory of its own, a simulated NVIDIA GPU, and OpenCL if it is installed.
fn all_devices() -> (Vec<Device>, Vec<Device>) {
    let own = CpuOptions { threads: Some(1), ..CpuOptions::default() };
    let more = || devices(Arc::new(CpuDriver::new(own)), Backend::Cpu);
    let mut parts = vec![Device::get("cpu").unwrap(), Device::get("cpu:checked").unwrap()];
    parts.extend(more().into_iter().chain(more().into_iter().take(1)));
    let cuda = CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() };
    let mut gpus = devices(Arc::new(cuda), Backend::Cuda);
    match Device::get("opencl:0") {
        Ok(device) => gpus.push(device),
        Err(error) => println!("SKIPPED: tasks on OpenCL: {error}"),
    }
    (parts, gpus)
}

#[test]
fn random_programs_equal_serial_execution() {
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    let (parts, gpus) = all_devices();
    assert_eq!(parts.len(), 5);
    let cpu = Device::get("cpu").unwrap();
    let mesh = cpu.scope(Mesh::open).unwrap();
    let serial = mesh.serial().unwrap();
    let (mut failed, mut kept) = (0, 0);
    for seed in 0..if full { MANY } else { PROGRAMS } {
        let (mut rng, failing) = (Rng::seed_from_u64(seed), seed % 3 == 2);
        let program = program(&mut rng, failing);
        let mut scope = parts[..1 + below(&mut rng, parts.len())].to_vec();
        if seed < PROGRAMS_ON_GPUS {
            scope.extend(gpus.clone());
        }
        let expected = in_order(&program);
        failed += expected.values.iter().filter(|result| result.is_err()).count();
        kept += if failing { expected.values.iter().filter(|result| result.is_ok()).count() } else { 0 };
        cpu.scope(|| {
            assert_eq!(on(&serial, &program).unwrap(), expected, "serial, seed {seed}: {program:#?}");
            // Every program needs a mesh of its own: data of failed tasks remain lost.
            let result = Mesh::open().unwrap().within(&scope, |mesh| on(mesh, &program)).unwrap();
            assert_eq!(result, expected, "{scope:?}, seed {seed}: {program:#?}");
        });
        if seed % 6 == 5 {
            for (rank, result) in on_ranks(2 + below(&mut rng, 3), &scope, &program).into_iter().enumerate() {
                assert_eq!(result, expected, "rank {rank}, {scope:?}, seed {seed}: {program:#?}");
            }
        }
    }
    assert!(failed > 100 && kept > 100, "{failed} reads of lost values, {kept} others beside them");
    assert!(serial.moves().count == 0, "{:?}", serial.moves());
}

fn on_cpu(test: impl FnOnce(&Mesh) -> Result<()>) {
    Device::get("cpu").unwrap().scope(|| test(&Mesh::open()?)).unwrap();
}

#[test]
fn independent_tasks_run_concurrently() {
    on_cpu(|mesh| {
        let data = mesh.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        // Each task waits for a message of the other: run one after the other they would wait forever.
        let ((to_right, from_left), (to_left, from_right)) = (mpsc::channel(), mpsc::channel());
        mesh.within("cpu,cpu:checked", |m| {
            let even = TensorIndex::Slice { start: Some(0), end: None, step: 2 };
            let odd = TensorIndex::Slice { start: Some(1), end: None, step: 2 };
            m.spawn("even", InOut(data.view((even,))?), move |x| {
                to_right.send(()).expect("the other task listens");
                from_right.recv().expect("the other task sends");
                *x = &*x + 1.0;
            })?;
            m.spawn("odd", InOut(data.view((odd,))?), move |x| {
                to_left.send(()).expect("the other task listens");
                from_left.recv().expect("the other task sends");
                *x = &*x + 2.0;
            })?;
            assert_eq!(m.fetch(&data)?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
            Ok(())
        })
    });
}

#[test]
fn values_are_copied_once_to_the_devices_that_read_them() {
    on_cpu(|mesh| {
        let data = mesh.data(&Tensor::from_slice(&[1f32; 10], [10]))?;
        let sum = mesh.data(&Tensor::from_slice(&[0f32], [1]))?;
        let count = || (mesh.moves().count, mesh.moves().bytes);
        mesh.within("cpu:checked", |m| {
            for expected in [(1, 40), (1, 40)] {
                m.spawn("sum", (In(&data), Out(&sum)), |(x, sum)| *sum = x.sum(..).unsqueeze(0))?;
                m.wait()?;
                assert_eq!(count(), expected, "a copy is kept");
            }
            Ok(())
        })?;
        assert_eq!(mesh.fetch(&sum)?.to_vec::<f32>()?, [10.0]);
        assert_eq!(count(), (2, 44), "the result is copied back");
        mesh.fetch(&data)?;
        assert_eq!(count(), (2, 44), "unmodified data need no copy");
        Ok(())
    });
}

#[test]
fn failure_names_task_device_and_number_of_dropped_tasks() {
    on_cpu(|mesh| {
        let serial = mesh.serial()?;
        for mesh in [mesh, &serial] {
            let [a, b] = [0.0f32, 1.0].map(|x| mesh.data(&Tensor::from_slice(&[x; 4], [4])));
            let (a, b) = (a?, b?);
            mesh.spawn("fine", InOut(&b), |x| *x = &*x + 1.0)?;
            mesh.spawn("broken", InOut(a.view((..2,))?), |x| assert!(x.check().is_err(), "out of cheese"))?;
            mesh.spawn("next", (In(&a), Out(&b)), |(a, b)| *b = a.clone())?;
            mesh.spawn("last", InOut(&b), |x| *x = &*x + 1.0)?;
            mesh.spawn("beside", InOut(a.view((2..,))?), |x| *x = &*x + 1.0)?;
            let error = mesh.fetch(&b).unwrap_err();
            assert_eq!(error.message(), "task broken on cpu: panicked: out of cheese; 3 tasks after it were dropped");
            assert_eq!(mesh.wait().unwrap_err().message(), error.message());
            let c = mesh.data(&Tensor::from_slice(&[1f32], [1]))?;
            mesh.spawn("other", InOut(&c), |x| *x = &*x + 1.0)?;
            assert_eq!(mesh.fetch(&c)?.item::<f64>()?, 2.0, "data of an independent task");

            mesh.spawn("shape", Out(&c), |x| *x = Tensor::from_slice(&[1f32, 2.0], [2]))?;
            let error = mesh.fetch(&c).unwrap_err();
            assert!(error.message().starts_with("task shape on cpu: argument 0, f32 of shape [1], cannot become "));
            assert!(error.message().ends_with("; no task after it was dropped"), "{error}");
        }
        Ok(())
    });
}

#[test]
fn errors_are_reported_without_deadlocks() {
    on_cpu(|mesh| {
        let data = mesh.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        let error = mesh.spawn("twice", (In(&data), InOut(data.view((1..2,))?)), |_| ()).unwrap_err();
        assert_eq!(error.message(), "task twice: argument 1 overlaps an earlier one, and one of them is written");
        assert!(data.view((..5,)).is_err() && data.view((1,)).is_err() && data.view((.., ..)).is_err());
        assert!(mesh.within("cpu,nonsense", |_| Ok(())).is_err());

        let (inner, own) = (mesh.clone(), data.clone());
        mesh.spawn("nested", InOut(&data), move |_| inner.fetch(&own).map(drop))?;
        let error = mesh.fetch(&data).unwrap_err();
        let message = "task nested on cpu: a task cannot wait for tasks of its mesh, which can depend on it";
        assert!(error.message().starts_with(message), "{error}");

        let refused = |_: &mut Tensor| -> Result<()> { Err(Error::mistake("refused")) };
        let other = mesh.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        mesh.spawn("refused", InOut(&other), refused)?;
        assert!(mesh.fetch(&other).unwrap_err().message().contains("refused"));
        // The last handle can be dropped while tasks wait, and by a task.
        let (send, receive) = mpsc::channel();
        let last = Mesh::open()?;
        let held = last.clone();
        let third = last.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        last.spawn("holds", InOut(&third), move |_| {
            let go: Result<(), _> = receive.recv();
            go.expect("the test sends");
            drop(held);
        })?;
        last.spawn("late", InOut(&third), |_| ())?;
        drop(last);
        send.send(()).expect("the task listens");
        Ok(())
    });
}

#[test]
fn mpi_is_not_loaded_without_a_launcher() {
    on_cpu(|mesh| {
        assert!(mesh.group().is_none());
        if let Ok(maps) = std::fs::read_to_string("/proc/self/maps") {
            assert!(!maps.is_empty() && !maps.contains("libmpi"), "{maps}");
        }
        Ok(())
    });
}
