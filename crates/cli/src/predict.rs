//! `panoply predict MODEL [DATA]`: a trained network at work. Digits are shown as a person would see them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use panoply::nn::data::digits;
use panoply::nn::data::source::{Source, Unlabelled};
use panoply::nn::fit::predict_all;
use panoply::{Error, Result, Rng};
use serde_json::json;

use crate::output::{self, DeviceChoice};
use crate::train::{folder, largest, manifest::Manifest};

/// Let a trained network judge examples.
#[derive(Args)]
pub struct Arguments {
    /// The model file that `panoply train` wrote, or its run's folder.
    #[arg(value_parser = folder::model_file)]
    model: PathBuf,
    /// More of what it was trained on: a table with the same columns, an image or a folder of them, an IDX or NumPy file; what
    /// it was trained on if nothing is said.
    data: Option<PathBuf>,
    /// How many examples to show, taken at random; all of them if DATA is given, otherwise 4.
    #[arg(long)]
    count: Option<usize>,
    /// Which examples: another seed, others.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceChoice,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Reads the model and the examples, and prints what the model sees in them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    choice.device().scope(|| {
        let manifest = Manifest::of_model(&arguments.model)?;
        let model = manifest.load(&arguments.model)?;
        let examples = chosen(examples(&manifest, arguments.data.as_deref())?, arguments);
        if examples.names.is_empty() {
            return Err(Error::mistake("--count 0: there is nothing to show"));
        }
        let classes = &manifest.data.classes;
        let shares = predict_all(&model, &examples.data)?;
        let read: Vec<(usize, f32)> =
            shares.chunks_exact(classes.len()).map(|row| (largest(row), row[largest(row)])).collect();
        let right = |at: usize| examples.labels[at].map(|label| label as usize == read[at].0);
        let known = (0..read.len()).filter_map(right).count();
        let correct = (0..read.len()).filter_map(right).filter(|right| *right).count();
        if arguments.json {
            let rows: Vec<_> = (0..read.len())
                .map(|at| {
                    let label = examples.labels[at].map(|label| &classes[label as usize]);
                    json!({"example": examples.names[at], "label": label, "read": classes[read[at].0], "confidence": read[at].1})
                })
                .collect();
            output::print_json(&json!({
                "schema": 1, "device": choice.device().to_string(), "predictions": rows, "known": known, "right": correct,
            }));
            return Ok(choice.exit_code());
        }
        let width = examples.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (at, (class, share)) in read.iter().enumerate() {
            let verdict = match examples.labels[at] {
                Some(label) if label as usize == *class => format!(", is {}: right", classes[label as usize]),
                Some(label) => format!(", is {}: wrong", classes[label as usize]),
                None => String::new(),
            };
            let sentence = format!("reads {} ({:.1} %){verdict}", classes[*class], share * 100.0);
            if let Source::Digits = manifest.data.source {
                draw(&examples.data.features[at * examples.data.width..][..examples.data.width]);
                println!("  {sentence}\n");
            } else {
                println!("{:width$}  {sentence}", examples.names[at]);
            }
        }
        if known > 4 {
            println!("{correct} of {known} right, {:.1} %", correct as f64 * 100.0 / known as f64);
        }
        Ok(choice.exit_code())
    })
}

fn examples(manifest: &Manifest, data: Option<&Path>) -> Result<Unlabelled> {
    let (source, classes) = (&manifest.data.source, &manifest.data.classes);
    match (source, data) {
        (Source::Digits, None) => {
            let data = digits::load()?.shaped(&[1, 8, 8])?;
            let names = (0..data.len()).map(|at| format!("digit {at}")).collect();
            let labels = data.labels.iter().map(|label| Some(*label)).collect();
            Ok(Unlabelled { data, names, labels })
        }
        (_, Some(path)) => source.read(path, classes),
        (_, None) => source.read(Path::new(&manifest.data.path), classes),
    }
}

/// Some of the examples at random, or all in order.
fn chosen(examples: Unlabelled, arguments: &Arguments) -> Unlabelled {
    let Some(count) = arguments.count.or(if arguments.data.is_none() { Some(4) } else { None }) else {
        return examples;
    };
    let mut order = Rng::seed(arguments.seed).permutation(examples.names.len());
    order.truncate(count);
    Unlabelled {
        data: examples.data.select(&order),
        names: order.iter().map(|at| examples.names[*at].clone()).collect(),
        labels: order.iter().map(|at| examples.labels[*at]).collect(),
    }
}

fn draw(points: &[f32]) {
    const INK: [char; 5] = [' ', '░', '▒', '▓', '█'];
    for row in points.chunks(8) {
        let line: String =
            row.iter().map(|point| INK[(point * 4.0).round() as usize]).flat_map(|ink| [ink, ink]).collect();
        println!("  {line}");
    }
}
