//! From a description to layers at the start of training. Sizes have been checked.

use panoply_tensor::{AvgPoolOptions, Conv, Rng, Tensor, Window};

use super::layer_spec::{Block, LayerSpec, Memory, Nonlinearity, Transposed, Windows};
use crate::layers::{
    AdaptiveAveragePool, AdaptiveMaxPool, AveragePool, BatchNorm, BlockShape, Cell, Checkpoint, Convolution,
    CrossAttention, Decoder, DecoderBlock, DropoutLayer, Embedding, EncoderBlock, Flatten, Flip, GroupNorm, Last,
    LayerNorm, LeakyRelu, Linear, Map, MaxPool, MeanOverTime, MultiHeadAttention, Narrow, Noise, Positions, Recurrent,
    Reshape, Residual, Restore, RmsNorm, Sequential, Shift, Stage, Standardise, TransposedConvolution,
};

/// Layers one after another over inputs of these lengths.
pub(super) fn all(layers: &[LayerSpec], input: &[usize], rng: &mut Rng) -> Sequential {
    let mut lengths = input.to_vec();
    let built = layers.iter().map(|layer| {
        let next = layer.output(&lengths).expect("sizes have been checked");
        layer.build(&std::mem::replace(&mut lengths, next), rng)
    });
    Sequential { layers: built.collect() }
}

