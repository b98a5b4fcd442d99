//! `panoply bench devices`: times of device discovery, and rates of a device's memory, transfers and launches.
//!
//! Copies and computations are checked before they are timed. Drivers do not report peak rates, so rates are relative to another row of
//! the same device: transfers to a copy on the device, a matrix product to the fastest one.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use panoply::runtime::{BindingKind, BindingSlot, Command};
use panoply::{DType, Device, Error, ErrorKind, Grid, LaunchArg, Result, Rng, Tensor};
use serde_json::{Value, json};

use super::kernels::empty;
use super::{Options, duration, median_time};
use crate::driver_probe;

#[derive(Args)]
pub struct BenchDevicesCommand {
    #[command(flatten)]
    options: Options,
    /// Measure every device, including software implementations
    #[arg(long, conflicts_with = "device")]
    all_devices: bool,
}

/// Number of elements that fits into no cache.
const MANY: usize = 1 << 24;
/// Elements of a chunk that drivers stage in pinned memory, if available.
const PIECE: usize = 1 << 18;
/// Number of consecutive launches, so that the final wait is negligible.
const LAUNCHES: usize = 1000;
/// Number of launches in a recorded command buffer.
const RECORDED: u32 = 100;
const SIZES: [usize; 3] = [512, 1024, 2048];

