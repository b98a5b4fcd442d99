//! The networks that `panoply train` knows by name.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use panoply::nn::data::Targets;
use panoply::nn::data::reader::{DataFormat, LabeledData};
use panoply::nn::nearest::did_you_mean;
use panoply::nn::network::layer_spec::{RnnSpec, TransformerEncoderSpec};
use panoply::nn::{ClassWeights, LayerSpec, Loss, LossKind, Network};
use panoply::{Error, Result};

use super::file_options::FileOptions;
use super::fine_tune::FineTune;
use super::model_file::is_onnx;

/// The network to train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelArg {
    /// Fully connected layers.
    Mlp,
    /// Convolution, batch normalization and pooling, once per entry of the channel list.
    Cnn,
    /// An LSTM over the rows.
    Lstm,
    /// A transformer encoder over the rows.
    Transformer,
    /// Layers listed in a file.
    File(PathBuf),
    /// A trained network in an ONNX file.
    Onnx(PathBuf),
}

impl FromStr for ModelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelArg, String> {
        match text {
            "mlp" => Ok(ModelArg::Mlp),
            "cnn" => Ok(ModelArg::Cnn),
            "lstm" => Ok(ModelArg::Lstm),
            "transformer" => Ok(ModelArg::Transformer),
            file if file.ends_with(".toml") => Ok(ModelArg::File(PathBuf::from(file))),
            file if is_onnx(Path::new(file)) => Ok(ModelArg::Onnx(PathBuf::from(file))),
            other => {
                let nearest = did_you_mean(other, &["mlp", "cnn", "lstm", "transformer"]);
                let known = "mlp, cnn, lstm, transformer, a FILE.toml or a FILE.onnx";
                Err(format!("unknown network `{other}`; {nearest} use {known}"))
            }
        }
    }
}

/// Default sizes of the hidden layers of an `mlp`.
pub const HIDDEN_SIZES: [usize; 2] = [128, 64];

impl ModelArg {
    /// Returns the spelling on the command line.
    pub fn name(&self) -> String {
        match self {
            ModelArg::Mlp => "mlp".to_string(),
            ModelArg::Cnn => "cnn".to_string(),
            ModelArg::Lstm => "lstm".to_string(),
            ModelArg::Transformer => "transformer".to_string(),
            ModelArg::File(file) | ModelArg::Onnx(file) => file.display().to_string(),
        }
    }

    /// Returns the options that a network file sets for training and data.
    pub fn file_options(&self) -> Result<FileOptions> {
        match self {
            ModelArg::File(file) => FileOptions::read(file),
            ModelArg::Mlp | ModelArg::Cnn | ModelArg::Lstm | ModelArg::Transformer | ModelArg::Onnx(_) => {
                Ok(Default::default())
            }
        }
    }

    /// Returns the network for this data, with its loss.
    ///
    /// `start` is the network of an ONNX file.
    pub fn network(
        &self,
        labeled: &LabeledData,
        sizes: &SizeArgs,
        (wanted, start): (&LossArgs, Option<&FineTune>),
    ) -> Result<Network> {
        let usual = || match labeled.dataset.targets {
            Targets::Classes { .. } => LossKind::CrossEntropy,
            Targets::Regression { .. } => LossKind::Mse,
            Targets::MultiLabel { .. } => LossKind::BceWithLogits,
        };
        let network = match (self, &labeled.format) {
            (ModelArg::Onnx(file), _) => {
                let start = start.ok_or_else(|| Error::mistake("the ONNX file was not read"))?;
                let fits_targets = |kind: &LossKind| Loss::new(*kind).for_targets(&labeled.dataset.targets).is_ok();
                let own = start.loss().filter(fits_targets).unwrap_or(usual());
                let loss = wanted.loss(Loss::new(own), labeled)?;
                let network = start.network(&labeled.dataset.example_shape)?;
                fits(&network, &loss, labeled, file)?;
                network.loss(loss)
            }
            (ModelArg::File(file), _) => {
                let network = Network::read(file)?;
                let own = wanted.kind.is_none().then(|| format!("the loss is set in {}", file.display()));
                let loss = wanted.loss(network.loss.clone(), labeled);
                let loss = loss.map_err(|error| own.map_or(error.clone(), |own| error.note(own)))?;
                fits(&network, &loss, labeled, file)?;
                network.loss(loss)
            }
            (_, DataFormat::Text { .. }) => self.text(labeled, sizes)?.loss(wanted.loss(Loss::default(), labeled)?),
            _ => self.preset(labeled, sizes, wanted.loss(Loss::new(usual()), labeled)?)?,
        };
        network.layer_shapes()?;
        Ok(network)
    }

