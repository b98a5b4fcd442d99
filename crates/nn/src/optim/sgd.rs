//! Stochastic gradient descent.

use panoply_tensor::{Error, Result, Tensor};

use super::{Optimizer, UpdateContext, UpdateRule};

/// Settings of [`super::Sgd`].
#[derive(Clone, Debug)]
pub struct SgdRule {
    /// Momentum factor.
    pub momentum: f64,
    /// True for Nesterov momentum. [Nesterov 1983]
    pub nesterov: bool,
    /// L2 weight decay, added to the gradient.
    pub weight_decay: f64,
}

impl Optimizer<SgdRule> {
    /// Creates plain gradient descent.
    pub fn new(learning_rate: f64) -> Optimizer<SgdRule> {
        Optimizer::from_rule(SgdRule { momentum: 0.0, nesterov: false, weight_decay: 0.0 }, learning_rate)
    }

    /// Sets the momentum factor, as PyTorch's SGD defines it. [Polyak 1964]
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Optimizer<SgdRule> {
        self.rule.momentum = momentum;
        self
    }

    /// Makes the momentum Nesterov's. [Nesterov 1983] Without [`Sgd::momentum`](super::Sgd::momentum) every step fails, as in PyTorch.
    #[must_use]
    pub fn nesterov(mut self) -> Optimizer<SgdRule> {
        self.rule.nesterov = true;
        self
    }

    /// Sets the L2 weight decay, which is added to the gradient.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Optimizer<SgdRule> {
        self.rule.weight_decay = weight_decay;
        self
    }
}

impl UpdateRule for SgdRule {
    fn check(&self) -> Result<()> {
        if self.nesterov && self.momentum == 0.0 {
            let message = "Nesterov momentum needs a momentum factor";
            return Err(Error::mistake(message).note("such as `Sgd::new(0.01).momentum(0.9).nesterov()`"));
        }
        Ok(())
    }

    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        let decay = step.weight_decay(self.weight_decay);
        let pull = if decay > 0.0 { gradient + value * decay } else { gradient.clone() };
        if self.momentum == 0.0 {
            return (value - pull * step.lr, Vec::new());
        }
        let velocity = state.first().map_or_else(|| pull.clone(), |before| before * self.momentum + &pull);
        let direction = if self.nesterov { pull + &velocity * self.momentum } else { velocity.clone() };
        (value - direction * step.lr, vec![velocity])
    }
}
