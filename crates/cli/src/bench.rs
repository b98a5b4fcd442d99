//! `panoply bench`: what a device reaches, against what it reaches in the same run when nothing is in the way.

mod devices;
mod kernels;
mod peaks;
mod rss;
mod tensors;
mod training;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use panoply::internal::{NullDevice, routine};
use panoply::runtime::DeviceOptions;
use panoply::{Backend, Device, Result};

use crate::output::DeviceArgs;

/// What a device reaches.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Copies up, down and on the device, launches, and products of matrices; of every device if none is named.
    Devices(devices::BenchDevicesCommand),
    /// The kernels that ship, beside STREAM's triad and an empty launch.
    Kernels(kernels::BenchKernelsCommand),
    /// Tensor operations, beside what the device's memory and its multipliers give.
    Tensors(ProfiledArgs),
    /// Steps of training.
    Training(training::BenchTrainingCommand),
}

/// The most seconds that a row may be given.
const DAY: f64 = 86_400.0;

#[derive(Args)]
struct Options {
    #[command(flatten)]
    device: DeviceArgs,
    /// Minimum seconds of measuring per row
    #[arg(long, visible_alias = "seconds", default_value_t = 1.0, value_parser = seconds)]
    min_time: f64,
    /// One JSON line for each row on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ProfiledArgs {
    #[command(flatten)]
    options: Options,
    /// Also what each kernel of one run took, on stderr.
    #[arg(long)]
    profile: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| "a number of seconds is needed".to_string())?;
    if (0.0..=DAY).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("needs to lie between 0 and {DAY} seconds, a day"))
    }
}

/// Prints a row for each benchmark.
pub fn run(arguments: &BenchArgs) -> Result<ExitCode> {
    match &arguments.command {
        BenchCommand::Devices(arguments) => devices::run(arguments),
        BenchCommand::Kernels(arguments) => kernels::run(arguments),
        BenchCommand::Tensors(arguments) => tensors::run(arguments),
        BenchCommand::Training(arguments) => training::run(arguments),
    }
}

/// A device that is asked what this one is and computes nothing.
fn null_device_like(device: &Device) -> Device {
    let null = NullDevice::new(device.target().clone()).without_memory();
    let null = if device.info().kind == Backend::Cpu { null.with_routines(routine::offers) } else { null };
    Device::new(Arc::new(null), DeviceOptions::default())
}

/// The median of what runs say they took, over so many seconds.
fn median_time(seconds: f64, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut times = vec![run()?];
    while times.len() < 10_000 && times.iter().sum::<f64>() < seconds {
        times.push(run()?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