impl LayerSpec {
    /// The layer over inputs of these lengths.
    pub(super) fn build(&self, input: &[usize], rng: &mut Rng) -> Box<dyn Stage> {
        let last = input[input.len() - 1];
        match self {
            LayerSpec::Linear { outputs, bias, .. } => {
                let layer = Linear::new(last, *outputs, rng);
                Box::new(if *bias { layer } else { layer.without_bias() })
            }
            LayerSpec::Conv { size, .. } => match size.len() {
                1 => self.conv_layer::<1>(input[0], rng),
                2 => self.conv_layer::<2>(input[0], rng),
                _ => self.conv_layer::<3>(input[0], rng),
            },
            LayerSpec::ConvTransposed(transposed) => match transposed.size.len() {
                1 => transposed.build::<1>(input[0], rng),
                2 => transposed.build::<2>(input[0], rng),
                _ => transposed.build::<3>(input[0], rng),
            },
            LayerSpec::MaxPool(windows) => match windows.size.len() {
                1 => windows.largest::<1>(),
                2 => windows.largest::<2>(),
                _ => windows.largest::<3>(),
            },
            LayerSpec::AveragePool(windows) => match windows.size.len() {
                1 => windows.mean::<1>(),
                2 => windows.mean::<2>(),
                _ => windows.mean::<3>(),
            },
            LayerSpec::AdaptiveAveragePool { size } => adaptive_average(size),
            LayerSpec::AdaptiveMaxPool { size } => adaptive_max(size),
            LayerSpec::GlobalAveragePool {} => flat(adaptive_average(&vec![1; input.len() - 1])),
            LayerSpec::GlobalMaxPool {} => flat(adaptive_max(&vec![1; input.len() - 1])),
            LayerSpec::GroupNorm { groups, epsilon } => {
                Box::new(GroupNorm { epsilon: *epsilon, ..GroupNorm::new(*groups, input[0]) })
            }
            LayerSpec::RmsNorm { epsilon } => Box::new(RmsNorm { epsilon: *epsilon, ..RmsNorm::new(last) }),
            LayerSpec::Restore {} => Box::new(Restore(Standardise::new(input))),
            LayerSpec::Shift { by } => Box::new(Shift { by: *by }),
            LayerSpec::Flip { probability } => Box::new(Flip { probability: *probability }),
            LayerSpec::Noise { deviation } => Box::new(Noise { deviation: *deviation }),
            LayerSpec::Attention { heads, key_heads, causal, source } => {
                let layer = MultiHeadAttention::grouped(last, *heads, key_heads.unwrap_or(*heads), rng);
                let attention = MultiHeadAttention { causal: *causal, ..layer };
                match source.is_empty() {
                    true => Box::new(attention),
                    false => Box::new(CrossAttention { attention, source: all(source, input, rng) }),
                }
            }
            LayerSpec::Residual { layers, shortcut } => {
                Box::new(Residual { layers: all(layers, input, rng), shortcut: all(shortcut, input, rng) })
            }
            LayerSpec::Checkpoint { layers } => Box::new(Checkpoint(all(layers, input, rng))),
            LayerSpec::LeakyRelu { slope } => Box::new(LeakyRelu { slope: *slope }),
            LayerSpec::Elu {} => Box::new(Map(Tensor::elu)),
            LayerSpec::Softplus {} => Box::new(Map(Tensor::softplus)),
            LayerSpec::Mish {} => Box::new(Map(Tensor::mish)),
            LayerSpec::GeluTanh {} => Box::new(Map(Tensor::gelu_tanh)),
            LayerSpec::Selu {} => Box::new(Map(Tensor::selu)),
            LayerSpec::Relu6 {} => Box::new(Map(Tensor::relu6)),
            LayerSpec::HardSigmoid {} => Box::new(Map(Tensor::hard_sigmoid)),
            LayerSpec::HardSwish {} => Box::new(Map(Tensor::hard_swish)),
            LayerSpec::Softsign {} => Box::new(Map(Tensor::softsign)),
            LayerSpec::LogSigmoid {} => Box::new(Map(Tensor::log_sigmoid)),
            LayerSpec::LogSoftmax {} => Box::new(Map(|x| x.log_softmax(-1))),
            LayerSpec::Embedding { count, width } => Box::new(Embedding::new(*count, *width, rng)),
            LayerSpec::BatchNorm { epsilon } => Box::new(BatchNorm { epsilon: *epsilon, ..BatchNorm::new(input[0]) }),
            LayerSpec::LayerNorm { epsilon } => Box::new(LayerNorm { epsilon: *epsilon, ..LayerNorm::new(last) }),
            LayerSpec::Standardise {} => Box::new(Standardise::new(input)),
            LayerSpec::Dropout { probability } => Box::new(DropoutLayer { probability: *probability }),
            LayerSpec::Relu {} => Box::new(Map(Tensor::relu)),
            LayerSpec::Gelu {} => Box::new(Map(Tensor::gelu)),
            LayerSpec::Silu {} => Box::new(Map(Tensor::silu)),
            LayerSpec::Sigmoid {} => Box::new(Map(Tensor::sigmoid)),
            LayerSpec::Tanh {} => Box::new(Map(Tensor::tanh)),
            LayerSpec::Softmax {} => Box::new(Map(|x| x.softmax(-1))),
            LayerSpec::Flatten {} => Box::new(Flatten),
            LayerSpec::Reshape { lengths } => Box::new(Reshape(lengths.clone())),
            LayerSpec::Rnn(memory) => memory.build(memory.nonlinearity.cell(), last, rng),
            LayerSpec::Lstm(memory) => memory.build(Cell::Lstm, last, rng),
            LayerSpec::Gru(memory) => memory.build(Cell::Gru, last, rng),
            LayerSpec::Last {} => Box::new(Last),
            LayerSpec::MeanOverTime {} => Box::new(MeanOverTime),
            LayerSpec::Positions {} => Box::new(Positions),
            LayerSpec::Narrow { start, length } => Box::new(Narrow { start: *start, length: *length }),
            LayerSpec::Encoder(block) => {
                let encoder = EncoderBlock::new(block.shape(last), rng);
                Box::new(encoder.activation(block.activation).epsilon(block.epsilon))
            }
            LayerSpec::Decoder(decoder) => {
                let (layers, source) = (all(&decoder.layers, input, rng), all(&decoder.source, input, rng));
                let block = decoder.block();
                let shape = block.shape(self.output(input).expect("sizes have been checked")[1]);
                let built = || DecoderBlock::new(shape, rng).activation(block.activation).epsilon(block.epsilon);
                Box::new(Decoder {
                    layers,
                    source,
                    blocks: std::iter::repeat_with(built).take(decoder.blocks).collect(),
                })
            }
        }
    }

