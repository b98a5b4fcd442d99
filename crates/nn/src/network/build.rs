//! From a description to layers at the start of training. Sizes have been checked.

use panoply_tensor::{Conv, Rng, Tensor};

use super::layer_spec::{LayerSpec, Memory};
use crate::layers::{
    AdaptiveAveragePool, AveragePool, BatchNorm, BlockShape, Cell, Convolution, DropoutLayer, EncoderBlock, Flatten,
    LayerNorm, Linear, Map, MaxPool, Positions, Recurrent, Reshape, Sequential, Stage, Standardise,
};

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
            LayerSpec::MaxPool { size } => match size[..] {
                [a] => Box::new(MaxPool::new([a])),
                [a, b] => Box::new(MaxPool::new([a, b])),
                _ => Box::new(MaxPool::new([size[0], size[1], size[2]])),
            },
            LayerSpec::AveragePool { size } => match size[..] {
                [a] => Box::new(AveragePool::new([a])),
                [a, b] => Box::new(AveragePool::new([a, b])),
                _ => Box::new(AveragePool::new([size[0], size[1], size[2]])),
            },
            LayerSpec::GlobalAveragePool {} => {
                let mean: Box<dyn Stage> = match input.len() {
                    2 => Box::new(AdaptiveAveragePool([1])),
                    3 => Box::new(AdaptiveAveragePool([1, 1])),
                    _ => Box::new(AdaptiveAveragePool([1, 1, 1])),
                };
                Box::new(Sequential { layers: vec![mean, Box::new(Flatten)] })
            }
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
            LayerSpec::Rnn(memory) => memory.build(Cell::Plain, last, rng),
            LayerSpec::Lstm(memory) => memory.build(Cell::Lstm, last, rng),
            LayerSpec::Gru(memory) => memory.build(Cell::Gru, last, rng),
            LayerSpec::Last {} => Box::new(Map(|x| x.slice((.., -1)))),
            LayerSpec::MeanOverTime {} => Box::new(Map(|x| x.mean(1))),
            LayerSpec::Positions {} => Box::new(Positions),
            LayerSpec::Encoder { heads, inner, dropout } => {
                let shape =
                    BlockShape { width: last, heads: *heads, inner: *inner, norm_first: true, dropout: *dropout };
                Box::new(EncoderBlock::new(shape, rng))
            }
        }
    }

    fn conv_layer<const N: usize>(&self, channels: usize, rng: &mut Rng) -> Box<dyn Stage> {
        let LayerSpec::Conv { outputs, size, stride, padding, groups, bias, .. } = self else {
            unreachable!("{} is no convolution", self.kind())
        };
        let axes = |said: &[usize], otherwise: usize| std::array::from_fn(|i| *said.get(i).unwrap_or(&otherwise));
        let conv = Conv { stride: axes(stride, 1), padding: axes(padding, 0), dilation: [1; N], groups: *groups };
        let layer = Convolution::<N>::with(channels, *outputs, axes(size, 1), conv, rng);
        Box::new(if *bias { layer } else { layer.without_bias() })
    }
}

impl Memory {
    fn build(&self, cell: Cell, inputs: usize, rng: &mut Rng) -> Box<dyn Stage> {
        Box::new(Recurrent::new(cell, inputs, self.hidden, self.layers, self.both, rng))
    }
}
