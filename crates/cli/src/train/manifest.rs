//! `manifest.json`: the description of a run, its result, and the commands to resume or use it. The model file contains it as well, without what differs
//! between equal runs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use panoply::nn::checkpoint::{self, TensorFile};
use panoply::nn::data::ReadBudget;
use panoply::nn::data::reader::{self, DataFormat, LabeledData, ReadOptions, SequenceColumn, Task};
use panoply::nn::{EpochReport, Model, Monitor, Network};
use panoply::{DType, Error, Result};
use serde::{Deserialize, Serialize};

use super::data_schema::DataSchema;
use super::metrics::Metrics;
use super::run_dir::RunDir;
use super::train_args::{LrScheduleKind, OptimizerKind, value_name};
use super::val_split::ValSplit;
use crate::console::escaped;
use crate::shell;

/// The metadata entry of a model file that holds a manifest.
const KEY: &str = "manifest";

/// Description and result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this document format.
    pub schema: u32,
    /// Version of Panoply that wrote it.
    pub panoply_version: String,
    /// Input, layers and loss of the network.
    pub network: Network,
    /// Number of trained parameters.
    pub num_parameters: usize,
    /// Training data.
    pub data: DataInfo,
    /// Training settings.
    pub settings: TrainSettings,
    /// The device and the reason for its choice; null in a model file.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub device: serde_json::Value,
    /// Names of all devices, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Result; `None` before the first epoch has ended.
    pub result: Option<RunResult>,
    /// Commands to resume or use the run; empty in a model file.
    #[serde(default, skip_serializing_if = "Commands::is_empty")]
    pub commands: Commands,
}

/// Training data of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataInfo {
    /// Path as given on the command line.
    pub path: String,
    /// Absolute path, which is valid in other folders; `None` for the built-in digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute: Option<String>,
    /// Format, with what is needed to read more data of it.
    pub format: DataFormat,
    /// True if the format is that of the ONNX file from which training started, so that it is not detected from the data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_format_fixed: bool,
    /// Names of the classes; empty for regression.
    pub class_names: Vec<String>,
    /// Number of training examples.
    pub train_examples: usize,
    /// Number of validation examples.
    pub val_examples: usize,
    /// xxh3-128 of all examples, in hexadecimal.
    pub fingerprint: String,
    /// xxh3-128 of the validation examples, in hexadecimal, if they are another file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_fingerprint: Option<String>,
    /// The options for reading it that were given.
    #[serde(flatten)]
    pub reading: ReadOptions,
}

/// Training settings of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrainSettings {
    /// Name of the network on the command line.
    pub model: String,
    /// Number of epochs.
    pub epochs: usize,
    /// Examples per batch.
    pub batch_size: usize,
    /// Batches per optimizer step.
    #[serde(default = "alone")]
    pub accumulate_grad_batches: usize,
    /// Shards of every batch, if the number was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,
    /// Optimizer.
    #[serde(default)]
    pub optimizer: OptimizerKind,
    /// Learning rate.
    pub learning_rate: f64,
    /// Momentum, if it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// Weight decay, which exempts biases and norms. `None` in runs of early versions, which apply the default decay to all parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Maximum gradient norm, if it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Maximum absolute value of gradient elements, if it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_value: Option<f64>,
    /// Learning rate schedule.
    pub lr_schedule: LrScheduleKind,
    /// Decay of the exponential moving average of the parameters, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// Epochs without an improvement of the monitored figure after which training stops.
    pub patience: Option<usize>,
    /// The validation figure that chooses the best epoch.
    #[serde(default)]
    pub monitor: Monitor,
    /// The choice of the validation examples.
    pub val_split: ValSplit,
    /// A file or folder that is evaluated once, at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_data: Option<String>,
    /// Of weights, order and dropout.
    pub seed: u64,
    /// Element type of layer computations.
    pub precision: String,
}

/// Result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// True if the run was stopped before its end.
    pub interrupted: bool,
    /// Number of completed epochs.
    pub epochs: usize,
    /// Report of the best epoch, whose model is kept.
    pub best_epoch_report: EpochReport,
    /// Further metrics of the best model.
    #[serde(flatten)]
    pub measures: Metrics,
    /// Evaluation of the test set, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestResult>,
    /// Number of steps skipped because gradients overflowed.
    pub skipped_steps: u64,
}

