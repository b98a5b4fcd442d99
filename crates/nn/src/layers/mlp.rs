//! Multi-layer perceptron.

use panoply_tensor::{Rng, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::layers::{DropoutExt, Linear};
use crate::module::module;

/// A multi-layer perceptron: linear layers with ReLU and dropout between them.
#[derive(Clone, Debug)]
pub struct Mlp {
    /// Linear layers, in order.
    pub layers: Vec<Linear>,
    /// Probability of dropping an activation in training.
    pub dropout: f64,
}

impl Mlp {
    /// Creates layers between these widths: `[64, 128, 10]` are two layers.
    pub fn new(widths: &[usize], dropout: f64, rng: &mut Rng) -> Mlp {
        let layers = widths.windows(2).map(|pair| Linear::new(pair[0], pair[1], rng));
        Mlp { layers: layers.collect(), dropout }
    }
}

impl Layer for Mlp {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let mut hidden = input.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            hidden = layer.forward(&hidden, pass);
            if i + 1 < self.layers.len() {
                hidden = hidden.relu().dropout(self.dropout, pass);
            }
        }
        hidden
    }
}

module!(Mlp { layers });
