//! `manifest.json`: what a run is, what came of it, and how to go on or use it. The model file carries the same.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply::nn::checkpoint::{self, TensorFile};
use panoply::nn::data::Targets;
use panoply::nn::data::source::{self, Labelled, Reading, Sequences, Source};
use panoply::nn::{EpochReport, Model, Network};
use panoply::{DType, Error, Result};
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::outcome::Measures;
use super::recipe::{Course, Mover, spelled};
use crate::console::escaped;
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
    /// The same from the root, by which it is found from other folders; none of data that ship.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute: Option<String>,
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
        open(self.place(), &self.reading)
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

    /// Where it is found now: from the root if it is still there, otherwise as it was given.
    pub fn place(&self) -> &str {
        self.absolute.as_deref().filter(|path| Path::new(path).exists()).unwrap_or(&self.path)
    }

    /// What is added in f64 to each number that the network gives; none if nothing is.
    pub fn offsets(&self) -> Vec<f64> {
        match &self.source {
            Source::Csv { labels, offsets, numbers: true, .. } => {
                labels.iter().map(|label| offsets.get(label).copied().unwrap_or(0.0)).collect()
            }
            Source::Npy { target_offsets, .. } => target_offsets.clone(),
            _ => Vec::new(),
        }
    }

    /// What is subtracted from inputs and added to outputs, by the name of the column or the place in an array.
    pub fn offsets_by_name(&self) -> BTreeMap<String, f64> {
        let places = |name: &str, offsets: &[f64]| -> Vec<(String, f64)> {
            let moved = offsets.iter().enumerate().filter(|(_, offset)| **offset != 0.0);
            moved.map(|(at, offset)| (format!("{name}[{at}]"), *offset)).collect()
        };
        match &self.source {
            Source::Csv { offsets, .. } => offsets.clone(),
            Source::Npy { offsets, target_offsets, .. } => {
                places("x", offsets).into_iter().chain(places("y", target_offsets)).collect()
            }
            Source::Digits | Source::Text { .. } | Source::Images { .. } | Source::Idx { .. } => BTreeMap::new(),
        }
    }

    /// Lengths of an example's axes.
    fn example_lengths(&self) -> std::result::Result<Vec<usize>, String> {
        match &self.source {
            Source::Digits => Ok(vec![1, 8, 8]),
            Source::Csv { columns, sequences, words, .. } => {
                let width = columns.iter().map(|column| words.get(column).map_or(1, Vec::len)).sum();
                Ok(sequences.iter().map(|sequences| sequences.time).chain([width]).collect())
            }
            Source::Text { time, .. } => Ok(vec![*time]),
            Source::Images { channels, rows, columns } => {
                const MOST: usize = 1 << 16;
                if !(1..=4).contains(channels) || !(1..=MOST).contains(rows) || !(1..=MOST).contains(columns) {
                    return Err(format!("images of {channels} channels and {rows} × {columns} points"));
                }
                Ok(vec![*channels, *rows, *columns])
            }
            Source::Idx { lengths } | Source::Npy { lengths, .. } => Ok(lengths.clone()),
        }
    }

    /// The kind of what is learned, without examples, and for how many times of each if it is a sequence.
    fn targets(&self) -> std::result::Result<(Targets, Option<usize>), String> {
        let (classes, values) = (self.classes.len(), Vec::new());
        let (width, answers) = match &self.source {
            Source::Csv { labels, answers, numbers, .. } if *answers || *numbers => (labels.len(), *answers),
            Source::Npy { numbers: numbers @ 1.., answers, .. } => (*numbers, *answers),
            Source::Text { vocabulary, time } => {
                let letters: Vec<char> = vocabulary.chars().collect();
                if letters.len() != classes || !letters.is_sorted_by(|a, b| a < b) {
                    return Err(format!("a vocabulary of {} characters with {classes} classes", letters.len()));
                }
                return Ok((Targets::Classes { labels: Vec::new(), classes, places: *time }, Some(*time)));
            }
            Source::Csv { labels, .. } if labels.len() != 1 => {
                return Err(format!("classes of {} columns", labels.len()));
            }
            Source::Digits | Source::Csv { .. } | Source::Images { .. } | Source::Idx { .. } | Source::Npy { .. } => {
                return match classes {
                    0 | 1 => Err(format!("{classes} classes")),
                    _ => Ok((Targets::Classes { labels: Vec::new(), classes, places: 1 }, None)),
                };
            }
        };
        match width {
            0 => Err("no numbers to learn".to_string()),
            _ if answers => Ok((Targets::Answers { values, width }, None)),
            _ => Ok((Targets::Numbers { values, width }, None)),
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
        escaped(&learned).into_owned()
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
            Source::Csv { labels, .. } => {
                let numbers = self.classes.len() > 2 && self.classes.iter().all(|class| class.parse::<f64>().is_ok());
                let other = if numbers { " (`--task numbers` makes it a number)" } else { "" };
                format!("{} as one of {} classes{other}", listed(labels), self.classes.len())
            }
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
        self.network.load_file(file)
    }

    /// What in it contradicts something else in it, in words: data, classes, network, settings.
    fn check(&self) -> std::result::Result<(), String> {
        let Manifest { network, data, settings, .. } = self;
        let output = network.output().map_err(|error| error.message().to_string())?;
        if settings.batch == 0 || settings.accumulate == 0 {
            return Err(format!("batches of {}, {} of them a step", settings.batch, settings.accumulate));
        }
        let (targets, times) = data.targets()?;
        let lengths = data.example_lengths()?;
        let sequence = matches!(&data.source, Source::Csv { sequences: Some(_), .. });
        if !network.takes(&lengths) || (sequence && network.input != lengths) {
            return Err(format!("examples are {lengths:?}, the network takes {:?}", network.input));
        }
        network.loss.fitted(&targets).map_err(|error| error.message().to_string())?;
        let outputs = network.loss.outputs(&targets);
        let wanted: Vec<usize> = times.into_iter().chain([outputs]).collect();
        if output != wanted {
            return Err(format!("{} takes outputs {wanted:?}, the network gives {output:?}", data.learned()));
        }
        Ok(())
    }

    fn text(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::mistake(format!("a manifest: {error}")).caused_by(error))
    }
}

