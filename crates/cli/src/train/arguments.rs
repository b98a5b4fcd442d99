//! What `panoply train` is told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use panoply::nn::Training;
use panoply::nn::data::source::{Reading, Task};
use panoply::nn::optimiser::{Adagrad, Adam, AdamW, Lion, Optimiser, RmsProp, Rule, Schedule, Sgd};
use panoply::{Error, Result};
use serde::{Deserialize, Serialize};

use super::presets;
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
    /// The network: mlp, cnn, lstm, transformer, or a FILE.toml that describes its layers; mlp if nothing is said, lstm for a
    /// text.
    #[arg(long, conflicts_with = "resume")]
    pub model: Option<presets::Choice>,
    /// What is learned: classes, numbers or a text; what DATA looks like if nothing is said.
    #[arg(long, value_enum, conflicts_with = "resume")]
    pub task: Option<TaskName>,
    /// How often every example is seen; 30 if nothing else is said.
    #[arg(long, value_parser = some)]
    epochs: Option<usize>,
    /// Steps in place of epochs: as many whole epochs as make so many.
    #[arg(long, value_parser = some, conflicts_with = "epochs")]
    steps: Option<usize>,
    /// Examples of a step, or `auto` for as many as fit.
    #[arg(long, default_value = "64", value_parser = batch, conflicts_with = "resume")]
    pub batch: Batch,
    /// Widths of the hidden layers; of `cnn` the channels of its convolutions, of `lstm` its memory, of `transformer` its
    /// width and its blocks.
    #[arg(long, value_delimiter = ',', conflicts_with = "resume")]
    pub hidden: Option<Vec<usize>>,
    /// What moves the parameters.
    #[arg(long, value_enum, default_value = "adamw", conflicts_with = "resume")]
    pub optimiser: Mover,
    /// Its learning rate; 0.002 for adamw, adam and rmsprop, 0.3 for sgd, 0.02 for adagrad, 0.001 for lion if nothing is said.
    #[arg(long, value_parser = rate, allow_negative_numbers = true, conflicts_with = "resume")]
    pub learning_rate: Option<f64>,
    /// How much of its last step sgd or rmsprop keeps, such as 0.9; nothing if nothing is said.
    #[arg(long, value_parser = share, allow_negative_numbers = true, conflicts_with = "resume")]
    pub momentum: Option<f64>,
    /// Length to which longer gradients are cut, all parameters taken as one vector; 1 if nothing is said.
    #[arg(long, value_parser = rate, allow_negative_numbers = true, conflicts_with = "resume")]
    pub clip_norm: Option<f64>,
    /// What becomes of the learning rate over the epochs.
    #[arg(long, value_enum, default_value = "constant", conflicts_with = "resume")]
    pub schedule: Course,
    /// What layers compute in; parameters stay f32.
    #[arg(long, value_enum, default_value = "f32", conflicts_with = "resume")]
    pub precision: Precision,
    /// Probability of dropping an activation in training.
    #[arg(long, default_value_t = 0.1, conflicts_with = "resume")]
    pub dropout: f64,
    /// Stop after this many epochs without a better validation loss.
    #[arg(long, conflicts_with = "resume")]
    pub patience: Option<usize>,
    /// Share of the examples held out for validation.
    #[arg(long, default_value_t = 0.2, conflicts_with = "resume")]
    pub held_out: f64,
    /// Determines initial weights, order and dropout.
    #[arg(long, default_value_t = 0, conflicts_with = "resume")]
    pub seed: u64,
    /// The column of a table that is learned, by name or counted from 1.
    #[arg(long, conflicts_with = "resume")]
    pub label: Option<String>,
    /// A column of a table that is not read, by name or counted from 1; may be said several times.
    #[arg(long, value_name = "COLUMN", conflicts_with = "resume")]
    pub without: Vec<String>,
    /// The column of a table that says which rows are one example, a sequence: those with the same in it.
    #[arg(long, value_name = "COLUMN", conflicts_with = "resume")]
    pub sequence: Option<String>,
    /// Rows and columns to which images are scaled, such as 32x32.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = image_size, conflicts_with = "resume")]
    pub image_size: Option<(usize, usize)>,
    /// Characters that a network of text reads at a time; 64 if nothing is said.
    #[arg(long, value_name = "CHARACTERS", conflicts_with = "resume")]
    pub context: Option<usize>,
    /// Go on with the run in this folder as if it had never stopped; --epochs may say for how long.
    #[arg(long, value_name = "FOLDER", conflicts_with = "data")]
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

/// Examples of a step.
#[derive(Clone, Copy, Debug)]
pub enum Batch {
    /// As many as fit.
    Auto,
    /// So many.
    Count(usize),
}

fn some(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "take a number of at least 1".to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "take a number above 0, such as 1e-3".to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..1.0).contains(share));
    share.ok_or_else(|| "take a number in 0 .. 1, such as 0.9".to_string())
}

