//! `panoply verify MODEL PROPERTY`: proves properties of a network for all inputs of a set.

pub mod network;
mod radius;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use panoply::nn::data::reader::InferenceData;
use panoply::verify::{self, Arithmetic, Options, Progress, Property, Report, Verdict, claim, vnncomp};
use panoply::{Error, Result, Tensor};
use serde_json::{Value, json};

use crate::console::{self, escaped};
use crate::output::{self, DeviceArgs, DeviceSelection};
use crate::train::run_dir;
use network::Network;

/// Exit code if a property was neither proven nor violated.
const UNDECIDED: u8 = 4;
/// Exit code if a counterexample was found.
const COUNTEREXAMPLE: u8 = 5;

/// Prove properties of a network for all inputs of a set, or find a counterexample.
///
/// Exits with 0 if all properties are proven, 5 if there is a counterexample, and 4 if a property is undecided.
#[derive(Args)]
pub struct VerifyCommand {
    /// Network: an ONNX file with one f32 input and one f32 output, optionally compressed with gzip, or the model file or run folder
    /// of `panoply train`
    #[arg(value_parser = run_dir::model_file())]
    model: PathBuf,
    /// Property: a TOML file of claims that hold, or a VNN-LIB 1.0 file, optionally compressed with gzip, that states what a
    /// counterexample satisfies
    property: PathBuf,
    /// Time limit in seconds, for each claim that has no other
    #[arg(long, default_value_t = Options::default().seconds, value_parser = seconds)]
    seconds: f64,
    /// Arithmetic that a proof covers
    #[arg(long, value_enum, default_value_t = Covered::Both)]
    arithmetic: Covered,
    /// Search the largest radius of each claim about a ball for which it is proven, and the smallest with a counterexample, starting from
    /// its `ball`; exits with 0 if they differ by at most 1 %, otherwise with 4
    #[arg(long, conflicts_with_all = ["result", "replay"])]
    largest_radius: bool,
    /// Write the verdict and the counterexample to this file, in the form of VNN-COMP
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Check the counterexample in this file, in the form of VNN-COMP, instead of searching one
    #[arg(long, value_name = "FILE", conflicts_with = "result")]
    replay: Option<PathBuf>,
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

impl Covered {
    /// Returns the name in JSON and the description of a proof.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Covered::Both => ("both", "for real numbers and for f32 arithmetic with sums in any order"),
            Covered::Real => ("real", "for real numbers; the rounding of f32 arithmetic is not covered"),
        }
    }
}

/// A property with its name, if it has one, and its time limit.
struct Question {
    name: Option<String>,
    property: Property,
    seconds: f64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if seconds >= 0.0 { Ok(seconds) } else { Err("must not be negative".to_string()) }
}

/// Reads the network and the properties, searches, and prints the verdicts.
pub fn run(arguments: &VerifyCommand) -> Result<ExitCode> {
    let files = [&arguments.result, &arguments.replay].into_iter().flatten().map(|path| &**path);
    output::check_paths(arguments.json, [&*arguments.model, &*arguments.property].into_iter().chain(files))?;
    let is_toml = arguments.property.extension().is_some_and(|extension| extension == "toml");
    let claims = if is_toml { claim::read(&arguments.property)? } else { Vec::new() };
    let property = if is_toml { None } else { Some(verify::vnnlib::read(&arguments.property)?) };
    if is_toml && (arguments.result.is_some() || arguments.replay.is_some()) {
        return Err(Error::mistake("`--result` and `--replay` need a property in VNN-LIB"));
    }
    if !is_toml && arguments.largest_radius {
        return Err(Error::mistake("`--largest-radius` needs claims in TOML"));
    }
    let choice = arguments.device.select()?;
    choice.device().scope(|| {
        let network = Network::open(&arguments.model)?;
        if arguments.largest_radius {
            return radius::run(arguments, &network, &claims, &choice);
        }
        let questions = match property {
            Some(property) => vec![Question { name: None, property, seconds: arguments.seconds }],
            None => questions(arguments, &network, &claims)?,
        };
        let mut answers = Vec::new();
        for question in &questions {
            let report = match &arguments.replay {
                Some(path) => replay(&network, question, path)?,
                None => search(arguments, &network, question)?,
            };
            if let Some(path) = &arguments.result {
                let text = vnncomp::result(&report.verdict);
                std::fs::write(path, text)
                    .map_err(|error| Error::io(format!("cannot write {}", path.display()), error))?;
            }
            if !arguments.json {
                tell(arguments, &choice, question, &report);
            }
            answers.push((question, report));
        }
        if arguments.json {
            output::print_json(&choice.document(document(arguments, &answers)));
        }
        Ok(exit_code(&answers))
    })
}

