//! Activations with a setting; those without are functions of tensors in a [`crate::Lambda`].

use panoply_tensor::Tensor;

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// x where it is positive, `slope` of it elsewhere. [Maas et al. 2013]
#[derive(Clone, Copy, Debug)]
pub struct LeakyRelu {
    /// The share.
    pub negative_slope: f64,
}

impl Layer for LeakyRelu {
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        input.leaky_relu(self.negative_slope)
    }
}

module!(LeakyRelu {});
