//! RMSprop.
//!
//! Source: Tieleman and Hinton, lecture 6.5, 2012; centred: Graves, Generating Sequences With Recurrent Neural Networks,
//! 2013. The order of operations is PyTorch's.

use panoply_tensor::Tensor;

use super::{Optimiser, Rule, Step};

/// Settings of [`super::RmsProp`].
#[derive(Clone, Debug)]
pub struct RmsPropRule {
    /// Decay of the running mean of squares.
    pub decay: f64,
    /// Added to the root.
    pub epsilon: f64,
    /// How much of the last step is kept.
    pub momentum: f64,
    /// Whether the squared mean is taken off, which leaves the variance.
    pub centred: bool,
}

impl Optimiser<RmsPropRule> {
    /// Decay 0.99, epsilon 1e-8, no momentum, not centred.
    pub fn new(learning_rate: f64) -> Optimiser<RmsPropRule> {
        let rule = RmsPropRule { decay: 0.99, epsilon: 1e-8, momentum: 0.0, centred: false };
        Optimiser::with_rule(rule, learning_rate)
    }

    /// With momentum.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Optimiser<RmsPropRule> {
        self.rule.momentum = momentum;
        self
    }

    /// Divides by the deviation of the gradient instead of its root mean square.
    #[must_use]
    pub fn centred(mut self) -> Optimiser<RmsPropRule> {
        self.rule.centred = true;
        self
    }
}

impl Rule for RmsPropRule {
    fn update(&self, value: &Tensor, gradient: &Tensor, state: &[Tensor], step: &Step) -> (Tensor, Vec<Tensor>) {
        let mut kept = state.iter().cloned();
        let mut next = || kept.next().unwrap_or_else(|| value.zeros_like());
        let blend = |old: Tensor, new: &Tensor| old * self.decay + new * (1.0 - self.decay);
        let square = blend(next(), &gradient.square());
        let mut state = vec![square.clone()];
        let spread = if self.centred {
            let mean = blend(next(), gradient);
            state.push(mean.clone());
            (square - mean.square()).sqrt()
        } else {
            square.sqrt()
        };
        let motion = gradient / (spread + self.epsilon);
        if self.momentum == 0.0 {
            return (value - motion * step.rate, state);
        }
        let velocity = next() * self.momentum + motion;
        state.push(velocity.clone());
        (value - velocity * step.rate, state)
    }
}
