//! Format of a model's data and names of its outputs: the part of a manifest that an exported ONNX file holds as well.

use std::path::Path;

use panoply::nn::Network;
use panoply::nn::data::reader::{self, DataFormat, LabeledData, ReadOptions, Task};
use panoply::nn::data::{MissingRows, Targets, text};
use panoply::{Error, Result};
use serde::{Deserialize, Serialize};

/// Format of the data, names of the classes, and options for reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSchema {
    /// Format, with what is needed to read more data of it.
    pub format: DataFormat,
    /// Names of the classes; empty for regression.
    pub class_names: Vec<String>,
    /// The options for reading it that were given.
    pub reading: ReadOptions,
}

impl DataSchema {
    /// Returns the names of the targets or labels; those of arrays are numbered.
    pub fn labels(&self, width: usize) -> Vec<String> {
        match &self.format {
            DataFormat::Csv { label_columns: labels, .. } if labels.len() == width => labels.clone(),
            _ if width == 1 => vec!["y".to_string()],
            _ => (0..width).map(|at| format!("y[{at}]")).collect(),
        }
    }

    /// Reads labeled examples in this format; examples without a label are left out.
    pub fn open(&self, data: &str) -> Result<LabeledData> {
        let (path, mut assumptions) = (Path::new(data), Vec::new());
        let dataset = match &self.format {
            DataFormat::Digits => return reader::digits(),
            DataFormat::Text { vocabulary, context_length } => {
                let letters: Vec<char> = vocabulary.chars().collect();
                let (known, note) = text::known_characters(&text::load(path, self.reading.encoding)?, &letters, path);
                assumptions.extend(note);
                text::windows(&known, &letters, *context_length, path)?
            }
            format => {
                let read = format.read(path, &self.class_names, &self.reading)?;
                let (dataset, unlabeled) = read.labeled().map_err(|error| error.note(format!("in {data}")))?;
                assumptions.extend(read.notes);
                if unlabeled > 0 {
                    assumptions.push(format!("{data}: {unlabeled} examples without a label are left out"));
                }
                dataset
            }
        };
        if dataset.is_empty() {
            return Err(Error::mistake(format!("{data}: there are no examples")));
        }
        Ok(LabeledData {
            format: self.format.clone(),
            dataset,
            class_names: self.class_names.clone(),
            groups: None,
            missing: MissingRows::default(),
            assumptions,
        })
    }

    /// Checks that examples and targets fit a network; the error describes the first contradiction.
    pub fn check(&self, network: &Network) -> std::result::Result<(), String> {
        let output = network.output_shape().map_err(|error| error.message().to_string())?;
        let (targets, times) = self.targets()?;
        let lengths = self.example_lengths()?;
        let sequence = matches!(&self.format, DataFormat::Csv { sequence: Some(_), .. });
        if !network.accepts_shape(&lengths) || (sequence && network.input != lengths) {
            return Err(format!("examples are {lengths:?}, but the network takes {:?}", network.input));
        }
        network.loss.for_targets(&targets).map_err(|error| error.message().to_string())?;
        let outputs = network.loss.num_outputs(&targets);
        let wanted: Vec<usize> = times.into_iter().chain([outputs]).collect();
        if output != wanted {
            return Err(format!("the data need outputs {wanted:?}, but the network gives {output:?}"));
        }
        Ok(())
    }

    /// Returns the shape of an example.
    pub fn example_lengths(&self) -> std::result::Result<Vec<usize>, String> {
        match &self.format {
            DataFormat::Digits => Ok(vec![1, 8, 8]),
            DataFormat::Csv {
                feature_columns: columns, sequence: sequences, categories: words, imputation, ..
            } => {
                let indicator = |column| usize::from(imputation.get(column).is_some_and(|fill| fill.indicator));
                let width = |column| words.get(column).map_or(1, Vec::len) + indicator(column);
                let width = columns.iter().map(width).sum();
                Ok(sequences.iter().map(|sequences| sequences.max_len).chain([width]).collect())
            }
            DataFormat::Text { context_length: time, .. } => Ok(vec![*time]),
            DataFormat::Images { channels, height: rows, width: columns } => {
                const MAX_SIZE: usize = 1 << 16;
                if !(1..=4).contains(channels) || !(1..=MAX_SIZE).contains(rows) || !(1..=MAX_SIZE).contains(columns) {
                    return Err(format!("images of {channels} channels and {rows} × {columns} pixels"));
                }
                Ok(vec![*channels, *rows, *columns])
            }
            DataFormat::Idx { shape: lengths } | DataFormat::Npy { shape: lengths, .. } => Ok(lengths.clone()),
        }
    }

    /// Returns empty targets of the right type, and the number of time steps for a language model.
    fn targets(&self) -> std::result::Result<(Targets, Option<usize>), String> {
        let (classes, values) = (self.class_names.len(), Vec::new());
        let (width, answers) = match &self.format {
            DataFormat::Csv { task: Task::Text, .. } | DataFormat::Npy { task: Task::Text, .. } => {
                return Err("task `text`, but the data are not text".to_string());
            }
            DataFormat::Csv { label_columns, task: task @ (Task::MultiLabel | Task::Regression), .. } => {
                (label_columns.len(), *task == Task::MultiLabel)
            }
            DataFormat::Npy { num_outputs, task: task @ (Task::MultiLabel | Task::Regression), .. } => {
                (*num_outputs, *task == Task::MultiLabel)
            }
            DataFormat::Text { vocabulary, context_length: time } => {
                let letters: Vec<char> = vocabulary.chars().collect();
                if letters.len() != classes || !letters.is_sorted_by(|a, b| a < b) {
                    return Err(format!("a vocabulary of {} characters, but {classes} classes", letters.len()));
                }
                return Ok((
                    Targets::Classes { labels: Vec::new(), num_classes: classes, labels_per_example: *time },
                    Some(*time),
                ));
            }
            DataFormat::Csv { label_columns: labels, .. } if labels.len() != 1 => {
                return Err(format!("classification with {} label columns", labels.len()));
            }
            DataFormat::Digits
            | DataFormat::Csv { .. }
            | DataFormat::Images { .. }
            | DataFormat::Idx { .. }
            | DataFormat::Npy { .. } => {
                return match classes {
                    0 | 1 => Err(format!("{classes} classes")),
                    _ => {
                        Ok((Targets::Classes { labels: Vec::new(), num_classes: classes, labels_per_example: 1 }, None))
                    }
                };
            }
        };
        match width {
            0 => Err("no targets".to_string()),
            _ if answers => Ok((Targets::MultiLabel { values, num_labels: width }, None)),
            _ => Ok((Targets::Regression { values, num_outputs: width }, None)),
        }
    }
}
