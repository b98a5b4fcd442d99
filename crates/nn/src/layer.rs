//! Running a model.

use panoply_tensor::{Rng, Tensor};

/// Something that maps a tensor to a tensor.
pub trait Layer {
    /// The output for an input; `pass` says whether this is training.
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor;
}

/// What a forward pass needs besides its input.
#[derive(Debug)]
pub struct Pass<'a> {
    rng: Option<&'a mut Rng>,
}

impl<'a> Pass<'a> {
    /// A pass of training: dropout drops.
    pub fn train(rng: &'a mut Rng) -> Pass<'a> {
        Pass { rng: Some(rng) }
    }

    /// A pass of use: the same output for the same input.
    pub fn eval() -> Pass<'static> {
        Pass { rng: None }
    }

    /// Whether this is training.
    pub fn is_training(&self) -> bool {
        self.rng.is_some()
    }

    /// The random numbers of a training pass.
    pub fn rng(&mut self) -> Option<&mut Rng> {
        self.rng.as_deref_mut()
    }
}
