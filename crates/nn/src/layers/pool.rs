//! Pooling and reshaping: layers without parameters, for sequences of layers.

use panoply_tensor::{AvgPoolOptions, Tensor, Window};

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// Largest of each window over the last N axes.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool<const N: usize> {
    /// The window.
    pub window: Window<N>,
    /// Elements of minus infinity on both sides of each axis.
    pub padding: [usize; N],
    /// Whether a last window may end beyond the padding ([`Tensor::max_pool_with`]).
    pub ceil_mode: bool,
}

impl<const N: usize> MaxPool<N> {
    /// Windows of this size side by side.
    pub fn new(size: [usize; N]) -> MaxPool<N> {
        MaxPool { window: Window { stride: size, ..Window::new(size) }, padding: [0; N], ceil_mode: false }
    }
}

impl<const N: usize> Layer for MaxPool<N> {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.max_pool_with(&self.window, self.padding, self.ceil_mode)
    }
}

module!(MaxPool<const N: usize> {});

/// Mean of each window over the last N axes.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool<const N: usize> {
    /// The window.
    pub window: Window<N>,
    /// Zeros on both sides of each axis.
    pub padding: [usize; N],
    /// Whether the zeros count, and what PyTorch's layer may do besides.
    pub options: AvgPoolOptions,
}

impl<const N: usize> AvgPool<N> {
    /// Windows of this size side by side.
    pub fn new(size: [usize; N]) -> AvgPool<N> {
        let options = AvgPoolOptions::default();
        AvgPool { window: Window { stride: size, ..Window::new(size) }, padding: [0; N], options }
    }
}

impl<const N: usize> Layer for AvgPool<N> {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        if self.options == AvgPoolOptions::default() {
            return input.avg_pool(&self.window, self.padding);
        }
        input.avg_pool_with(&self.window, self.padding, &self.options)
    }
}

module!(AvgPool<const N: usize> {});

/// Means of parts of the last N axes, this many of them; `[1, 1]` is the mean over an image.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveAvgPool<const N: usize>(pub [usize; N]);

impl<const N: usize> Layer for AdaptiveAvgPool<N> {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.adaptive_avg_pool(self.0)
    }
}

module!(AdaptiveAvgPool<const N: usize> {});

/// Largest of parts of the last N axes, this many of them.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveMaxPool<const N: usize>(pub [usize; N]);

impl<const N: usize> Layer for AdaptiveMaxPool<N> {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.adaptive_max_pool(self.0)
    }
}

module!(AdaptiveMaxPool<const N: usize> {});

/// All axes after the batch as one.
#[derive(Clone, Copy, Debug)]
pub struct Flatten;

impl Layer for Flatten {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.flatten(1)
    }
}

module!(Flatten {});

/// Of the axis after the batch a part.
#[derive(Clone, Copy, Debug)]
pub struct Narrow {
    /// The first place that is kept.
    pub start: usize,
    /// How many are kept.
    pub length: usize,
}

impl Layer for Narrow {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.narrow(1, self.start, self.length)
    }
}

module!(Narrow {});

/// The last axis as several whose lengths multiply to it: rows of 64 as images of 1 × 8 × 8.
#[derive(Clone, Debug)]
pub struct Unflatten(pub Vec<usize>);

impl Layer for Unflatten {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.unflatten(-1, &self.0)
    }
}

module!(Unflatten {});

/// All axes after the batch as others of the same size.
#[derive(Clone, Debug)]
pub struct Reshape(pub Vec<usize>);

impl Layer for Reshape {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.flatten(1).unflatten(1, &self.0)
    }
}

module!(Reshape {});
