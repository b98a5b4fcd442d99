//! Random verified kernels give the interpreter's results on every device, byte for byte. Exceptions are the bits of NaNs, and
//! transcendental results within the numeric contract.
//!
//! The number of kernels per run depends on the speed of a device's compiler: 1000 on the CPU (4 ms each on two loaded cores), 300 on the
//! PTX interpreter (9 to 25 ms), 100 on Vulkan (0.4 s), 200 on OpenCL (0.1 to 0.5 s), 10 on the simulated HIP and Level Zero drivers and
//! Intel's SPIR-V (0.5 s), 20 on SwiftShader. `PANOPLY_TEST_QUICK=1` runs 300 on the CPU and ten elsewhere, `PANOPLY_TEST_FULL=1` ten
//! thousand on the CPU and the PTX interpreter, three hundred on SwiftShader and 1500 on each other device: ten thousand would take hours.
//! `PANOPLY_TEST_KERNELS` sets the number per device, `PANOPLY_TEST_SEED` the first seed, `PANOPLY_TEST_DEVICE` the only device to run on.
//! `cpu:checked` is excluded: it reports the guarded accesses that these kernels contain, and has separate random kernels.
//!
//! A driver's compiler can be wrong. This counts as shown, instead of an error in our source text, only in three cases: another driver
//! handles the same case correctly from text in the same language; or the same is shown for the same device in another language; or for
//! another interface to it. Each such case is reported, and more than a few in a thousand are a failure. A crashing compiler would take the
//! process down, so the full run starts those on OpenCL from child processes, and crashes and hangs are reported, too.

mod bisect;
use std::io::Read;
use std::ops::Range;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use panoply_cpu::{CpuDriver, CpuOptions};
use panoply_device::Driver;
use panoply_host::isa::Isa;
use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::random::{Case, CaseArg, Options, case};
use panoply_ir::target::Language;
use panoply_ir::{Error, Result, Verified};
use panoply_runtime::{Backend, Device, DeviceOptions, Grid, LaunchArg, Storage};

use crate::support::all_devices;

/// Maximum difference of transcendental results of two devices, in units in the last place.
const ULPS: f64 = 16.0;

/// Set to 1 to run more kernels on each device.
const FULL: &str = "PANOPLY_TEST_FULL";

/// Text of the summary line for a device.
const AGREE: &str = "random kernels agree";

/// Seeds beyond those of a default run whose kernels were once wrong on devices of a backend: 532 shuffles a constant, 426 shifts one.
const FOUND: [(Backend, u64); 2] = [(Backend::Cuda, 532), (Backend::Rocm, 426)];

/// Number of kernels per child process.
const AT_ONCE: u64 = 200;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn every_device_agrees_with_the_interpreter() {
    let first = number("PANOPLY_TEST_SEED", 1);
    let quick = number("PANOPLY_TEST_QUICK", 0) == 1;
    let full = std::env::var(FULL).is_ok_and(|value| value == "1");
    let devices = all_devices::devices();
    for device in devices.iter().filter(|device| !all_devices::is_checked(device)) {
        if std::env::var("PANOPLY_TEST_DEVICE").is_ok_and(|only| only != device.device_string()) {
            continue;
        }
        let few = match device.info().kind {
            // Its compiler takes half a second per kernel.
            Backend::Vulkan if device.info().name.contains("SwiftShader") && full => 300,
            Backend::Vulkan if device.info().name.contains("SwiftShader") => 20,
            Backend::Cpu | Backend::Cuda if full => 10_000,
            _ if full => 1500,
            Backend::Cpu if quick => 300,
            _ if quick => 10,
            Backend::Cpu => 1000,
            Backend::Cuda => 300,
            Backend::Vulkan => 100,
            Backend::OpenCl => 200,
            _ => 10,
        };
        let seeds = first..first + number("PANOPLY_TEST_KERNELS", few);
        match device.info().kind {
            // The stand-in of Level Zero runs on an OpenCL driver too, whose compiler keeps some megabytes for each kernel.
            Backend::OpenCl | Backend::OneApi if full => contained(device, seeds),
            _ => run(device, &devices, seeds),
        }
        for (_, seed) in FOUND.into_iter().filter(|(backend, _)| *backend == device.info().kind) {
            run(device, &devices, seed..seed + 1);
        }
    }
}

