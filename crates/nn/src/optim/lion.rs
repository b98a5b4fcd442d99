//! The Lion optimizer: steps along the sign of a mean of gradient and momentum.
//!
//! Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2.

use panoply_tensor::Tensor;

use super::{Optimizer, UpdateContext, UpdateRule};

/// Settings of [`super::Lion`].
#[derive(Clone, Debug)]
pub struct LionRule {
    /// Weight of the momentum in the direction of the step.
    pub beta1: f64,
    /// Decay of the momentum.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Optimizer<LionRule> {
    /// Creates the optimizer with betas 0.9 and 0.99 and no weight decay.
    pub fn new(learning_rate: f64) -> Optimizer<LionRule> {
        Optimizer::from_rule(LionRule { beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }, learning_rate)
    }

    /// Sets the decoupled weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Optimizer<LionRule> {
        self.rule.weight_decay = weight_decay;
        self
    }
}

impl UpdateRule for LionRule {
    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        let momentum = state.first().cloned().unwrap_or_else(|| value.zeros_like());
        let direction = (&momentum * self.beta1 + gradient * (1.0 - self.beta1)).sign();
        let kept = momentum * self.beta2 + gradient * (1.0 - self.beta2);
        let next = value * (1.0 - step.lr * step.weight_decay(self.weight_decay)) - direction * step.lr;
        (next, vec![kept])
    }
}