/// Prints the rows of each device. If a row fails on a device, its error is printed and the command fails.
pub fn run(BenchDevicesCommand { options, all_devices }: &BenchDevicesCommand) -> Result<ExitCode> {
    let choice = options.device.select()?;
    // `--device auto` asks for one device too.
    let is_one = options.device.name().is_some() || (choice.is_named() && !all_devices);
    let devices = match is_one {
        true => vec![choice.device().clone()],
        false => {
            driver_probe::for_all()?;
            let mut devices = Device::list()?;
            let is_wanted = |device: &Device| *all_devices || !device.info().is_software;
            devices.retain(|device| device.info().variant.is_none() && is_wanted(device));
            devices
        }
    };
    let mut failed = false;
    if !options.jsonl {
        println!("  {:<26} {:>12} {:>21}  of peak", "measurement", "time", "rate");
    }
    if !is_one {
        discovery(options)?;
    }
    for device in &devices {
        if !options.jsonl {
            println!("{device}  {}", device.info().name);
        }
        let mut see = |row: Row| {
            row.print(Some(device), options);
            Ok(())
        };
        if let Err(error) = device.scope(|| measure(device, options.min_time, &mut see)) {
            eprintln!("panoply: {device}: {error}");
            failed = true;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A measurement.
pub struct Row {
    name: String,
    seconds: f64,
    /// Achieved rate, in `unit`.
    rate: f64,
    unit: &'static str,
    /// Rate of the row to which this one is relative.
    peak: Option<f64>,
}

impl Row {
    fn new(name: &str, seconds: f64, rate: Rate, peak: Option<f64>) -> Row {
        let (rate, unit) = match rate {
            Rate::Bytes(bytes) => (bytes / seconds / 1e9, "GB/s"),
            Rate::Flops(flops) => (flops / seconds / 1e9, "GFLOP/s"),
            Rate::Times => (1e-3 / seconds, "thousand/s"),
        };
        Row { name: name.to_string(), seconds, rate, unit, peak }
    }

    /// Returns the row for JSON.
    pub fn json(&self) -> Value {
        let Row { name, seconds, rate, unit, peak } = self;
        json!({
            "name": name, "seconds": seconds, "rate": rate, "unit": unit, "peak": peak,
            "fraction_of_peak": peak.map(|peak| rate / peak),
        })
    }

    fn print(&self, device: Option<&Device>, options: &Options) {
        if options.jsonl {
            let mut document = self.json();
            document["schema"] = 1.into();
            document["device"] = device.map(Device::device_string).into();
            return println!("{document}");
        }
        let share = self.peak.map_or(String::new(), |peak| format!("{:.0} %", self.rate / peak * 1e2));
        println!("  {:<26} {:>12} {:>10.2} {:<10} {share:>8}", self.name, duration(self.seconds), self.rate, self.unit);
    }
}

/// Amount of work from which a rate is computed.
#[derive(Clone, Copy)]
enum Rate {
    /// Bytes.
    Bytes(f64),
    /// Floating-point operations.
    Flops(f64),
    /// Number of executions.
    Times,
}

/// Measures device discovery: in a new process each time, and again in this process.
fn discovery(options: &Options) -> Result<()> {
    if !options.jsonl {
        println!("device discovery");
    }
    let show = |name, seconds| Row::new(name, seconds, Rate::Times, None).print(None, options);
    show("every driver, a process", median_time(options.min_time, driver_probe::time)?);
    Device::auto()?;
    let again = || {
        let start = Instant::now();
        (0..LAUNCHES).try_for_each(|_| Device::auto().map(drop))?;
        Ok(start.elapsed().as_secs_f64() / LAUNCHES as f64)
    };
    // Each sample is an average over many calls, so the time limit is divided by their number.
    show("Device::auto(), again", median_time(options.min_time / LAUNCHES as f64, again)?);
    Ok(())
}

/// Measures the rows of the current device, for at least `min_time` seconds each.
pub fn measure(device: &Device, min_time: f64, see: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let mut show = |name: &str, seconds: f64, rate: Rate, limit: Option<f64>| {
        let row = Row::new(name, seconds, rate, limit);
        let rate = row.rate;
        see(row).map(|()| rate)
    };
    let most = (device.target().max_seen_bytes() / 4).min(device.memory().total / 32) as usize;
    let (many, bytes) = (MANY.min(most), (MANY.min(most) * 4) as f64);
    let host: Vec<f32> = (0..many).map(|i| (i % 8191) as f32).collect();
    let mut back = vec![0.0f32; many];
    let (mut x, mut y) = (device.buffer(&host)?, device.zeros::<f32>(many)?);
    y.copy_from(&x)?;
    y.read_into(&mut back)?;
    if back != host {
        return Err(wrong("a copy to, on and from the device"));
    }
    let copy = median_time(min_time, || timed(device, || y.copy_from(&x)))?;
    let limit = show("copy on the device", copy, Rate::Bytes(2.0 * bytes), None)?;
    let up = median_time(min_time, || timed(device, || x.write(&host)))?;
    show("copy to the device", up, Rate::Bytes(bytes), Some(limit))?;
    let mut in_pieces = || {
        let mut piece = |part: &[f32], at: usize| x.slice_mut(at..at + part.len())?.write(part);
        host.chunks(PIECE).enumerate().try_for_each(|(i, part)| piece(part, i * PIECE))
    };
    let pieces = median_time(min_time, || timed(device, &mut in_pieces))?;
    show("the same, by 1 MiB", pieces, Rate::Bytes(bytes), Some(limit))?;
    let down = median_time(min_time, || timed(device, || y.read_into(&mut back)))?;
    show("copy from the device", down, Rate::Bytes(bytes), Some(limit))?;
    x.fill(2.5)?;
    x.read_into(&mut back)?;
    if back.iter().any(|element| *element != 2.5) {
        return Err(wrong("a fill"));
    }
    let fill = median_time(min_time, || timed(device, || x.fill(1.5)))?;
    show("fill", fill, Rate::Bytes(bytes), Some(limit))?;

    let keep = || (0..LAUNCHES).try_for_each(|_| device.allocate(1 << 20).map(drop));
    show(
        "allocation from the pool",
        median_time(min_time, || timed(device, keep))? / LAUNCHES as f64,
        Rate::Times,
        None,
    )?;
    launches(device, min_time, &mut show)?;
    let mut times = Vec::new();
    for n in SIZES {
        let (a, b) = (Rng::seed_from_u64(1).uniform([n, n]) - 0.5, Rng::seed_from_u64(2).uniform([n, n]) - 0.5);
        panoply::eval(&[&a, &b])?;
        check(&a, &b, n)?;
        times.push((n, median_time(min_time, || timed(device, || a.matmul(&b).eval()))?));
    }
    let flops = |n: usize| 2.0 * (n as f64).powi(3);
    let best = times.iter().map(|(n, seconds)| flops(*n) / seconds / 1e9).fold(0.0, f64::max);
    for (n, seconds) in times {
        show(&format!("product of f32 {n}²"), seconds, Rate::Flops(flops(n)), Some(best))?;
    }
    Ok(())
}

/// Takes a row from its name, seconds, rate and peak, and returns its rate.
type Show<'a> = dyn FnMut(&str, f64, Rate, Option<f64>) -> Result<f64> + 'a;

/// Measures a launch: with a wait, in a sequence, and in a replayed command buffer.
fn launches(device: &Device, seconds: f64, show: &mut Show<'_>) -> Result<()> {
    let mut one = device.zeros::<f32>(1)?;
    empty(&mut one).launch(1)?;
    let wait = median_time(seconds, || timed(device, || empty(&mut one).launch(1)))?;
    show("launch and wait", wait, Rate::Times, None)?;
    let in_a_row = || timed(device, || (0..LAUNCHES).try_for_each(|_| empty(&mut one).launch(1)));
    show("launch, one of many", median_time(seconds, in_a_row)? / LAUNCHES as f64, Rate::Times, None)?;
    let (prepared, storage) = (device.compile_fn(empty::build)?, one.storage());
    let launch = |_| Command::Kernel {
        prepared: &prepared,
        grid: Grid::from(1),
        args: vec![LaunchArg::write(storage, DType::F32)],
    };
    let work: Vec<Command<'_>> = (0..RECORDED).map(launch).collect();
    let place = |step| BindingSlot { step, operand: 0, source: BindingKind::Binding { binding: 0, offset: 0 } };
    let recorded = device.record_commands(&work, &[storage], &[], (0..RECORDED).map(place).collect())?;
    let replays = LAUNCHES / RECORDED as usize;
    let in_a_row = || timed(device, || (0..replays).try_for_each(|_| recorded.replay(&[storage], &[]).map(drop)));
    show("launch, one of a replay", median_time(seconds, in_a_row)? / LAUNCHES as f64, Rate::Times, None)?;
    Ok(())
}

/// Compares an element of a product with its f64 sum.
fn check(a: &Tensor, b: &Tensor, n: usize) -> Result<()> {
    let product = a.matmul(b);
    let (row, column) = (n / 3, n / 2);
    let have = product.narrow(0, row, 1).narrow(1, column, 1).item::<f64>()?;
    let (left, right) = (a.narrow(0, row, 1), b.narrow(1, column, 1));
    let terms = left.reshape([-1]).to_vec::<f32>()?.into_iter().zip(right.reshape([-1]).to_vec::<f32>()?);
    let want: f64 = terms.map(|(x, y)| f64::from(x) * f64::from(y)).sum();
    if (have - want).abs() > 1e-4 { Err(wrong(&format!("a matrix product of size {n}²"))) } else { Ok(()) }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Driver, format!("{what} gave a wrong result; run `panoply selftest` on this device"))
}

fn timed(device: &Device, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64())
}
