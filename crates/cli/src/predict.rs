//! `panoply predict MODEL [DATA]`: runs a trained model on data, or generates text with it.

mod output;
mod replay;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use panoply::nn::data::reader::{DataFormat, InferenceData, Label};
use panoply::nn::data::{Targets, TextEncoding, text};
use panoply::nn::generate::{GenerationConfig, generate};
use panoply::nn::metrics;
use panoply::nn::{Loss, Model, evaluate, predict};
use panoply::{Error, Result, Rng};
use serde_json::{Value, json};

use crate::console::escaped;
use crate::output::{DeviceArgs, DeviceSelection, check_paths, print_json};
use crate::shell;
use crate::train::data_schema::DataSchema;
use crate::train::metrics::{POSITIVE_THRESHOLD, argmax, format_number};
use crate::train::model_file::ModelFile;
use crate::train::run_dir;
use crate::train::train_args::parse_count;
use output::OutputFile;

/// Run a trained model on new data, or generate text
#[derive(Args)]
pub struct PredictCommand {
    /// The model file that `panoply train` wrote, its run folder, or an ONNX file
    #[arg(value_parser = run_dir::model_file())]
    model: PathBuf,
    /// Data: a table with the same columns, a text, an image or a folder of images, an IDX or NumPy file [default: the training
    /// data]. A text model without data generates text. Of a counterexample of `panoply verify --result`, the outputs of its input are
    /// printed beside the stored ones.
    data: Option<PathBuf>,
    /// Output file: the rows of the data with all their columns, the line of each in the file, and the predictions. The extension selects
    /// the format. The terminal then shows only the summary
    #[arg(short, long, visible_alias = "out", value_name = "FILE.csv|.json|.parquet", conflicts_with = "prompt")]
    output: Option<PathBuf>,
    /// Number of randomly chosen examples to show [default: all of DATA or for --output, otherwise 4]
    #[arg(long, visible_alias = "count", value_name = "N", value_parser = parse_count)]
    num_examples: Option<usize>,
    /// Characters that a text model generates [default: 200]
    #[arg(short = 'n', long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Beginning of the text that a text model continues
    #[arg(long, value_name = "TEXT", conflicts_with = "data")]
    prompt: Option<String>,
    /// Sampling temperature of a text model; 0 always takes the most likely character
    #[arg(long, default_value_t = 0.8, value_parser = temperature)]
    temperature: f64,
    /// Seed of the choice of examples and of sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

impl PredictCommand {
    /// Returns true if the rows are printed: with `--output` they are in the file.
    fn shows_rows(&self) -> bool {
        self.output.is_none()
    }
}

fn temperature(text: &str) -> std::result::Result<f64, String> {
    let temperature = text.parse().ok().filter(|temperature: &f64| temperature.is_finite() && *temperature >= 0.0);
    temperature.ok_or_else(|| "expected a number of at least 0".to_string())
}

/// Reads the model and the examples, and prints or writes the predictions.
pub fn run(arguments: &PredictCommand) -> Result<ExitCode> {
    check_paths(arguments.json, arguments.output.as_deref())?;
    let choice = arguments.device.select()?;
    choice.explain();
    choice.device().scope(|| {
        if let Some(path) = arguments.data.as_deref().filter(|path| replay::is_result(path)) {
            return replay::run(arguments, &choice, path);
        }
        let file = ModelFile::open(&arguments.model)?;
        let model = &file.model;
        if let Some(DataSchema { format: DataFormat::Text { vocabulary, context_length: time }, reading, .. }) =
            &file.schema
        {
            if arguments.output.is_some() {
                return Err(Error::mistake("--output: this model reads text, which has no rows; remove the option"));
            }
            if arguments.num_examples.is_some() {
                return Err(Error::mistake(
                    "--num-examples: this model reads text; --max-new-tokens sets the length of a text",
                ));
            }
            let letters: Vec<char> = vocabulary.chars().collect();
            match &arguments.data {
                Some(path) => evaluate_text(arguments, &choice, model, (&letters, *time), (path, reading.encoding))?,
                None => write_text(arguments, &choice, model, &letters)?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        if arguments.max_new_tokens.is_some() {
            return Err(Error::mistake(
                "--max-new-tokens: this model generates no text; --num-examples sets the number of examples",
            ));
        }
        if arguments.prompt.is_some() {
            return Err(Error::mistake("--prompt: this model generates no text; pass a data file instead"));
        }
        let trained_on = file.manifest.as_ref().map(|manifest| manifest.data_files()).unwrap_or_default();
        let data: Vec<&Path> = arguments.data.iter().chain(&trained_on).map(PathBuf::as_path).collect();
        let to = arguments.output.as_deref().map(|path| OutputFile::new(path, &arguments.model, &data)).transpose()?;
        let (mut read, schema) = file.examples(arguments.data.as_deref())?;
        // All cells of the table, which only the file needs.
        read.table = read.table.filter(|_| to.is_some());
        let examples = chosen(read, arguments);
        examples.notes.iter().for_each(|note| note!("{}", escaped(note)));
        let rows = predict(model, &examples.dataset, &model.network.loss)?.to_vec::<f32>()?;
        let saved = to.map(|to| to.write(&examples, &schema, &rows)).transpose()?;
        match examples.dataset.targets {
            Targets::Regression { num_outputs: width, .. } => {
                numbers(arguments, &choice, &examples, (&rows, &schema.labels(width)));
            }
            Targets::MultiLabel { num_labels: width, .. } => {
                answers(arguments, &choice, &examples, (&rows, &schema.labels(width)));
            }
            Targets::Classes { .. } => classes(arguments, &choice, &schema, &examples, &rows),
        }
        if let (Some(path), Some(count), false) = (&arguments.output, saved, arguments.json) {
            println!("saved {}: {count} rows", shell::quoted(path));
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints the predicted class of each example.
fn classes(
    arguments: &PredictCommand,
    choice: &DeviceSelection,
    schema: &DataSchema,
    examples: &InferenceData,
    probabilities: &[f32],
) {
    let classes = &schema.class_names;
    let read: Vec<(usize, f32)> =
        probabilities.chunks_exact(classes.len()).map(|row| (argmax(row), row[argmax(row)])).collect();
    let labels: Vec<Option<ActualClass<'_>>> =
        examples.labels.iter().map(|right| ActualClass::of(right.as_ref()?, classes)).collect();
    let known = labels.iter().flatten().count();
    let correct =
        labels.iter().zip(&read).filter(|(label, (read, _))| label.is_some_and(|label| label.is(*read))).count();
    let unknown = unknown_labels(&labels);
    if let Some(words) = unknown_in_words(&unknown, known) {
        note!("{words}");
    }
    if arguments.json {
        let rows: Vec<_> = (0..read.len())
            .map(|at| {
                let label = labels[at].map(|label| label.name);
                json!({"example": examples.names[at], "actual": label, "predicted": classes[read[at].0], "probability": read[at].1})
            })
            .collect();
        print_json(&choice.document(json!({
            "predictions": rows, "output": arguments.output, "labeled": known, "correct": correct,
            "accuracy": fraction(correct, known), "unknown_labels": unknown,
        })));
        return;
    }
    let (names, classes) = (shown(&examples.names), shown(classes));
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (at, (class, share)) in read.iter().enumerate().filter(|_| arguments.shows_rows()) {
        let verdict = match labels[at] {
            Some(label) if label.is(*class) => format!(", actual {}: correct", escaped(label.name)),
            Some(label) => format!(", actual {}: wrong", escaped(label.name)),
            None => String::new(),
        };
        let sentence = format!("predicted {} ({:.1} %){verdict}", classes[*class], share * 100.0);
        if let DataFormat::Digits = schema.format {
            draw(&examples.dataset.features[at * examples.dataset.num_features..][..examples.dataset.num_features]);
            println!("  {sentence}\n");
        } else {
            println!("{:width$}  {sentence}", names[at]);
        }
    }
    if known > 4 {
        println!("accuracy {:.1} % ({correct} of {known})", correct as f64 * 100.0 / known as f64);
    }
}

/// The actual class of an example.
#[derive(Clone, Copy)]
struct ActualClass<'a> {
    name: &'a str,
    /// Index of the class; `None` if the model was not trained on it, so that no prediction matches.
    class: Option<usize>,
}

impl<'a> ActualClass<'a> {
    /// Returns the class of a label, if it is one.
    fn of(right: &'a Label, classes: &'a [String]) -> Option<ActualClass<'a>> {
        match right {
            Label::Class(class) => {
                let name = usize::try_from(*class).ok().and_then(|class| classes.get(class))?;
                Some(ActualClass { name, class: Some(*class as usize) })
            }
            Label::Unknown(name) => Some(ActualClass { name, class: None }),
            Label::Values(_) => None,
        }
    }

    /// Returns true if it is this class.
    fn is(&self, class: usize) -> bool {
        self.class == Some(class)
    }
}

/// Counts the examples of each label that is not among the classes of the model.
fn unknown_labels<'a>(labels: &[Option<ActualClass<'a>>]) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    let unknown = labels.iter().flatten().filter(|label| label.class.is_none());
    unknown.for_each(|label| *counts.entry(label.name).or_default() += 1);
    counts
}

/// Maximum number of unknown labels that a message names.
const UNKNOWN_NAMED: usize = 10;

/// Returns a message about unknown labels among `all` labels; `None` if there are none.
fn unknown_in_words(unknown: &BTreeMap<&str, usize>, all: usize) -> Option<String> {
    let count: usize = unknown.values().sum();
    let named: Vec<String> =
        unknown.iter().take(UNKNOWN_NAMED).map(|(name, count)| format!("{} ({count})", escaped(name))).collect();
    let more = if unknown.len() > UNKNOWN_NAMED { ", …" } else { "" };
    let named = named.join(", ");
    (count > 0)
        .then(|| format!("{count} of {all} labels are not among the learned classes and count as wrong: {named}{more}"))
}

/// Prints the predicted numbers of each example, one per target.
fn numbers(
    arguments: &PredictCommand,
    choice: &DeviceSelection,
    examples: &InferenceData,
    (read, labels): (&[f32], &[String]),
) {
    let width = labels.len();
    let offset = |at: usize| examples.offsets.get(at).copied().unwrap_or(0.0);
    let rows = || examples.names.iter().zip(&examples.labels).zip(read.chunks_exact(width));
    let off = |right: &Option<Label>, read: &[f32]| match right {
        Some(Label::Values(right)) => {
            let apart = (0..width).map(|at| (right[at] - (f64::from(read[at]) + offset(at))).abs());
            Some(apart.sum::<f64>() / width as f64)
        }
        Some(Label::Class(_) | Label::Unknown(_)) | None => None,
    };
    let all: Vec<f64> = rows().filter_map(|((_, right), read)| off(right, read)).collect();
    let mean = (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64);
    if arguments.json {
        let number = |right: &Option<Label>| match right {
            Some(Label::Values(right)) => json!(right),
            Some(Label::Class(_) | Label::Unknown(_)) | None => json!(null),
        };
        // An f32 has fewer digits than the f64 that is equal to it.
        let moved = |(at, read): (usize, &f32)| match offset(at) {
            0.0 => json!(read),
            offset => json!(f64::from(*read) + offset),
        };
        let read = |read: &[f32]| -> Value { read.iter().enumerate().map(moved).collect() };
        let rows: Vec<_> = rows()
            .map(|((name, right), values)| json!({"example": name, "actual": number(right), "predicted": read(values)}))
            .collect();
        print_json(&choice.document(json!({
            "labels": labels, "predictions": rows, "output": arguments.output, "labeled": all.len(), "mae": mean,
        })));
        return;
    }
    let names = shown(&examples.names);
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let formatted = |numbers: &[f32]| {
        if numbers.len() > MANY_NUMBERS {
            return largest_outputs(numbers, labels);
        }
        let moved = numbers.iter().enumerate().map(|(at, number)| format_number(f64::from(*number) + offset(at)));
        let words: Vec<String> = moved.collect();
        words.join(", ")
    };
    let rows = names.iter().zip(&examples.labels).zip(read.chunks_exact(width));
    for ((name, right), read) in rows.filter(|_| arguments.shows_rows()) {
        let verdict = match (right, off(right, read)) {
            (Some(Label::Values(right)), Some(off)) => {
                let right: Vec<String> = right.iter().map(f64::to_string).collect();
                format!(", actual {} (error {})", right.join(", "), format_number(off))
            }
            _ => String::new(),
        };
        println!("{name:name_width$}  predicted {}{verdict}", formatted(read));
    }
    if let Some(mean) = mean.filter(|_| all.len() > 4) {
        println!("mean absolute error {}", format_number(mean));
    }
}

/// Number of outputs above which only the largest are printed.
const MANY_NUMBERS: usize = 16;

/// Names the largest outputs.
fn largest_outputs(numbers: &[f32], labels: &[String]) -> String {
    const NAMED: usize = 5;
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*b].total_cmp(&numbers[*a]));
    let named =
        order.iter().take(NAMED).map(|at| format!("{} = {}", labels[*at], format_number(f64::from(numbers[*at]))));
    format!("{} numbers, the largest {}", numbers.len(), named.collect::<Vec<String>>().join(", "))
}

