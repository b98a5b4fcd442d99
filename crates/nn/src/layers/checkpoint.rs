//! A part of a network whose inner values are not kept for the gradient.

use panoply_tensor::{Result, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, ParamVisitor, ParamVisitorMut};

/// A layer whose inner values are computed anew for the gradient ([`Tensor::checkpoint`]): less memory, more work, the same
/// results but for the rounding of sums. Around each block of a transformer it keeps what goes from block to block and nothing inside them.
///
/// The names of parameters are the layer's own, so a model's file fits with and without.
#[derive(Clone, Debug)]
pub struct ActivationCheckpoint<L>(pub L);

impl<L: Layer> Layer for ActivationCheckpoint<L> {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        // Outside training nothing flows back.
        if pass.is_training() {
            Tensor::checkpoint([input], |[input]| self.0.forward(input, pass))
        } else {
            self.0.forward(input, pass)
        }
    }
}

impl<L: Module> Module for ActivationCheckpoint<L> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.0.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.0.visit_mut(visitor)
    }
}
