//! `panoply bench`: what a device reaches, against what its memory reaches in the same run.

mod devices;
mod kernels;
mod resident;
mod training;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand};
use panoply::internal::{Null, routine};
use panoply::runtime::DeviceOptions;
use panoply::{Attention, Conv, Device, Kind, Profile, Result, Tensor, capture_with_state, eval};
use serde_json::json;

use crate::output::DeviceChoice;

/// What a device reaches.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Copies up, down and on the device, launches, and products of matrices; of every device if none is named.
    Devices(devices::Arguments),
    /// The kernels that ship, beside STREAM's triad and an empty launch.
    Kernels(kernels::Arguments),
    /// Tensor operations.
    Tensors(Profiled),
    /// Steps of training.
    Training(training::Arguments),
}

#[derive(Args)]
struct Options {
    #[command(flatten)]
    device: DeviceChoice,
    /// Seconds spent on each row.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// One JSON line for each row on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Profiled {
    #[command(flatten)]
    options: Options,
    /// Also what each kernel of one run took, on stderr.
    #[arg(long)]
    profile: bool,
}

/// Prints a row for each benchmark.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.what {
        What::Devices(arguments) => devices::run(arguments),
        What::Kernels(arguments) => kernels::run(arguments),
        What::Tensors(arguments) => tensors(arguments),
        What::Training(arguments) => training::run(arguments),
    }
}

/// A row of the tensor benchmark.
struct Row {
    name: &'static str,
    /// Shapes of the inputs.
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    /// Bytes that must move.
    bytes: f64,
    /// Floating-point operations, where they are the limit.
    flops: f64,
    /// Whether it is written out each time or captured.
    captured: bool,
}

const MILLION: usize = 1 << 20;
const SQUARE: &[usize] = &[4096, 4096];

const fn moving(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    bytes: usize,
) -> Row {
    Row { name, inputs, op, bytes: bytes as f64, flops: 0.0, captured: false }
}

/// What costs the host more than the device.
const fn small(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    captured: bool,
) -> Row {
    Row { name, inputs, op, bytes: 0.0, flops: 0.0, captured }
}

/// A hundred nodes of the graph beside the inputs, a third of them products.
fn hundred(x: &[Tensor]) -> Tensor {
    (0..33).fold(-&x[0], |y, _| (y.matmul(&x[1]) + &x[2]).tanh())
}

macro_rules! product {
    ($n:literal) => {
        Row {
            name: concat!("matmul ", $n),
            inputs: &[&[$n, $n], &[$n, $n]],
            op: |x| x[0].matmul(&x[1]),
            bytes: 12.0 * ($n * $n) as f64,
            flops: 2.0 * ($n as f64) * ($n as f64) * ($n as f64),
            captured: false,
        }
    };
}

const ROWS: &[Row] = &[
    product!(256),
    product!(512),
    product!(1024),
    product!(2048),
    product!(4096),
    moving("x + a, 16 M", &[&[16 * MILLION]], |x| &x[0] + 1.5, 128 * MILLION),
    moving(
        "exp(a x + 1) tanh(x), 16 M",
        &[&[16 * MILLION]],
        |x| (&x[0] * 0.5 + 1.0).exp() * x[0].tanh(),
        128 * MILLION,
    ),
    moving("sum of 16 M", &[&[16 * MILLION]], |x| x[0].sum(..), 64 * MILLION),
    moving("sum over axis 0, 4096²", &[SQUARE], |x| x[0].sum(0), 64 * MILLION),
    moving("softmax of rows, 4096²", &[SQUARE], |x| x[0].softmax(-1), 128 * MILLION),
    moving("layer norm of rows, 4096²", &[SQUARE], |x| x[0].layer_norm(1e-5), 128 * MILLION),
    moving("transpose copy, 4096²", &[SQUARE], |x| x[0].t().reshape([-1]) * 1.0, 128 * MILLION),
    Row {
        name: "attention, 16 × 1024 × 64, causal",
        inputs: &[&[1, 16, 1024, 64], &[1, 16, 1024, 64], &[1, 16, 1024, 64]],
        op: |x| x[0].attention(&x[1], &x[2], &Attention { causal: true, ..Attention::default() }),
        bytes: 16.0 * 16.0 * 65536.0,
        flops: 4.0 * 16.0 * 1024.0 * 1024.0 * 64.0,
        captured: false,
    },
    Row {
        name: "conv 64→64, 3×3, 56², batch 8",
        inputs: &[&[8, 64, 56, 56], &[64, 64, 3, 3]],
        op: |x| x[0].conv(&x[1], &Conv { padding: [1, 1], ..Conv::default() }),
        bytes: 8.0 * 8.0 * 64.0 * 3136.0,
        flops: 2.0 * 8.0 * 3136.0 * 64.0 * 576.0,
        captured: false,
    },
    small("add of two f32[32]", &[&[32], &[32]], |x| &x[0] + &x[1], false),
    small("add of two f32[32], captured", &[&[32], &[32]], |x| &x[0] + &x[1], true),
    small("100 nodes of f32[8, 8]", &[&[8, 8], &[8, 8], &[8, 8]], hundred, false),
    small("100 nodes of f32[8, 8], captured", &[&[8, 8], &[8, 8], &[8, 8]], hundred, true),
];

