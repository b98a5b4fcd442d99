//! Pooling and reshaping layers, without parameters.

use panoply_tensor::{AvgPoolOptions, MaxPoolOptions, Tensor, Window};

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// Max pooling over the last N axes.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool<const N: usize> {
    /// Size, stride, dilation and padding of the window; the padding is −∞.
    pub window: Window<N>,
    /// True if the last window can extend beyond the padding ([`Tensor::max_pool_with_options`]).
    pub ceil_mode: bool,
}

/// Max pooling over `[batch, channels, length]`.
pub type MaxPool1d = MaxPool<1>;
/// Max pooling over `[batch, channels, rows, columns]`.
pub type MaxPool2d = MaxPool<2>;
/// Max pooling over `[batch, channels, planes, rows, columns]`.
pub type MaxPool3d = MaxPool<3>;

impl<const N: usize> MaxPool<N> {
    /// Creates pooling with a stride equal to the window size.
    pub fn new(kernel_size: [usize; N]) -> MaxPool<N> {
        MaxPool { window: Window::tiled(kernel_size), ceil_mode: false }
    }
}

impl<const N: usize> Layer for MaxPool<N> {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.max_pool_with_options(&self.window, &MaxPoolOptions { ceil_mode: self.ceil_mode })
    }
}

module!(MaxPool<const N: usize> {});

/// Average pooling over the last N axes.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool<const N: usize> {
    /// Size, stride, dilation and padding of the window; the padding is zero.
    pub window: Window<N>,
    /// Treatment of padding and the other options of PyTorch's layer.
    pub options: AvgPoolOptions,
}

/// Average pooling over `[batch, channels, length]`.
pub type AvgPool1d = AvgPool<1>;
/// Average pooling over `[batch, channels, rows, columns]`.
pub type AvgPool2d = AvgPool<2>;
/// Average pooling over `[batch, channels, planes, rows, columns]`.
pub type AvgPool3d = AvgPool<3>;

impl<const N: usize> AvgPool<N> {
    /// Creates pooling with a stride equal to the window size.
    pub fn new(kernel_size: [usize; N]) -> AvgPool<N> {
        let options = AvgPoolOptions::default();
        AvgPool { window: Window::tiled(kernel_size), options }
    }
}

impl<const N: usize> Layer for AvgPool<N> {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        if self.options == AvgPoolOptions::default() {
            return input.avg_pool(&self.window);
        }
        input.avg_pool_with_options(&self.window, &self.options)
    }
}

module!(AvgPool<const N: usize> {});

/// Adaptive average pooling to this output size of the last N axes; `[1, 1]` averages an image.
#[doc(alias = "AdaptiveAvgPool1d")]
#[doc(alias = "AdaptiveAvgPool2d")]
#[doc(alias = "AdaptiveAvgPool3d")]
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveAvgPool<const N: usize>(pub [usize; N]);

impl<const N: usize> Layer for AdaptiveAvgPool<N> {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.adaptive_avg_pool(self.0)
    }
}

module!(AdaptiveAvgPool<const N: usize> {});

/// Adaptive max pooling to this output size of the last N axes.
#[doc(alias = "AdaptiveMaxPool1d")]
#[doc(alias = "AdaptiveMaxPool2d")]
#[doc(alias = "AdaptiveMaxPool3d")]
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveMaxPool<const N: usize>(pub [usize; N]);

impl<const N: usize> Layer for AdaptiveMaxPool<N> {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.adaptive_max_pool(self.0)
    }
}

module!(AdaptiveMaxPool<const N: usize> {});

/// Flattens all axes after the batch into one.
#[derive(Clone, Copy, Debug)]
pub struct Flatten;

impl Layer for Flatten {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.flatten(1, -1)
    }
}

module!(Flatten {});

/// Slice `start .. start + length` of axis 1, the first after the batch.
#[derive(Clone, Copy, Debug)]
pub struct Narrow {
    /// First index that is kept.
    pub start: usize,
    /// Number of indices that are kept.
    pub length: usize,
}

impl Layer for Narrow {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.narrow(1, self.start, self.length)
    }
}

module!(Narrow {});

/// Splits the last axis into several whose lengths multiply to it: rows of 64 become images of 1 × 8 × 8.
#[derive(Clone, Debug)]
pub struct Unflatten(pub Vec<usize>);

impl Layer for Unflatten {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.unflatten(-1, &self.0)
    }
}

module!(Unflatten {});

/// Reshapes all axes after the batch to these lengths.
#[derive(Clone, Debug)]
pub struct Reshape(pub Vec<usize>);

impl Layer for Reshape {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.flatten(1, -1).unflatten(1, &self.0)
    }
}

module!(Reshape {});
