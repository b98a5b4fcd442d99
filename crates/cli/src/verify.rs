//! `panoply verify MODEL PROPERTY`: proves a property of a network for all inputs of a set.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use panoply::nn::onnx::Imported;
use panoply::verify::{self, Arithmetic, Options, Progress, Report, Verdict};
use panoply::{DType, Error, Result, Tensor};
use serde_json::json;

use crate::console;
use crate::output::{self, DeviceArgs, DeviceSelection};

/// Exit code if the property was neither proven nor violated.
const UNDECIDED: u8 = 4;
/// Exit code if a counterexample was found.
const COUNTEREXAMPLE: u8 = 5;

/// Prove a property of a network for all inputs of a set, or find a counterexample.
///
/// Exits with 0 if the property is proven, 4 if it is undecided, and 5 if there is a counterexample.
#[derive(Args)]
pub struct VerifyCommand {
    /// The network: an ONNX file with one f32 input and one f32 output
    model: PathBuf,
    /// The property: a VNN-LIB 1.0 file, optionally compressed with gzip; it states what a counterexample satisfies
    property: PathBuf,
    /// Time limit in seconds
    #[arg(long, default_value_t = Options::default().seconds, value_parser = seconds)]
    seconds: f64,
    /// The arithmetic that a proof covers
    #[arg(long, value_enum, default_value_t = Covered::Both)]
    arithmetic: Covered,
    /// Number of search threads [default: all hardware threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Seed of the random points of the counterexample search
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// The values of `--arithmetic`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Covered {
    /// Real numbers, and f32 arithmetic with sums in any order
    Both,
    /// Real numbers only; rounding on the device is not covered
    Real,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if seconds >= 0.0 { Ok(seconds) } else { Err("must not be negative".to_string()) }
}

/// Reads the network and the property, searches, and prints the verdict.
pub fn run(arguments: &VerifyCommand) -> Result<ExitCode> {
    output::check_paths(arguments.json, [&*arguments.model, &*arguments.property])?;
    let property = verify::vnnlib::read(&arguments.property)?;
    let choice = arguments.device.select()?;
    choice.device().scope(|| {
        let network = Imported::open(&arguments.model)?;
        let shape = input_shape(&network)?;
        let function = |x: &Tensor| Ok(network.forward(std::slice::from_ref(x))?.swap_remove(0));
        let arithmetic = match arguments.arithmetic {
            Covered::Both => Arithmetic::Float,
            Covered::Real => Arithmetic::Real,
        };
        let threads = arguments.threads.map(usize::from);
        let options = Options { seconds: arguments.seconds, arithmetic, threads, seed: arguments.seed };
        let bar = bar(arguments.json);
        let mut show = |progress: Progress| bar.set_message(line(&progress, arguments.seconds));
        let report = verify::verify(&function, shape, &property, &options, &mut show);
        bar.finish_and_clear();
        tell(arguments, &choice, &report?)
    })
}

/// Returns the shape of the network's only input, with 1 for dynamic dimensions.
fn input_shape(network: &Imported) -> Result<Vec<usize>> {
    let ([input], [_]) = (&network.inputs[..], &network.outputs[..]) else {
        let (inputs, outputs) = (network.inputs.len(), network.outputs.len());
        return Err(Error::unsupported(format!(
            "the network has {inputs} inputs and {outputs} outputs; one of each is supported"
        )));
    };
    if input.dtype != DType::F32 {
        return Err(Error::unsupported(format!("the input `{}` is {}; f32 is supported", input.name, input.dtype)));
    }
    Ok(input.dims.iter().map(|dim| dim.unwrap_or(1)).collect())
}

fn bar(is_quiet: bool) -> ProgressBar {
    if is_quiet || console::is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

fn line(progress: &Progress, limit: f64) -> String {
    let Progress { proven, boxes, seconds } = progress;
    let rate = *boxes as f64 / seconds.max(1e-9);
    format!("{:.1} % proven · {boxes} boxes · {rate:.0}/s · {seconds:.0} of {limit} s", 100.0 * proven)
}

/// Prints the verdict.
fn tell(arguments: &VerifyCommand, choice: &DeviceSelection, report: &Report) -> Result<ExitCode> {
    let Progress { proven, boxes, seconds } = report.progress;
    let name = match &report.verdict {
        Verdict::Proven => "proven",
        Verdict::Counterexample(_) => "counterexample",
        Verdict::Undecided(_) => "undecided",
    };
    let (covered, summary) = match arguments.arithmetic {
        Covered::Both => ("both", "for real numbers and for f32 arithmetic with sums in any order"),
        Covered::Real => ("real", "for real numbers; the rounding of f32 arithmetic is not covered"),
    };
    if arguments.json {
        let (counterexample, reason) = match &report.verdict {
            Verdict::Proven => (None, None),
            Verdict::Counterexample(found) => (Some(json!({"input": found.input, "output": found.output})), None),
            Verdict::Undecided(reason) => (None, Some(reason)),
        };
        output::print_json(&choice.document(json!({
            "model": arguments.model.to_string_lossy(),
            "property": arguments.property.to_string_lossy(), "verdict": name, "arithmetic": covered, "reason": reason,
            "counterexample": counterexample, "proven_fraction": proven, "boxes": boxes, "seconds": seconds,
        })));
    } else {
        match &report.verdict {
            Verdict::Proven => println!("proven {summary}: no input of the set violates the property"),
            Verdict::Counterexample(found) => {
                println!(
                    "counterexample: this input violates the property, in f32 on {} and in real numbers",
                    choice.device()
                );
                found.input.iter().enumerate().for_each(|(n, x)| println!("  X_{n} = {x}"));
                found.output.iter().enumerate().for_each(|(n, y)| println!("  Y_{n} = {y}"));
            }
            Verdict::Undecided(reason) => println!("undecided: {reason}; {:.1} % of the set is proven", 100.0 * proven),
        }
        note!("{boxes} boxes in {seconds:.2} s");
    }
    Ok(match &report.verdict {
        Verdict::Proven => ExitCode::SUCCESS,
        Verdict::Counterexample(_) => ExitCode::from(COUNTEREXAMPLE),
        Verdict::Undecided(_) => ExitCode::from(UNDECIDED),
    })
}
