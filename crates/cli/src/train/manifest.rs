//! `manifest.json`: what a run is, what came of it, and how to go on or use it. The model file carries the same.

use std::collections::HashMap;
use std::path::Path;

use panoply::nn::checkpoint::{self, TensorFile};
use panoply::nn::data::source::{self, Labelled, Reading, Sequences, Source};
use panoply::nn::{EpochReport, Model, Network};
use panoply::{DType, Error, Result, Rng};
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::outcome::Measures;
use super::recipe::{Course, Mover, spelled};
use crate::shell;

/// The metadata entry of a model file that holds a manifest.
const KEY: &str = "manifest";

/// What a run is and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Of this document.
    pub schema: u32,
    /// The version that wrote it.
    pub panoply: String,
    /// What the network takes and does.
    pub network: Network,
    /// Numbers that were trained.
    pub parameters: usize,
    /// What was learned from.
    pub data: Data,
    /// How.
    pub settings: Settings,
    /// On which device, and why that one.
    pub device: serde_json::Value,
    /// What came of it; nothing before the first epoch has ended.
    pub result: Option<Outcome>,
    /// What to type next.
    pub commands: Commands,
}

/// What was learned from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Data {
    /// As it was given.
    pub path: String,
    /// Its kind, with what more of it needs.
    pub source: Source,
    /// Names of the classes; none if numbers are learned.
    pub classes: Vec<String>,
    /// Examples learned from.
    pub examples: usize,
    /// Examples held out.
    pub held_out: usize,
    /// xxh3-128 of all examples, in hexadecimal.
    pub digest: String,
    /// How it was read, as far as it was said.
    #[serde(flatten)]
    pub reading: Reading,
}

/// How training went on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The network's name on the command line.
    pub model: String,
    /// How often every example is seen.
    pub epochs: usize,
    /// Examples of a batch.
    pub batch: usize,
    /// Batches whose gradients make one step together.
    #[serde(default = "alone")]
    pub accumulate: usize,
    /// What moves the parameters.
    #[serde(default)]
    pub optimiser: Mover,
    /// Its learning rate.
    pub learning_rate: f64,
    /// How much of its last step it keeps, if it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// The pull of the weights towards zero, not of biases and norms. Without it, in runs of early versions, the usual pull is one of
    /// all parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Length to which longer gradients are cut, if it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Limit of each element of gradients, if it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_value: Option<f64>,
    /// What becomes of the learning rate.
    pub schedule: Course,
    /// Share that a running average of the parameters keeps, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<f64>,
    /// Epochs without a better validation loss after which to stop.
    pub patience: Option<usize>,
    /// Share held out.
    pub held_out: f64,
    /// Of weights, order and dropout.
    pub seed: u64,
    /// What layers computed in.
    pub precision: String,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Epochs made.
    pub epochs: usize,
    /// The best of them, whose model is kept.
    pub best: EpochReport,
    /// How good it is beyond its score.
    #[serde(flatten)]
    pub measures: Measures,
    /// Steps left out because gradients overflowed.
    pub skipped_steps: u64,
}

/// What to type next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Commands {
    /// To go on with it.
    pub resume: String,
    /// To use it.
    pub predict: String,
}

impl Commands {
    /// Of a run in this folder, for a POSIX shell.
    pub fn of(folder: &Folder) -> Commands {
        Commands {
            resume: format!("panoply train --resume {}", shell::quoted(&folder.0)),
            predict: format!("panoply predict {}", shell::quoted(&folder.model())),
        }
    }
}

impl Data {
    /// Reads it again, as it was read.
    pub fn open(&self) -> Result<Labelled> {
        open(&self.path, &self.reading)
    }

    /// How examples that were read again differ from those that were learned from, if they do.
    pub fn changed(&self, again: &Labelled) -> Option<String> {
        let now = again.source.clone();
        let names = match (&self.source, &now) {
            (Source::Csv { columns, labels, words, .. }, Source::Csv { columns: c, labels: l, words: w, .. }) => {
                let word = words.keys().chain(w.keys()).find(|column| words.get(*column) != w.get(*column));
                let word = word.map(|column| format!("the words of column `{column}` have changed"));
                renamed("column", columns, c).or_else(|| renamed("label", labels, l)).or(word)
            }
            _ => None,
        };
        let numbers = format!("{:032x}", again.data.digest()) != self.digest;
        names
            .or_else(|| renamed("class", &self.classes, &again.classes))
            .or_else(|| (numbers || now != self.source).then(|| "its examples have changed".to_string()))
    }

    /// What the numbers or answers are called that are learned of each example; those of arrays have no names but their places.
    pub fn labels(&self, width: usize) -> Vec<String> {
        match &self.source {
            Source::Csv { labels, .. } => labels.clone(),
            _ if width == 1 => vec!["y".to_string()],
            _ => (0..width).map(|at| format!("y[{at}]")).collect(),
        }
    }

    /// What is learned, in a few words.
    pub fn learned(&self) -> String {
        let mut learned = self.what();
        if let Source::Csv { sequences, words, .. } = &self.source {
            let of = |sequences: &Sequences| format!(", sequences of up to {} rows", sequences.time);
            learned += &sequences.as_ref().map_or_else(String::new, of);
            let names: Vec<&str> = words.keys().map(String::as_str).collect();
            learned += &if names.is_empty() { String::new() } else { format!(", words in {}", names.join(", ")) };
        }
        learned
    }

