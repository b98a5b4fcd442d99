//! Convolution over one, two or three axes, and its transpose.

use panoply_tensor::{ConvOptions, Rng, Tensor};

use crate::init;
use crate::layer::{ForwardContext, Layer};
use crate::module::{Param, module};

/// Filters over N axes of `[batch, channels, lengths]`.
#[derive(Clone, Debug)]
pub struct ConvNd<const N: usize> {
    /// `[outputs, channels / groups, sizes]`.
    pub weight: Param,
    /// `[outputs]`.
    pub bias: Option<Param>,
    /// How the filters move.
    pub options: ConvOptions<N>,
}

/// Over `[batch, channels, length]`.
pub type Conv1d = ConvNd<1>;
/// Over `[batch, channels, rows, columns]`.
pub type Conv2d = ConvNd<2>;
/// Over `[batch, channels, planes, rows, columns]`.
pub type Conv3d = ConvNd<3>;

impl<const N: usize> ConvNd<N> {
    /// Filters of this size at every position, without padding; see [`ConvNd::with_options`].
    pub fn new(channels: usize, outputs: usize, size: [usize; N], rng: &mut Rng) -> ConvNd<N> {
        ConvNd::with_options(channels, outputs, size, ConvOptions::default(), rng)
    }

    /// Filters that move as `conv` says. Weight and bias start uniform in ±1/√inputs of a filter, as PyTorch's.
    pub fn with_options(
        channels: usize,
        outputs: usize,
        size: [usize; N],
        conv: ConvOptions<N>,
        rng: &mut Rng,
    ) -> ConvNd<N> {
        let depth = channels / conv.groups.max(1);
        let bound = 1.0 / ((depth * size.iter().product::<usize>()).max(1) as f64).sqrt();
        let weight = init::uniform(&[&[outputs, depth], &size[..]].concat(), bound, rng);
        let bias = Param::new(init::uniform(&[outputs], bound, rng));
        ConvNd { weight: Param::new(weight), bias: Some(bias), options: conv }
    }

    /// Without a bias, for a batch normalization behind it, which takes any constant away: a bias there gets nothing but
    /// rounding errors for a gradient, and Adam follows them.
    #[must_use]
    pub fn without_bias(mut self) -> ConvNd<N> {
        self.bias = None;
        self
    }
}

impl<const N: usize> Layer for ConvNd<N> {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        biased(pass.cast(input).conv(&pass.cast(self.weight.tensor()), &self.options), &self.bias)
    }
}

module!(ConvNd<const N: usize> { weight, bias });

/// The transpose of [`ConvNd`], which makes axes longer.
#[derive(Clone, Debug)]
pub struct ConvTransposeNd<const N: usize> {
    /// `[channels, outputs / groups, sizes]`.
    pub weight: Param,
    /// `[outputs]`.
    pub bias: Option<Param>,
    /// How the filters move.
    pub conv: ConvOptions<N>,
    /// Elements added at the end of each axis.
    pub output_padding: [usize; N],
}

impl<const N: usize> ConvTransposeNd<N> {
    /// Filters that move as `conv` says.
    pub fn with_options(
        channels: usize,
        outputs: usize,
        size: [usize; N],
        conv: ConvOptions<N>,
        rng: &mut Rng,
    ) -> Self {
        let depth = outputs / conv.groups.max(1);
        let bound = 1.0 / ((depth * size.iter().product::<usize>()).max(1) as f64).sqrt();
        let weight = init::uniform(&[&[channels, depth], &size[..]].concat(), bound, rng);
        let bias = Param::new(init::uniform(&[outputs], bound, rng));
        ConvTransposeNd { weight: Param::new(weight), bias: Some(bias), conv, output_padding: [0; N] }
    }
}

impl<const N: usize> Layer for ConvTransposeNd<N> {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let weight = pass.cast(self.weight.tensor());
        biased(pass.cast(input).conv_transpose(&weight, &self.conv, self.output_padding), &self.bias)
    }
}

module!(ConvTransposeNd<const N: usize> { weight, bias });

fn biased(output: Tensor, bias: &Option<Param>) -> Tensor {
    match bias {
        Some(bias) => &output + bias.tensor().cast(output.dtype()).unsqueeze_like_channels(&output),
        None => output,
    }
}
