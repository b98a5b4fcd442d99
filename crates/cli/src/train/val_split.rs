//! `--val-split`: the examples by which a model is validated.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use panoply::nn::Monitor;
use panoply::nn::data::reader::{DataFormat, LabeledData, ReadOptions};
use panoply::nn::data::{Dataset, Targets, text};
use panoply::{Error, Result, Rng};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::manifest::{self, TrainSettings};
use crate::console::escaped;

/// The choice of the validation examples.
#[derive(Clone, Debug, PartialEq)]
pub enum ValSplit {
    /// A fraction of the examples: stratified for classes, the last part of a text, chosen at random otherwise.
    Fraction(f64),
    /// A fraction of each class.
    Stratified(f64),
    /// The last examples, as for a time series.
    Last(f64),
    /// A fraction of the groups: rows with the same value in this column stay together.
    Group { column: String, fraction: f64 },
    /// The examples of another file or folder; all others are for training.
    File(String),
}

/// The fraction without `--val-split`.
pub const DEFAULT_FRACTION: f64 = 0.2;

impl Default for ValSplit {
    fn default() -> ValSplit {
        ValSplit::Fraction(DEFAULT_FRACTION)
    }
}

impl ValSplit {
    /// The split with a path that does not depend on the current folder.
    pub fn absolute(self) -> ValSplit {
        match self {
            ValSplit::File(path) => ValSplit::File(absolute(Path::new(&path))),
            other => other,
        }
    }
}

impl FromStr for ValSplit {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<ValSplit, String> {
        let fraction = |text: &str| {
            let value = text.parse().ok().filter(|value: &f64| *value > 0.0 && *value < 1.0);
            value.ok_or_else(|| format!("{text} is not a fraction between 0 and 1, such as 0.2"))
        };
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("last", rest) => rest.map_or(Ok(DEFAULT_FRACTION), fraction).map(ValSplit::Last),
            ("stratified", rest) => rest.map_or(Ok(DEFAULT_FRACTION), fraction).map(ValSplit::Stratified),
            ("group", Some(column)) if !column.is_empty() => {
                Ok(ValSplit::Group { column: column.to_string(), fraction: DEFAULT_FRACTION })
            }
            ("file", Some(path)) if !path.is_empty() => Ok(ValSplit::File(path.to_string())),
            (number, None) if number.parse::<f64>().is_ok() => fraction(number).map(ValSplit::Fraction),
            _ => Err("take a fraction such as 0.2, last, last:0.3, stratified, group:COLUMN or file:PATH".to_string()),
        }
    }
}

impl fmt::Display for ValSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValSplit::Fraction(fraction) => write!(f, "{fraction}"),
            ValSplit::Stratified(fraction) => write!(f, "stratified:{fraction}"),
            ValSplit::Last(fraction) => write!(f, "last:{fraction}"),
            ValSplit::Group { column, .. } => write!(f, "group:{column}"),
            ValSplit::File(path) => write!(f, "file:{path}"),
        }
    }
}

