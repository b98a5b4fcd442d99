//! Stochastic gradient descent.

use panoply_tensor::Tensor;

use super::{Optimiser, Rule};

/// Settings of [`super::Sgd`].
#[derive(Clone, Debug)]
pub struct SgdRule {
    /// How much of the last step is kept.
    pub momentum: f64,
    /// Whether the gradient is taken after the momentum's part of the step. [Nesterov 1983]
    pub nesterov: bool,
    /// Pull towards zero, added to the gradient.
    pub weight_decay: f64,
}

impl Optimiser<SgdRule> {
    /// Plain gradient descent.
    pub fn new(learning_rate: f64) -> Optimiser<SgdRule> {
        Optimiser::with_rule(SgdRule { momentum: 0.0, nesterov: false, weight_decay: 0.0 }, learning_rate)
    }

    /// With momentum, as PyTorch's SGD defines it. [Polyak 1964]
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Optimiser<SgdRule> {
        self.rule.momentum = momentum;
        self
    }
}

impl Rule for SgdRule {
    fn update(&self, value: &Tensor, gradient: &Tensor, state: &[Tensor], rate: f64, _: u64) -> (Tensor, Vec<Tensor>) {
        let pull = if self.weight_decay > 0.0 { gradient + value * self.weight_decay } else { gradient.clone() };
        if self.momentum == 0.0 {
            return (value - pull * rate, Vec::new());
        }
        let velocity = state.first().map_or_else(|| pull.clone(), |before| before * self.momentum + &pull);
        let direction = if self.nesterov { pull + &velocity * self.momentum } else { velocity.clone() };
        (value - direction * rate, vec![velocity])
    }
}
