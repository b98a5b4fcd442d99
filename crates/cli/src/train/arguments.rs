//! Arguments of `panoply train`.

use std::path::PathBuf;

use clap::Args;
use panoply::nn::nearest::with_nearest;
use panoply::nn::{ClassWeights, LossKind};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as Wrong;

use super::data_args::DataArgs;
use super::presets;
use super::train_args::{TrainOptions, parse_count, parse_fraction};
use crate::output::DeviceArgs;

/// Train a network on the handwritten digits that ship with Panoply, or on your own tables, texts and images.
///
/// DATA is `digits`, a table (.csv, .tsv, .parquet), a text (.txt, .md), a folder with one subfolder of images per class, a pair of
/// IDX or NumPy files (name one of them or their folder), or an .npz file with both arrays. Files may be gzipped (.gz). Results are
/// written to a new folder under `runs`.
#[derive(Args)]
pub struct TrainCommand {
    /// Data set: `digits`, a file or a folder
    #[arg(default_value = "digits")]
    pub data: String,
    /// Network: mlp, cnn, lstm, transformer, a FILE.toml that lists the layers, or a FILE.onnx, whose weights are trained further
    /// [default: mlp; lstm for text and sequences]. The sections `[training]` and `[data]` of a FILE.toml set defaults for these options.
    #[arg(long, visible_alias = "from", conflicts_with = "resume")]
    pub model: Option<presets::ModelArg>,
    /// Loss: cross-entropy or bce-with-logits for classification, bce-with-logits for multilabel, mse, l1, huber, bce-with-logits
    /// (targets in 0..1) or kl-div (targets that sum to 1) for regression [default: cross-entropy, bce-with-logits or mse by task]
    #[arg(long, value_parser = loss, conflicts_with = "resume")]
    pub loss: Option<LossKind>,
    /// Weight of each class in the loss: `balanced` (inverse frequency) or numbers such as 1,2.5 in the order of the classes
    /// [default: 1 each]
    #[arg(long, value_name = "WEIGHTS", value_parser = class_weights, conflicts_with = "resume")]
    pub class_weights: Option<ClassWeights>,
    #[command(flatten)]
    pub recipe: TrainOptions,
    /// Sizes of the hidden layers; for `cnn` the channels of its convolutions, for `lstm` the hidden size, for `transformer` the model
    /// width and the number of layers [default: 128,64 for `mlp`, 16,32 for `cnn`, 64 for `lstm`, 64,2 for `transformer`]
    #[arg(
        long,
        visible_alias = "hidden",
        alias = "hidden-size",
        value_name = "N",
        value_delimiter = ',',
        value_parser = parse_count,
        conflicts_with = "resume"
    )]
    pub hidden_sizes: Option<Vec<usize>>,
    /// Dropout probability in training [default: 0.1; 0.5 for `mlp` on a table of at least 100 rows with more than a feature for each four rows]
    #[arg(long, value_parser = parse_fraction, conflicts_with = "resume")]
    pub dropout: Option<f64>,
    #[command(flatten)]
    pub view: DataArgs,
    /// Test set, evaluated once at the end: a file or folder in the format of DATA [default: the sub-folder `test` of a folder of images]
    #[arg(long, alias = "test", value_name = "DATA", conflicts_with = "resume")]
    pub test_data: Option<PathBuf>,
    /// Continue the run in this folder exactly where it stopped; --epochs may extend it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["data", "TrainArgs", "DataArgs"])]
    pub resume: Option<PathBuf>,
    /// Run folder [default: runs/NAME-N]
    #[arg(short, long, visible_alias = "out", alias = "output", value_name = "FOLDER", conflicts_with = "resume")]
    pub output_dir: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Several devices, each of which computes its part of every batch: `cuda:0,cuda:1`, `cuda:*`, `cpu,opencl:0`, `all`
    #[arg(long, value_name = "DEVICES", conflicts_with_all = ["device", "strict"])]
    pub devices: Option<String>,
    /// Record kernels, copies and messages of all ranks, which slows training: writes timeline.svg, a chart, and timeline.json, a trace for
    /// <https://ui.perfetto.dev>, to the run folder
    #[arg(long)]
    pub timeline: bool,
    /// Show a full-screen dashboard: loss curves, speed and memory
    #[arg(long, conflicts_with = "json")]
    pub tui: bool,
    /// Print one JSON document on stdout
    #[arg(long)]
    pub json: bool,
}

fn loss(text: &str) -> Result<LossKind, String> {
    let name = text.replace('-', "_");
    LossKind::deserialize(name.as_str().into_deserializer()).map_err(|error: Wrong| {
        // Names are listed as this option spells them.
        with_nearest(error.to_string()).replace("unknown variant", "unknown loss").replace('_', "-")
    })
}

fn class_weights(text: &str) -> Result<ClassWeights, String> {
    if text == "balanced" {
        return Ok(ClassWeights::Balanced);
    }
    let weight = |text: &str| text.trim().parse().ok().filter(|weight: &f64| weight.is_finite() && *weight > 0.0);
    let weights: Option<Vec<f64>> = text.split(',').map(weight).collect();
    weights.map(ClassWeights::PerClass).ok_or_else(|| "expected balanced, or numbers above 0 such as 1,2.5".to_string())
}