/// Prints the probability of each label of each example, one column per label.
fn answers(
    arguments: &PredictCommand,
    choice: &DeviceSelection,
    examples: &InferenceData,
    (probabilities, labels): (&[f32], &[String]),
) {
    let width = labels.len();
    let rights = |right: &Option<Label>| match right {
        Some(Label::Values(right)) => {
            Some(right.iter().map(|answer| *answer >= f64::from(POSITIVE_THRESHOLD)).collect::<Vec<bool>>())
        }
        Some(Label::Class(_) | Label::Unknown(_)) | None => None,
    };
    let rights: Vec<Option<Vec<bool>>> = examples.labels.iter().map(rights).collect();
    let rows = || examples.names.iter().zip(&rights).zip(probabilities.chunks_exact(width));
    let same = |right: &[bool], read: &[f32]| {
        right.iter().zip(read).filter(|(right, read)| **right == (**read >= POSITIVE_THRESHOLD)).count()
    };
    let known = rights.iter().flatten().count();
    let correct: usize = rows().filter_map(|((_, right), read)| Some(same(right.as_ref()?, read))).sum();
    if arguments.json {
        let by_label = |values: Vec<serde_json::Value>| -> serde_json::Value {
            labels.iter().cloned().zip(values).collect::<serde_json::Map<_, _>>().into()
        };
        let rows: Vec<_> = rows()
            .map(|((name, right), read)| {
                let answers = right.as_ref().map(|right| by_label(right.iter().map(|yes| json!(yes)).collect()));
                let read = by_label(read.iter().map(|share| json!(share)).collect());
                json!({"example": name, "actual": answers, "predicted": read})
            })
            .collect();
        print_json(&choice.document(json!({
            "labels": labels, "predictions": rows, "output": arguments.output, "labeled": known,
            "correct_labels": correct, "accuracy": fraction(correct, known * width),
        })));
        return;
    }
    let (names, labels) = (shown(&examples.names), shown(labels));
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = labels.iter().map(|label| label.chars().count().max(7)).collect();
    let heads: Vec<String> = labels.iter().zip(&widths).map(|(label, width)| format!("{label:>width$}")).collect();
    if arguments.shows_rows() {
        println!("{:name_width$}  {}", "", heads.join("  "));
    }
    let rows = names.iter().zip(&rights).zip(probabilities.chunks_exact(width));
    for ((name, right), read) in rows.filter(|_| arguments.shows_rows()) {
        let cells: Vec<String> = read
            .iter()
            .zip(&widths)
            .map(|(share, width)| format!("{:>1$}", format!("{:.1} %", share * 100.0), width))
            .collect();
        let verdict =
            right.as_ref().map_or_else(String::new, |right| format!("  {} of {width} correct", same(right, read)));
        println!("{name:name_width$}  {}{verdict}", cells.join("  "));
    }
    if known > 0 {
        let labels = known * width;
        println!("accuracy {:.1} % ({correct} of {labels} labels)", correct as f64 * 100.0 / labels as f64);
    }
}