/// Evaluation of the test set by the best model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestResult {
    /// Mean loss.
    pub loss: f64,
    /// Accuracy of a classification or of labels, R² of a regression; null in JSON for one that is not finite.
    #[serde(deserialize_with = "nan_if_null")]
    pub score: f64,
    /// Number of examples.
    pub examples: usize,
}

fn nan_if_null<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Option::<f64>::deserialize(from).map(|number| number.unwrap_or(f64::NAN))
}

/// Commands to type next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Commands {
    /// Command that resumes the run.
    pub resume: String,
    /// Command that uses the model.
    pub predict: String,
}

impl Commands {
    /// Returns the commands for a run in this folder, quoted for a POSIX shell.
    pub fn of(folder: &RunDir) -> Commands {
        Commands {
            resume: format!("panoply train --resume {}", shell::quoted(&folder.0)),
            predict: format!("panoply predict {}", shell::quoted(&folder.model_path())),
        }
    }

    fn is_empty(&self) -> bool {
        self.resume.is_empty() && self.predict.is_empty()
    }
}

impl DataInfo {
    /// Reads the data again with the same options.
    pub fn open(&self) -> Result<LabeledData> {
        match self.is_format_fixed {
            true => self.schema().open(self.place()),
            false => open(self.place(), &self.reading),
        }
    }

    /// Returns the first difference between the training data and data that were read again, if any.
    pub fn changed(&self, again: &LabeledData) -> Option<String> {
        // Replacements of missing values are learned from the training examples, those in `again` from all.
        let comparable = |format: &DataFormat| {
            let mut format = format.clone();
            if let DataFormat::Csv { imputation, .. } = &mut format {
                imputation.clear();
            }
            format
        };
        let (before, now) = (comparable(&self.format), comparable(&again.format));
        let names = match (&before, &now) {
            (
                DataFormat::Csv {
                    feature_columns: columns, label_columns: labels, categories: words, date_orders, ..
                },
                DataFormat::Csv { feature_columns: c, label_columns: l, categories: w, date_orders: orders, .. },
            ) => {
                let date = date_orders.keys().chain(orders.keys());
                let date = date.into_iter().find(|column| date_orders.get(*column) != orders.get(*column));
                let date = date.map(|column| format!("the dates of column `{column}` are read in another way"));
                let word = words.keys().chain(w.keys()).find(|column| words.get(*column) != w.get(*column));
                let word = word.map(|column| format!("the categories of column `{column}` have changed"));
                renamed("column", columns, c).or_else(|| renamed("label", labels, l)).or(date).or(word)
            }
            _ => None,
        };
        let numbers = format!("{:032x}", again.dataset.fingerprint()) != self.fingerprint;
        names
            .or_else(|| renamed("class", &self.class_names, &again.class_names))
            .or_else(|| (numbers || now != before).then(|| "its examples have changed".to_string()))
    }

    /// Returns how the model reads data and names its outputs.
    pub fn schema(&self) -> DataSchema {
        let DataInfo { format, class_names, reading, .. } = self;
        DataSchema { format: format.clone(), class_names: class_names.clone(), reading: reading.clone() }
    }

    /// Returns the names of the targets or labels; those of arrays are numbered.
    pub fn labels(&self, width: usize) -> Vec<String> {
        self.schema().labels(width)
    }

    /// Returns the current path of the data: the absolute path if it exists, else the path as given.
    pub fn place(&self) -> &str {
        self.absolute.as_deref().filter(|path| Path::new(path).exists()).unwrap_or(&self.path)
    }