/// Checks the counterexample in a file.
fn replay(network: &Network, question: &Question, path: &Path) -> Result<Report> {
    let started = std::time::Instant::now();
    let input = vnncomp::read(path)?.input;
    let found = verify::check(&|x| network.forward(x), network.input_shape()?, &question.property, &input)?;
    let reason = || format!("the input in {} does not violate the property", path.display());
    let verdict = found.map_or_else(|| Verdict::Undecided(reason()), Verdict::Counterexample);
    let progress = Progress { proven: 0.0, boxes: 0, seconds: started.elapsed().as_secs_f64() };
    Ok(Report { verdict, progress })
}

/// A claim with the center of its ball, if it has one, and the output there or at any input.
struct Centered<'c> {
    claim: &'c claim::Claim,
    center: Option<Vec<f32>>,
    output: Vec<f32>,
}

impl Centered<'_> {
    /// Returns the property of the claim, with this radius of its ball if one is given.
    fn property(&self, network: &Network, radius: Option<f64>) -> Result<Property> {
        let inputs = network.input_shape()?.iter().product();
        let claim =
            radius.map_or_else(|| Cow::Borrowed(self.claim), |radius| Cow::Owned(self.claim.with_radius(radius)));
        claim.property(inputs, self.center.as_deref(), &self.output)
    }
}

/// Returns the property of each claim.
fn questions(arguments: &VerifyCommand, network: &Network, claims: &[claim::Claim]) -> Result<Vec<Question>> {
    let question = |centered: &Centered<'_>| {
        let (claim, property) = (centered.claim, centered.property(network, None)?);
        Ok(Question { name: Some(claim.name.clone()), property, seconds: claim.seconds.unwrap_or(arguments.seconds) })
    };
    centered(network, claims)?.iter().map(question).collect()
}

/// Returns the claims with their centers; the outputs there are computed on the device.
fn centered<'c>(network: &Network, claims: &'c [claim::Claim]) -> Result<Vec<Centered<'c>>> {
    let shape = network.input_shape()?;
    let inputs: usize = shape.iter().product();
    let data: OnceCell<InferenceData> = OnceCell::new();
    let example = |index: usize| -> Result<Vec<f32>> {
        if data.get().is_none() {
            let _ = data.set(network.examples()?);
        }
        let features = data.get().map(|data| (&data.dataset.features, data.dataset.num_features));
        let row = features.and_then(|(features, width)| features.chunks_exact(width.max(1)).nth(index));
        row.map(<[f32]>::to_vec).ok_or_else(|| Error::mistake(format!("the data have no example {index}")))
    };
    let centered = |claim: &'c claim::Claim| {
        let center = claim.center(&example)?;
        // Without a ball, the number of outputs is all that is needed of the output.
        let point = center.clone().filter(|center| center.len() == inputs).unwrap_or_else(|| vec![0.0; inputs]);
        let output = network.forward(&Tensor::from_slice(&point, shape.clone()))?.to_vec::<f32>()?;
        Ok(Centered { claim, center, output })
    };
    claims.iter().map(centered).collect()
}

