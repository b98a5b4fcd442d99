//! A dense layer.

use panoply_tensor::{Result, Rng, Tensor};

use crate::layer::{Layer, Pass};
use crate::module::{Module, Param, Visitor, VisitorMut};

/// x · weightᵀ + bias over the last axis. The weight is `[outputs, inputs]`, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Param,
    /// `[outputs]`.
    pub bias: Option<Param>,
}

impl Linear {
    /// Weight and bias uniform in ±1/√inputs, as PyTorch's `nn.Linear` starts.
    pub fn new(inputs: usize, outputs: usize, rng: &mut Rng) -> Linear {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let mut start = |shape: &[usize]| Param::new(rng.uniform(shape) * (2.0 * bound) - bound);
        Linear { weight: start(&[outputs, inputs]), bias: Some(start(&[outputs])) }
    }
}

impl Layer for Linear {
    fn forward(&self, input: &Tensor, _: &mut Pass<'_>) -> Tensor {
        let product = input.matmul(&self.weight.tensor().t());
        match &self.bias {
            Some(bias) => product + bias.tensor(),
            None => product,
        }
    }
}

impl Module for Linear {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.field("weight", &self.weight);
        visitor.field("bias", &self.bias);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()> {
        visitor.field("weight", &mut self.weight)?;
        visitor.field("bias", &mut self.bias)
    }
}
