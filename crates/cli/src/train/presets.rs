//! The networks that `panoply train` knows by name, for the examples at hand.

use std::path::PathBuf;
use std::str::FromStr;

use panoply::nn::data::Targets;
use panoply::nn::data::source::{Labelled, Source};
use panoply::nn::network::layer_spec::{Block, Memory};
use panoply::nn::{LayerSpec, Loss, LossKind, Network};
use panoply::{Error, Result};

/// Which network to train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Dense layers.
    Mlp,
    /// Convolution, batch normalisation and pooling, once for each number of channels.
    Cnn,
    /// A long short-term memory that reads row after row.
    Lstm,
    /// Attention between the rows.
    Transformer,
    /// What a file says.
    File(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match text {
            "mlp" => Ok(Choice::Mlp),
            "cnn" => Ok(Choice::Cnn),
            "lstm" => Ok(Choice::Lstm),
            "transformer" => Ok(Choice::Transformer),
            file if file.ends_with(".toml") => Ok(Choice::File(PathBuf::from(file))),
            other => Err(format!("there is no network `{other}`; take mlp, cnn, lstm, transformer or a FILE.toml")),
        }
    }
}

impl Choice {
    /// As it is spelled on the command line.
    pub fn name(&self) -> String {
        match self {
            Choice::Mlp => "mlp".to_string(),
            Choice::Cnn => "cnn".to_string(),
            Choice::Lstm => "lstm".to_string(),
            Choice::Transformer => "transformer".to_string(),
            Choice::File(file) => file.display().to_string(),
        }
    }

    /// The network for this data.
    pub fn network(&self, labelled: &Labelled, sizes: &Sizes) -> Result<Network> {
        if let Choice::File(file) = self {
            return from_file(file, labelled);
        }
        if let Source::Text { .. } = labelled.source {
            return self.text(labelled, sizes);
        }
        let lengths = &labelled.data.lengths;
        let hidden = self.hidden(sizes.hidden.as_deref())?;
        let mut network = Network::with_input(lengths);
        // Columns of a table have scales of their own.
        if let Source::Csv { .. } = labelled.source {
            network = network.add_layer(LayerSpec::Standardise {});
        }
        let drop = LayerSpec::Dropout { probability: sizes.dropout };
        let network = match self {
            Choice::Cnn => cnn(network, &hidden, drop)?,
            Choice::Lstm => in_rows(network, lengths)
                .add_layer(LayerSpec::Lstm(Memory::new(hidden[0])))
                .add_layer(LayerSpec::Last {})
                .add_layer(drop),
            Choice::Transformer => {
                let start = in_rows(network, lengths).add_layer(LayerSpec::linear(hidden[0]));
                blocks(start, &hidden, sizes.dropout, false).add_layer(LayerSpec::MeanOverTime {})
            }
            Choice::Mlp | Choice::File(_) => {
                let flat = if lengths.len() > 1 { network.add_layer(LayerSpec::Flatten {}) } else { network };
                hidden.iter().fold(flat, |network, width| {
                    network.add_layer(LayerSpec::linear(*width)).add_layer(LayerSpec::Relu {}).add_layer(drop.clone())
                })
            }
        };
        let network = match &labelled.data.targets {
            Targets::Classes { classes, .. } => network.add_layer(LayerSpec::linear(*classes)),
            Targets::Numbers { width, .. } => network
                .add_layer(LayerSpec::linear(*width))
                .add_layer(LayerSpec::Restore {})
                .loss(Loss::new(LossKind::Mse)),
        };
        network.shapes()?;
        Ok(network)
    }

    /// A network that tells from characters the next one, at each of them.
    fn text(&self, labelled: &Labelled, sizes: &Sizes) -> Result<Network> {
        let hidden = self.hidden(sizes.hidden.as_deref())?;
        let classes = labelled.data.classes();
        let letters = |width: usize| {
            let network = Network::with_input(&labelled.data.lengths);
            network.add_layer(LayerSpec::Embedding { count: classes, width })
        };
        let network = match self {
            Choice::Lstm => letters(hidden[0].min(64))
                .add_layer(LayerSpec::Lstm(Memory::new(hidden[0])))
                .add_layer(LayerSpec::Dropout { probability: sizes.dropout }),
            Choice::Transformer => blocks(letters(hidden[0]), &hidden, sizes.dropout, true),
            _ => {
                let message =
                    format!("{} does not read texts, in which each character has others before it", self.name());
                return Err(Error::mistake(message).note("`--model lstm` and `--model transformer` do"));
            }
        };
        let network = network.add_layer(LayerSpec::linear(classes));
        network.shapes()?;
        Ok(network)
    }