/// Edge of the buffers that is placed next to an inaccessible page.
#[derive(Clone, Copy, Debug)]
enum Edge {
    Start,
    End,
}

/// On the CPU no kernel accesses a byte before or after its buffers: a guard page there would end the process. `PANOPLY_TEST_FULL=1` runs
/// three thousand kernels at either end with each instruction set, otherwise sixty run with the default one.
#[test]
fn no_access_leaves_a_buffer_between_guard_pages() {
    let full = std::env::var(FULL).is_ok_and(|value| value == "1");
    let sets = if full { Isa::available() } else { vec![Isa::best()] };
    let first = number("PANOPLY_TEST_SEED", 1);
    for isa in sets {
        let driver = CpuDriver::new(CpuOptions { isa: Some(isa), guard_pages: true, ..CpuOptions::default() });
        // SAFETY: only `runtime` uses the device, and it validates its arguments.
        let raw = unsafe { driver.probe() }.expect("the CPU is always here").swap_remove(0);
        let device = Device::new(raw, DeviceOptions::default());
        if device.upload(&[0]).is_err_and(|error| error.is_unsupported()) {
            eprintln!("SKIPPED: random kernels between guard pages: they need Linux");
            return;
        }
        let (seeds, mut ran) = (first..first + if full { 3000 } else { 60 }, 0);
        for (seed, edge) in seeds.flat_map(|seed| [Edge::Start, Edge::End].map(|edge| (seed, edge))) {
            let case = case(seed, &Options { transcendentals: seed % 3 == 0, ..Options::default() });
            match launch_at(&device, &case, Some(edge)) {
                Ok(found) => {
                    ran += 1;
                    agrees(&device, &case, &found).unwrap_or_else(|message| panic!("{isa}, {edge:?}: {message}"));
                }
                Err(error) => assert!(error.is_unsupported(), "seed {seed}: {error}"),
            }
        }
        assert!(ran >= 60, "{ran} kernels ran with {isa}");
    }
}

/// Returns memory with these bytes, whose first or last byte is adjacent to a guard page.
fn upload_at(device: &Device, bytes: &[u8], edge: Edge) -> Result<Storage> {
    // A power of two is a separate allocation of the pool and consists of whole pages.
    let whole = bytes.len().next_power_of_two().max(64 << 10) as u64;
    let start = match edge {
        Edge::Start => 0,
        Edge::End => whole - bytes.len() as u64,
    };
    let storage = device.allocate(whole)?.slice(start..start + bytes.len() as u64)?;
    storage.write_bytes(bytes)?;
    Ok(storage)
}

/// Calls [`run`] in child processes.
fn contained(device: &Device, seeds: Range<u64>) {
    let (mut pending, mut crashed) = (vec![seeds.clone()], Vec::new());
    while let Some(seeds) = pending.pop() {
        let (count, half) = (seeds.end - seeds.start, seeds.start.midpoint(seeds.end));
        if count > AT_ONCE {
            pending.extend([seeds.start + AT_ONCE..seeds.end, seeds.start..seeds.start + AT_ONCE]);
            continue;
        }
        let mut child = Command::new(std::env::current_exe().expect("a test has a file"));
        child
            .args(["random_kernels::every_device_agrees_with_the_interpreter", "--exact", "--nocapture"])
            .env_remove(FULL);
        child.env("PANOPLY_TEST_DEVICE", device.device_string()).env("PANOPLY_TEST_SEED", seeds.start.to_string());
        child.env("PANOPLY_TEST_KERNELS", count.to_string());
        let (status, output) = within(Duration::from_secs(30 + 2 * count), &mut child);
        match status.and_then(|status| status.code()) {
            Some(0) => {
                let ours = |line: &&str| line.contains(device.device_string());
                assert!(
                    output.lines().filter(ours).any(|line| line.contains(AGREE)),
                    "{device} was not run on: {output}"
                );
                output.lines().filter(ours).for_each(|line| eprintln!("{line}"));
            }
            Some(_) => panic!("{output}"),
            None if count == 1 => crashed.push(seeds.start),
            None => pending.extend([half..seeds.end, seeds.start..half]),
        }
    }
    if !crashed.is_empty() {
        eprintln!("SKIPPED: seeds {crashed:?} on {device}: its compiler crashes, or its programs do not terminate");
    }
    assert!(crashed.len() as u64 <= 1 + (seeds.end - seeds.start) / 200, "{device}: too much crashes");
}

