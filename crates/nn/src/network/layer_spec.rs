//! What a layer is, but for its parameters.

use serde::{Deserialize, Serialize};

use crate::layers::Activation;

mod kind;

/// A layer of a [`super::Network`]. Sizes of what goes in follow from the layer before; where they may be said all the
/// same, they are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerSpec {
    /// A dense layer over the last axis.
    Linear {
        /// Numbers that come out.
        out_features: usize,
        /// Numbers that go in, if they are to be checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_features: Option<usize>,
        /// Whether something is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Filters over `[channels, lengths]` with one, two or three lengths, as many as `size` has.
    Conv {
        /// Filters.
        out_channels: usize,
        /// Channels that go in, if they are to be checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_channels: Option<usize>,
        /// Lengths of a filter.
        kernel_size: Vec<usize>,
        /// Distance between positions along each axis; 1 if none is said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stride: Vec<usize>,
        /// Zeros on both sides of each axis; none if none is said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        padding: Vec<usize>,
        /// Distance between a filter's elements along each axis; 1 if none is said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dilation: Vec<usize>,
        /// Parts of the channels that do not see each other.
        #[serde(default = "one")]
        groups: usize,
        /// Whether something is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// The transpose of filters, which makes `[channels, lengths]` longer.
    ConvTranspose(ConvTransposeSpec),
    /// Largest of windows.
    MaxPool(PoolSpec),
    /// Mean of windows; zeros around count.
    AvgPool(PoolSpec),
    /// Means of parts of the lengths, so many of them whatever the lengths are.
    AdaptiveAvgPool {
        /// Parts of each axis.
        output_size: Vec<usize>,
    },
    /// Largest of parts of the lengths.
    AdaptiveMaxPool {
        /// Parts of each axis.
        output_size: Vec<usize>,
    },
    /// Mean over all of `[channels, lengths]` but the channels.
    GlobalAvgPool {},
    /// Largest over all of `[channels, lengths]` but the channels.
    GlobalMaxPool {},
    /// Each channel normalized over the batch.
    BatchNorm {
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// The last axis normalized.
    LayerNorm {
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// The channels of `[channels, lengths]` normalized in parts.
    GroupNorm {
        /// Parts; they divide the channels.
        num_groups: usize,
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// The last axis scaled to a mean square of 1.
    RmsNorm {
        /// Added to the mean square.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Numbers less a mean and over a deviation, both states `[lengths]` set from data; see [`crate::Standardize`].
    Standardize {},
    /// Numbers times a deviation and plus a mean, both states `[lengths]` set from data: back from what [`LayerSpec::Standardize`]
    /// does to the scale of the targets.
    InverseStandardize {},
    /// In training, images moved by some points at random along each axis of `[channels, lengths]`, zeros where nothing was.
    RandomShift {
        /// The most points.
        max_shift: usize,
    },
    /// In training, images turned round along their last axis at random.
    RandomHorizontalFlip {
        /// How likely.
        p: f64,
    },
    /// In training, normal random numbers added.
    GaussianNoise {
        /// Their deviation.
        stddev: f64,
    },
    /// Elements dropped in training.
    Dropout {
        /// How likely.
        p: f64,
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
    /// x where it is positive, a share of it elsewhere.
    LeakyRelu {
        /// The share.
        #[serde(default = "slope")]
        negative_slope: f64,
    },
    /// x where it is positive, exp(x) - 1 elsewhere.
    Elu {},
    /// ln(1 + exp(x)).
    Softplus {},
    /// x · tanh(softplus(x)).
    Mish {},
    /// [`LayerSpec::Gelu`] with the hyperbolic tangent in place of the error function.
    GeluTanh {},
    /// [`LayerSpec::Elu`] scaled so that activations keep mean 0 and variance 1.
    Selu {},
    /// x limited to 0 ..= 6.
    Relu6 {},
    /// (x + 3) / 6 limited to 0 ..= 1.
    Hardsigmoid {},
    /// x times its hard sigmoid.
    Hardswish {},
    /// x / (1 + |x|).
    Softsign {},
    /// ln(sigmoid(x)).
    Logsigmoid {},
    /// Shares along the last axis.
    Softmax {},
    /// Logarithms of shares along the last axis.
    LogSoftmax {},
    /// All axes as one.
    Flatten {},
    /// The same numbers with other axes.
    Reshape {
        /// Their lengths.
        shape: Vec<usize>,
    },
    /// A vector for each of some whole numbers: `[…]` becomes `[…, width]`.
    Embedding {
        /// The numbers are 0 .. count.
        num_embeddings: usize,
        /// Length of a vector.
        embedding_dim: usize,
    },
    /// Plain recurrent layers over `[time, features]`.
    Rnn(RnnSpec),
    /// Long short-term memories over `[time, features]`.
    Lstm(RnnSpec),
    /// Gated recurrent units over `[time, features]`.
    Gru(RnnSpec),
    /// Of `[time, features]` the last time.
    LastTimeStep {},
    /// Of `[time, features]` the mean over time.
    TimeMean {},
    /// Sines and cosines of the time added to `[time, features]`.
    PositionalEncoding {},
    /// Of the first axis a part.
    Narrow {
        /// The first place that is kept, counted from 0.
        #[serde(default)]
        start: usize,
        /// How many are kept.
        length: usize,
    },
    /// Each time of `[time, features]` looks at the others, or at those of another sequence, in several heads.
    MultiHeadAttention {
        /// Heads; they divide the features.
        num_heads: usize,
        /// Heads of keys and values, where neighboring heads share them; they divide the heads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_kv_heads: Option<usize>,
        /// Whether each time sees only those up to itself.
        #[serde(default, skip_serializing_if = "is_false")]
        is_causal: bool,
        /// What makes of the input the sequence that is looked at; the input is, if there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        memory: Vec<LayerSpec>,
    },
    /// What layers make of an input, added to the input or to what other layers make of it.
    Residual {
        /// What is added.
        layers: Vec<LayerSpec>,
        /// To what; to the input if there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shortcut: Vec<LayerSpec>,
    },
    /// Layers whose inner values are computed anew for the gradient: less memory, more work, the same results.
    ActivationCheckpoint {
        /// In order.
        layers: Vec<LayerSpec>,
    },
    /// A transformer block over `[time, features]`: self-attention and dense layers.
    TransformerEncoderLayer(TransformerEncoderSpec),
    /// Blocks of a transformer's decoder, all of which look at one other sequence.
    TransformerDecoder(TransformerDecoderSpec),
}

/// A block of a transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerEncoderSpec {
    /// Heads of attention; they divide the features.
    pub num_heads: usize,
    /// Width between the dense layers.
    pub dim_feedforward: usize,
    /// Probability of dropping what is added in training.
    #[serde(default)]
    pub dropout: f64,
    /// Whether each time sees only those up to itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_causal: bool,
    /// Whether norms stand before attention and dense layers, not behind the sums.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub norm_first: bool,
    /// Between the dense layers.
    #[serde(default, skip_serializing_if = "is_gelu")]
    pub activation: Activation,
    /// Added to the variance in the norms.
    #[serde(default = "epsilon", skip_serializing_if = "is_epsilon")]
    pub epsilon: f64,
}

/// A transformer's decoder: self-attention up to each time, attention to another sequence, dense layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerDecoderSpec {
    /// Heads of attention; they divide the features.
    pub num_heads: usize,
    /// Width between the dense layers.
    pub dim_feedforward: usize,
    /// Blocks one over the other.
    #[serde(default = "one")]
    pub num_layers: usize,
    /// Probability of dropping what is added in training.
    #[serde(default)]
    pub dropout: f64,
    /// Whether norms stand before attention and dense layers, not behind the sums.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub norm_first: bool,
    /// Between the dense layers.
    #[serde(default, skip_serializing_if = "is_gelu")]
    pub activation: Activation,
    /// Added to the variance in the norms.
    #[serde(default = "epsilon", skip_serializing_if = "is_epsilon")]
    pub epsilon: f64,
    /// What makes of the input the sequence that is decoded; the input is, if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<LayerSpec>,
    /// What makes of the input the sequence that is looked at.
    pub memory: Vec<LayerSpec>,
}

/// Layers that a layer consists of.
#[derive(Clone, Copy, Debug)]
pub struct Sublayers<'a> {
    /// As it is spelled in files.
    pub name: &'static str,
    /// What stands before the names of its parameters.
    pub params: &'static str,
    /// In order.
    pub layers: &'a [LayerSpec],
}

/// Windows that move over the lengths of `[channels, lengths]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Lengths of a window.
    pub kernel_size: Vec<usize>,
    /// Distance between windows along each axis; side by side if none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stride: Vec<usize>,
    /// What counts least on both sides of each axis; none if none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub padding: Vec<usize>,
}

/// The transpose of filters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTransposeSpec {
    /// Channels that come out.
    pub out_channels: usize,
    /// Channels that go in, if they are to be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_channels: Option<usize>,
    /// Lengths of a filter.
    pub kernel_size: Vec<usize>,
    /// By how much each axis grows, about; 1 if none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stride: Vec<usize>,
    /// What is taken away on both sides of each axis; nothing if none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub padding: Vec<usize>,
    /// Elements added at the end of each axis; none if none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_padding: Vec<usize>,
    /// Parts of the channels that do not see each other.
    #[serde(default = "one")]
    pub groups: usize,
    /// Whether something is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// Size of a recurrent layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RnnSpec {
    /// Width of the state.
    pub hidden_size: usize,
    /// Numbers that go in at a time, if they are to be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_size: Option<usize>,
    /// Layers one over the other.
    #[serde(default = "one")]
    pub num_layers: usize,
    /// Whether it also reads backwards.
    #[serde(default)]
    pub bidirectional: bool,
    /// Of the sum in each step of a plain recurrent layer; LSTMs and GRUs have activations of their own.
    #[serde(default, skip_serializing_if = "is_tanh")]
    pub nonlinearity: Nonlinearity,
}

/// The activation of a plain recurrent layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// max(x, 0).
    Relu,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_gelu(activation: &Activation) -> bool {
    *activation == Activation::Gelu
}

fn is_tanh(nonlinearity: &Nonlinearity) -> bool {
    *nonlinearity == Nonlinearity::Tanh
}

fn is_epsilon(value: &f64) -> bool {
    *value == epsilon()
}

fn slope() -> f64 {
    0.01
}

fn epsilon() -> f64 {
    1e-5
}

impl RnnSpec {
    /// One layer, forwards.
    pub fn new(hidden: usize) -> RnnSpec {
        RnnSpec {
            hidden_size: hidden,
            input_size: None,
            num_layers: 1,
            bidirectional: false,
            nonlinearity: Nonlinearity::Tanh,
        }
    }
}

impl TransformerEncoderSpec {
    /// That sees all times, without dropout, norms first, with gelu and epsilon 1e-5.
    pub fn new(heads: usize, inner: usize) -> TransformerEncoderSpec {
        let (activation, epsilon) = (Activation::Gelu, epsilon());
        TransformerEncoderSpec {
            num_heads: heads,
            dim_feedforward: inner,
            dropout: 0.0,
            is_causal: false,
            norm_first: true,
            activation,
            epsilon,
        }
    }
}

impl TransformerDecoderSpec {
    /// One block that looks at what these layers make of the input, without dropout, norms first, with gelu and epsilon 1e-5.
    pub fn new(heads: usize, inner: usize, source: Vec<LayerSpec>) -> TransformerDecoderSpec {
        let (activation, epsilon) = (Activation::Gelu, epsilon());
        let layers = Vec::new();
        TransformerDecoderSpec {
            num_heads: heads,
            dim_feedforward: inner,
            num_layers: 1,
            dropout: 0.0,
            norm_first: true,
            activation,
            epsilon,
            target: layers,
            memory: source,
        }
    }
}

impl PoolSpec {
    /// Side by side.
    pub fn new(size: &[usize]) -> PoolSpec {
        PoolSpec { kernel_size: size.to_vec(), stride: Vec::new(), padding: Vec::new() }
    }
}

impl ConvTransposeSpec {
    /// Filters of this size and stride with a bias, nothing taken away and nothing added.
    pub fn new(outputs: usize, size: &[usize], stride: &[usize]) -> ConvTransposeSpec {
        let (size, stride) = (size.to_vec(), stride.to_vec());
        ConvTransposeSpec {
            out_channels: outputs,
            in_channels: None,
            kernel_size: size,
            stride,
            padding: vec![],
            output_padding: vec![],
            groups: 1,
            bias: true,
        }
    }
}

impl LayerSpec {
    /// A dense layer with a bias.
    pub fn linear(outputs: usize) -> LayerSpec {
        LayerSpec::Linear { out_features: outputs, in_features: None, bias: true }
    }

    /// Filters of this size at every position, zeros around so that lengths stay if the size is odd, with a bias.
    pub fn conv(outputs: usize, size: &[usize]) -> LayerSpec {
        let padding = size.iter().map(|length| length / 2).collect();
        LayerSpec::Conv {
            out_channels: outputs,
            in_channels: None,
            kernel_size: size.to_vec(),
            stride: Vec::new(),
            padding,
            dilation: Vec::new(),
            groups: 1,
            bias: true,
        }
    }

    /// Largest of windows of this size side by side.
    pub fn max_pool(size: &[usize]) -> LayerSpec {
        LayerSpec::MaxPool(PoolSpec::new(size))
    }

    /// Mean of windows of this size side by side.
    pub fn avg_pool(size: &[usize]) -> LayerSpec {
        LayerSpec::AvgPool(PoolSpec::new(size))
    }

    /// A transformer block that sees all times, without dropout.
    pub fn transformer_encoder_layer(heads: usize, inner: usize) -> LayerSpec {
        LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec::new(heads, inner))
    }

    /// Attention in so many heads that sees all times.
    pub fn multi_head_attention(heads: usize) -> LayerSpec {
        LayerSpec::MultiHeadAttention { num_heads: heads, num_kv_heads: None, is_causal: false, memory: Vec::new() }
    }

    /// Each channel normalized over the batch, 1e-5 added to the variance.
    pub fn batch_norm() -> LayerSpec {
        LayerSpec::BatchNorm { epsilon: epsilon() }
    }

    /// The last axis normalized, 1e-5 added to the variance.
    pub fn layer_norm() -> LayerSpec {
        LayerSpec::LayerNorm { epsilon: epsilon() }
    }

    /// The same layer, whose inputs are checked: numbers of a dense layer, channels of filters, features of a memory.
    #[must_use]
    pub fn with_inputs(mut self, count: usize) -> LayerSpec {
        match &mut self {
            LayerSpec::Linear { in_features: inputs, .. }
            | LayerSpec::Conv { in_channels: inputs, .. }
            | LayerSpec::ConvTranspose(ConvTransposeSpec { in_channels: inputs, .. }) => *inputs = Some(count),
            LayerSpec::Rnn(memory) | LayerSpec::Lstm(memory) | LayerSpec::Gru(memory) => {
                memory.input_size = Some(count)
            }
            _ => {}
        }
        self
    }

    /// The lists of layers that it consists of.
    pub fn sublayers(&self) -> Vec<Sublayers<'_>> {
        match self {
            LayerSpec::Residual { layers, shortcut } => vec![
                Sublayers { name: "layers", params: "layers.", layers },
                Sublayers { name: "shortcut", params: "shortcut.", layers: shortcut },
            ],
            LayerSpec::ActivationCheckpoint { layers } => vec![Sublayers { name: "layers", params: "", layers }],
            LayerSpec::MultiHeadAttention { memory: source, .. } if !source.is_empty() => {
                vec![Sublayers { name: "memory", params: "memory.", layers: source }]
            }
            LayerSpec::TransformerDecoder(TransformerDecoderSpec { target: layers, memory: source, .. }) => vec![
                Sublayers { name: "target", params: "target.", layers },
                Sublayers { name: "memory", params: "memory.", layers: source },
            ],
            _ => Vec::new(),
        }
    }

    /// The same lists, to be changed.
    pub(crate) fn lists(&mut self) -> Vec<&mut Vec<LayerSpec>> {
        match self {
            LayerSpec::Residual { layers, shortcut } => vec![layers, shortcut],
            LayerSpec::ActivationCheckpoint { layers } => vec![layers],
            LayerSpec::MultiHeadAttention { memory: source, .. } if !source.is_empty() => vec![source],
            LayerSpec::TransformerDecoder(TransformerDecoderSpec { target: layers, memory: source, .. }) => {
                vec![layers, source]
            }
            _ => Vec::new(),
        }
    }

    /// Whether it does anything outside of training.
    pub fn is_active_in_eval(&self) -> bool {
        use LayerSpec::*;
        !matches!(self, Dropout { .. } | RandomShift { .. } | RandomHorizontalFlip { .. } | GaussianNoise { .. })
    }
}
