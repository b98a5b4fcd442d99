//! Residual connections.

use panoply_tensor::Tensor;

use crate::layer::{ForwardContext, Layer};
use crate::layers::Sequential;
use crate::module::module;

/// Residual connection: layers(x) + shortcut(x). [He et al. 2016]
#[derive(Clone, Debug, Default)]
pub struct Residual {
    /// Layers of the residual branch.
    pub layers: Sequential,
    /// Layers of the shortcut; empty is the identity.
    pub shortcut: Sequential,
}

impl Layer for Residual {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let around = self.shortcut.forward(input, pass);
        &around + self.layers.forward(input, pass).cast(around.dtype())
    }
}

module!(Residual { layers, shortcut });
