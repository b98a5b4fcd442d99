//! The Lion optimizer: steps along the sign of a mean of gradient and momentum.
//!
//! Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2.

use panoply_tensor::{Result, Tensor};

use super::{Optimizer, UpdateContext, UpdateRule, check_fraction};

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

    /// Sets the weight of the momentum in the direction of the step, and the decay of the momentum.
    #[must_use]
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Optimizer<LionRule> {
        (self.rule.beta1, self.rule.beta2) = (beta1, beta2);
        self
    }

    /// Sets the decoupled weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Optimizer<LionRule> {
        self.rule.weight_decay = weight_decay;
        self
    }
}

impl UpdateRule for LionRule {
    fn check(&self) -> Result<()> {
        check_fraction("beta1", self.beta1)?;
        check_fraction("beta2", self.beta2)
    }

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