    /// Returns the f64 offset to add to each output of the network; empty if there are none.
    pub fn offsets(&self) -> Vec<f64> {
        match &self.format {
            DataFormat::Csv { label_columns: labels, offsets, task: Task::Regression, .. } => {
                labels.iter().map(|label| offsets.get(label).copied().unwrap_or(0.0)).collect()
            }
            DataFormat::Npy { target_offsets, .. } => target_offsets.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns the offsets that are subtracted from inputs and added to outputs, by column name or array index.
    pub fn offsets_by_name(&self) -> BTreeMap<String, f64> {
        let places = |name: &str, offsets: &[f64]| -> Vec<(String, f64)> {
            let moved = offsets.iter().enumerate().filter(|(_, offset)| **offset != 0.0);
            moved.map(|(at, offset)| (format!("{name}[{at}]"), *offset)).collect()
        };
        match &self.format {
            DataFormat::Csv { offsets, .. } => offsets.clone(),
            DataFormat::Npy { offsets, target_offsets, .. } => {
                places("x", offsets).into_iter().chain(places("y", target_offsets)).collect()
            }
            DataFormat::Digits | DataFormat::Text { .. } | DataFormat::Images { .. } | DataFormat::Idx { .. } => {
                BTreeMap::new()
            }
        }
    }

    /// Describes the task in a few words.
    pub fn learned(&self) -> String {
        let mut learned = self.what();
        if let DataFormat::Csv { sequence: sequences, categories: words, .. } = &self.format {
            let of = |sequences: &SequenceColumn| format!(", sequences of up to {} rows", sequences.max_len);
            learned += &sequences.as_ref().map_or_else(String::new, of);
            let names: Vec<&str> = words.keys().map(String::as_str).collect();
            learned +=
                &if names.is_empty() { String::new() } else { format!(", categorical columns {}", names.join(", ")) };
        }
        escaped(&learned).into_owned()
    }

    fn what(&self) -> String {
        let as_number = if self.has_numeric_classes() { " (`--task regression` treats it as a number)" } else { "" };
        match &self.format {
            DataFormat::Csv { label_columns: labels, task: Task::MultiLabel, .. } => {
                format!("targets {} as {}", listed(labels), yes_or_no(labels.len()))
            }
            DataFormat::Csv { label_columns: labels, task: Task::Regression, .. } if labels.len() == 1 => {
                format!("target {} as a number (`--task classification` treats it as classes)", labels[0])
            }
            DataFormat::Csv { label_columns: labels, task: Task::Regression, .. } => {
                format!("targets {} as numbers", listed(labels))
            }
            DataFormat::Npy { num_outputs: 1, task: Task::MultiLabel, .. } => format!("{} per example", yes_or_no(1)),
            DataFormat::Npy { num_outputs: numbers, task: Task::MultiLabel, .. } => {
                format!("{numbers} {} per example", yes_or_no(*numbers))
            }
            DataFormat::Npy { num_outputs: 1, .. } => {
                "a number per example (`--task classification` treats it as classes)".to_string()
            }
            DataFormat::Npy { num_outputs: numbers @ 2.., .. } => format!("{numbers} numbers per example"),
            DataFormat::Csv { label_columns: labels, .. } => {
                format!("target {} with {} classes{as_number}", listed(labels), self.class_names.len())
            }
            DataFormat::Text { context_length: time, .. } => {
                format!("vocabulary of {} characters, context length {time}", self.class_names.len())
            }
            DataFormat::Npy { .. } => format!("{} classes{as_number}", self.class_names.len()),
            DataFormat::Digits | DataFormat::Images { .. } | DataFormat::Idx { .. } => {
                format!("{} classes", self.class_names.len())
            }
        }
    }

    /// True for more than two classes that are numbers, which could be a regression.
    fn has_numeric_classes(&self) -> bool {
        self.class_names.len() > 2 && self.class_names.iter().all(|class| class.parse::<f64>().is_ok())
    }
}

/// Reads training data: the built-in digits, or a file or folder.
pub fn open(data: &str, reading: &ReadOptions) -> Result<LabeledData> {
    match data {
        "digits" => reader::digits(),
        path => reader::open(Path::new(path), reading).map_err(|error| match Path::new(path).exists() {
            true => error,
            false => error.note("DATA must be `digits`, a file or a folder"),
        }),
    }
}

/// Describes the first name that differs.
fn renamed(what: &str, before: &[String], now: &[String]) -> Option<String> {
    if before.len() != now.len() {
        return Some(format!("the {what} count has changed from {} to {}", before.len(), now.len()));
    }
    let at = (0..now.len()).find(|at| before[*at] != now[*at])?;
    Some(format!("{what} {} is `{}` now and was `{}`", at + 1, now[at], before[at]))
}

/// Names the type of the labels.
fn yes_or_no(count: usize) -> &'static str {
    if count == 1 { "a yes/no label" } else { "yes/no labels" }
}

/// Formats a list as `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Batches per optimizer step in manifests without the entry.
fn alone() -> usize {
    1
}

impl TrainSettings {
    /// Returns the settings as text, without defaults.
    pub fn summary(&self) -> String {
        let mut words = format!("{}, learning rate {}", value_name(self.optimizer), self.learning_rate);
        let parts = [
            self.momentum.map(|momentum| format!("momentum {momentum}")),
            self.weight_decay.filter(|decay| *decay > 0.0).map(|decay| format!("weight decay {decay}")),
            self.clip_norm.map(|norm| format!("gradient norm up to {norm}")),
            self.clip_value.map(|value| format!("gradient elements up to ±{value}")),
            (self.lr_schedule != LrScheduleKind::Constant)
                .then(|| format!("schedule {}", value_name(self.lr_schedule))),
            Some(format!("batch size {}", self.batch_size)),
            (self.accumulate_grad_batches > 1).then(|| format!("{} batches per step", self.accumulate_grad_batches)),
            self.shards.map(|shards| format!("{shards} shards per batch")),
            self.ema_decay.map(|share| format!("EMA decay {share}")),
            (self.precision != "f32").then(|| self.precision.clone()),
        ];
        parts.into_iter().flatten().for_each(|part| words += &format!(", {part}"));
        words
    }

