//! `panoply bench`: performance of a device, relative to its peak rates measured in the same run.

mod data;
pub mod devices;
pub mod kernels;
mod llm;
mod mesh;
mod onnx;
pub mod peaks;
mod rss;
pub mod tensors;
mod training;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use panoply::Result;

use crate::output::DeviceArgs;

pub use peaks::Limits;

/// Measure the performance of a device
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Copies to, from and on the device, launches and matrix products; of every hardware device if none is named
    Devices(devices::BenchDevicesCommand),
    /// The built-in kernels, relative to the STREAM triad, and an empty launch
    Kernels(kernels::BenchKernelsCommand),
    /// Tensor operations, relative to the memory bandwidth and arithmetic peak of the device
    Tensors(ProfiledArgs),
    /// Reading of a data set, relative to its size
    Data(data::BenchDataCommand),
    /// Prefill and decode of a language model, relative to the memory bandwidth
    Llm(llm::BenchLlmCommand),
    /// Tasks, distributed arrays and data-parallel training on the CPU, beside the same work without a mesh
    Mesh(mesh::BenchMeshCommand),
    /// Latency of an ONNX network that is compiled for inference
    Onnx(onnx::BenchOnnxCommand),
    /// Training steps
    Training(training::BenchTrainingCommand),
}

/// Maximum time per row in seconds.
const DAY: f64 = 86_400.0;

/// Options of every benchmark.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    device: DeviceArgs,
    /// Minimum seconds of measuring per row
    #[arg(long, visible_alias = "seconds", default_value_t = 1.0, value_parser = seconds)]
    min_time: f64,
    /// Print JSON lines on stdout, one document per row
    #[arg(long, visible_alias = "json")]
    jsonl: bool,
}

/// Options of benchmarks that can be profiled.
#[derive(Args)]
pub struct ProfiledArgs {
    #[command(flatten)]
    options: Options,
    /// Also print the time of each kernel of one run to stderr
    #[arg(long)]
    profile: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| "expected a number of seconds".to_string())?;
    if (0.0..=DAY).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("must be between 0 and {DAY} seconds (a day)"))
    }
}

/// Runs the benchmarks and prints a row for each.
pub fn run(arguments: &BenchArgs) -> Result<ExitCode> {
    match &arguments.command {
        BenchCommand::Devices(arguments) => devices::run(arguments),
        BenchCommand::Kernels(arguments) => kernels::run(arguments),
        BenchCommand::Tensors(arguments) => tensors::run(arguments),
        BenchCommand::Data(arguments) => data::run(arguments),
        BenchCommand::Llm(arguments) => llm::run(arguments),
        BenchCommand::Mesh(arguments) => mesh::run(arguments),
        BenchCommand::Onnx(arguments) => onnx::run(arguments),
        BenchCommand::Training(arguments) => training::run(arguments),
    }
}

/// Formats a time with four significant digits, as `12.34 µs`.
pub fn duration(seconds: f64) -> String {
    let (number, unit) = match seconds {
        1.0.. => (seconds, "s"),
        1e-3.. => (seconds * 1e3, "ms"),
        1e-6.. => (seconds * 1e6, "µs"),
        _ => (seconds * 1e9, "ns"),
    };
    let decimals = 3 - (number.max(1.0).log10() as usize).min(3);
    format!("{number:.decimals$} {unit}")
}

/// Formats a rate with three significant digits, as `1.35 GB/s`; the prefix of the unit is reduced for small rates.
pub fn rate(rate: f64, unit: &str) -> String {
    let units: Vec<String> = match (unit, unit.strip_prefix('G')) {
        (_, Some(base)) => ["G", "M", "k", ""].iter().map(|prefix| format!("{prefix}{base}")).collect(),
        ("thousand/s", _) => vec![unit.to_string(), "/s".to_string()],
        _ => vec![unit.to_string()],
    };
    let (mut rate, mut at) = (rate, 0);
    while rate > 0.0 && rate < 1.0 && at + 1 < units.len() {
        (rate, at) = (rate * 1e3, at + 1);
    }
    let decimals = 2 - (rate.max(1.0).log10() as usize).min(2);
    format!("{rate:.decimals$} {}", units[at])
}

/// Repeats a run for a number of seconds and returns the median of the times that it returns.
fn median_time(seconds: f64, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut times = vec![run()?];
    while times.len() < 10_000 && times.iter().sum::<f64>() < seconds {
        times.push(run()?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::{duration, rate};

    #[test]
    fn durations_have_four_digits() {
        let cases =
            [(12.3456, "12.35 s"), (0.25, "250.0 ms"), (1.5e-3, "1.500 ms"), (4.2e-7, "420.0 ns"), (0.0, "0.000 ns")];
        cases.iter().for_each(|(seconds, text)| assert_eq!(duration(*seconds), *text));
        assert_eq!(duration(1234.5), "1234 s");
    }

    #[test]
    fn rates_have_three_digits() {
        for (number, unit, text) in [
            (20.0, "GB/s", "20.0 GB/s"),
            (1234.5, "GFLOP/s", "1234 GFLOP/s"),
            (0.0213, "GB/s", "21.3 MB/s"),
            (4.2e-8, "Gop/s", "42.0 op/s"),
            (3e-10, "GB/s", "0.30 B/s"),
            (0.5, "thousand/s", "500 /s"),
            (0.0, "GB/s", "0.00 GB/s"),
        ] {
            assert_eq!(rate(number, unit), text);
        }
    }
}
