//! Activations with a setting; those without are tensor functions in a [`crate::Lambda`].

use panoply_tensor::Tensor;

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// Leaky ReLU: x if x > 0, otherwise `negative_slope` · x. [Maas et al. 2013]
#[derive(Clone, Copy, Debug)]
pub struct LeakyRelu {
    /// Factor of negative inputs.
    pub negative_slope: f64,
}

impl Layer for LeakyRelu {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.leaky_relu(self.negative_slope)
    }
}

module!(LeakyRelu {});