    /// Returns the element type of layer computations.
    pub fn dtype(&self) -> DType {
        match self.precision.as_str() {
            "bf16" => DType::BF16,
            "f16" => DType::F16,
            _ => DType::F32,
        }
    }
}

impl Manifest {
    /// Returns the files and folders of examples that the run reads.
    pub fn data_files(&self) -> Vec<PathBuf> {
        let validation = match &self.settings.val_split {
            ValSplit::File(path) => Some(path.as_str()),
            _ => None,
        };
        let paths = [Some(self.data.place()), validation, self.settings.test_data.as_deref()];
        paths.into_iter().flatten().map(PathBuf::from).collect()
    }

    /// Writes the manifest to a run folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        checkpoint::write_atomic(&folder.join("manifest.json"), (self.text()? + "\n").as_bytes())
    }

    /// Reads the manifest of a run folder.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let file = folder.join("manifest.json");
        let bytes = ReadBudget::for_file(&file).and_then(|budget| budget.read_file(&file));
        let bytes = bytes.map_err(|error| error.note("is this the folder of a run?"))?;
        let text = String::from_utf8(bytes);
        parse(&text.map_err(|_| Error::corrupt(format!("{}: it is not UTF-8", file.display())))?, &file)
    }

    /// Reads the manifest of a model file.
    pub fn of_model(file: &TensorFile) -> Result<Manifest> {
        let metadata = file.metadata()?;
        let text = metadata.get(KEY).ok_or_else(|| {
            let message = format!("{}: its metadata contain no manifest", file.path().display());
            Error::corrupt(message).note("was it written by `panoply train`?")
        })?;
        parse(text, file.path())
    }

    /// Returns the metadata for a model file: this manifest without devices, commands and durations, so that equal runs write equal files.
    pub fn metadata(&self) -> Result<HashMap<String, String>> {
        let mut own = self.clone();
        (own.device, own.devices, own.commands) = (serde_json::Value::Null, Vec::new(), Commands::default());
        if let Some(result) = &mut own.result {
            result.best_epoch_report.seconds = 0.0;
        }
        Ok(HashMap::from([(KEY.to_string(), own.text()?)]))
    }

    /// Loads the model that this manifest describes.
    ///
    /// # Errors
    /// If the arrays of the file are not the parameters of the network, or the device fails.
    pub fn load(&self, file: &TensorFile) -> Result<Model> {
        self.network.load_file(file).map_err(|error| {
            if !error.is_mistake() {
                return error;
            }
            // The file describes its own network, so it is not the user who chose another model.
            let path = file.path().display().to_string();
            let what = error.message().trim_start_matches(&format!("{path}: ")).to_string();
            let message = format!("{path}: the model file does not fit its network description: {what}");
            Error::corrupt(message)
                .note("its arrays or its metadata were replaced; use another copy")
                .with_source(error)
        })
    }

    /// Checks that data, classes, network and settings are consistent; the error describes the first contradiction.
    fn check(&self) -> std::result::Result<(), String> {
        let Manifest { network, data, settings, .. } = self;
        if settings.batch_size == 0 || settings.accumulate_grad_batches == 0 {
            return Err(format!(
                "batch size {}, {} batches per step",
                settings.batch_size, settings.accumulate_grad_batches
            ));
        }
        if settings.shards == Some(0) {
            return Err("0 shards per batch".to_string());
        }
        data.schema().check(network)
    }

    fn text(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::mistake(format!("cannot write the manifest: {error}")).with_source(error))
    }
}