fn parse(text: &str, file: &Path) -> Result<Manifest> {
    let note = "it was cut short or changed; take another copy, or train again";
    let manifest: Manifest = serde_json::from_str(text).map_err(|error| {
        let message = format!("{}: its manifest cannot be read ({error})", file.display());
        Error::corrupt(message).note(note).caused_by(error)
    })?;
    let fits = manifest.check();
    fits.map_err(|what| {
        Error::corrupt(format!("{}: its manifest contradicts itself: {what}", file.display())).note(note)
    })?;
    Ok(manifest)
}

/// An error if a path out of a manifest is neither a file nor a folder: whoever reads a pipe or a device waits for it, perhaps for ever.
pub fn check_path(path: &Path) -> Result<()> {
    // What is missing is said by whoever reads it.
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    let special = ["/dev", "/proc", "/sys"];
    let inside = path.canonicalize().is_ok_and(|path| special.iter().any(|folder| path.starts_with(folder)));
    if (found.is_file() || found.is_dir()) && !inside {
        return Ok(());
    }
    let message =
        format!("{}: the manifest names it as data, but it is neither a file nor a folder of data", path.display());
    Err(Error::corrupt(message).note("name the data yourself"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = r#"{"schema": 1, "panoply": "0.1.0", "network": {"input": [3], "layers": [{"standardise": {}},
        {"linear": {"outputs": 4}}, {"relu": {}}, {"linear": {"outputs": 2}}], "loss": {"kind": "cross_entropy",
        "class_weights": [1.0, 2.5]}}, "parameters": 26, "data": {"path": "t.csv", "source": {"kind": "csv",
        "columns": ["a", "b"], "label": "y", "words": {"b": ["u", "v"]}}, "classes": ["n", "p"], "examples": 8, "held_out": 2,
        "digest": "00", "label": "y", "sequence": null, "without": [], "header": null, "task": "classes", "context": null,
        "image_size": [8, 8]}, "settings": {"model": "mlp", "epochs": 3, "batch": 64, "learning_rate": 0.001,
        "schedule": "constant", "patience": 5, "held_out": 0.2, "seed": 0, "precision": "f32"}, "device": {},
        "result": {"interrupted": false, "epochs": 3, "best": {"epoch": 3, "loss": 0.5, "validation_loss": 0.5,
        "measure": "accuracy", "train_score": 0.9, "score": 0.9, "seconds": 0.1}, "skipped_steps": 0},
        "commands": {"resume": "r", "predict": "p"}}"#;

    /// 3,000 manifests, or 20,000 with `PANOPLY_TEST_FULL=1`, of which a few bytes or values are others: each is read, and then what it
    /// says of itself can be said, or is refused.
    #[test]
    fn mutated_manifests_are_read_or_refused() {
        const VALUES: [&str; 8] =
            ["0", "-1", "1e999", "18446744073709551615", "4611686018427387904", "[]", "null", "\"\""];
        let file = Path::new("m.safetensors");
        parse(VALID, file).unwrap();
        let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
        let starts: Vec<usize> = VALID.match_indices([' ', '[']).map(|(at, _)| at + 1).collect();
        for seed in 1..if full { 20_000 } else { 3_000 } {
            let mut rng = panoply::Rng::seed(seed);
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
                    let best = &manifest.result.as_ref().map(|result| result.best.clone());
                    best.iter().for_each(|best| assert!(!super::super::outcome::headline(&manifest, best).is_empty()));
                    assert!(!manifest.data.learned().is_empty() && !manifest.settings.in_words().is_empty());
                }
                Err(error) => {
                    assert!(error.is_corrupt() && error.message().starts_with("m.safetensors: "), "{seed}: {error}")
                }
            }
        }
    }
}
