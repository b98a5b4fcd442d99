//! `panoply bench`: what a device reaches, against what it reaches in the same run when nothing is in the way.

mod devices;
mod kernels;
mod limits;
mod resident;
mod tensors;
mod training;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use panoply::internal::{Null, routine};
use panoply::runtime::DeviceOptions;
use panoply::{Device, Kind, Result};

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
    /// Tensor operations, beside what the device's memory and its multipliers give.
    Tensors(Profiled),
    /// Steps of training.
    Training(training::Arguments),
}

/// The most seconds that a row may be given.
const DAY: f64 = 86_400.0;

#[derive(Args)]
struct Options {
    #[command(flatten)]
    device: DeviceChoice,
    /// Seconds spent on each row.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
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

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| "a number of seconds is needed".to_string())?;
    if (0.0..=DAY).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("needs to lie between 0 and {DAY} seconds, a day"))
    }
}

/// Prints a row for each benchmark.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.what {
        What::Devices(arguments) => devices::run(arguments),
        What::Kernels(arguments) => kernels::run(arguments),
        What::Tensors(arguments) => tensors::run(arguments),
        What::Training(arguments) => training::run(arguments),
    }
}

/// A device that is asked what this one is and computes nothing.
fn idle(device: &Device) -> Device {
    let null = Null::new(device.target().clone()).hollow();
    let null = if device.info().kind == Kind::Cpu { null.offering(routine::offers) } else { null };
    Device::new(Arc::new(null), DeviceOptions::default())
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
