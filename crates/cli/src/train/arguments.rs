//! What `panoply train` is told.

use std::path::PathBuf;

use clap::Args;
use panoply::nn::{ClassWeights, LossKind};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as Wrong;

use super::presets;
use super::recipe::Recipe;
use super::view::View;
use crate::output::DeviceChoice;

/// Train a network on the handwritten digits that ship with Panoply, or on your own tables, texts and images.
///
/// DATA is `digits`, a table (.csv, .tsv, .parquet) of which a column of classes, or one or several of numbers or answers, is learned, a text (.txt, .md) of
/// which each character is, a folder with a sub-folder of images for each class, a pair of IDX or NumPy files, of which one is named
/// or their folder, or both arrays in one .npz. gzip may have packed them (.gz). All that comes of it lies in a folder of its own
/// under `runs`.
#[derive(Args)]
pub struct Arguments {
    /// What to learn: `digits`, a file or a folder.
    #[arg(default_value = "digits")]
    pub data: String,
    /// The network: mlp, cnn, lstm, transformer, or a FILE.toml that describes its layers and, in sections `[training]` and `[data]`,
    /// may say what these options say, which win; mlp if nothing is said, lstm for a text.
    #[arg(long, conflicts_with = "resume")]
    pub model: Option<presets::Choice>,
    /// What is made small: cross_entropy or bce of classes, bce of answers, mse, l1 or huber of numbers, bce of numbers in 0 ..= 1, kl
    /// of several that sum to 1; cross_entropy of classes, bce of answers, mse of numbers, or what FILE.toml says if nothing is said.
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
    #[command(flatten)]
    pub view: View,
    /// Go on with the run in this folder as if it had never stopped; --epochs may say for how long.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["data", "Manner", "View"])]
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
