//! The command-line program `panoply`.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure (also if stdout cannot be written), 2 usage error,
//! 3 degraded under `--strict`, 4 undecided and 5 counterexample (`verify`), 130 ended by a second Ctrl-C, 141 broken pipe. Every command
//! has `--json`, which prints one document (or one line per row) with a `schema` number.
//! One file per command; [`output`] holds the code that they share, [`console`] writes to stdout and stderr.

#![forbid(unsafe_code)]

#[macro_use]
mod console;

mod bench;
mod chat;
mod demo;
mod devices;
mod driver_probe;
mod explain;
mod export;
mod fit;
mod generation_args;
mod inspect;
mod load_progress;
mod mesh;
mod output;
mod predict;
mod protect;
mod quantize;
mod run;
mod selftest;
#[cfg(feature = "serve")]
mod serve;
mod shell;
mod status;
mod train;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tensors, neural networks and GPU kernels on any accelerator of this machine.
#[derive(Parser)]
#[command(name = "panoply", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List backends and devices, why some were rejected, and which device `auto` selects
    Devices(devices::DevicesCommand),
    /// List the backends (CUDA, Vulkan, …) that work here, and why the others do not
    Backends(devices::DevicesCommand),
    /// Count the devices of each backend
    Summary(devices::DevicesCommand),
    /// Show the device that is used by default, and why
    Default(devices::DefaultArguments),
    /// Run a test kernel on every device and report problems and how to fix them
    Status(devices::DevicesCommand),
    #[command(hide = true)]
    Probe(driver_probe::ContainCommand),
    /// Run the example kernels on the best device, check and time them
    Demo(demo::DemoCommand),
    /// Test that a device computes correct results, one line per check
    Selftest(selftest::SelftestCommand),
    /// Show every compilation stage of a kernel or tensor expression, down to device code
    Explain(explain::ExplainCommand),
    /// Measure the performance of a device
    Bench(bench::BenchArgs),
    Train(Box<train::TrainCommand>),
    /// Run `panoply` in several processes
    Mesh(mesh::MeshCommand),
    Verify(verify::VerifyCommand),
    /// Run a trained model on new data, or generate text
    Predict(predict::PredictCommand),
    Run(Box<run::RunCommand>),
    Chat(Box<chat::ChatCommand>),
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeCommand>),
    Fit(fit::FitCommand),
    Quantize(quantize::QuantizeCommand),
    /// Export a trained model to ONNX
    Export(export::ExportCommand),
    /// Show the contents of a model file
    Inspect(inspect::InspectCommand),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Devices(arguments) => devices::devices(&arguments),
        Command::Backends(arguments) => devices::backends(&arguments),
        Command::Summary(arguments) => devices::summary(&arguments),
        Command::Default(arguments) => devices::default(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Probe(arguments) => driver_probe::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Train(arguments) => train::run(&arguments),
        Command::Mesh(arguments) => mesh::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Chat(arguments) => chat::run(&arguments),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Quantize(arguments) => quantize::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("panoply: {error}");
            ExitCode::FAILURE
        }
    }
}