    /// Returns a preset network.
    fn preset(&self, labeled: &LabeledData, sizes: &SizeArgs, loss: Loss) -> Result<Network> {
        let lengths = &labeled.dataset.example_shape;
        let hidden = self.hidden(sizes.hidden.as_deref())?;
        let mut network = Network::with_input(lengths);
        // Columns of tables and arrays have different scales, and images differ in contrast. The built-in digits are in 0 ..= 1 already.
        if labeled.format != DataFormat::Digits {
            network = network.add_layer(LayerSpec::Standardize {});
        }
        let drop = LayerSpec::Dropout { p: sizes.dropout };
        let network = match self {
            ModelArg::Cnn => cnn(network, &hidden, drop)?,
            ModelArg::Lstm => in_rows(network, lengths)
                .add_layer(LayerSpec::Lstm(RnnSpec::new(hidden[0])))
                .add_layer(LayerSpec::LastTimeStep {})
                .add_layer(drop),
            ModelArg::Transformer => {
                let start = in_rows(network, lengths).add_layer(LayerSpec::linear(hidden[0]));
                blocks(start, &hidden, sizes.dropout, false).add_layer(LayerSpec::TimeMean {})
            }
            ModelArg::Mlp | ModelArg::File(_) | ModelArg::Onnx(_) => {
                let flat = if lengths.len() > 1 { network.add_layer(LayerSpec::Flatten {}) } else { network };
                hidden.iter().fold(flat, |network, width| {
                    network.add_layer(LayerSpec::linear(*width)).add_layer(LayerSpec::Relu {}).add_layer(drop.clone())
                })
            }
        };
        let network = network.add_layer(LayerSpec::linear(loss.num_outputs(&labeled.dataset.targets)));
        Ok(if loss.kind.is_regression() { network.add_layer(LayerSpec::InverseStandardize {}) } else { network }
            .loss(loss))
    }

    /// Returns a language model that predicts the next character at each position.
    fn text(&self, labeled: &LabeledData, sizes: &SizeArgs) -> Result<Network> {
        let hidden = self.hidden(sizes.hidden.as_deref())?;
        let classes = labeled.dataset.num_classes();
        let letters = |width: usize| {
            let network = Network::with_input(&labeled.dataset.example_shape);
            network.add_layer(LayerSpec::Embedding { num_embeddings: classes, embedding_dim: width })
        };
        let network = match self {
            ModelArg::Lstm => letters(hidden[0].min(64))
                .add_layer(LayerSpec::Lstm(RnnSpec::new(hidden[0])))
                .add_layer(LayerSpec::Dropout { p: sizes.dropout }),
            ModelArg::Transformer => blocks(letters(hidden[0]), &hidden, sizes.dropout, true),
            _ => {
                let message = format!("{} cannot be trained on text: it is not a sequence model", self.name());
                return Err(Error::mistake(message).note("use `--model lstm` or `--model transformer`"));
            }
        };
        Ok(network.add_layer(LayerSpec::linear(classes)))
    }

    /// Returns the requested layer sizes, or the defaults.
    fn hidden(&self, requested: Option<&[usize]>) -> Result<Vec<usize>> {
        let (usual, fits, needs): (&[usize], fn(usize) -> bool, &str) = match self {
            ModelArg::Mlp | ModelArg::File(_) | ModelArg::Onnx(_) => (&HIDDEN_SIZES, |_| true, "any number of sizes"),
            ModelArg::Cnn => (&[16, 32], |count| count > 0, "the channels of each convolution"),
            ModelArg::Lstm => (&[64], |count| count == 1, "one size"),
            ModelArg::Transformer => (&[64, 2], |count| (1..=2).contains(&count), "a width and a number of layers"),
        };
        let hidden = requested.unwrap_or(usual);
        if !fits(hidden.len()) || hidden.contains(&0) {
            return Err(Error::mistake(format!(
                "--hidden-sizes {hidden:?}: {} takes {needs}, each at least 1",
                self.name()
            )));
        }
        Ok(hidden.to_vec())
    }
}

/// Options of the preset networks.
#[derive(Clone, Debug)]
pub struct SizeArgs {
    /// Sizes of the hidden layers.
    pub hidden: Option<Vec<usize>>,
    /// Dropout probability in training.
    pub dropout: f64,
}

/// Options of the loss.
#[derive(Clone, Debug)]
pub struct LossArgs {
    /// The loss function.
    pub kind: Option<LossKind>,
    /// Weight of each class.
    pub class_weights: Option<ClassWeights>,
}

