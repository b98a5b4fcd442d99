//! What a layer is, but for its parameters.

use serde::{Deserialize, Serialize};

/// A layer of a [`super::Network`]. Sizes of what goes in follow from the layer before; where they may be said all the
/// same, they are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerSpec {
    /// A dense layer over the last axis.
    Linear {
        /// Numbers that come out.
        outputs: usize,
        /// Numbers that go in, if they are to be checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inputs: Option<usize>,
        /// Whether something is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Filters over `[channels, lengths]` with one, two or three lengths, as many as `size` has.
    Conv {
        /// Filters.
        outputs: usize,
        /// Channels that go in, if they are to be checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inputs: Option<usize>,
        /// Lengths of a filter.
        size: Vec<usize>,
        /// Distance between positions along each axis; 1 if none is said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stride: Vec<usize>,
        /// Zeros on both sides of each axis; none if none is said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        padding: Vec<usize>,
        /// Parts of the channels that do not see each other.
        #[serde(default = "one")]
        groups: usize,
        /// Whether something is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Largest of windows side by side.
    MaxPool {
        /// Lengths of a window.
        size: Vec<usize>,
    },
    /// Mean of windows side by side.
    AveragePool {
        /// Lengths of a window.
        size: Vec<usize>,
    },
    /// Mean over all of `[channels, lengths]` but the channels.
    GlobalAveragePool {},
    /// Each channel normalised over the batch.
    BatchNorm {
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// The last axis normalised.
    LayerNorm {
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Numbers less a mean and over a deviation, both states `[lengths]` set from data; see [`crate::Standardise`].
    Standardise {},
    /// Elements dropped in training.
    Dropout {
        /// How likely.
        probability: f64,
    },
    /// max(x, 0).
    Relu {},
    /// x · Φ(x).
    Gelu {},
    /// x · sigmoid(x).
    Silu {},
    /// 1 / (1 + exp(-x)).
    Sigmoid {},
    /// Hyperbolic tangent.
    Tanh {},
    /// Shares along the last axis.
    Softmax {},
    /// All axes as one.
    Flatten {},
    /// The same numbers with other axes.
    Reshape {
        /// Their lengths.
        lengths: Vec<usize>,
    },
    /// Plain recurrent layers over `[time, features]`.
    Rnn(Memory),
    /// Long short-term memories over `[time, features]`.
    Lstm(Memory),
    /// Gated recurrent units over `[time, features]`.
    Gru(Memory),
    /// Of `[time, features]` the last time.
    Last {},
    /// Of `[time, features]` the mean over time.
    MeanOverTime {},
    /// Sines and cosines of the time added to `[time, features]`.
    Positions {},
    /// A transformer block over `[time, features]`: self-attention and dense layers, norms first.
    Encoder {
        /// Heads of attention; they divide the features.
        heads: usize,
        /// Width between the dense layers.
        inner: usize,
        /// Probability of dropping what is added in training.
        #[serde(default)]
        dropout: f64,
    },
}

/// Size of a recurrent layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Width of the state.
    pub hidden: usize,
    /// Numbers that go in at a time, if they are to be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<usize>,
    /// Layers one over the other.
    #[serde(default = "one")]
    pub layers: usize,
    /// Whether it also reads backwards.
    #[serde(default)]
    pub both: bool,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

fn epsilon() -> f64 {
    1e-5
}

impl Memory {
    /// One layer, forwards.
    pub fn new(hidden: usize) -> Memory {
        Memory { hidden, inputs: None, layers: 1, both: false }
    }
}

impl LayerSpec {
    /// A dense layer with a bias.
    pub fn linear(outputs: usize) -> LayerSpec {
        LayerSpec::Linear { outputs, inputs: None, bias: true }
    }

    /// Filters of this size at every position, zeros around so that lengths stay if the size is odd, with a bias.
    pub fn conv(outputs: usize, size: &[usize]) -> LayerSpec {
        let padding = size.iter().map(|length| length / 2).collect();
        LayerSpec::Conv {
            outputs,
            inputs: None,
            size: size.to_vec(),
            stride: Vec::new(),
            padding,
            groups: 1,
            bias: true,
        }
    }

    /// Largest of windows of this size side by side.
    pub fn max_pool(size: &[usize]) -> LayerSpec {
        LayerSpec::MaxPool { size: size.to_vec() }
    }

    /// Each channel normalised over the batch, 1e-5 added to the variance.
    pub fn batch_norm() -> LayerSpec {
        LayerSpec::BatchNorm { epsilon: epsilon() }
    }

    /// The last axis normalised, 1e-5 added to the variance.
    pub fn layer_norm() -> LayerSpec {
        LayerSpec::LayerNorm { epsilon: epsilon() }
    }

    /// The same layer, whose inputs are checked: numbers of a dense layer, channels of filters, features of a memory.
    #[must_use]
    pub fn taking(mut self, count: usize) -> LayerSpec {
        match &mut self {
            LayerSpec::Linear { inputs, .. } | LayerSpec::Conv { inputs, .. } => *inputs = Some(count),
            LayerSpec::Rnn(memory) | LayerSpec::Lstm(memory) | LayerSpec::Gru(memory) => memory.inputs = Some(count),
            _ => {}
        }
        self
    }

    /// As it is spelled in files.
    pub fn kind(&self) -> &'static str {
        match self {
            LayerSpec::Linear { .. } => "linear",
            LayerSpec::Conv { .. } => "conv",
            LayerSpec::MaxPool { .. } => "max_pool",
            LayerSpec::AveragePool { .. } => "average_pool",
            LayerSpec::GlobalAveragePool {} => "global_average_pool",
            LayerSpec::BatchNorm { .. } => "batch_norm",
            LayerSpec::LayerNorm { .. } => "layer_norm",
            LayerSpec::Standardise {} => "standardise",
            LayerSpec::Dropout { .. } => "dropout",
            LayerSpec::Relu {} => "relu",
            LayerSpec::Gelu {} => "gelu",
            LayerSpec::Silu {} => "silu",
            LayerSpec::Sigmoid {} => "sigmoid",
            LayerSpec::Tanh {} => "tanh",
            LayerSpec::Softmax {} => "softmax",
            LayerSpec::Flatten {} => "flatten",
            LayerSpec::Reshape { .. } => "reshape",
            LayerSpec::Rnn(_) => "rnn",
            LayerSpec::Lstm(_) => "lstm",
            LayerSpec::Gru(_) => "gru",
            LayerSpec::Last {} => "last",
            LayerSpec::MeanOverTime {} => "mean_over_time",
            LayerSpec::Positions {} => "positions",
            LayerSpec::Encoder { .. } => "encoder",
        }
    }
}
