//! Activation checkpointing.

use panoply_tensor::{Result, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, ParamVisitor, ParamVisitorMut};

/// A layer whose intermediate values are recomputed in the backward pass ([`Tensor::checkpoint`]): less memory, more work, and equal
/// results except for the rounding of sums. Around each transformer block, only the values between blocks are kept.
///
/// Parameter names are those of the inner layer, so a checkpoint file fits with and without it.
#[doc(alias = "checkpoint")]
#[derive(Clone, Debug)]
pub struct ActivationCheckpoint<L>(pub L);

impl<L: Layer> Layer for ActivationCheckpoint<L> {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        // Evaluation needs no gradients.
        pass.at_caller(|pass| match pass.is_training() {
            true => Tensor::checkpoint([input], |[input]| self.0.forward(input, pass)),
            false => self.0.forward(input, pass),
        })
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