fn batch(text: &str) -> Result<Batch, String> {
    match text {
        "auto" => Ok(Batch::Auto),
        _ => match text.parse() {
            Ok(count) if count > 0 => Ok(Batch::Count(count)),
            _ => Err("take a number of at least 1, or auto".to_string()),
        },
    }
}

fn image_size(text: &str) -> Result<(usize, usize), String> {
    let (rows, columns) = text.split_once(['x', '×']).unwrap_or((text, text));
    match (rows.parse(), columns.parse()) {
        (Ok(rows @ 1..=65536), Ok(columns @ 1..=65536)) => Ok((rows, columns)),
        _ => Err("take two numbers such as 32x32".to_string()),
    }
}

/// What layers compute in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 16 bits, 8 of them for the exponent.
    Bf16,
    /// 16 bits, 5 of them for the exponent.
    F16,
}

/// What moves the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Mover {
    /// Adam with weight decay apart from the gradient.
    #[default]
    AdamW,
    /// Running means of gradients over the roots of those of their squares.
    Adam,
    /// Gradient descent.
    Sgd,
    /// Gradients over the root of the running mean of their squares.
    RmsProp,
    /// Gradients over the root of the sum of their squares.
    Adagrad,
    /// The sign of a running mean of gradients.
    Lion,
}

impl Mover {
    /// The learning rate if nothing is said.
    pub fn rate(self) -> f64 {
        match self {
            Mover::AdamW | Mover::Adam | Mover::RmsProp => 0.002,
            Mover::Sgd => 0.3,
            Mover::Adagrad => 0.02,
            Mover::Lion => 0.001,
        }
    }

    /// Whether it can keep some of its last step.
    pub fn has_momentum(self) -> bool {
        matches!(self, Mover::Sgd | Mover::RmsProp)
    }

    /// At the start of training.
    pub fn optimiser(self, rate: f64, momentum: f64) -> Optimiser<Box<dyn Rule>> {
        match self {
            Mover::AdamW => AdamW::new(rate).boxed(),
            Mover::Adam => Adam::new(rate).boxed(),
            Mover::Sgd => Sgd::new(rate).momentum(momentum).boxed(),
            Mover::RmsProp => RmsProp::new(rate).momentum(momentum).boxed(),
            Mover::Adagrad => Adagrad::new(rate).boxed(),
            Mover::Lion => Lion::new(rate).boxed(),
        }
    }
}

/// What becomes of the learning rate.
#[derive(Clone, Copy, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// It stays.
    Constant,
    /// It falls to nothing along half a cosine.
    Cosine,
    /// It rises in the first twentieth of the steps and falls to nothing along half a cosine.
    WarmupCosine,
    /// It rises and falls once.
    OneCycle,
    /// A tenth after each third of the steps.
    Steps,
    /// It falls to a hundredth, by the same factor at every step.
    Exponential,
}

impl Course {
    /// Over so many steps.
    pub fn schedule(self, steps: u64) -> Schedule {
        match self {
            Course::Constant => Schedule::Constant,
            Course::Cosine => Schedule::Cosine { steps, floor: 0.0 },
            Course::WarmupCosine => {
                let rising = steps.div_ceil(20).max(1);
                let falling = Schedule::Cosine { steps: steps.saturating_sub(rising), floor: 0.0 };
                falling.after_warmup(rising, 1.0 / rising as f64)
            }
            Course::OneCycle => Schedule::one_cycle(steps),
            Course::Steps => Schedule::Steps { every: steps.div_ceil(3), factor: 0.1 },
            Course::Exponential => Schedule::Exponential(0.01f64.powf(1.0 / steps.max(1) as f64)),
        }
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
    /// How often so many examples are seen in batches of this size, if it was said.
    pub fn epochs(&self, examples: usize, batch: usize) -> Option<usize> {
        self.steps.map(|steps| Training::of_steps(steps, examples, batch).epochs).or(self.epochs)
    }

    /// How much of the last step is kept, if it was said of an optimiser that can.
    pub fn momentum(&self) -> Result<Option<f64>> {
        match self.momentum {
            Some(momentum) if !self.optimiser.has_momentum() => {
                let message = format!("--momentum {momentum} is not for --optimiser {}", spelled(self.optimiser));
                Err(Error::mistake(message).note("sgd and rmsprop take it; the others have their own or none"))
            }
            momentum => Ok(momentum),
        }
    }

    /// How the data are read.
    pub fn reading(&self) -> Reading {
        let task = self.task.map(|task| match task {
            TaskName::Classes => Task::Classes,
            TaskName::Numbers => Task::Numbers,
            TaskName::Text => Task::Text,
        });
        let (label, sequence, without) = (self.label.clone(), self.sequence.clone(), self.without.clone());
        Reading { label, sequence, without, image_size: self.image_size, task, context: self.context }
    }
}

/// A value as it is spelled on the command line.
pub fn spelled(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