fn search(arguments: &VerifyCommand, network: &Network, question: &Question) -> Result<Report> {
    let function = |x: &Tensor| network.forward(x);
    let arithmetic = match arguments.arithmetic {
        Covered::Both => Arithmetic::Float,
        Covered::Real => Arithmetic::Real,
    };
    let threads = arguments.threads.map(usize::from);
    let options = Options { seconds: question.seconds, arithmetic, threads, seed: arguments.seed };
    let bar = bar(arguments.json);
    let mut show = |progress: Progress| bar.set_message(line(&progress, question.seconds));
    let report = verify::verify(&function, network.input_shape()?, &question.property, &options, &mut show);
    bar.finish_and_clear();
    report
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

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Proven => "proven",
        Verdict::Counterexample(_) => "counterexample",
        Verdict::Undecided(_) => "undecided",
    }
}

/// Prints a verdict.
fn tell(arguments: &VerifyCommand, choice: &DeviceSelection, question: &Question, report: &Report) {
    let Progress { proven, boxes, seconds } = report.progress;
    let (_, summary) = arguments.arithmetic.words();
    let claim = question.name.as_ref().map(|name| format!("{}: ", escaped(name))).unwrap_or_default();
    match &report.verdict {
        Verdict::Proven => println!("{claim}proven {summary}: no input of the set violates the property"),
        Verdict::Counterexample(found) => {
            // The requirement that outputs are finite is one on f32 alone.
            let is_finite = found.output.iter().all(|y| y.is_finite());
            let both = if question.property.requires_finite && !is_finite { "" } else { " and in real numbers" };
            println!("{claim}counterexample: this input violates the property, in f32 on {}{both}", choice.device());
            found.input.iter().enumerate().for_each(|(n, x)| println!("  X_{n} = {x}"));
            found.output.iter().enumerate().for_each(|(n, y)| println!("  Y_{n} = {y}"));
        }
        Verdict::Undecided(reason) => {
            println!("{claim}undecided: {reason}; {:.1} % of the set is proven", 100.0 * proven);
        }
    }
    let noun = if boxes == 1 { "box" } else { "boxes" };
    note!("searched {boxes} {noun} in {seconds:.2} s");
}

/// Returns the verdict and the statistics of a property in JSON.
fn entry(report: &Report) -> Value {
    let Progress { proven, boxes, seconds } = report.progress;
    let (counterexample, reason) = match &report.verdict {
        Verdict::Proven => (None, None),
        Verdict::Counterexample(found) => (Some(json!({"input": found.input, "output": found.output})), None),
        Verdict::Undecided(reason) => (None, Some(reason)),
    };
    json!({
        "verdict": name(&report.verdict), "reason": reason, "counterexample": counterexample, "proven_fraction": proven,
        "boxes": boxes, "seconds": seconds,
    })
}

/// Returns the document: the entry of a single property, or a list of claims.
fn document(arguments: &VerifyCommand, answers: &[(&Question, Report)]) -> Value {
    let mut document = match answers {
        [(Question { name: None, .. }, report)] => entry(report),
        _ => {
            let claim = |(question, report): &(&Question, Report)| {
                let mut entry = entry(report);
                entry["name"] = json!(question.name);
                entry
            };
            json!({"claims": answers.iter().map(claim).collect::<Vec<Value>>()})
        }
    };
    document["model"] = json!(arguments.model.to_string_lossy());
    document["property"] = json!(arguments.property.to_string_lossy());
    document["arithmetic"] = json!(arguments.arithmetic.words().0);
    document
}

fn exit_code(answers: &[(&Question, Report)]) -> ExitCode {
    let any = |is: fn(&Verdict) -> bool| answers.iter().any(|(_, report)| is(&report.verdict));
    if any(|verdict| matches!(verdict, Verdict::Counterexample(_))) {
        ExitCode::from(COUNTEREXAMPLE)
    } else if any(|verdict| matches!(verdict, Verdict::Undecided(_))) {
        ExitCode::from(UNDECIDED)
    } else {
        ExitCode::SUCCESS
    }
}