    fn conv_layer<const N: usize>(&self, channels: usize, rng: &mut Rng) -> Box<dyn Stage> {
        let LayerSpec::Conv { outputs, size, stride, padding, dilation, groups, bias, .. } = self else {
            unreachable!("{} is no convolution", self.kind())
        };
        let conv =
            Conv { stride: axes(stride, 1), padding: axes(padding, 0), dilation: axes(dilation, 1), groups: *groups };
        let layer = Convolution::<N>::with(channels, *outputs, axes(size, 1), conv, rng);
        Box::new(if *bias { layer } else { layer.without_bias() })
    }
}

/// A number for each axis: what is said, or the same for all.
fn axes<const N: usize>(said: &[usize], otherwise: usize) -> [usize; N] {
    std::array::from_fn(|i| *said.get(i).unwrap_or(&otherwise))
}

fn adaptive_average(size: &[usize]) -> Box<dyn Stage> {
    match *size {
        [a] => Box::new(AdaptiveAveragePool([a])),
        [a, b] => Box::new(AdaptiveAveragePool([a, b])),
        _ => Box::new(AdaptiveAveragePool(axes::<3>(size, 1))),
    }
}

fn adaptive_max(size: &[usize]) -> Box<dyn Stage> {
    match *size {
        [a] => Box::new(AdaptiveMaxPool([a])),
        [a, b] => Box::new(AdaptiveMaxPool([a, b])),
        _ => Box::new(AdaptiveMaxPool(axes::<3>(size, 1))),
    }
}

fn flat(pooled: Box<dyn Stage>) -> Box<dyn Stage> {
    Box::new(Sequential { layers: vec![pooled, Box::new(Flatten)] })
}

impl Transposed {
    fn build<const N: usize>(&self, channels: usize, rng: &mut Rng) -> Box<dyn Stage> {
        let conv = Conv {
            stride: axes(&self.stride, 1),
            padding: axes(&self.padding, 0),
            groups: self.groups,
            ..Conv::default()
        };
        let mut layer = TransposedConvolution::<N>::with(channels, self.outputs, axes(&self.size, 1), conv, rng);
        layer.extra = axes(&self.extra, 0);
        if !self.bias {
            layer.bias = None;
        }
        Box::new(layer)
    }
}

impl Windows {
    fn window<const N: usize>(&self) -> Window<N> {
        let size = axes(&self.size, 1);
        Window { stride: std::array::from_fn(|i| *self.stride.get(i).unwrap_or(&size[i])), ..Window::new(size) }
    }

    fn largest<const N: usize>(&self) -> Box<dyn Stage> {
        Box::new(MaxPool::<N> { window: self.window(), padding: axes(&self.padding, 0), ceil_mode: false })
    }

    fn mean<const N: usize>(&self) -> Box<dyn Stage> {
        Box::new(AveragePool::<N> {
            window: self.window(),
            padding: axes(&self.padding, 0),
            options: AvgPoolOptions::default(),
        })
    }
}

impl Block {
    fn shape(&self, width: usize) -> BlockShape {
        let Block { heads, inner, dropout, causal, norm_first, .. } = *self;
        BlockShape { width, heads, inner, norm_first, causal, dropout }
    }
}

impl Nonlinearity {
    /// The step of a plain recurrent layer with this activation.
    pub(crate) fn cell(self) -> Cell {
        match self {
            Nonlinearity::Tanh => Cell::Plain,
            Nonlinearity::Relu => Cell::Relu,
        }
    }
}

impl Memory {
    fn build(&self, cell: Cell, inputs: usize, rng: &mut Rng) -> Box<dyn Stage> {
        Box::new(Recurrent::new(cell, inputs, self.hidden, self.layers, self.both, rng))
    }
}
