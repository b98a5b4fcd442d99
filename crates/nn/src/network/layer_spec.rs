//! Descriptions of layers without their parameters.

use serde::{Deserialize, Serialize};

use crate::layers::{Activation, Nonlinearity};

mod kind;
mod onnx;
mod padding;

pub use onnx::OnnxSpec;
pub use padding::Padding;

/// A layer of a [`super::Network`]. Input sizes are inferred from the previous layer; where they are given, they are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerSpec {
    /// Linear (dense) layer over the last axis.
    Linear {
        /// Number of output features.
        out_features: usize,
        /// Number of input features, if it is to be checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_features: Option<usize>,
        /// True for a bias.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Convolution over `[channels, lengths]` with one to three spatial axes, the length of `kernel_size`.
    Conv {
        /// Number of output channels.
        out_channels: usize,
        /// Number of input channels, if it is to be checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_channels: Option<usize>,
        /// Kernel size along each axis.
        kernel_size: Vec<usize>,
        /// Stride along each axis (default 1).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stride: Vec<usize>,
        /// Zero padding on both sides of each axis, or `"same"` (default 0).
        #[serde(default, skip_serializing_if = "Padding::is_empty")]
        padding: Padding,
        /// Dilation along each axis (default 1).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dilation: Vec<usize>,
        /// Number of channel groups that are convolved separately.
        #[serde(default = "one")]
        groups: usize,
        /// True for a bias.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Transposed convolution, which upsamples `[channels, lengths]`.
    ConvTranspose(ConvTransposeSpec),
    /// Max pooling.
    MaxPool(PoolSpec),
    /// Average pooling; zero padding counts.
    AvgPool(PoolSpec),
    /// Adaptive average pooling to a fixed output size.
    AdaptiveAvgPool {
        /// Output length of each axis.
        output_size: Vec<usize>,
    },
    /// Adaptive max pooling to a fixed output size.
    AdaptiveMaxPool {
        /// Output length of each axis.
        output_size: Vec<usize>,
    },
    /// Mean over all axes of `[channels, lengths]` except the channels.
    GlobalAvgPool {},
    /// Maximum over all axes of `[channels, lengths]` except the channels.
    GlobalMaxPool {},
    /// Batch normalization of each channel.
    BatchNorm {
        /// Constant added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Layer normalization along the last axis.
    LayerNorm {
        /// Constant added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Group normalization of `[channels, lengths]` over groups of channels.
    GroupNorm {
        /// Number of groups; a divisor of the number of channels.
        num_groups: usize,
        /// Constant added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Root mean square normalization along the last axis.
    RmsNorm {
        /// Constant added to the mean square.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Standardization (x − mean) / std with buffers in the shape of an example that are measured on data; see [`crate::Standardize`].
    Standardize {},
    /// Inverse standardization x · std + mean, which restores the scale of targets; see [`crate::InverseStandardize`].
    InverseStandardize {},
    /// Data augmentation: random shift along each spatial axis of `[channels, lengths]`; vacated points are 0.
    RandomShift {
        /// Maximum shift in points.
        max_shift: usize,
    },
    /// Data augmentation: random flip along the last axis.
    RandomHorizontalFlip {
        /// Probability of a flip, 0 to 1.
        p: f64,
    },
    /// Data augmentation: additive normal noise.
    GaussianNoise {
        /// Standard deviation.
        stddev: f64,
    },
    /// Dropout.
    Dropout {
        /// Probability that an element is set to 0.
        p: f64,
    },
    /// Rectified linear unit: max(x, 0).
    Relu {},
    /// Gaussian error linear unit: x · Φ(x).
    Gelu {},
    /// Sigmoid linear unit (swish): x · sigmoid(x).
    Silu {},
    /// Logistic sigmoid: 1 / (1 + exp(−x)).
    Sigmoid {},
    /// Hyperbolic tangent.
    Tanh {},
    /// Leaky ReLU: x if x > 0, otherwise `negative_slope` · x.
    LeakyRelu {
        /// Factor of negative inputs.
        #[serde(default = "negative_slope")]
        negative_slope: f64,
    },
    /// Exponential linear unit: x if x > 0, otherwise exp(x) − 1.
    Elu {},
    /// Softplus: ln(1 + exp(x)).
    Softplus {},
    /// Mish: x · tanh(softplus(x)).
    Mish {},
    /// [`LayerSpec::Gelu`] in the tanh approximation.
    GeluTanh {},
    /// Scaled ELU, which keeps activations at mean 0 and variance 1.
    Selu {},
    /// ReLU6: x clipped to 0 ..= 6.
    Relu6 {},
    /// Hard sigmoid: (x + 3) / 6 clipped to 0 ..= 1.
    Hardsigmoid {},
    /// Hard swish: x · hardsigmoid(x).
    Hardswish {},
    /// Softsign: x / (1 + |x|).
    Softsign {},
    /// Log-sigmoid: ln(sigmoid(x)).
    Logsigmoid {},
    /// Softmax along the last axis.
    Softmax {},
    /// Log-softmax along the last axis.
    LogSoftmax {},
    /// Flattens all axes into one.
    Flatten {},
    /// Reshapes an example.
    Reshape {
        /// New shape, without the batch.
        shape: Vec<usize>,
    },
    /// Embedding of integers: `[…]` becomes `[…, embedding_dim]`.
    Embedding {
        /// Number of vectors; the indices are 0 .. `num_embeddings`.
        num_embeddings: usize,
        /// Length of a vector.
        embedding_dim: usize,
    },
    /// Plain recurrent layers over `[time, features]`.
    Rnn(RnnSpec),
    /// LSTM layers over `[time, features]`.
    Lstm(RnnSpec),
    /// GRU layers over `[time, features]`.
    Gru(RnnSpec),
    /// Last valid time step of `[time, features]`.
    LastTimeStep {},
    /// Mean over the valid time steps of `[time, features]`.
    TimeMean {},
    /// Adds the sinusoidal positional encoding to `[time, features]`.
    PositionalEncoding {},
    /// Slice of the first axis.
    Narrow {
        /// First index that is kept, counted from 0.
        #[serde(default)]
        start: usize,
        /// Number of indices that are kept.
        length: usize,
    },
    /// Multi-head self-attention over `[time, features]`, or cross-attention to `memory`.
    MultiHeadAttention {
        /// Number of heads; a divisor of the number of features.
        num_heads: usize,
        /// Number of key and value heads for grouped-query attention; a divisor of `num_heads`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_kv_heads: Option<usize>,
        /// True for a causal mask.
        #[serde(default, skip_serializing_if = "is_false")]
        is_causal: bool,
        /// Layers that compute the attended sequence from the input; empty for self-attention.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        memory: Vec<LayerSpec>,
    },
    /// Residual connection: layers(x) + shortcut(x).
    Residual {
        /// Layers of the residual branch.
        layers: Vec<LayerSpec>,
        /// Layers of the shortcut; empty is the identity.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shortcut: Vec<LayerSpec>,
    },
    /// Layers whose intermediate values are recomputed in the backward pass: less memory, more work, the same results.
    ActivationCheckpoint {
        /// Layers, in order.
        layers: Vec<LayerSpec>,
    },
    /// Transformer encoder block over `[time, features]`: self-attention and a feed-forward network.
    TransformerEncoderLayer(TransformerEncoderSpec),
    /// Transformer decoder: a stack of blocks that attend to one memory sequence.
    TransformerDecoder(TransformerDecoderSpec),
    /// A network that was imported from an ONNX file; see [`crate::onnx::Imported::to_model`].
    Onnx(OnnxSpec),
}

/// Settings of a transformer encoder block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerEncoderSpec {
    /// Number of attention heads; a divisor of the number of features.
    pub num_heads: usize,
    /// Inner width of the feed-forward network.
    pub dim_feedforward: usize,
    /// Dropout probability of each residual branch.
    #[serde(default)]
    pub dropout: f64,
    /// True for a causal mask.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_causal: bool,
    /// True for pre-norm blocks (norms before attention and feed-forward), false for post-norm (norms after the residual sums).
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub norm_first: bool,
    /// Activation of the feed-forward network.
    #[serde(default, skip_serializing_if = "is_gelu")]
    pub activation: Activation,
    /// Constant added to the variance in the norms.
    #[serde(default = "epsilon", skip_serializing_if = "is_epsilon")]
    pub epsilon: f64,
}

/// Settings of a transformer decoder: causal self-attention, cross-attention and a feed-forward network in each block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerDecoderSpec {
    /// Number of attention heads; a divisor of the number of features.
    pub num_heads: usize,
    /// Inner width of the feed-forward network.
    pub dim_feedforward: usize,
    /// Number of blocks.
    #[serde(default = "one")]
    pub num_layers: usize,
    /// Dropout probability of each residual branch.
    #[serde(default)]
    pub dropout: f64,
    /// True for pre-norm blocks, false for post-norm.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub norm_first: bool,
    /// Activation of the feed-forward network.
    #[serde(default, skip_serializing_if = "is_gelu")]
    pub activation: Activation,
    /// Constant added to the variance in the norms.
    #[serde(default = "epsilon", skip_serializing_if = "is_epsilon")]
    pub epsilon: f64,
    /// Layers that compute the decoded sequence from the input; empty is the input itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<LayerSpec>,
    /// Layers that compute the memory from the input.
    pub memory: Vec<LayerSpec>,
}

/// A list of sublayers.
#[derive(Clone, Copy, Debug)]
pub struct Sublayers<'a> {
    /// Field name in files.
    pub name: &'static str,
    /// Prefix of the parameter names.
    pub params: &'static str,
    /// Layers, in order.
    pub layers: &'a [LayerSpec],
}

/// Settings of pooling over the spatial axes of `[channels, lengths]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Window size along each axis.
    pub kernel_size: Vec<usize>,
    /// Stride along each axis (default the window size).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stride: Vec<usize>,
    /// Padding on both sides of each axis: −∞ for max pooling, 0 for average pooling (default 0).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub padding: Vec<usize>,
}

/// Settings of a transposed convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTransposeSpec {
    /// Number of output channels.
    pub out_channels: usize,
    /// Number of input channels, if it is to be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_channels: Option<usize>,
    /// Kernel size along each axis.
    pub kernel_size: Vec<usize>,
    /// Stride along each axis, which is about the upsampling factor (default 1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stride: Vec<usize>,
    /// Number of output elements removed on both sides of each axis (default 0).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub padding: Vec<usize>,
    /// Number of output elements added at the end of each axis (default 0).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_padding: Vec<usize>,
    /// Number of channel groups that are convolved separately.
    #[serde(default = "one")]
    pub groups: usize,
    /// True for a bias.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// Settings of recurrent layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RnnSpec {
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// Number of input features, if it is to be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_size: Option<usize>,
    /// Number of stacked layers.
    #[serde(default = "one")]
    pub num_layers: usize,
    /// True for an additional backward direction.
    #[serde(default)]
    pub bidirectional: bool,
    /// Activation of a plain recurrent layer; LSTM and GRU have fixed activations.
    #[serde(default, skip_serializing_if = "is_tanh")]
    pub nonlinearity: Nonlinearity,
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

fn negative_slope() -> f64 {
    0.01
}

fn epsilon() -> f64 {
    1e-5
}

impl RnnSpec {
    /// Returns the settings of a single unidirectional layer.
    pub fn new(hidden_size: usize) -> RnnSpec {
        RnnSpec { hidden_size, input_size: None, num_layers: 1, bidirectional: false, nonlinearity: Nonlinearity::Tanh }
    }
}

impl TransformerEncoderSpec {
    /// Returns the settings of a pre-norm block without causal mask and dropout, with GELU and epsilon 1e-5.
    pub fn new(num_heads: usize, dim_feedforward: usize) -> TransformerEncoderSpec {
        let (activation, epsilon) = (Activation::Gelu, epsilon());
        TransformerEncoderSpec {
            num_heads,
            dim_feedforward,
            dropout: 0.0,
            is_causal: false,
            norm_first: true,
            activation,
            epsilon,
        }
    }
}

impl TransformerDecoderSpec {
    /// Returns the settings of a single pre-norm block with this memory, without dropout, with GELU and epsilon 1e-5.
    pub fn new(num_heads: usize, dim_feedforward: usize, memory: Vec<LayerSpec>) -> TransformerDecoderSpec {
        let (activation, epsilon) = (Activation::Gelu, epsilon());
        let layers = Vec::new();
        TransformerDecoderSpec {
            num_heads,
            dim_feedforward,
            num_layers: 1,
            dropout: 0.0,
            norm_first: true,
            activation,
            epsilon,
            target: layers,
            memory,
        }
    }
}

impl PoolSpec {
    /// Returns the settings with a stride equal to the window size.
    pub fn new(kernel_size: &[usize]) -> PoolSpec {
        PoolSpec { kernel_size: kernel_size.to_vec(), stride: Vec::new(), padding: Vec::new() }
    }
}

impl ConvTransposeSpec {
    /// Returns the settings with a bias and without padding.
    pub fn new(out_channels: usize, kernel_size: &[usize], stride: &[usize]) -> ConvTransposeSpec {
        let (kernel_size, stride) = (kernel_size.to_vec(), stride.to_vec());
        ConvTransposeSpec {
            out_channels,
            in_channels: None,
            kernel_size,
            stride,
            padding: vec![],
            output_padding: vec![],
            groups: 1,
            bias: true,
        }
    }
}

impl LayerSpec {
    /// Returns a linear layer with a bias.
    pub fn linear(out_features: usize) -> LayerSpec {
        LayerSpec::Linear { out_features, in_features: None, bias: true }
    }

    /// Returns a convolution with stride 1, a bias and no padding; see [`LayerSpec::with_padding`].
    pub fn conv(out_channels: usize, kernel_size: &[usize]) -> LayerSpec {
        LayerSpec::Conv {
            out_channels,
            in_channels: None,
            kernel_size: kernel_size.to_vec(),
            stride: Vec::new(),
            padding: Padding::default(),
            dilation: Vec::new(),
            groups: 1,
            bias: true,
        }
    }

    /// Returns max pooling with a stride equal to the window size.
    pub fn max_pool(kernel_size: &[usize]) -> LayerSpec {
        LayerSpec::MaxPool(PoolSpec::new(kernel_size))
    }

    /// Returns average pooling with a stride equal to the window size.
    pub fn avg_pool(kernel_size: &[usize]) -> LayerSpec {
        LayerSpec::AvgPool(PoolSpec::new(kernel_size))
    }

    /// Returns a transformer encoder block without causal mask and dropout.
    pub fn transformer_encoder_layer(num_heads: usize, dim_feedforward: usize) -> LayerSpec {
        LayerSpec::TransformerEncoderLayer(TransformerEncoderSpec::new(num_heads, dim_feedforward))
    }

    /// Returns self-attention without causal mask.
    pub fn multi_head_attention(num_heads: usize) -> LayerSpec {
        LayerSpec::MultiHeadAttention { num_heads, num_kv_heads: None, is_causal: false, memory: Vec::new() }
    }

    /// Returns batch normalization with epsilon 1e-5.
    pub fn batch_norm() -> LayerSpec {
        LayerSpec::BatchNorm { epsilon: epsilon() }
    }

    /// Returns layer normalization with epsilon 1e-5.
    pub fn layer_norm() -> LayerSpec {
        LayerSpec::LayerNorm { epsilon: epsilon() }
    }

    /// Sets the input size to check: features of a linear or recurrent layer, channels of a convolution. Other layers ignore it.
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

    /// Sets the padding of a convolution: a number for each axis, or [`Padding::Same`]. Other layers ignore it.
    #[must_use]
    pub fn with_padding(mut self, zeros: impl Into<Padding>) -> LayerSpec {
        if let LayerSpec::Conv { padding, .. } = &mut self {
            *padding = zeros.into();
        }
        self
    }

    /// Returns the lists of sublayers.
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

    /// Returns the lists of sublayers for changes.
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

    /// Returns true unless the layer only acts in training.
    pub fn is_active_in_eval(&self) -> bool {
        use LayerSpec::*;
        !matches!(self, Dropout { .. } | RandomShift { .. } | RandomHorizontalFlip { .. } | GaussianNoise { .. })
    }
}