    fn what(&self) -> String {
        match &self.source {
            Source::Csv { labels, answers: true, .. } => format!("{} as {}", listed(labels), yes_or_no(labels.len())),
            Source::Csv { labels, numbers: true, .. } if labels.len() == 1 => {
                format!("{} as a number (`--task classes` makes it classes)", labels[0])
            }
            Source::Csv { labels, numbers: true, .. } => format!("{} as numbers", listed(labels)),
            Source::Npy { numbers: 1, answers: true, .. } => format!("{} of each", yes_or_no(1)),
            Source::Npy { numbers, answers: true, .. } => format!("{numbers} {} of each", yes_or_no(*numbers)),
            Source::Npy { numbers: 1, .. } => "a number of each".to_string(),
            Source::Npy { numbers: numbers @ 2.., .. } => format!("{numbers} numbers of each"),
            Source::Csv { labels, .. } => format!("{} as one of {} classes", listed(labels), self.classes.len()),
            Source::Text { time, .. } => format!("{} characters, {time} at a time", self.classes.len()),
            _ => format!("{} classes", self.classes.len()),
        }
    }
}

/// Reads what is learned from: the digits that ship, or a file or folder.
pub fn open(data: &str, reading: &Reading) -> Result<Labelled> {
    match data {
        "digits" => source::digits(),
        path => source::open(Path::new(path), reading).map_err(|error| match Path::new(path).exists() {
            true => error,
            false => error.note("DATA is `digits`, which ship, or a file or folder"),
        }),
    }
}

/// The first of some names that is another now.
fn renamed(what: &str, before: &[String], now: &[String]) -> Option<String> {
    if before.len() != now.len() {
        return Some(format!("a {what} more or less: {} were learned from, and there are {}", before.len(), now.len()));
    }
    let at = (0..now.len()).find(|at| before[*at] != now[*at])?;
    Some(format!("{what} {} is `{}` now and was `{}`", at + 1, now[at], before[at]))
}

/// What each answer is.
fn yes_or_no(count: usize) -> &'static str {
    if count == 1 { "an answer of yes or no" } else { "answers of yes or no" }
}

/// `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Batches of a step in runs that do not say it.
fn alone() -> usize {
    1
}

impl Settings {
    /// In a few words, but for the defaults that say nothing.
    pub fn in_words(&self) -> String {
        let mut words = format!("{} at {}", spelled(self.optimiser), self.learning_rate);
        let said = [
            self.momentum.map(|momentum| format!("momentum {momentum}")),
            self.weight_decay.filter(|decay| *decay > 0.0).map(|decay| format!("weight decay {decay}")),
            self.clip_norm.map(|norm| format!("gradients up to {norm}")),
            self.clip_value.map(|value| format!("elements of gradients up to ±{value}")),
            (self.schedule != Course::Constant).then(|| format!("schedule {}", spelled(self.schedule))),
            Some(format!("batches of {}", self.batch)),
            (self.accumulate > 1).then(|| format!("{} of them a step", self.accumulate)),
            self.average.map(|share| format!("an average that keeps {share}")),
            (self.precision != "f32").then(|| self.precision.clone()),
        ];
        said.into_iter().flatten().for_each(|said| words += &format!(", {said}"));
        words
    }

    /// What layers compute in.
    pub fn dtype(&self) -> DType {
        match self.precision.as_str() {
            "bf16" => DType::BF16,
            "f16" => DType::F16,
            _ => DType::F32,
        }
    }
}

impl Manifest {
    /// Writes it into a run's folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        checkpoint::write_whole(&folder.join("manifest.json"), (self.text()? + "\n").as_bytes())
    }

    /// Reads a run's folder.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let file = folder.join("manifest.json");
        let text = std::fs::read_to_string(&file).map_err(|error| {
            Error::io(format!("cannot read {}", file.display()), error).note("is this the folder of a run?")
        })?;
        parse(&text, &file)
    }

    /// What a model file says about itself.
    pub fn of_model(file: &TensorFile) -> Result<Manifest> {
        let metadata = file.metadata()?;
        let text = metadata.get(KEY).ok_or_else(|| {
            let message = format!("{}: it does not say which network it holds", file.path().display());
            Error::corrupt(message).note("was it written by `panoply train`?")
        })?;
        parse(text, file.path())
    }

    /// The metadata of a model file.
    pub fn metadata(&self) -> Result<HashMap<String, String>> {
        Ok(HashMap::from([(KEY.to_string(), self.text()?)]))
    }

    /// The model in a file that this manifest describes.
    pub fn load(&self, file: &TensorFile) -> Result<Model> {
        let mut model = self.network.build(&mut Rng::seed(0))?;
        file.load(&mut model)?;
        Ok(model)
    }

    fn text(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::mistake(format!("a manifest: {error}")).caused_by(error))
    }
}

fn parse(text: &str, file: &Path) -> Result<Manifest> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("{}: its manifest cannot be read ({error})", file.display());
        Error::corrupt(message).note("it was cut short or changed; take another copy, or train again").caused_by(error)
    })
}