fn parse(text: &str, file: &Path) -> Result<Manifest> {
    let note = "the file is truncated or was edited; use another copy, or train again";
    let manifest: Manifest = serde_json::from_str(text).map_err(|error| {
        let message = format!("{}: its manifest cannot be read ({error})", file.display());
        Error::corrupt(message).note(note).with_source(error)
    })?;
    let fits = manifest.check();
    fits.map_err(|what| {
        Error::corrupt(format!("{}: its manifest is inconsistent: {what}", file.display())).note(note)
    })?;
    Ok(manifest)
}

/// Returns an error if a path from a manifest is neither a file nor a folder: reading a pipe or a device can block forever.
pub fn check_path(path: &Path) -> Result<()> {
    // A missing file is reported when it is read.
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    let special = ["/dev", "/proc", "/sys"];
    let inside = path.canonicalize().is_ok_and(|path| special.iter().any(|folder| path.starts_with(folder)));
    if (found.is_file() || found.is_dir()) && !inside {
        return Ok(());
    }
    let message =
        format!("{}: the manifest names it as data, but it is neither a file nor a folder of data", path.display());
    Err(Error::corrupt(message).note("pass the data as an argument"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = r#"{"schema": 1, "panoply_version": "0.1.0", "network": {"input": [3], "layers": [{"standardize": {}},
        {"linear": {"out_features": 4}}, {"relu": {}}, {"linear": {"out_features": 2}}], "loss": {"kind": "cross_entropy",
        "class_weights": [1.0, 2.5]}}, "num_parameters": 26, "data": {"path": "t.csv", "format": {"kind": "csv",
        "feature_columns": ["a", "b"], "label_columns": "y", "task": "classification", "categories": {"b": ["u", "v"]}},
        "class_names": ["n", "p"], "train_examples": 8, "val_examples": 2,
        "fingerprint": "00", "label_columns": "y", "sequence_column": null, "drop_columns": [], "header": null,
        "task": "classification", "context_length": null,
        "image_size": [8, 8]}, "settings": {"model": "mlp", "epochs": 3, "batch_size": 64, "learning_rate": 0.001,
        "lr_schedule": "constant", "patience": 5, "val_split": 0.2, "seed": 0, "precision": "f32"}, "device": {},
        "result": {"interrupted": false, "epochs": 3, "best_epoch_report": {"epoch": 3, "train_loss": 0.5, "val_loss": 0.5,
        "metric": "accuracy", "train_score": 0.9, "val_score": 0.9, "seconds": 0.1}, "skipped_steps": 0},
        "commands": {"resume": "r", "predict": "p"}}"#;

    /// Reads 3,000 manifests, or 20,000 with `PANOPLY_TEST_FULL=1`, with a few changed bytes or values. Each is rejected or can be
    /// described.
    #[test]
    fn mutated_manifests_are_read_or_rejected() {
        const VALUES: [&str; 8] =
            ["0", "-1", "1e999", "18446744073709551615", "4611686018427387904", "[]", "null", "\"\""];
        let file = Path::new("m.safetensors");
        parse(VALID, file).unwrap();
        let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
        let starts: Vec<usize> = VALID.match_indices([' ', '[']).map(|(at, _)| at + 1).collect();
        for seed in 1..if full { 20_000 } else { 3_000 } {
            let mut rng = panoply::Rng::seed_from_u64(seed);
            let mut below = |end: usize| rng.next_words()[0] as usize % end;
            let mut bytes = VALID.as_bytes().to_vec();
            for _ in 0..1 + below(3) {
                let at = starts[below(starts.len())].min(bytes.len() - 1);
                let end = at + bytes[at..].iter().position(|byte| b",]}:".contains(byte)).unwrap_or(0);
                match below(3) {
                    0 => bytes[at] ^= 1 << below(8),
                    1 => drop(bytes.splice(at..end, VALUES[below(VALUES.len())].bytes())),
                    _ => drop(bytes.drain(at..end)),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            match parse(&text, file) {
                Ok(manifest) => {
                    let best = &manifest.result.as_ref().map(|result| result.best_epoch_report.clone());
                    best.iter().for_each(|best| assert!(!super::super::metrics::headline(&manifest, best).is_empty()));
                    assert!(!manifest.data.learned().is_empty() && !manifest.settings.summary().is_empty());
                }
                Err(error) => {
                    assert!(error.is_corrupt() && error.message().starts_with("m.safetensors: "), "{seed}: {error}")
                }
            }
        }
    }
}
