//! What `panoply train` is told.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use panoply::nn::data::source::{Reading, Task};
use panoply::nn::{ClassWeights, LossKind};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as Wrong;

use super::presets;
use super::recipe::Recipe;
use crate::output::DeviceChoice;

/// Train a network on the handwritten digits that ship with Panoply, or on your own tables, texts and images.
///
/// DATA is `digits`, a table (.csv, .tsv, .parquet) of which a column of classes or of numbers is learned, a text (.txt, .md) of
/// which each character is, a folder with a sub-folder of images for each class, a pair of IDX or NumPy files, of which one is named
/// or their folder, or both arrays in one .npz. gzip may have packed them (.gz). All that comes of it lies in a folder of its own
/// under `runs`.
#[derive(Args)]
pub struct Arguments {
    /// What to learn: `digits`, a file or a folder.
    #[arg(default_value = "digits")]
    pub data: String,
    /// The network: mlp, cnn, lstm, transformer, or a FILE.toml that describes its layers and, in a section `[training]`, may say
    /// what these options say, which win; mlp if nothing is said, lstm for a text.
    #[arg(long, conflicts_with = "resume")]
    pub model: Option<presets::Choice>,
    /// What is learned: classes, numbers or a text; what DATA looks like if nothing is said.
    #[arg(long, value_enum, conflicts_with = "resume")]
    pub task: Option<TaskName>,
    /// What is made small: cross_entropy or bce of classes, mse, l1 or huber of numbers, bce of numbers in 0 ..= 1, kl of several that
    /// sum to 1; cross_entropy of classes, mse of numbers, or what FILE.toml says if nothing is said.
    #[arg(long, value_parser = loss, conflicts_with = "resume")]
    pub loss: Option<LossKind>,
    /// How much each class counts: `balanced`, so that rare ones count as much as common ones, or numbers such as 1,2.5 in the order of
    /// the classes.
    #[arg(long, value_name = "WEIGHTS", value_parser = class_weights, conflicts_with = "resume")]
    pub class_weights: Option<ClassWeights>,
    #[command(flatten)]
    pub recipe: Recipe,
    /// Widths of the hidden layers; of `cnn` the channels of its convolutions, of `lstm` its memory, of `transformer` its
    /// width and its blocks.
    #[arg(long, value_delimiter = ',', conflicts_with = "resume")]
    pub hidden: Option<Vec<usize>>,
    /// Probability of dropping an activation in training.
    #[arg(long, default_value_t = 0.1, conflicts_with = "resume")]
    pub dropout: f64,
    /// The column of a table that is learned, by name or counted from 1.
    #[arg(long, conflicts_with = "resume")]
    pub label: Option<String>,
    /// A column of a table that is not read, by name or counted from 1; may be said several times.
    #[arg(long, value_name = "COLUMN", conflicts_with = "resume")]
    pub without: Vec<String>,
    /// The column of a table that says which rows are one example, a sequence: those with the same in it.
    #[arg(long, value_name = "COLUMN", conflicts_with = "resume")]
    pub sequence: Option<String>,
    /// Whether the first line of a table names its columns; what it looks like if nothing is said.
    #[arg(long, value_name = "YES|NO", value_parser = BoolishValueParser::new(), conflicts_with = "resume")]
    pub header: Option<bool>,
    /// Rows and columns to which images are scaled, such as 32x32.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = image_size, conflicts_with = "resume")]
    pub image_size: Option<(usize, usize)>,
    /// Characters that a network of text reads at a time; 64 if nothing is said.
    #[arg(long, value_name = "CHARACTERS", conflicts_with = "resume")]
    pub context: Option<usize>,
    /// Go on with the run in this folder as if it had never stopped; --epochs may say for how long.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["data", "Manner"])]
    pub resume: Option<PathBuf>,
    /// Folder for all that comes of it; `runs/NAME-N` if nothing else is said.
    #[arg(long, conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Curves, speed and memory on the whole terminal while it trains.
    #[arg(long, conflicts_with = "json")]
    pub tui: bool,
    /// One JSON document on stdout.
    #[arg(long)]
    pub json: bool,
}

fn loss(text: &str) -> Result<LossKind, String> {
    let name = text.replace('-', "_");
    LossKind::deserialize(name.as_str().into_deserializer()).map_err(|error: Wrong| error.to_string())
}

fn class_weights(text: &str) -> Result<ClassWeights, String> {
    if text == "balanced" {
        return Ok(ClassWeights::Balanced);
    }
    let weight = |text: &str| text.trim().parse().ok().filter(|weight: &f64| weight.is_finite() && *weight > 0.0);
    let weights: Option<Vec<f64>> = text.split(',').map(weight).collect();
    weights.map(ClassWeights::Each).ok_or_else(|| "take balanced, or numbers above 0 such as 1,2.5".to_string())
}

fn image_size(text: &str) -> Result<(usize, usize), String> {
    let (rows, columns) = text.split_once(['x', '×']).unwrap_or((text, text));
    match (rows.parse(), columns.parse()) {
        (Ok(rows @ 1..=65536), Ok(columns @ 1..=65536)) => Ok((rows, columns)),
        _ => Err("take two numbers such as 32x32".to_string()),
    }
}

/// What is learned, as it is spelled on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TaskName {
    /// A class for each example.
    Classes,
    /// A number for each example.
    Numbers,
    /// Each character of a text.
    Text,
}

impl Arguments {
    /// How the data are read.
    pub fn reading(&self) -> Reading {
        let task = self.task.map(|task| match task {
            TaskName::Classes => Task::Classes,
            TaskName::Numbers => Task::Numbers,
            TaskName::Text => Task::Text,
        });
        let (label, sequence, without) = (self.label.clone(), self.sequence.clone(), self.without.clone());
        let (header, image_size, context) = (self.header, self.image_size, self.context);
        Reading { label, sequence, without, header, image_size, task, context }
    }
}
