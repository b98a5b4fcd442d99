//! The Adagrad optimizer.
//!
//! Source: Duchi, Hazan, Singer, Adaptive Subgradient Methods, JMLR 2011.

use panoply_tensor::Tensor;

use super::{Optimizer, UpdateContext, UpdateRule};

/// Settings of [`super::Adagrad`].
#[derive(Clone, Debug)]
pub struct AdagradRule {
    /// Decay of the learning rate, which is divided by 1 + (steps made) · `lr_decay`.
    pub lr_decay: f64,
    /// Constant added to the root of the summed squares.
    pub epsilon: f64,
}

impl Optimizer<AdagradRule> {
    /// Creates the optimizer without learning-rate decay, with epsilon 1e-10.
    pub fn new(learning_rate: f64) -> Optimizer<AdagradRule> {
        Optimizer::from_rule(AdagradRule { lr_decay: 0.0, epsilon: 1e-10 }, learning_rate)
    }

    /// Sets the decay of the learning rate, which is divided by 1 + (steps made) · `lr_decay`.
    #[must_use]
    pub fn lr_decay(mut self, lr_decay: f64) -> Optimizer<AdagradRule> {
        self.rule.lr_decay = lr_decay;
        self
    }

    /// Sets the constant added to the root of the summed squares.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Optimizer<AdagradRule> {
        self.rule.epsilon = eps;
        self
    }
}

impl UpdateRule for AdagradRule {
    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        let before = state.first().cloned().unwrap_or_else(|| value.zeros_like());
        let sum = before + gradient.square();
        let rate = step.lr / (1.0 + (step.step - 1) as f64 * self.lr_decay);
        (value - gradient / (sum.sqrt() + self.epsilon) * rate, vec![sum])
    }
}
