//! `panoply bench kernels`: the kernels that ship, beside what memory gives in the same run and what an empty launch costs.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use panoply::kernels::{ALL, Data, Job, Outcome, Pass, Shipped, Size, Step, Verdict};
use panoply::{Result, kernel};
use serde_json::json;

use super::Options;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: Options,
    /// The sizes of `demo`, which fit caches, instead of those that do not.
    #[arg(long)]
    small: bool,
}

/// Operations for each byte from which on arithmetic, not memory, is taken for the limit.
const INTENSE: u64 = 4;

/// STREAM's triad (McCalpin 1995): what memory gives when nothing else is in the way.
#[kernel]
fn triad(a: &mut [f32], b: &[f32], c: &[f32], s: f32) {
    let i = global_index();
    if i < a.len() {
        a[i] = b[i] + s * c[i];
    }
}

/// Nothing: what is left is the launch.
#[kernel]
pub fn empty(_x: &mut [f32]) {}

/// The limit of what moves bytes.
pub const TRIAD: Shipped = Shipped {
    name: "triad",
    about: "a = b + s c, the limit",
    kernels: &[("triad", triad::build)],
    source: include_str!("kernels.rs"),
    job: triad_job,
};

const EMPTY: Shipped = Shipped {
    name: "empty launch",
    about: "one work-item, no work",
    kernels: &[("empty", empty::build)],
    source: include_str!("kernels.rs"),
    job: empty_job,
};

fn triad_job(size: Size, _: u64) -> Job {
    let n = size.pick(1000, 1 << 20, 1 << 24);
    let (b, c): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, (i % 7) as f32)).unzip();
    let args = vec![Pass::Write(0), Pass::Read(1), Pass::Read(2), 3.0.into()];
    Job {
        data: vec![Data::zeros::<f32>(n), Data::of(&b), Data::of(&c)],
        steps: vec![Step::new(triad::build, n, args)],
        check: |job, after| {
            let (b, c) = (job.data[1].elements::<f32>(), job.data[2].elements::<f32>());
            let want: Vec<f32> = b.iter().zip(&c).map(|(b, c)| b + 3.0 * c).collect();
            Verdict::exact(&after[0].elements(), &want)
        },
        bytes: 12 * n as u64,
        ops: 2 * n as u64,
    }
}

fn empty_job(_: Size, _: u64) -> Job {
    Job {
        data: vec![Data::of(&[1.0_f32])],
        steps: vec![Step::new(empty::build, 1, vec![Pass::Write(0)])],
        check: |_, after| Verdict::exact(&after[0].elements::<f32>(), &[1.0]),
        bytes: 0,
        ops: 0,
    }
}

/// Prints a row for each kernel. Fails if a result is wrong.
pub fn run(Arguments { options, small }: &Arguments) -> Result<ExitCode> {
    let choice = options.device.select()?;
    choice.explain();
    let device = choice.device();
    let size = if *small { Size::Small } else { Size::Large };
    let measure = |shipped: &Shipped| shipped.run(device, size, 0, Duration::from_secs_f64(options.seconds));
    let (limit, mut failed) = (measure(&TRIAD)?, 0);
    if !options.json {
        println!("  {:<14} {:>12} {:>12} {:>13}   {:<11} result", "", "time", "memory", "arithmetic", "of triad");
    }
    let mut show = |shipped: &Shipped, outcome: &Outcome| {
        failed += usize::from(!outcome.verdict.passed());
        if options.json {
            println!("{}", row(shipped, outcome, &limit, device.spelling()));
        } else {
            println!("{}", line(shipped, outcome, &limit));
        }
    };
    show(&TRIAD, &limit);
    for shipped in ALL.iter().chain([&EMPTY]) {
        show(shipped, &measure(shipped)?);
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { choice.exit_code() })
}

/// The share of what triad reached, for what memory limits.
fn share(outcome: &Outcome, limit: &Outcome) -> Option<f64> {
    let moves = outcome.bytes > 0 && outcome.ops < INTENSE * outcome.bytes;
    moves.then(|| outcome.gigabytes_per_second() / limit.gigabytes_per_second())
}

fn line(shipped: &Shipped, outcome: &Outcome, limit: &Outcome) -> String {
    let mark = if outcome.verdict.passed() { '✓' } else { '✗' };
    let rate = |is: bool, rate: f64, unit: &str| if is { format!("{rate:.1} {unit}") } else { String::new() };
    let share = share(outcome, limit).map_or(String::new(), |share| format!("{:.0} %", 100.0 * share));
    format!(
        "{mark} {:<14} {:>9.4} ms {:>12} {:>13}   {share:<11} {}",
        shipped.name,
        outcome.time.as_secs_f64() * 1e3,
        rate(outcome.bytes > 0, outcome.gigabytes_per_second(), "GB/s"),
        rate(outcome.ops > 0, outcome.gigaops_per_second(), "Gop/s"),
        outcome.verdict,
    )
}

fn row(shipped: &Shipped, outcome: &Outcome, limit: &Outcome, device: &str) -> serde_json::Value {
    json!({
        "schema": 1, "name": shipped.name, "device": device, "passed": outcome.verdict.passed(),
        "error": outcome.verdict.error, "tolerance": outcome.verdict.tolerance,
        "seconds": outcome.time.as_secs_f64(), "runs": outcome.runs,
        "gbps": outcome.gigabytes_per_second(), "gops": outcome.gigaops_per_second(),
        "triad_gbps": limit.gigabytes_per_second(), "of_triad": share(outcome, limit),
    })
}
