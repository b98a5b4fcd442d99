//! Construction of layers with initial parameters from a checked description.

use panoply_tensor::{AvgPoolOptions, Rng, Tensor, Window};

use super::layer_spec::{ConvTransposeSpec, LayerSpec, PoolSpec, RnnSpec, TransformerEncoderSpec};
use crate::layers::{
    ActivationCheckpoint, AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, BatchNorm, ConvNd, ConvTransposeNd,
    CrossAttention, Dropout, Embedding, Flatten, GaussianNoise, GroupNorm, GruCell, InverseStandardize, Lambda,
    LastTimeStep, LayerNorm, LeakyRelu, Linear, LstmCell, MaxPool, MultiHeadAttention, Narrow, PositionalEncoding,
    RandomHorizontalFlip, RandomShift, RecurrentCell, Reshape, Residual, RmsNorm, RnnBase, RnnCell, RnnOptions,
    Sequential, SequentialLayer, Standardize, TimeMean, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoderLayer,
};

/// Builds layers in sequence over inputs of this shape.
pub(super) fn all(layers: &[LayerSpec], input: &[usize], rng: &mut Rng) -> Sequential {
    let mut lengths = input.to_vec();
    let built = layers.iter().map(|layer| {
        let next = layer.output(&lengths).expect("sizes have been checked");
        layer.build(&std::mem::replace(&mut lengths, next), rng)
    });
    Sequential { layers: built.collect() }
}

