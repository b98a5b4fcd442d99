//! Number of arrays and elements in the parameters and buffers of a network, computed from its description alone. It is compared with a
//! file's arrays before anything is built.

use std::ops::{Add, Mul};

use super::layer_spec::{LayerSpec, RnnSpec, TransformerEncoderSpec};
use super::{Network, shape};

/// Maximum number of arrays in a network that is built.
pub(super) const MAX_ARRAYS: u128 = 1 << 20;

/// Maximum number of elements in norms and standardization layers, which are allocated when a network is built: 1 GiB in f32.
pub(super) const MAX_STORED: u128 = 1 << 28;

/// Size of parameters and buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Number of arrays.
    pub arrays: u128,
    /// Total number of elements.
    pub numel: u128,
    /// Number of elements that are initialized with constants and allocated when the network is built.
    pub stored: u128,
}

impl Extent {
    /// Returns the size of an array with this shape that is initialized with random numbers.
    fn weight(lengths: &[usize]) -> Extent {
        let numel = lengths.iter().fold(1u128, |numel, length| numel.saturating_mul(*length as u128));
        Extent { arrays: 1, numel, stored: 0 }
    }

    /// Returns the size of arrays with `numel` elements each that are initialized with constants.
    fn constants(arrays: usize, numel: usize) -> Extent {
        let total = (numel as u128).saturating_mul(arrays as u128);
        Extent { arrays: arrays as u128, numel: total, stored: total }
    }

    fn linear(inputs: usize, outputs: usize, bias: bool) -> Extent {
        Extent::weight(&[outputs, inputs]) + Extent::bias(bias, outputs)
    }

    fn bias(there: bool, outputs: usize) -> Extent {
        if there { Extent::weight(&[outputs]) } else { Extent::default() }
    }

    /// Returns the size of attention whose keys and values have the width `shared`.
    fn attention(width: usize, shared: usize) -> Extent {
        Extent::linear(width, width, true) * 2 + Extent::linear(width, shared, true) * 2
    }

    /// Returns the size of a block's feed-forward network.
    fn dense(width: usize, inner: usize) -> Extent {
        Extent::linear(width, inner, true) + Extent::linear(inner, width, true)
    }
}

impl Add for Extent {
    type Output = Extent;

    fn add(self, other: Extent) -> Extent {
        Extent {
            arrays: self.arrays.saturating_add(other.arrays),
            numel: self.numel.saturating_add(other.numel),
            stored: self.stored.saturating_add(other.stored),
        }
    }
}

impl Mul<usize> for Extent {
    type Output = Extent;

    fn mul(self, count: usize) -> Extent {
        let times = |number: u128| number.saturating_mul(count as u128);
        Extent { arrays: times(self.arrays), numel: times(self.numel), stored: times(self.stored) }
    }
}

impl Network {
    /// Returns the size of the network's parameters and buffers.
    ///
    /// # Errors
    /// If a layer does not fit.
    pub fn extent(&self) -> panoply_tensor::Result<Extent> {
        self.layer_shapes()?;
        Ok(of(&self.layers, &self.input))
    }
}

/// Returns the size of layers in sequence over inputs of this checked shape.
fn of(layers: &[LayerSpec], input: &[usize]) -> Extent {
    let Ok(shapes) = shape::through(layers, input) else { return Extent::default() };
    layers.iter().zip(&shapes).map(|(layer, input)| layer.extent(input)).fold(Extent::default(), Extent::add)
}

