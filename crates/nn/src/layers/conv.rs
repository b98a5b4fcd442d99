//! Convolution over one, two or three axes, and its transpose.

use panoply_tensor::{Conv, Rng, Tensor};

use crate::init;
use crate::layer::{Layer, Pass};
use crate::module::{Param, module};

/// Filters over N axes of `[batch, channels, lengths]`.
#[derive(Clone, Debug)]
pub struct Convolution<const N: usize> {
    /// `[outputs, channels / groups, sizes]`.
    pub weight: Param,
    /// `[outputs]`.
    pub bias: Option<Param>,
    /// How the filters move.
    pub conv: Conv<N>,
}

/// Over `[batch, channels, length]`.
pub type Conv1d = Convolution<1>;
/// Over `[batch, channels, rows, columns]`.
pub type Conv2d = Convolution<2>;
/// Over `[batch, channels, planes, rows, columns]`.
pub type Conv3d = Convolution<3>;

impl<const N: usize> Convolution<N> {
    /// Filters of this size at every position, without padding; see [`Convolution::with`].
    pub fn new(channels: usize, outputs: usize, size: [usize; N], rng: &mut Rng) -> Convolution<N> {
        Convolution::with(channels, outputs, size, Conv::default(), rng)
    }

    /// Filters that move as `conv` says. Weight and bias start uniform in ±1/√inputs of a filter, as PyTorch's.
    pub fn with(channels: usize, outputs: usize, size: [usize; N], conv: Conv<N>, rng: &mut Rng) -> Convolution<N> {
        let depth = channels / conv.groups.max(1);
        let bound = 1.0 / ((depth * size.iter().product::<usize>()).max(1) as f64).sqrt();
        let weight = init::uniform(&[&[outputs, depth], &size[..]].concat(), bound, rng);
        let bias = Param::new(init::uniform(&[outputs], bound, rng));
        Convolution { weight: Param::new(weight), bias: Some(bias), conv }
    }

    /// Without a bias, for a batch normalisation behind it, which takes any constant away: a bias there gets nothing but
    /// rounding errors for a gradient, and Adam follows them.
    #[must_use]
    pub fn without_bias(mut self) -> Convolution<N> {
        self.bias = None;
        self
    }
}

impl<const N: usize> Layer for Convolution<N> {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        biased(pass.cast(input).conv(&pass.cast(self.weight.tensor()), &self.conv), &self.bias)
    }
}

module!(Convolution<const N: usize> { weight, bias });

/// The transpose of [`Convolution`], which makes axes longer.
#[derive(Clone, Debug)]
pub struct TransposedConvolution<const N: usize> {
    /// `[channels, outputs / groups, sizes]`.
    pub weight: Param,
    /// `[outputs]`.
    pub bias: Option<Param>,
    /// How the filters move.
    pub conv: Conv<N>,
    /// Elements added at the end of each axis.
    pub extra: [usize; N],
}

impl<const N: usize> TransposedConvolution<N> {
    /// Filters that move as `conv` says.
    pub fn with(channels: usize, outputs: usize, size: [usize; N], conv: Conv<N>, rng: &mut Rng) -> Self {
        let depth = outputs / conv.groups.max(1);
        let bound = 1.0 / ((depth * size.iter().product::<usize>()).max(1) as f64).sqrt();
        let weight = init::uniform(&[&[channels, depth], &size[..]].concat(), bound, rng);
        let bias = Param::new(init::uniform(&[outputs], bound, rng));
        TransposedConvolution { weight: Param::new(weight), bias: Some(bias), conv, extra: [0; N] }
    }
}

impl<const N: usize> Layer for TransposedConvolution<N> {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let weight = pass.cast(self.weight.tensor());
        biased(pass.cast(input).conv_transposed(&weight, &self.conv, self.extra), &self.bias)
    }
}

module!(TransposedConvolution<const N: usize> { weight, bias });

fn biased(output: Tensor, bias: &Option<Param>) -> Tensor {
    match bias {
        Some(bias) => &output + bias.tensor().cast(output.dtype()).by_channel(&output),
        None => output,
    }
}