    /// The widths asked for, or the usual ones.
    fn hidden(&self, asked: Option<&[usize]>) -> Result<Vec<usize>> {
        let (usual, fits, needs): (&[usize], fn(usize) -> bool, &str) = match self {
            Choice::Mlp | Choice::File(_) => (&[128, 64], |_| true, "any number of widths"),
            Choice::Cnn => (&[16, 32], |count| count > 0, "the channels of each convolution"),
            Choice::Lstm => (&[64], |count| count == 1, "one width"),
            Choice::Transformer => (&[64, 2], |count| (1..=2).contains(&count), "a width and a number of blocks"),
        };
        let hidden = asked.unwrap_or(usual);
        if !fits(hidden.len()) || hidden.contains(&0) {
            return Err(Error::mistake(format!("--hidden {hidden:?}: {} takes {needs}, each at least 1", self.name())));
        }
        Ok(hidden.to_vec())
    }
}

/// What may be said about a network that is known by name.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Widths of what lies between input and output.
    pub hidden: Option<Vec<usize>>,
    /// Probability of dropping an activation in training.
    pub dropout: f64,
}

/// Images as rows one under another, numbers of a row as a time each; sequences are what they are.
fn in_rows(network: Network, lengths: &[usize]) -> Network {
    if lengths.len() == 2 {
        return network;
    }
    let time = lengths[..lengths.len() - 1].iter().product::<usize>();
    let last = lengths[lengths.len() - 1];
    network.add_layer(LayerSpec::Reshape { lengths: if lengths.len() > 1 { vec![time, last] } else { vec![last, 1] } })
}

/// Convolution, norm, relu, and pooling while the image bears it. No bias before a norm, which takes any constant away.
fn cnn(network: Network, channels: &[usize], drop: LayerSpec) -> Result<Network> {
    let [_, mut rows, mut columns] = network.input[..] else {
        let message = format!("cnn needs images, these examples are {:?}", network.input);
        return Err(Error::mistake(message).note("`--model mlp` takes rows of numbers"));
    };
    let mut network = network;
    for outputs in channels {
        let filters = LayerSpec::Conv {
            outputs: *outputs,
            inputs: None,
            size: vec![3, 3],
            stride: vec![],
            padding: vec![1, 1],
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

/// Places, blocks of attention and a norm over `[time, hidden[0]]`.
fn blocks(network: Network, hidden: &[usize], dropout: f64, causal: bool) -> Network {
    let (width, count) = (hidden[0], hidden.get(1).copied().unwrap_or(2));
    let heads = [4, 2, 1].into_iter().find(|heads| width.is_multiple_of(*heads)).unwrap_or(1);
    let block = LayerSpec::Encoder(Block { dropout, causal, ..Block::new(heads, 2 * width) });
    let start = network.add_layer(LayerSpec::Positions {});
    (0..count).fold(start, |network, _| network.add_layer(block.clone())).add_layer(LayerSpec::layer_norm())
}

fn from_file(file: &std::path::Path, labelled: &Labelled) -> Result<Network> {
    let network = Network::read(file)?;
    let lengths = &labelled.data.lengths;
    let size = |lengths: &[usize]| lengths.iter().product::<usize>();
    if size(&network.input) != size(lengths) || (labelled.data.times.is_some() && network.input != *lengths) {
        let message =
            format!("{}: input {:?} does not hold these examples of {lengths:?}", file.display(), network.input);
        return Err(Error::mistake(message));
    }
    let output = network.output()?;
    let (wanted, what) = match &labelled.data.targets {
        Targets::Classes { classes, places: 1, .. } => (vec![*classes], format!("there are {classes} classes")),
        Targets::Classes { classes, places, .. } => {
            (vec![*places, *classes], format!("there are {classes} characters at {places} times"))
        }
        Targets::Numbers { width, .. } => (vec![*width], format!("{width} numbers are to be learned")),
    };
    let outputs = wanted[wanted.len() - 1];
    if output != wanted {
        let message = format!("{}: it gives {output:?}, but {what}", file.display());
        return Err(Error::mistake(message).note(format!("the last layer must have outputs = {outputs}")));
    }
    if network.loss.kind.is_of_classes() != matches!(labelled.data.targets, Targets::Classes { .. }) {
        let note = match network.loss.kind.is_of_classes() {
            true => "numbers take loss = { kind = \"mse\" }, \"l1\" or \"huber\"",
            false => "classes take loss = { kind = \"cross_entropy\" }",
        };
        return Err(Error::mistake(format!("{}: its loss does not fit: {what}", file.display())).note(note));
    }
    Ok(network)
}
