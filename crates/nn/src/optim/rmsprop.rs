//! The RMSprop optimizer.
//!
//! Source: Tieleman and Hinton, lecture 6.5, 2012; centered: Graves, Generating Sequences With Recurrent Neural Networks,
//! 2013. The order of operations is PyTorch's.

use panoply_tensor::{Result, Tensor};

use super::{Optimizer, UpdateContext, UpdateRule, check_fraction};

/// Settings of [`super::RmsProp`].
#[derive(Clone, Debug)]
pub struct RmsPropRule {
    /// Decay of the running mean of squared gradients.
    pub alpha: f64,
    /// Constant added to the root.
    pub epsilon: f64,
    /// Momentum factor.
    pub momentum: f64,
    /// True to normalize by the variance of the gradient instead of its mean square.
    pub centered: bool,
}

impl Optimizer<RmsPropRule> {
    /// Creates the optimizer with decay 0.99, epsilon 1e-8, no momentum, not centered.
    pub fn new(learning_rate: f64) -> Optimizer<RmsPropRule> {
        let rule = RmsPropRule { alpha: 0.99, epsilon: 1e-8, momentum: 0.0, centered: false };
        Optimizer::from_rule(rule, learning_rate)
    }

    /// Sets the decay of the running mean of squared gradients.
    #[must_use]
    pub fn alpha(mut self, alpha: f64) -> Optimizer<RmsPropRule> {
        self.rule.alpha = alpha;
        self
    }

    /// Sets the constant added to the root.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Optimizer<RmsPropRule> {
        self.rule.epsilon = eps;
        self
    }

    /// Sets the momentum factor.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Optimizer<RmsPropRule> {
        self.rule.momentum = momentum;
        self
    }

    /// Normalizes by the standard deviation of the gradient instead of its root mean square.
    #[must_use]
    pub fn centered(mut self) -> Optimizer<RmsPropRule> {
        self.rule.centered = true;
        self
    }
}

impl UpdateRule for RmsPropRule {
    fn check(&self) -> Result<()> {
        check_fraction("alpha", self.alpha)
    }

    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        let mut kept = state.iter().cloned();
        let mut next = || kept.next().unwrap_or_else(|| value.zeros_like());
        let blend = |old: Tensor, new: &Tensor| old * self.alpha + new * (1.0 - self.alpha);
        let square = blend(next(), &gradient.square());
        let mut state = vec![square.clone()];
        let spread = if self.centered {
            let mean = blend(next(), gradient);
            state.push(mean.clone());
            (square - mean.square()).sqrt()
        } else {
            square.sqrt()
        };
        let motion = gradient / (spread + self.epsilon);
        if self.momentum == 0.0 {
            return (value - motion * step.lr, state);
        }
        let velocity = next() * self.momentum + motion;
        state.push(velocity.clone());
        (value - velocity * step.lr, state)
    }
}