/// A fraction is a number, everything else a text as on the command line.
impl Serialize for ValSplit {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            ValSplit::Fraction(fraction) => serializer.serialize_f64(*fraction),
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for ValSplit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<ValSplit, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Fraction(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Fraction(fraction) => Ok(ValSplit::Fraction(fraction)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// The training and validation examples, and the random numbers that follow. The same settings give the same. Replacements of missing
/// values are learned from the training examples, and the format of `labeled` keeps them. Notes of a validation file go to stderr if
/// `reports` is true.
pub fn split_dataset(
    labeled: &mut LabeledData,
    settings: &TrainSettings,
    (reading, reports): (&ReadOptions, bool),
) -> Result<(Dataset, Dataset, Rng)> {
    let mut rng = Rng::seed_from_u64(settings.seed);
    let classes = matches!(labeled.dataset.targets, Targets::Classes { labels_per_example: 1, .. });
    let split = match &settings.val_split {
        ValSplit::Stratified(_) if !classes => Err(Error::mistake("only a classification can be stratified")
            .note("a fraction such as `--val-split 0.2` chooses examples at random")),
        ValSplit::Fraction(fraction) | ValSplit::Stratified(fraction) => labeled.train_test_split(*fraction, &mut rng),
        ValSplit::Last(fraction) => labeled.split_last(*fraction),
        ValSplit::Group { .. } if labeled.groups.is_none() => {
            Err(Error::mistake("only the rows of a table have groups"))
        }
        ValSplit::Group { fraction, .. } => labeled.split_groups(*fraction, &mut rng),
        ValSplit::File(path) => {
            labeled_file(labeled, Path::new(path), (reading, reports)).map(|held| (labeled.dataset.clone(), held))
        }
    };
    let (train, held) = split.map_err(|error| error.note(format!("from `--val-split {}`", settings.val_split)))?;
    if train.is_empty() || held.is_empty() {
        let message = format!(
            "--val-split {}: splits {} examples into {} for training and {} for validation",
            settings.val_split,
            labeled.dataset.len(),
            train.len(),
            held.len()
        );
        return Err(Error::mistake(message).note("both parts need at least one example"));
    }
    check_monitor(settings.monitor, &held)?;
    Ok((train, held, rng))
}

/// Returns an error if R² is monitored, but undefined.
fn check_monitor(monitor: Monitor, held: &Dataset) -> Result<()> {
    match (monitor, &held.targets) {
        (Monitor::Score, Targets::Regression { .. }) if held.len() < 2 => {
            Err(Error::mistake("--monitor r2: R² of 1 validation example is undefined")
                .note("use `--monitor loss`, or more validation examples with `--val-split`"))
        }
        _ => Ok(()),
    }
}

/// A path that does not depend on the current folder.
pub fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// The test set, if there is one. Its notes go to stderr if `reports` is true.
pub fn read_test(
    labeled: &LabeledData,
    settings: &TrainSettings,
    (reading, reports): (&ReadOptions, bool),
) -> Result<Option<Dataset>> {
    let read = |path: &String| labeled_file(labeled, Path::new(path), (reading, reports));
    settings.test_data.as_ref().map(read).transpose().map_err(|error| error.note("from `--test-data`"))
}

/// Reads labeled examples of another file in the format of the training data.
fn labeled_file(labeled: &LabeledData, path: &Path, (reading, reports): (&ReadOptions, bool)) -> Result<Dataset> {
    manifest::check_path(path)?;
    match &labeled.format {
        DataFormat::Digits => Err(Error::mistake("the built-in digits have no other file")),
        DataFormat::Text { vocabulary, context_length } => {
            let letters: Vec<char> = vocabulary.chars().collect();
            let text = text::load(path, reading.encoding)?;
            let (known, note) = text::known_characters(&text, &letters, path);
            note.iter().filter(|_| reports).for_each(|note| note!("{}", escaped(note)));
            text::windows(&known, &letters, *context_length, path)
        }
        format => {
            let read = format.read(path, &labeled.class_names, reading)?;
            read.notes.iter().filter(|_| reports).for_each(|note| note!("{}", escaped(note)));
            let (data, unlabeled) = read.labeled().map_err(|error| error.note(format!("in {}", path.display())))?;
            // As in prediction, sequences may be longer than those of training; a network that cannot take them says so.
            let fixed = usize::from(labeled.dataset.seq_lengths.is_some());
            if data.example_shape[fixed..] != labeled.dataset.example_shape[fixed..] {
                let message = format!(
                    "{}: examples of {:?}, and {:?} in training",
                    path.display(),
                    data.example_shape,
                    labeled.dataset.example_shape
                );
                return Err(Error::mistake(message));
            }
            if unlabeled > 0 && reports {
                note!("{}: {unlabeled} examples without a label are left out", path.display());
            }
            Ok(data)
        }
    }
}

/// The share of validation examples that must recur in training for a warning.
const RECURRING: f64 = 0.05;

/// Sentences about a random split that may flatter the score: equal rows in both parts, and targets that follow each other in time.
pub fn split_notes(
    labeled: &LabeledData,
    settings: &TrainSettings,
    (train, held): (&Dataset, &Dataset),
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let is_table = matches!(labeled.format, DataFormat::Csv { sequence: None, .. } | DataFormat::Npy { .. });
    if !is_table || !matches!(settings.val_split, ValSplit::Fraction(_) | ValSplit::Stratified(_)) {
        return Ok(notes);
    }
    let shared = held.count_shared(train)?;
    if shared as f64 > RECURRING * held.len() as f64 {
        notes.push(format!(
            "{shared} of {} validation examples have the same features as a training example; \
             `--val-split group:COLUMN` keeps such rows together",
            held.len()
        ));
    }
    if is_time_series(&labeled.dataset.targets) {
        notes.push(
            "the target changes little from row to row, as in a time series; a random validation set flatters the score, \
             `--val-split last` validates on the last rows"
                .to_string(),
        );
    }
    Ok(notes)
}

/// True for a target whose neighbors in the file correlate by more than 0.9 and that is not sorted.
fn is_time_series(targets: &Targets) -> bool {
    let Targets::Regression { values, num_outputs: 1 } = targets else { return false };
    const MIN_EXAMPLES: usize = 50;
    if values.len() < MIN_EXAMPLES || values.is_sorted() || values.is_sorted_by(|a, b| a >= b) {
        return false;
    }
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64;
    let centered: Vec<f64> = values.iter().map(|value| f64::from(*value) - mean).collect();
    let variance: f64 = centered.iter().map(|value| value * value).sum();
    let neighbors: f64 = centered.windows(2).map(|pair| pair[0] * pair[1]).sum();
    variance > 0.0 && neighbors > 0.9 * variance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_read_and_written() {
        for text in ["0.25", "last:0.3", "stratified:0.2", "group:person", "file:a/b.csv"] {
            let split: ValSplit = text.parse().unwrap();
            assert_eq!(split.to_string(), text);
            let json = serde_json::to_string(&split).unwrap();
            assert_eq!(serde_json::from_str::<ValSplit>(&json).unwrap(), split, "{json}");
        }
        assert_eq!("last".parse(), Ok(ValSplit::Last(0.2)));
        for text in ["-0.1", "1", "0", "NaN", "last:2", "group:", "file:", "half", "random:0.2"] {
            assert!(text.parse::<ValSplit>().is_err(), "{text}");
        }
    }
}
