//! Activations with a setting; those without are functions of tensors in a [`crate::Map`].

use panoply_tensor::Tensor;

use crate::layer::{Layer, Pass};
use crate::module::module;

/// x where it is positive, `slope` of it elsewhere. [Maas et al. 2013]
#[derive(Clone, Copy, Debug)]
pub struct LeakyRelu {
    /// The share.
    pub slope: f64,
}

impl Layer for LeakyRelu {
    fn forward(&self, input: &Tensor, _: &mut Pass<'_>) -> Tensor {
        input.leaky_relu(self.slope)
    }
}

module!(LeakyRelu {});