impl LayerSpec {
    /// Returns the size of the layer for inputs of this shape.
    fn extent(&self, input: &[usize]) -> Extent {
        let (first, last) = (input.first().copied().unwrap_or(0), input.last().copied().unwrap_or(0));
        let parts = || self.sublayers().iter().map(|part| of(part.layers, input)).fold(Extent::default(), Extent::add);
        match self {
            LayerSpec::Linear { out_features: outputs, bias, .. } => Extent::linear(last, *outputs, *bias),
            LayerSpec::Conv { out_channels: outputs, kernel_size: size, groups, bias, .. } => {
                Extent::weight(&[&[*outputs, first / groups], &size[..]].concat()) + Extent::bias(*bias, *outputs)
            }
            LayerSpec::ConvTranspose(conv) => {
                Extent::weight(&[&[first, conv.out_channels / conv.groups], &conv.kernel_size[..]].concat())
                    + Extent::bias(conv.bias, conv.out_channels)
            }
            LayerSpec::BatchNorm { .. } => Extent::constants(4, first),
            LayerSpec::GroupNorm { .. } => Extent::constants(2, first),
            LayerSpec::LayerNorm { .. } => Extent::constants(2, last),
            LayerSpec::RmsNorm { .. } => Extent::constants(1, last),
            LayerSpec::Standardize {} | LayerSpec::InverseStandardize {} => {
                Extent::constants(2, input.iter().product())
            }
            LayerSpec::Embedding { num_embeddings: count, embedding_dim: width } => Extent::weight(&[*count, *width]),
            LayerSpec::Rnn(memory) => memory.extent(1, last),
            LayerSpec::Lstm(memory) => memory.extent(4, last),
            LayerSpec::Gru(memory) => memory.extent(3, last),
            LayerSpec::MultiHeadAttention { num_heads: heads, num_kv_heads: key_heads, .. } => {
                Extent::attention(last, last / heads * key_heads.unwrap_or(*heads)) + parts()
            }
            LayerSpec::TransformerEncoderLayer(block) => block.extent(last, 1),
            LayerSpec::TransformerDecoder(decoder) => {
                let width = self.output(input).ok().and_then(|output| output.last().copied()).unwrap_or(0);
                decoder.block().extent(width, 2) * decoder.num_layers + parts()
            }
            LayerSpec::Residual { .. } | LayerSpec::ActivationCheckpoint { .. } => parts(),
            LayerSpec::Onnx(spec) => Extent { arrays: spec.arrays, numel: spec.numel, stored: 0 },
            LayerSpec::MaxPool(_)
            | LayerSpec::AvgPool(_)
            | LayerSpec::AdaptiveAvgPool { .. }
            | LayerSpec::AdaptiveMaxPool { .. }
            | LayerSpec::GlobalAvgPool {}
            | LayerSpec::GlobalMaxPool {}
            | LayerSpec::RandomShift { .. }
            | LayerSpec::RandomHorizontalFlip { .. }
            | LayerSpec::GaussianNoise { .. }
            | LayerSpec::Dropout { .. }
            | LayerSpec::Relu {}
            | LayerSpec::LeakyRelu { .. }
            | LayerSpec::Elu {}
            | LayerSpec::Softplus {}
            | LayerSpec::Mish {}
            | LayerSpec::Gelu {}
            | LayerSpec::GeluTanh {}
            | LayerSpec::Silu {}
            | LayerSpec::Sigmoid {}
            | LayerSpec::Tanh {}
            | LayerSpec::Selu {}
            | LayerSpec::Relu6 {}
            | LayerSpec::Hardsigmoid {}
            | LayerSpec::Hardswish {}
            | LayerSpec::Softsign {}
            | LayerSpec::Logsigmoid {}
            | LayerSpec::Softmax {}
            | LayerSpec::LogSoftmax {}
            | LayerSpec::Flatten {}
            | LayerSpec::Reshape { .. }
            | LayerSpec::LastTimeStep {}
            | LayerSpec::TimeMean {}
            | LayerSpec::PositionalEncoding {}
            | LayerSpec::Narrow { .. } => Extent::default(),
        }
    }
}

impl TransformerEncoderSpec {
    /// Returns the size of a block with `attentions` attention layers and `attentions` + 1 norms.
    fn extent(&self, width: usize, attentions: usize) -> Extent {
        Extent::attention(width, width) * attentions
            + Extent::dense(width, self.dim_feedforward)
            + Extent::constants(2, width) * (attentions + 1)
    }
}

impl RnnSpec {
    /// Returns the size with this number of gates and input features.
    fn extent(&self, gates: usize, inputs: usize) -> Extent {
        let (rows, directions) = (gates.saturating_mul(self.hidden_size), if self.bidirectional { 2 } else { 1 });
        let direction = |inputs: usize| {
            Extent::weight(&[rows, inputs]) + Extent::weight(&[rows, self.hidden_size]) + Extent::weight(&[rows]) * 2
        };
        let above = directions * self.hidden_size;
        (direction(inputs) + direction(above) * self.num_layers.saturating_sub(1)) * directions
    }
}
