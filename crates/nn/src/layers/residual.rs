//! Layers around which the input goes, too.

use panoply_tensor::Tensor;

use crate::layer::{ForwardContext, Layer};
use crate::layers::Sequential;
use crate::module::module;

/// What layers make of an input, added to the input or to what other layers make of it. [He et al. 2016]
#[derive(Clone, Debug, Default)]
pub struct Residual {
    /// What is added.
    pub layers: Sequential,
    /// To what: no layers give the input.
    pub shortcut: Sequential,
}

impl Layer for Residual {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let around = self.shortcut.forward(input, pass);
        &around + self.layers.forward(input, pass).cast(around.dtype())
    }
}

module!(Residual { layers, shortcut });