impl LayerSpec {
    /// Builds the layer for inputs of this shape.
    pub(super) fn build(&self, input: &[usize], rng: &mut Rng) -> Box<dyn SequentialLayer> {
        let last = input[input.len() - 1];
        match self {
            LayerSpec::Linear { out_features: outputs, bias, .. } => {
                let layer = Linear::new(last, *outputs, rng);
                Box::new(if *bias { layer } else { layer.without_bias() })
            }
            LayerSpec::Conv { kernel_size: size, .. } => match size.len() {
                1 => self.conv_layer::<1>(input[0], rng),
                2 => self.conv_layer::<2>(input[0], rng),
                _ => self.conv_layer::<3>(input[0], rng),
            },
            LayerSpec::ConvTranspose(transposed) => match transposed.kernel_size.len() {
                1 => transposed.build::<1>(input[0], rng),
                2 => transposed.build::<2>(input[0], rng),
                _ => transposed.build::<3>(input[0], rng),
            },
            LayerSpec::MaxPool(windows) => match windows.kernel_size.len() {
                1 => windows.max::<1>(),
                2 => windows.max::<2>(),
                _ => windows.max::<3>(),
            },
            LayerSpec::AvgPool(windows) => match windows.kernel_size.len() {
                1 => windows.avg::<1>(),
                2 => windows.avg::<2>(),
                _ => windows.avg::<3>(),
            },
            LayerSpec::AdaptiveAvgPool { output_size: size } => adaptive_average(size),
            LayerSpec::AdaptiveMaxPool { output_size: size } => adaptive_max(size),
            LayerSpec::GlobalAvgPool {} => flat(adaptive_average(&vec![1; input.len() - 1])),
            LayerSpec::GlobalMaxPool {} => flat(adaptive_max(&vec![1; input.len() - 1])),
            LayerSpec::GroupNorm { num_groups: groups, epsilon } => {
                Box::new(GroupNorm { epsilon: *epsilon, ..GroupNorm::new(*groups, input[0]) })
            }
            LayerSpec::RmsNorm { epsilon } => Box::new(RmsNorm { epsilon: *epsilon, ..RmsNorm::new(last) }),
            LayerSpec::InverseStandardize {} => Box::new(InverseStandardize(Standardize::new(input))),
            LayerSpec::RandomShift { max_shift: by } => Box::new(RandomShift { max_shift: *by }),
            LayerSpec::RandomHorizontalFlip { p: probability } => Box::new(RandomHorizontalFlip { p: *probability }),
            LayerSpec::GaussianNoise { stddev: deviation } => Box::new(GaussianNoise { stddev: *deviation }),
            LayerSpec::MultiHeadAttention {
                num_heads: heads,
                num_kv_heads: key_heads,
                is_causal: causal,
                memory: source,
            } => {
                let layer = MultiHeadAttention::with_kv_heads(last, *heads, key_heads.unwrap_or(*heads), rng);
                let attention = MultiHeadAttention { is_causal: *causal, ..layer };
                match source.is_empty() {
                    true => Box::new(attention),
                    false => Box::new(CrossAttention { attention, memory: all(source, input, rng) }),
                }
            }
            LayerSpec::Residual { layers, shortcut } => {
                Box::new(Residual { layers: all(layers, input, rng), shortcut: all(shortcut, input, rng) })
            }
            LayerSpec::ActivationCheckpoint { layers } => Box::new(ActivationCheckpoint(all(layers, input, rng))),
            LayerSpec::LeakyRelu { negative_slope: slope } => Box::new(LeakyRelu { negative_slope: *slope }),
            LayerSpec::Elu {} => Box::new(Lambda(Tensor::elu)),
            LayerSpec::Softplus {} => Box::new(Lambda(Tensor::softplus)),
            LayerSpec::Mish {} => Box::new(Lambda(Tensor::mish)),
            LayerSpec::GeluTanh {} => Box::new(Lambda(Tensor::gelu_tanh)),
            LayerSpec::Selu {} => Box::new(Lambda(Tensor::selu)),
            LayerSpec::Relu6 {} => Box::new(Lambda(Tensor::relu6)),
            LayerSpec::Hardsigmoid {} => Box::new(Lambda(Tensor::hardsigmoid)),
            LayerSpec::Hardswish {} => Box::new(Lambda(Tensor::hardswish)),
            LayerSpec::Softsign {} => Box::new(Lambda(Tensor::softsign)),
            LayerSpec::Logsigmoid {} => Box::new(Lambda(Tensor::logsigmoid)),
            LayerSpec::LogSoftmax {} => Box::new(Lambda(|x| x.log_softmax(-1))),
            LayerSpec::Embedding { num_embeddings, embedding_dim } => {
                Box::new(Embedding::new(*num_embeddings, *embedding_dim, rng))
            }
            LayerSpec::BatchNorm { epsilon } => Box::new(BatchNorm { epsilon: *epsilon, ..BatchNorm::new(input[0]) }),
            LayerSpec::LayerNorm { epsilon } => Box::new(LayerNorm { epsilon: *epsilon, ..LayerNorm::new(last) }),
            LayerSpec::Standardize {} => Box::new(Standardize::new(input)),
            LayerSpec::Dropout { p: probability } => Box::new(Dropout { p: *probability }),
            LayerSpec::Relu {} => Box::new(Lambda(Tensor::relu)),
            LayerSpec::Gelu {} => Box::new(Lambda(Tensor::gelu)),
            LayerSpec::Silu {} => Box::new(Lambda(Tensor::silu)),
            LayerSpec::Sigmoid {} => Box::new(Lambda(Tensor::sigmoid)),
            LayerSpec::Tanh {} => Box::new(Lambda(Tensor::tanh)),
            LayerSpec::Softmax {} => Box::new(Lambda(|x| x.softmax(-1))),
            LayerSpec::Flatten {} => Box::new(Flatten),
            LayerSpec::Reshape { shape: lengths } => Box::new(Reshape(lengths.clone())),
            LayerSpec::Rnn(memory) => Box::new(memory.build::<RnnCell>(last, rng).nonlinearity(memory.nonlinearity)),
            LayerSpec::Lstm(memory) => Box::new(memory.build::<LstmCell>(last, rng)),
            LayerSpec::Gru(memory) => Box::new(memory.build::<GruCell>(last, rng)),
            LayerSpec::Onnx(spec) => Box::new(spec.build().expect("the network has been checked")),
            LayerSpec::LastTimeStep {} => Box::new(LastTimeStep),
            LayerSpec::TimeMean {} => Box::new(TimeMean),
            LayerSpec::PositionalEncoding {} => Box::new(PositionalEncoding),
            LayerSpec::Narrow { start, length } => Box::new(Narrow { start: *start, length: *length }),
            LayerSpec::TransformerEncoderLayer(block) => {
                let encoder = TransformerEncoderLayer::new(block.config(last), rng);
                Box::new(encoder.activation(block.activation).epsilon(block.epsilon))
            }
            LayerSpec::TransformerDecoder(decoder) => {
                let (layers, source) = (all(&decoder.target, input, rng), all(&decoder.memory, input, rng));
                let block = decoder.block();
                let config = block.config(self.output(input).expect("sizes have been checked")[1]);
                let built =
                    || TransformerDecoderLayer::new(config, rng).activation(block.activation).epsilon(block.epsilon);
                Box::new(TransformerDecoder {
                    target: layers,
                    memory: source,
                    layers: std::iter::repeat_with(built).take(decoder.num_layers).collect(),
                })
            }
        }
    }