/// Returns the exit status of a process, if it ended in time, and its stderr.
fn within(limit: Duration, command: &mut Command) -> (Option<ExitStatus>, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the process starts");
    let mut pipe = child.stderr.take().expect("stderr is piped");
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = Vec::new();
        // The pipe ends with the process.
        let read = pipe.read_to_end(&mut output);
        sender.send(read.map(|_| String::from_utf8_lossy(&output).into_owned()))
    });
    let Ok(output) = ended.recv_timeout(limit) else {
        child.kill().expect("the child can be killed");
        child.wait().expect("the child was killed");
        return (None, String::new());
    };
    (Some(child.wait().expect("it ends")), output.expect("it can be read"))
}

fn run(device: &Device, devices: &[Device], seeds: Range<u64>) {
    let target = device.target();
    let dtypes: Vec<_> =
        panoply_ir::DType::ALL.into_iter().filter(|dtype| target.computes(*dtype) || dtype.bytes() < 8).collect();
    let (mut ran, mut beyond, mut wrong) = (0, 0, Vec::new());
    for seed in seeds.clone() {
        let (transcendentals, matrices) = (seed % 3 == 0, seed % 5 == 0);
        let options = Options { dtypes: dtypes.clone(), transcendentals, matrices, ..Options::default() };
        let case = case(seed, &options);
        match launch(device, &case) {
            Ok(found) => {
                ran += 1;
                let Err(message) = agrees(device, &case, &found) else { continue };
                match excuse(device, &case, devices) {
                    Some(excuse) => eprintln!("{device}: {message}; {excuse}\n{}", smallest(device, &case, devices)),
                    None => panic!("{device}: {message}\n{}", blame(device, &case)),
                }
                wrong.push(seed);
            }
            Err(error) if error.is_unsupported() => beyond += 1,
            Err(error) => panic!("{device}: seed {seed}: {error}\n{}", *case.kernel),
        }
    }
    let agree = ran - wrong.len();
    eprintln!("{device}: seeds {seeds:?}: {agree} {AGREE}, {beyond} exceed the device's limits");
    if !wrong.is_empty() {
        eprintln!("SKIPPED: seeds {wrong:?} on {device}: compiler bug, another driver computes them correctly");
    }
    // SwiftShader replaces subnormal numbers by 0, as Vulkan allows; bits of integers read as floats are such numbers.
    let per_wrong = if device.info().name.contains("SwiftShader") { 60 } else { 200 };
    assert!(wrong.len() <= 1 + ran / per_wrong, "{device}: too much is wrong to be the compiler's fault");
    assert!(ran > beyond, "{device}: hardly any kernel could run");
    assert_eq!(device.memory_stats().buffers, 0, "{device}: every buffer came back");
}

/// Returns evidence that the device's compiler caused a wrong result, if there is any.
fn excuse(device: &Device, case: &Case, devices: &[Device]) -> Option<String> {
    let language = |device: &Device| device.target().language;
    let twin = |device: &Device| {
        let is_twin = |other: &&Device| {
            let same = other.info().name == device.info().name && language(other) != language(device);
            same && !is_right(other, case) && outdone(other, case, devices).is_some()
        };
        devices.iter().find(is_twin)
    };
    // Another interface to the same compiler.
    let fellow =
        |other: &&Device| language(other) == language(device) && !is_right(other, case) && twin(other).is_some();
    if let Some(other) = outdone(device, case, devices) {
        return Some(format!("{} computes it correctly from the same text", other.info().driver));
    }
    let other = twin(device).or_else(|| devices.iter().find(fellow))?;
    Some(format!("{other} ({}) is equally wrong, which another driver shows to be a compiler bug", other.info().driver))
}

