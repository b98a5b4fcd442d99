//! `panoply demo`: runs the built-in kernels on the best device, checks and times them.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use panoply::Result;
use panoply::kernels::{ALL, BenchResult, BuiltinKernel, Size};
use serde_json::{Value, json};

use crate::output::{self, DeviceArgs};

/// Run the built-in kernels on the best device, check and time them
#[derive(Args)]
pub struct DemoCommand {
    /// Seed of the inputs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Time for measuring each kernel.
const BUDGET: Duration = Duration::from_millis(200);

/// Runs every built-in kernel and prints a line for each; fails if a result is wrong.
pub fn run(arguments: &DemoCommand) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    choice.explain();
    let mut rows = Vec::new();
    let mut failed = 0;
    // The checked device interprets every work-item; the default size would take minutes.
    let size = if choice.device().info().variant.is_some() { Size::Tiny } else { Size::Small };
    for builtin in ALL {
        let outcome = builtin.run(choice.device(), size, arguments.seed, BUDGET)?;
        failed += usize::from(!outcome.verdict.passed());
        if arguments.json {
            rows.push(row(builtin, &outcome));
        } else {
            println!("{}", line(builtin, &outcome));
        }
    }
    if arguments.json {
        output::print_json(&choice.document(json!({"kernels": rows, "failed": failed})));
    } else {
        println!("{} of {} kernels correct on {}", ALL.len() - failed, ALL.len(), choice.device());
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Formats a result as `✓ saxpy           0.41 ms   30.1 GB/s    5.0 Gop/s  exact   y = a x + y`.
pub fn line(builtin: &BuiltinKernel, outcome: &BenchResult) -> String {
    let mark = if outcome.verdict.passed() { '✓' } else { '✗' };
    format!(
        "{mark} {:<14} {:>9.3} ms {:>7.1} GB/s {:>8.1} Gop/s  {:<24} {}",
        builtin.name,
        outcome.time.as_secs_f64() * 1e3,
        outcome.gb_per_s(),
        outcome.gop_per_s(),
        outcome.verdict.to_string(),
        builtin.about
    )
}

/// Returns the result for `--json`.
pub fn row(builtin: &BuiltinKernel, outcome: &BenchResult) -> Value {
    json!({
        "name": builtin.name, "passed": outcome.verdict.passed(), "max_error": outcome.verdict.error,
        "tolerance": outcome.verdict.tolerance, "seconds": outcome.time.as_secs_f64(), "runs": outcome.runs,
        "gb_per_s": outcome.gb_per_s(), "gop_per_s": outcome.gop_per_s(),
    })
}