    fn conv_layer<const N: usize>(&self, channels: usize, rng: &mut Rng) -> Box<dyn SequentialLayer> {
        let LayerSpec::Conv {
            out_channels: outputs, kernel_size: size, stride, padding, dilation, groups, bias, ..
        } = self
        else {
            unreachable!("{} is not a convolution", self.kind())
        };
        let layer = ConvNd::<N>::with_groups(channels, *outputs, axes(size, 1), *groups, rng)
            .stride(axes(stride, 1))
            .padding(axes(&padding.zeros(size, dilation), 0))
            .dilation(axes(dilation, 1));
        Box::new(if *bias { layer } else { layer.without_bias() })
    }
}

/// Returns a number for each axis, `default` where none is given.
fn axes<const N: usize>(values: &[usize], default: usize) -> [usize; N] {
    std::array::from_fn(|i| *values.get(i).unwrap_or(&default))
}

fn adaptive_average(size: &[usize]) -> Box<dyn SequentialLayer> {
    match *size {
        [a] => Box::new(AdaptiveAvgPool([a])),
        [a, b] => Box::new(AdaptiveAvgPool([a, b])),
        _ => Box::new(AdaptiveAvgPool(axes::<3>(size, 1))),
    }
}

fn adaptive_max(size: &[usize]) -> Box<dyn SequentialLayer> {
    match *size {
        [a] => Box::new(AdaptiveMaxPool([a])),
        [a, b] => Box::new(AdaptiveMaxPool([a, b])),
        _ => Box::new(AdaptiveMaxPool(axes::<3>(size, 1))),
    }
}

fn flat(pooled: Box<dyn SequentialLayer>) -> Box<dyn SequentialLayer> {
    Box::new(Sequential { layers: vec![pooled, Box::new(Flatten)] })
}

impl ConvTransposeSpec {
    fn build<const N: usize>(&self, channels: usize, rng: &mut Rng) -> Box<dyn SequentialLayer> {
        let size = axes(&self.kernel_size, 1);
        let layer = ConvTransposeNd::<N>::with_groups(channels, self.out_channels, size, self.groups, rng)
            .stride(axes(&self.stride, 1))
            .padding(axes(&self.padding, 0))
            .output_padding(axes(&self.output_padding, 0));
        Box::new(if self.bias { layer } else { layer.without_bias() })
    }
}

impl PoolSpec {
    fn window<const N: usize>(&self) -> Window<N> {
        let size = axes(&self.kernel_size, 1);
        let stride = std::array::from_fn(|i| *self.stride.get(i).unwrap_or(&size[i]));
        Window { stride, padding: axes(&self.padding, 0), ..Window::new(size) }
    }

    fn max<const N: usize>(&self) -> Box<dyn SequentialLayer> {
        Box::new(MaxPool::<N> { window: self.window(), ceil_mode: false })
    }

    fn avg<const N: usize>(&self) -> Box<dyn SequentialLayer> {
        Box::new(AvgPool::<N> { window: self.window(), options: AvgPoolOptions::default() })
    }
}

impl TransformerEncoderSpec {
    fn config(&self, width: usize) -> TransformerConfig {
        let TransformerEncoderSpec {
            num_heads: heads,
            dim_feedforward: inner,
            dropout,
            is_causal: causal,
            norm_first,
            ..
        } = *self;
        TransformerConfig {
            d_model: width,
            num_heads: heads,
            dim_feedforward: inner,
            norm_first,
            is_causal: causal,
            dropout,
        }
    }
}

impl RnnSpec {
    fn build<C: RecurrentCell + Default>(&self, input_size: usize, rng: &mut Rng) -> RnnBase<C> {
        let RnnSpec { num_layers, bidirectional, .. } = *self;
        let options = RnnOptions { num_layers, bidirectional, ..RnnOptions::default() };
        RnnBase::with_options(input_size, self.hidden_size, options, rng)
    }
}