impl LossArgs {
    /// Returns the default loss, or the requested one if it fits the data; another loss function drops the settings of the default.
    /// Balanced class weights are computed later.
    pub fn loss(&self, usual: Loss, labeled: &LabeledData) -> Result<Loss> {
        let mut loss = self.kind.filter(|kind| *kind != usual.kind).map_or(usual, Loss::new);
        loss.class_weights = self.class_weights.clone().or(loss.class_weights);
        if let (DataFormat::Text { .. }, false) = (&labeled.format, loss.kind == LossKind::CrossEntropy) {
            let message = format!("the loss {} cannot be used for text", loss.kind.name());
            return Err(Error::mistake(message).note("use cross_entropy"));
        }
        if let (DataFormat::Text { .. }, true) = (&labeled.format, loss.class_weights.is_some()) {
            let message = "class weights cannot be used for text: perplexity needs equal weights";
            return Err(Error::mistake(message).note("remove them"));
        }
        let (fitted, classes) = (loss.for_targets(&labeled.dataset.targets), &labeled.class_names);
        match (fitted, &loss.class_weights) {
            (Ok(_), _) => Ok(loss),
            (Err(error), Some(ClassWeights::PerClass(weights)))
                if !classes.is_empty() && weights.len() != classes.len() =>
            {
                let first: Vec<&str> = classes.iter().take(NAMED).map(String::as_str).collect();
                let more = if classes.len() > NAMED { ", …" } else { "" };
                Err(error.note(format!("the classes are, in this order, {}{more}", first.join(", "))))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Maximum number of classes that a message names.
const NAMED: usize = 20;

/// Reshapes an image to a sequence of its rows and a vector to a sequence of numbers; sequences are kept.
fn in_rows(network: Network, lengths: &[usize]) -> Network {
    if lengths.len() == 2 {
        return network;
    }
    let time = lengths[..lengths.len() - 1].iter().product::<usize>();
    let last = lengths[lengths.len() - 1];
    network.add_layer(LayerSpec::Reshape { shape: if lengths.len() > 1 { vec![time, last] } else { vec![last, 1] } })
}

/// Stacks convolution, batch norm and ReLU, with pooling while the image is large enough. The convolutions have no bias because the
/// norm that follows cancels any constant.
fn cnn(network: Network, channels: &[usize], drop: LayerSpec) -> Result<Network> {
    let [_, mut rows, mut columns] = network.input[..] else {
        let message = format!("cnn needs images, but the examples have shape {:?}", network.input);
        return Err(Error::mistake(message).note("use `--model mlp` for rows of numbers"));
    };
    let mut network = network;
    for outputs in channels {
        let filters = LayerSpec::Conv {
            out_channels: *outputs,
            in_channels: None,
            kernel_size: vec![3, 3],
            stride: vec![],
            padding: [1, 1].into(),
            dilation: vec![],
            groups: 1,
            bias: false,
        };
        network = network.add_layer(filters).add_layer(LayerSpec::batch_norm()).add_layer(LayerSpec::Relu {});
        if rows >= 2 && columns >= 2 {
            network = network.add_layer(LayerSpec::max_pool(&[2, 2]));
            (rows, columns) = (rows / 2, columns / 2);
        }
    }
    Ok(network.add_layer(LayerSpec::Flatten {}).add_layer(drop))
}

/// Adds positional encoding, transformer blocks and a layer norm over `[time, hidden[0]]`.
fn blocks(network: Network, hidden: &[usize], dropout: f64, causal: bool) -> Network {
    let (width, count) = (hidden[0], hidden.get(1).copied().unwrap_or(2));
    let heads = [4, 2, 1].into_iter().find(|heads| width.is_multiple_of(*heads)).unwrap_or(1);
    let block = LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec {
        dropout,
        is_causal: causal,
        ..TransformerEncoderSpec::new(heads, 2 * width)
    });
    let start = network.add_layer(LayerSpec::PositionalEncoding {});
    (0..count).fold(start, |network, _| network.add_layer(block.clone())).add_layer(LayerSpec::layer_norm())
}

/// Returns an error unless the network of a file takes these examples and its output fits the loss and the targets.
pub fn fits(network: &Network, loss: &Loss, labeled: &LabeledData, file: &Path) -> Result<()> {
    let lengths = &labeled.dataset.example_shape;
    if !network.accepts_shape(lengths) || (labeled.dataset.seq_lengths.is_some() && network.input != *lengths) {
        let message =
            format!("{}: input {:?} does not match examples of shape {lengths:?}", file.display(), network.input);
        return Err(Error::mistake(message));
    }
    let (output, outputs) = (network.output_shape()?, loss.num_outputs(&labeled.dataset.targets));
    let (wanted, what) = match &labeled.dataset.targets {
        Targets::Classes { num_classes: classes, labels_per_example: 1, .. } => {
            (vec![outputs], format!("there are {classes} classes"))
        }
        Targets::Classes { num_classes: classes, labels_per_example: places, .. } => {
            (vec![*places, outputs], format!("there are {classes} characters at {places} positions"))
        }
        Targets::Regression { num_outputs: width, .. } => (vec![outputs], format!("there are {width} target values")),
        Targets::MultiLabel { num_labels: width, .. } => (vec![outputs], format!("there are {width} yes/no labels")),
    };
    if output != wanted {
        let message = format!("{}: its output is {output:?}, but {what}", file.display());
        let note = match output.len() > wanted.len() {
            true => "a `flatten` layer turns each example into one row".to_string(),
            false => format!("for {} the last layer must have out_features = {outputs}", loss.kind.name()),
        };
        return Err(Error::mistake(message).note(note));
    }
    Ok(())
}
