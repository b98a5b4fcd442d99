//! The command `panoply`.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed (also if stdout cannot be written), 2 wrong usage, 3 degraded under
//! `--strict`, 4 undecided and 5 counterexample (`verify`), 130 ended by a second Ctrl-C, 141 broken pipe. Every command has `--json`, which prints one document (or one line for each row) with a `schema` number.
//! One file for each command; [`output`] holds what they share, [`console`] writes it.

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
mod generation_args;
mod inspect;
mod mesh;
mod output;
mod predict;
mod protect;
mod run;
mod selftest;
mod shell;
mod status;
mod train;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Numerical programs on whatever accelerator this machine has.
#[derive(Parser)]
#[command(name = "panoply", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What is here, what was refused and why, which device `auto` would take.
    Devices(devices::DevicesCommand),
    /// Which interfaces (CUDA, Vulkan, …) work here, and why the others do not.
    Backends(devices::DevicesCommand),
    /// How many devices of each kind are here.
    Summary(devices::DevicesCommand),
    /// The device that is taken where none is named, and why nothing before it.
    Default(devices::DefaultArguments),
    /// Is this machine set up well? Every device computes something; for what does not work, why and what mends it.
    Status(devices::DevicesCommand),
    #[command(hide = true)]
    Probe(driver_probe::ContainCommand),
    /// Pick the best device, say why, run the kernels that ship on it, check and time them.
    Demo(demo::DemoCommand),
    /// Does this device compute what it must? One line for each check.
    Selftest(selftest::SelftestCommand),
    /// Every stage of a kernel or tensor expression, down to the device's own text.
    Explain(explain::ExplainCommand),
    /// What a device reaches.
    Bench(bench::BenchArgs),
    Train(Box<train::TrainCommand>),
    /// Run `panoply` in several processes.
    Mesh(mesh::MeshCommand),
    Verify(verify::VerifyCommand),
    /// Let a trained network judge examples.
    Predict(predict::PredictCommand),
    Run(Box<run::RunCommand>),
    Chat(Box<chat::ChatCommand>),
    /// Write a trained network as an ONNX file.
    Export(export::ExportCommand),
    /// What a model file holds.
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
