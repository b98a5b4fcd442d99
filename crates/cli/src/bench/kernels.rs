//! `panoply bench kernels`: the built-in kernels, relative to the memory bandwidth of the same run, and the time of an empty launch.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use panoply::kernels::{ALL, BenchResult, BuiltinKernel, CheckResult, Data, Job, JobArg, JobLaunch, Size};
use panoply::{Device, Result, kernel};
use serde_json::json;

use super::Options;

#[derive(Args)]
pub struct BenchKernelsCommand {
    #[command(flatten)]
    options: Options,
    /// Size of the inputs
    #[arg(long, value_enum, default_value_t = InputSize::Large)]
    size: InputSize,
}

/// Size of the inputs of the kernels.
#[derive(Clone, Copy, ValueEnum)]
enum InputSize {
    /// The sizes of `panoply demo`, which fit into caches
    Small,
    /// Larger than caches
    Large,
}

/// Operations per byte from which a kernel counts as bound by arithmetic instead of memory.
const INTENSE: u64 = 4;

/// STREAM triad (McCalpin 1995): measures the memory bandwidth.
#[kernel]
fn triad(a: &mut [f32], b: &[f32], c: &[f32], s: f32) {
    let i = global_index();
    if i < a.len() {
        a[i] = b[i] + s * c[i];
    }
}

/// An empty kernel, to measure the launch alone.
#[kernel]
pub fn empty(_x: &mut [f32]) {}

/// The reference for kernels that are bound by memory.
pub const TRIAD: BuiltinKernel = BuiltinKernel {
    name: "triad",
    about: "a = b + s c, the limit",
    kernels: &[("triad", triad::build)],
    source: include_str!("kernels.rs"),
    job: triad_job,
};

const EMPTY: BuiltinKernel = BuiltinKernel {
    name: "empty launch",
    about: "one work-item, no work",
    kernels: &[("empty", empty::build)],
    source: include_str!("kernels.rs"),
    job: empty_job,
};

fn triad_job(size: Size, _: u64) -> Job {
    let n = size.pick(1000, 1 << 20, 1 << 24);
    let (b, c): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, (i % 7) as f32)).unzip();
    let args = vec![JobArg::Write(0), JobArg::Read(1), JobArg::Read(2), 3.0.into()];
    Job {
        data: vec![Data::zeros::<f32>(n), Data::of(&b), Data::of(&c)],
        steps: vec![JobLaunch::new(triad::build, n, args)],
        check: |job, after| {
            let (b, c) = (job.data[1].elements::<f32>(), job.data[2].elements::<f32>());
            let want: Vec<f32> = b.iter().zip(&c).map(|(b, c)| b + 3.0 * c).collect();
            CheckResult::exact(&after[0].elements(), &want)
        },
        bytes: 12 * n as u64,
        ops: 2 * n as u64,
    }
}

fn empty_job(_: Size, _: u64) -> Job {
    Job {
        data: vec![Data::of(&[1.0_f32])],
        steps: vec![JobLaunch::new(empty::build, 1, vec![JobArg::Write(0)])],
        check: |_, after| CheckResult::exact(&after[0].elements::<f32>(), &[1.0]),
        bytes: 0,
        ops: 0,
    }
}

/// Prints a row for each kernel; fails if a result is wrong.
pub fn run(BenchKernelsCommand { options, size }: &BenchKernelsCommand) -> Result<ExitCode> {
    let choice = options.device.select()?;
    choice.explain();
    let device = choice.device();
    let size = match size {
        InputSize::Small => Size::Small,
        InputSize::Large => Size::Large,
    };
    let mut failed = 0;
    if !options.jsonl {
        println!("  {:<14} {:>12} {:>12} {:>13}   {:<11} result", "kernel", "time", "memory", "arithmetic", "of triad");
    }
    measure(device, size, options.min_time, &mut |builtin, outcome, limit| {
        failed += usize::from(!outcome.verdict.passed());
        if options.jsonl {
            let mut document = row(builtin, outcome, limit);
            document["schema"] = 1.into();
            document["device"] = device.device_string().into();
            println!("{document}");
        } else {
            println!("{}", line(builtin, outcome, limit));
        }
        Ok(())
    })?;
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Takes a kernel, its result and that of the triad.
type See<'a> = dyn FnMut(&BuiltinKernel, &BenchResult, &BenchResult) -> Result<()> + 'a;

/// Measures the triad, every built-in kernel and an empty launch, for at least `min_time` seconds each.
pub fn measure(device: &Device, size: Size, min_time: f64, see: &mut See<'_>) -> Result<()> {
    let measure = |builtin: &BuiltinKernel| builtin.run(device, size, 0, Duration::from_secs_f64(min_time));
    let limit = measure(&TRIAD)?;
    see(&TRIAD, &limit, &limit)?;
    ALL.iter().chain([&EMPTY]).try_for_each(|builtin| see(builtin, &measure(builtin)?, &limit))
}

/// Returns the bandwidth relative to triad, for kernels that are bound by memory.
fn fraction_of_triad(outcome: &BenchResult, limit: &BenchResult) -> Option<f64> {
    let moves = outcome.bytes > 0 && outcome.ops < INTENSE * outcome.bytes;
    moves.then(|| outcome.gb_per_s() / limit.gb_per_s())
}

fn line(builtin: &BuiltinKernel, outcome: &BenchResult, limit: &BenchResult) -> String {
    let mark = if outcome.verdict.passed() { '✓' } else { '✗' };
    let rate = |is: bool, rate: f64, unit: &str| if is { format!("{rate:.1} {unit}") } else { String::new() };
    let fraction =
        fraction_of_triad(outcome, limit).map_or(String::new(), |fraction| format!("{:.0} %", 100.0 * fraction));
    format!(
        "{mark} {:<14} {:>9.4} ms {:>12} {:>13}   {fraction:<11} {}",
        builtin.name,
        outcome.time.as_secs_f64() * 1e3,
        rate(outcome.bytes > 0, outcome.gb_per_s(), "GB/s"),
        rate(outcome.ops > 0, outcome.gop_per_s(), "Gop/s"),
        outcome.verdict,
    )
}

/// Returns a result for JSON.
pub fn row(builtin: &BuiltinKernel, outcome: &BenchResult, limit: &BenchResult) -> serde_json::Value {
    json!({
        "name": builtin.name, "passed": outcome.verdict.passed(),
        "max_error": outcome.verdict.error, "tolerance": outcome.verdict.tolerance,
        "seconds": outcome.time.as_secs_f64(), "runs": outcome.runs,
        "gb_per_s": outcome.gb_per_s(), "gop_per_s": outcome.gop_per_s(),
        "triad_gb_per_s": limit.gb_per_s(), "fraction_of_triad": fraction_of_triad(outcome, limit),
    })
}
