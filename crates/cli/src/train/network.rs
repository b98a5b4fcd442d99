//! The networks that `panoply train` knows, and how a file says which one it holds.

use std::collections::HashMap;

use clap::ValueEnum;
use panoply::nn::{
    BatchNorm, Cell, Conv2d, DropoutLayer, Flatten, Linear, Map, MaxPool, Recurrent, Sequential, Unflatten,
};
use panoply::{Conv, Rng, Tensor};

/// A kind of network for images of 8 × 8 points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Dense layers.
    Mlp,
    /// Convolution, batch normalisation and pooling, twice.
    Cnn,
    /// A long short-term memory that reads row after row.
    Lstm,
}

/// What determines a network but for its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The kind.
    pub kind: Kind,
    /// Widths of the hidden layers: of dense layers, channels of the two convolutions, or the memory's width.
    pub hidden: Vec<usize>,
    /// Probability of dropping an activation in training.
    pub dropout: f64,
}

/// Points of an image, along one side, and classes.
const SIDE: usize = 8;
const CLASSES: usize = 10;

impl Network {
    /// The network asked for, or what is wrong with the widths.
    pub fn new(kind: Kind, hidden: Option<Vec<usize>>, dropout: f64) -> Result<Network, String> {
        let hidden = hidden.unwrap_or_else(|| match kind {
            Kind::Mlp => vec![128, 64],
            Kind::Cnn => vec![16, 32],
            Kind::Lstm => vec![64],
        });
        let (fits, needs) = match kind {
            Kind::Mlp => (true, "any number of widths"),
            Kind::Cnn => (hidden.len() == 2, "two numbers of channels"),
            Kind::Lstm => (hidden.len() == 1, "one width"),
        };
        if !fits || hidden.iter().any(|width| !(1..=1 << 20).contains(width)) {
            return Err(format!("--hidden {hidden:?}: {} takes {needs}, each at least 1", kind.name()));
        }
        Ok(Network { kind, hidden, dropout })
    }

    /// The network at the start of training.
    pub fn build(&self, rng: &mut Rng) -> Sequential {
        let drop = DropoutLayer { probability: self.dropout };
        match self.kind {
            Kind::Mlp => {
                let widths: Vec<usize> = [SIDE * SIDE].into_iter().chain(self.hidden.clone()).collect();
                let dense = widths.windows(2).fold(Sequential::new(), |layers, pair| {
                    layers.then(Linear::new(pair[0], pair[1], rng)).then(Map(Tensor::relu)).then(drop)
                });
                dense.then(Linear::new(widths[widths.len() - 1], CLASSES, rng))
            }
            Kind::Cnn => {
                let padded = Conv { padding: [1, 1], ..Conv::default() };
                let mut layers = Sequential::new().then(Unflatten(vec![1, SIDE, SIDE]));
                let mut channels = 1;
                for next in &self.hidden {
                    layers = layers
                        .then(Conv2d::with(channels, *next, [3, 3], padded, rng).without_bias())
                        .then(BatchNorm::new(*next))
                        .then(Map(Tensor::relu))
                        .then(MaxPool::new([2, 2]));
                    channels = *next;
                }
                let side = SIDE >> self.hidden.len();
                layers.then(Flatten).then(drop).then(Linear::new(channels * side * side, CLASSES, rng))
            }
            Kind::Lstm => Sequential::new()
                .then(Unflatten(vec![SIDE, SIDE]))
                .then(Recurrent::new(Cell::Lstm, SIDE, self.hidden[0], 1, false, rng))
                .then(Map(|states| states.slice((.., -1))))
                .then(drop)
                .then(Linear::new(self.hidden[0], CLASSES, rng)),
        }
    }

    /// What a file says of it.
    pub fn describe(&self) -> HashMap<String, String> {
        let hidden: Vec<String> = self.hidden.iter().map(usize::to_string).collect();
        let entries = [("network", self.kind.name().to_string()), ("hidden", hidden.join(","))];
        entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }

    /// The network a file describes, if it describes one.
    pub fn described(by: &HashMap<String, String>) -> Option<Network> {
        let kind = [Kind::Mlp, Kind::Cnn, Kind::Lstm]
            .into_iter()
            .find(|kind| by.get("network") == Some(&kind.name().to_string()))?;
        let hidden: Option<Vec<usize>> = by.get("hidden")?.split(',').map(|width| width.parse().ok()).collect();
        Network::new(kind, Some(hidden?), 0.0).ok()
    }
}

impl Kind {
    /// As it is spelled on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mlp => "mlp",
            Kind::Cnn => "cnn",
            Kind::Lstm => "lstm",
        }
    }
}
