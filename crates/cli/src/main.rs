//! The command-line program `panoply`.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure (also if stdout cannot be written), 2 usage error,
//! 3 no accelerator under `--strict`, 4 undecided and 5 counterexample (`verify`), 130 ended by a second Ctrl-C, 141 broken pipe. Every command
//! has `--json`, which prints one document with a `schema` number; `bench` and `chat` print JSON lines instead.
//! One file per command; [`output`] holds the code that they share, [`console`] writes to stdout and stderr.

#![deny(unsafe_code)]

#[macro_use]
mod console;

mod bench;
mod chat;
mod command_line;
mod csv_cell;
mod demo;
mod devices;
mod diagnosis;
mod driver_probe;
mod explain;
mod export;
mod fit;
mod generate;
mod generation_args;
mod inspect;
mod interrupt;
mod load_progress;
mod machine;
mod mesh;
mod new;
mod output;
mod predict;
mod protect;
mod quantize;
mod report;
mod run;
mod selftest;
#[cfg(feature = "serve")]
mod serve;
mod shell;
mod status;
mod train;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use console::Verbosity;

/// Tensors, neural networks and GPU kernels on any accelerator of this machine.
#[derive(Parser)]
#[command(name = "panoply", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Write no progress, notes or log to stderr, only errors
    #[arg(short, long, global = true, display_order = 1000)]
    quiet: bool,
    /// Also write why other devices were not selected
    #[arg(short, long, global = true, conflicts_with = "quiet", display_order = 1001)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    Devices(devices::DevicesCommand),
    /// List the backends (CUDA, Vulkan, …) that work here, and why the others do not
    #[command(hide = true)]
    Backends(devices::ViewCommand),
    /// Count the devices of each backend
    #[command(hide = true)]
    Summary(devices::ViewCommand),
    /// Show the device that is used by default, and why
    #[command(hide = true)]
    Default(devices::DefaultArguments),
    /// Run a test kernel on every device and report problems and how to fix them
    Status(devices::ViewCommand),
    #[command(hide = true)]
    ProbeDrivers(driver_probe::ProbeDriversCommand),
    /// Run the example kernels on the best device, check and time them
    Demo(demo::DemoCommand),
    /// Test that a device computes correct results, one line per check
    Selftest(selftest::SelftestCommand),
    Report(report::ReportCommand),
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
    /// Export a trained model to ONNX, or the weights of an ONNX file to safetensors
    Export(export::ExportCommand),
    Inspect(inspect::InspectCommand),
    New(new::NewCommand),
    Generate(generate::GenerateCommand),
}

/// Turns a Vulkan layer of Mesa off where no user is logged in: it would write an error to stderr whenever devices are listed. The layer
/// needs an absolute path in XDG_RUNTIME_DIR.
#[expect(unsafe_code, reason = "environment variables cannot be changed safely")]
fn silence_device_layer() {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let has_runtime_dir = runtime_dir.is_some_and(|path| path.is_absolute());
    if cfg!(target_os = "linux") && !has_runtime_dir && std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: `main` calls this first, when no other thread exists.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") }
    }
}

/// Parses the command line, whose first argument is the name of the program.
fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let parser = command_line::with_negative_numbers(Cli::command());
    let arguments = command_line::with_dashes(arguments, &parser);
    let parsed = parser.clone().try_get_matches_from(&arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| command_line::explained(error, &parser, &arguments))
}

/// Prints an error about the command line, or the help or version that was asked for. Returns the exit code.
fn refused(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(unwritten) if !error.use_stderr() && unwritten.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("panoply: cannot write to stdout: {unwritten}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
    }
}

fn main() -> ExitCode {
    silence_device_layer();
    let Cli { command, quiet, verbose } = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    console::set_verbosity(match (quiet, verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        (false, false) => Verbosity::Normal,
    });
    let done = match command {
        Command::Devices(arguments) => devices::devices(&arguments),
        Command::Backends(arguments) => devices::backends(&arguments),
        Command::Summary(arguments) => devices::summary(&arguments),
        Command::Default(arguments) => devices::default(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::ProbeDrivers(arguments) => driver_probe::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
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
        Command::New(arguments) => new::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments, Cli::command()),
        Command::Verify(arguments) => verify::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            // Under `mesh run` the label tells the other process which rank failed.
            match mesh::own_rank() {
                Some(rank) => eprintln!("panoply: rank {rank}: {error}"),
                None => eprintln!("panoply: {error}"),
            }
            let source = std::error::Error::source(&error);
            match source.is_some_and(|source| source.is::<output::NoAccelerator>()) {
                true => ExitCode::from(output::DEGRADED),
                false => ExitCode::FAILURE,
            }
        }
    }
}