fn tensors(arguments: &Profiled) -> Result<ExitCode> {
    let options = &arguments.options;
    let choice = options.device.select()?;
    choice.explain();
    let device = choice.device();
    device.scope(|| {
        ROWS.iter().try_for_each(|row| {
            let seconds = median(device, row, arguments)?;
            let host = if row.is_small() { Some(host(device, row, arguments)?) } else { None };
            let (gbps, gflops) = (row.bytes / seconds / 1e9, row.flops / seconds / 1e9);
            if options.json {
                println!(
                    "{}",
                    json!({
                        "schema": 1, "name": row.name, "device": device.spelling(), "dtype": "f32", "seconds": seconds,
                        "gbps": (!row.is_small()).then_some(gbps), "gflops": (row.flops > 0.0).then_some(gflops),
                        "captured": row.captured, "host_seconds": host,
                    })
                );
            } else if row.flops > 0.0 {
                println!("{:<30} {:>9.3} ms {gflops:>8.1} GFLOP/s", row.name, seconds * 1e3);
            } else if !row.is_small() {
                println!("{:<30} {:>9.3} ms {gbps:>8.1} GB/s", row.name, seconds * 1e3);
            } else {
                let host = host.unwrap_or_default() * 1e6;
                println!("{:<30} {:>9.3} µs, the host's share {host:.3} µs", row.name, seconds * 1e6);
            }
            Ok(())
        })
    })?;
    Ok(choice.exit_code())
}

impl Row {
    fn is_small(&self) -> bool {
        self.bytes == 0.0
    }
}

/// The same on a device that computes nothing: what the host does for it, and that device's own checks.
fn host(device: &Device, row: &Row, arguments: &Profiled) -> Result<f64> {
    let idle = idle(device);
    idle.scope(|| median(&idle, row, arguments))
}

/// A device that is asked what this one is and computes nothing.
fn idle(device: &Device) -> Device {
    let null = Null::new(device.target().clone()).hollow();
    let null = if device.info().kind == Kind::Cpu { null.offering(routine::offers) } else { null };
    Device::new(Arc::new(null), DeviceOptions::default())
}

/// The median time of one evaluation, warm.
fn median(device: &Device, row: &Row, Profiled { options, profile }: &Profiled) -> Result<f64> {
    let mut rng = panoply::Rng::seed(1);
    let inputs: Vec<Tensor> = row.inputs.iter().map(|shape| rng.uniform(*shape) - 0.5).collect();
    eval(&inputs.iter().collect::<Vec<&Tensor>>())?;
    let mut inputs: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
    let captured = capture_with_state(|inputs: &mut Vec<Tensor>, []| [(row.op)(inputs)]);
    let mut run = || -> Result<f64> {
        let start = Instant::now();
        match row.captured {
            true => captured.run_with(&mut inputs, []).map(drop)?,
            false => (row.op)(&inputs).eval()?,
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64())
    };
    run()?;
    if *profile {
        let profile = Profile::start(device)?;
        run()?;
        eprintln!("{}\n{}", row.name, profile.finish()?);
    }
    repeated(options.seconds, run)
}

/// The median of what runs say they took, over so many seconds.
fn repeated(seconds: f64, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut times = vec![run()?];
    while times.len() < 10_000 && times.iter().sum::<f64>() < seconds {
        times.push(run()?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
