//! The linear (dense) layer.

use panoply_tensor::{Rng, Tensor};

use crate::init;
use crate::layer::{ForwardContext, Layer};
use crate::module::{Param, module};

/// Linear layer: x · weightᵀ + bias over the last axis. The weight is `[outputs, inputs]`, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Weight, `[outputs, inputs]`.
    pub weight: Param,
    /// Bias, `[outputs]`.
    pub bias: Option<Param>,
}

impl Linear {
    /// Creates a layer with weight and bias uniform in ±1/√inputs, as PyTorch's `nn.Linear`.
    pub fn new(in_features: usize, out_features: usize, rng: &mut Rng) -> Linear {
        let bound = 1.0 / (in_features.max(1) as f64).sqrt();
        let weight = Param::new(init::uniform(&[out_features, in_features], bound, rng));
        Linear { weight, bias: Some(Param::new(init::uniform(&[out_features], bound, rng))) }
    }

    /// Removes the bias.
    #[must_use]
    pub fn without_bias(mut self) -> Linear {
        self.bias = None;
        self
    }
}

impl Layer for Linear {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Ok([outputs, inputs]) = self.weight.tensor().dims::<2>()
            && let Some(misfit) =
                pass.misfit(input, (-1, inputs), (&self.weight, "weight"), &|| format!("Linear({inputs} → {outputs})"))
        {
            return misfit;
        }
        let product = pass.cast(input).matmul(&pass.cast(self.weight.tensor()).t());
        match &self.bias {
            Some(bias) => product + pass.cast(bias.tensor()),
            None => product,
        }
    }
}

module!(Linear { weight, bias });