/// Returns a device of another driver that computes a case correctly from text in the same language.
fn outdone<'d>(device: &Device, case: &Case, devices: &'d [Device]) -> Option<&'d Device> {
    let language = device.target().language;
    let same = |other: &&Device| {
        other.info().driver != device.info().driver && other.target().language == language && is_right(other, case)
    };
    devices.iter().find(same).filter(|_| language != Language::Ir)
}

fn is_right(device: &Device, case: &Case) -> bool {
    launch(device, case).is_ok_and(|found| agrees(device, case, &found).is_ok())
}

/// Compares a device's results with the interpreter's.
fn agrees(device: &Device, case: &Case, found: &[Vec<u8>]) -> std::result::Result<(), String> {
    let expected = case.interpret(device.target().subgroup_of(case.kernel.group_size)).unwrap();
    case.compare(&expected, found, ULPS)
}

/// Returns the smallest failing case that still has an excuse, for a bug report to the driver's authors.
fn smallest(device: &Device, case: &Case, devices: &[Device]) -> String {
    let shown = |case: &Case| {
        launch(device, case).is_ok_and(|found| agrees(device, case, &found).is_err())
            && excuse(device, case, devices).is_some()
    };
    let small = case.clone().shrink(shown);
    let Ok(found) = launch(device, &small) else { return "the shrunk case is rejected".to_string() };
    format!("at its smallest: {}", agrees(device, &small, &found).err().unwrap_or_default())
}

/// Returns the optimizer rewrite that changed the kernel's semantics, or states that a later stage is wrong.
fn blame(device: &Device, case: &Case) -> String {
    let expected = case.interpret(1).unwrap();
    let changed = |kernel: &Verified<Kernel>| {
        let found = Case { kernel: kernel.clone(), ..case.clone() }.interpret(1);
        // A kernel that the interpreter no longer runs is wrong too.
        found.map_or(true, |found| case.compare(&expected, &found, 0.0).is_err())
    };
    if let Some(rewrite) = bisect::first_wrong(&case.kernel, device.target(), changed) {
        return format!("an optimizer pass is wrong: {rewrite}");
    }
    let wrong = |case: &Case| launch(device, case).is_ok_and(|found| agrees(device, case, &found).is_err());
    let small = case.clone().shrink(wrong);
    format!("the optimizer passes are correct, the device is wrong; shrunk case:\n{}", *small.kernel)
}

fn launch(device: &Device, case: &Case) -> Result<Vec<Vec<u8>>> {
    launch_at(device, case, None)
}

/// Like [`launch`], with the buffers anywhere or next to guard pages.
fn launch_at(device: &Device, case: &Case, edge: Option<Edge>) -> Result<Vec<Vec<u8>>> {
    let prepared = device.compile(&Arc::new(case.kernel.clone()))?;
    let upload = |given: &CaseArg| match given {
        CaseArg::Buffer(bytes) => match edge {
            None => device.upload(bytes).map(Some),
            Some(edge) => upload_at(device, bytes, edge).map(Some),
        },
        CaseArg::Scalar(_) | CaseArg::Index(_) => Ok(None),
    };
    let storages = case.args.iter().map(upload).collect::<Result<Vec<Option<Storage>>>>()?;
    let arg = |position: usize| -> Result<LaunchArg<'_>> {
        Ok(match (&case.args[position], &storages[position], &case.kernel.params[position]) {
            (CaseArg::Scalar(value), ..) => LaunchArg::Scalar(*value),
            (CaseArg::Index(value), ..) => LaunchArg::Index(*value),
            (CaseArg::Buffer(_), Some(storage), Param::Buffer(mem)) => {
                let dtype = case.kernel.mem(*mem).dtype;
                if case.is_written(position) {
                    LaunchArg::write(storage, dtype)
                } else {
                    LaunchArg::read(storage, dtype)
                }
            }
            (CaseArg::Buffer(_), ..) => return Err(Error::mistake("a buffer is passed to a scalar")),
        })
    };
    let args = (0..case.args.len()).map(arg).collect::<Result<Vec<_>>>()?;
    device.submit(&[panoply_runtime::Command::Kernel { prepared: &prepared, grid: Grid(case.grid), args }])?;
    storages.iter().map(|storage| storage.as_ref().map_or(Ok(Vec::new()), Storage::read)).collect()
}
