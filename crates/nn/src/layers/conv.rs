//! Convolution over one, two or three axes, and transposed convolution.

use panoply_tensor::{ConvOptions, ConvTransposeOptions, Rng, Shape, Tensor};

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
    /// Creates a convolution with stride 1, dilation 1, one group and no padding. Weight and bias are uniform in ±1/√(inputs of a
    /// filter), as in PyTorch.
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: [usize; N], rng: &mut Rng) -> ConvNd<N> {
        ConvNd::with_groups(in_channels, out_channels, kernel_size, 1, rng)
    }

    /// Creates a convolution of `groups` groups of channels, each on its own; `groups` divides both numbers of channels.
    #[doc(alias = "depthwise")]
    pub fn with_groups(
        in_channels: usize,
        out_channels: usize,
        kernel_size: [usize; N],
        groups: usize,
        rng: &mut Rng,
    ) -> ConvNd<N> {
        let depth = in_channels / groups.max(1);
        let bound = 1.0 / ((depth * kernel_size.iter().product::<usize>()).max(1) as f64).sqrt();
        let weight = init::uniform(&[&[out_channels, depth], &kernel_size[..]].concat(), bound, rng);
        let bias = Param::new(init::uniform(&[out_channels], bound, rng));
        let options = ConvOptions { groups, ..ConvOptions::default() };
        ConvNd { weight: Param::new(weight), bias: Some(bias), options }
    }

    /// Sets the stride along each axis.
    #[must_use]
    pub fn stride(mut self, stride: [usize; N]) -> ConvNd<N> {
        self.options.stride = stride;
        self
    }

    /// Sets the number of zeros on both sides of each axis.
    #[must_use]
    pub fn padding(mut self, padding: [usize; N]) -> ConvNd<N> {
        self.options.padding = padding;
        self
    }

    /// Sets the distance between neighboring elements of the kernel along each axis.
    #[must_use]
    pub fn dilation(mut self, dilation: [usize; N]) -> ConvNd<N> {
        self.options.dilation = dilation;
        self
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
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Ok([outputs, depth, sizes @ ..]) = self.weight.tensor().shape().map(Shape::dims) {
            let channels = depth * self.options.groups;
            let layer = || format!("Conv{N}d({channels} → {outputs}, {sizes:?})");
            if let Some(misfit) = pass.misfit(input, (1, channels), (&self.weight, "weight"), &layer) {
                return misfit;
            }
        }
        biased(pass.cast(input).conv(&pass.cast(self.weight.tensor()), &self.options), &self.bias)
    }
}

module!(ConvNd<const N: usize> { weight, bias });

/// Transposed convolution over the last N axes of `[batch, channels, lengths]`; it upsamples.
#[derive(Clone, Debug)]
pub struct ConvTransposeNd<const N: usize> {
    /// Kernel, `[channels, outputs / groups, sizes]`.
    pub weight: Param,
    /// Bias, `[outputs]`.
    pub bias: Option<Param>,
    /// Stride, padding, dilation and groups.
    pub options: ConvOptions<N>,
    /// Number of elements added at the end of each axis.
    pub output_padding: [usize; N],
}

/// Transposed convolution over `[batch, channels, length]`.
pub type ConvTranspose1d = ConvTransposeNd<1>;
/// Transposed convolution over `[batch, channels, rows, columns]`.
pub type ConvTranspose2d = ConvTransposeNd<2>;
/// Transposed convolution over `[batch, channels, planes, rows, columns]`.
pub type ConvTranspose3d = ConvTransposeNd<3>;

impl<const N: usize> ConvTransposeNd<N> {
    /// Creates a transposed convolution with stride 1, dilation 1, one group and no padding, initialized as in PyTorch.
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: [usize; N], rng: &mut Rng) -> ConvTransposeNd<N> {
        ConvTransposeNd::with_groups(in_channels, out_channels, kernel_size, 1, rng)
    }

    /// Creates a transposed convolution of `groups` groups of channels, each on its own; `groups` divides both numbers of channels.
    pub fn with_groups(
        in_channels: usize,
        out_channels: usize,
        kernel_size: [usize; N],
        groups: usize,
        rng: &mut Rng,
    ) -> ConvTransposeNd<N> {
        let depth = out_channels / groups.max(1);
        let bound = 1.0 / ((depth * kernel_size.iter().product::<usize>()).max(1) as f64).sqrt();
        let weight = init::uniform(&[&[in_channels, depth], &kernel_size[..]].concat(), bound, rng);
        let bias = Param::new(init::uniform(&[out_channels], bound, rng));
        let options = ConvOptions { groups, ..ConvOptions::default() };
        ConvTransposeNd { weight: Param::new(weight), bias: Some(bias), options, output_padding: [0; N] }
    }

    /// Sets the stride along each axis, which is about the upsampling factor.
    #[must_use]
    pub fn stride(mut self, stride: [usize; N]) -> ConvTransposeNd<N> {
        self.options.stride = stride;
        self
    }

    /// Sets the number of output elements removed on both sides of each axis.
    #[must_use]
    pub fn padding(mut self, padding: [usize; N]) -> ConvTransposeNd<N> {
        self.options.padding = padding;
        self
    }

    /// Sets the distance between neighboring elements of the kernel along each axis.
    #[must_use]
    pub fn dilation(mut self, dilation: [usize; N]) -> ConvTransposeNd<N> {
        self.options.dilation = dilation;
        self
    }

    /// Sets the number of elements added at the end of each axis; smaller than the stride.
    #[must_use]
    pub fn output_padding(mut self, output_padding: [usize; N]) -> ConvTransposeNd<N> {
        self.output_padding = output_padding;
        self
    }

    /// Removes the bias.
    #[must_use]
    pub fn without_bias(mut self) -> ConvTransposeNd<N> {
        self.bias = None;
        self
    }
}

impl<const N: usize> Layer for ConvTransposeNd<N> {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Ok([channels, depth, sizes @ ..]) = self.weight.tensor().shape().map(Shape::dims) {
            let outputs = depth * self.options.groups;
            let layer = || format!("ConvTranspose{N}d({channels} → {outputs}, {sizes:?})");
            if let Some(misfit) = pass.misfit(input, (1, *channels), (&self.weight, "weight"), &layer) {
                return misfit;
            }
        }
        let weight = pass.cast(self.weight.tensor());
        let options = ConvTransposeOptions { output_padding: self.output_padding, ..self.options.into() };
        biased(pass.cast(input).conv_transpose(&weight, &options), &self.bias)
    }
}

module!(ConvTransposeNd<const N: usize> { weight, bias });

#[track_caller]
fn biased(output: Tensor, bias: &Option<Param>) -> Tensor {
    match bias {
        Some(bias) => &output + bias.tensor().cast(output.dtype()).unsqueeze_like_channels(&output),
        None => output,
    }
}