/// Returns the share of correct predictions; `None` without any.
fn fraction(correct: usize, known: usize) -> Option<f64> {
    (known > 0).then(|| correct as f64 / known as f64)
}

/// Evaluates a language model on a text.
fn evaluate_text(
    arguments: &PredictCommand,
    choice: &DeviceSelection,
    model: &Model,
    (letters, time): (&[char], usize),
    (path, encoding): (&Path, Option<TextEncoding>),
) -> Result<()> {
    let data = {
        let text = text::load(path, encoding)?;
        let (known, note) = text::known_characters(&text, letters, path);
        note.iter().for_each(|note| note!("{}", escaped(note)));
        text::windows(&known, letters, time, path)?
    };
    let found = evaluate(model, &data, &Loss::default())?;
    let (characters, perplexity) = (data.features.len(), metrics::perplexity(found.loss));
    if arguments.json {
        print_json(&choice.document(json!({
            "num_characters": characters, "loss": found.loss,
            "perplexity": perplexity, "accuracy": found.score,
        })));
    } else {
        let right = found.score * 100.0;
        println!(
            "loss {:.3} nats per character on {characters} characters, perplexity {perplexity:.2}, accuracy {right:.1} %",
            found.loss
        );
    }
    Ok(())
}

/// Generates text.
fn write_text(arguments: &PredictCommand, choice: &DeviceSelection, model: &Model, letters: &[char]) -> Result<()> {
    let prompt = arguments.prompt.as_deref().unwrap_or("");
    let count = arguments.max_new_tokens.unwrap_or(GenerationConfig::default().max_new_tokens);
    let sampling = GenerationConfig { max_new_tokens: count, temperature: arguments.temperature };
    let written = generate(model, letters, prompt, &sampling, &mut Rng::seed_from_u64(arguments.seed))?;
    if arguments.json {
        print_json(&choice.document(json!({
            "prompt": prompt, "text": written,
        })));
    } else {
        println!("{written}");
    }
    Ok(())
}

/// Escapes names from a file for the terminal.
fn shown(names: &[String]) -> Vec<String> {
    names.iter().map(|name| escaped(name).into_owned()).collect()
}

/// Selects the number of examples to show at random, or all in order.
fn chosen(examples: InferenceData, arguments: &PredictCommand) -> InferenceData {
    let shows_all = arguments.data.is_some() || arguments.output.is_some();
    let Some(count) = arguments.num_examples.or((!shows_all).then_some(4)) else {
        return examples;
    };
    let mut order = Rng::seed_from_u64(arguments.seed).permutation(examples.names.len());
    order.truncate(count);
    InferenceData {
        dataset: examples.dataset.select(&order),
        names: order.iter().map(|at| examples.names[*at].clone()).collect(),
        labels: order.iter().map(|at| examples.labels[*at].clone()).collect(),
        offsets: examples.offsets,
        table: examples.table.map(|table| table.select(&order)),
        notes: examples.notes,
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
