//! Convolution over one, two or three axes, and transposed convolution.

use panoply_tensor::{ConvOptions, Rng, Tensor};

use crate::init;
use crate::layer::{ForwardContext, Layer};
use crate::module::{Param, module};

/// Convolution over the last N axes of `[batch, channels, lengths]`.
#[derive(Clone, Debug)]
pub struct ConvNd<const N: usize> {
    /// Kernel, `[outputs, channels / groups, sizes]`.
    pub weight: Param,
    /// Bias, `[outputs]`.
    pub bias: Option<Param>,
    /// Stride, padding, dilation and groups.
    pub options: ConvOptions<N>,
}

/// Convolution over `[batch, channels, length]`.
pub type Conv1d = ConvNd<1>;
/// Convolution over `[batch, channels, rows, columns]`.
pub type Conv2d = ConvNd<2>;
/// Convolution over `[batch, channels, planes, rows, columns]`.
pub type Conv3d = ConvNd<3>;

impl<const N: usize> ConvNd<N> {
    /// Creates a convolution with stride 1 and without padding; see [`ConvNd::with_options`].
    pub fn new(channels: usize, outputs: usize, size: [usize; N], rng: &mut Rng) -> ConvNd<N> {
        ConvNd::with_options(channels, outputs, size, ConvOptions::default(), rng)
    }

    /// Creates a convolution with these options. Weight and bias are uniform in ±1/√(inputs of a filter), as in PyTorch.
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

    /// Removes the bias, for a layer followed by batch normalization, which cancels any constant: the gradient of such a bias is only
    /// rounding error, and Adam would follow it.
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

/// Transposed convolution over the last N axes of `[batch, channels, lengths]`; it upsamples.
#[doc(alias = "ConvTranspose1d")]
#[doc(alias = "ConvTranspose2d")]
#[doc(alias = "ConvTranspose3d")]
#[derive(Clone, Debug)]
pub struct ConvTransposeNd<const N: usize> {
    /// Kernel, `[channels, outputs / groups, sizes]`.
    pub weight: Param,
    /// Bias, `[outputs]`.
    pub bias: Option<Param>,
    /// Stride, padding, dilation and groups.
    pub conv: ConvOptions<N>,
    /// Number of elements added at the end of each axis.
    pub output_padding: [usize; N],
}

impl<const N: usize> ConvTransposeNd<N> {
    /// Creates a transposed convolution with these options, initialized as in PyTorch.
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
