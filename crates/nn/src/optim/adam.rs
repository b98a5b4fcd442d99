//! The optimizers Adam and AdamW (Adam with decoupled weight decay).
//!
//! Source: Kingma and Ba, Adam, 2015; Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019. The order of operations is
//! PyTorch's, so results agree up to rounding.

use panoply_tensor::{Result, Scalar, Tensor};

use super::{Optimizer, UpdateContext, UpdateRule, check_fraction};

/// Settings of the moment estimates of Adam and AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamParams {
    /// Decay of the running mean of gradients.
    pub beta1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta2: f64,
    /// Constant added to the root of the mean square.
    pub epsilon: f64,
}

impl Default for AdamParams {
    fn default() -> AdamParams {
        AdamParams { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl AdamParams {
    fn check(&self) -> Result<()> {
        check_fraction("beta1", self.beta1)?;
        check_fraction("beta2", self.beta2)
    }

    /// Returns the updated parameter and moments; the parameter is first multiplied by `shrink`.
    fn update(
        &self,
        (value, shrink): (&Tensor, f64),
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        let (mean, square) = match state {
            [mean, square] => (mean.clone(), square.clone()),
            _ => (value.zeros_like(), value.zeros_like()),
        };
        let power = i32::try_from(step.step).unwrap_or(i32::MAX);
        let (bias1, bias2) = (1.0 - self.beta1.powi(power), 1.0 - self.beta2.powi(power));
        let [shrink, pace, root] =
            [shrink, step.lr / bias1, bias2.sqrt()].map(|x| Tensor::scalar(Scalar::from_f64(value.dtype(), x)));
        let [value, mean, square] = Tensor::call_multi(
            "adam",
            [value, gradient, &mean, &square, &shrink, &pace, &root],
            (self.beta1, self.beta2, self.epsilon),
            |[value, gradient, mean, square, shrink, pace, root], &(beta1, beta2, epsilon)| {
                let mean = mean * beta1 + gradient * (1.0 - beta1);
                let square = square * beta2 + gradient.square() * (1.0 - beta2);
                let spread = square.sqrt() / root + epsilon;
                [value * shrink - (&mean / spread) * pace, mean, square]
            },
        );
        (value, vec![mean, square])
    }
}

/// Settings of [`super::Adam`].
#[derive(Clone, Debug, Default)]
pub struct AdamRule {
    /// Settings of the moment estimates.
    pub moments: AdamParams,
    /// L2 weight decay, added to the gradient.
    pub weight_decay: f64,
}

impl Optimizer<AdamRule> {
    /// Creates the optimizer with betas 0.9 and 0.999, epsilon 1e-8 and no weight decay.
    pub fn new(learning_rate: f64) -> Optimizer<AdamRule> {
        Optimizer::from_rule(AdamRule::default(), learning_rate)
    }

    /// Sets the L2 weight decay, which is added to the gradient.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Optimizer<AdamRule> {
        self.rule.weight_decay = weight_decay;
        self
    }

    /// Sets the decays of the running means of gradients and of squared gradients, PyTorch's `betas`.
    #[must_use]
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Optimizer<AdamRule> {
        (self.rule.moments.beta1, self.rule.moments.beta2) = (beta1, beta2);
        self
    }

    /// Sets the constant added to the root of the mean square.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Optimizer<AdamRule> {
        self.rule.moments.epsilon = eps;
        self
    }
}

impl UpdateRule for AdamRule {
    fn check(&self) -> Result<()> {
        self.moments.check()
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
        self.moments.update((value, 1.0), &pull, state, step)
    }
}

/// Settings of [`super::AdamW`].
#[derive(Clone, Debug)]
pub struct AdamWRule {
    /// Settings of the moment estimates.
    pub moments: AdamParams,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Optimizer<AdamWRule> {
    /// Creates the optimizer with betas 0.9 and 0.999, epsilon 1e-8 and weight decay 0.01.
    pub fn new(learning_rate: f64) -> Optimizer<AdamWRule> {
        let rule = AdamWRule { moments: AdamParams::default(), weight_decay: 0.01 };
        Optimizer::from_rule(rule, learning_rate)
    }

    /// Sets the decoupled weight decay; 0 is plain Adam.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Optimizer<AdamWRule> {
        self.rule.weight_decay = weight_decay;
        self
    }

    /// Sets the decays of the running means of gradients and of squared gradients, PyTorch's `betas`.
    #[must_use]
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Optimizer<AdamWRule> {
        (self.rule.moments.beta1, self.rule.moments.beta2) = (beta1, beta2);
        self
    }

    /// Sets the constant added to the root of the mean square.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Optimizer<AdamWRule> {
        self.rule.moments.epsilon = eps;
        self
    }
}

impl UpdateRule for AdamWRule {
    fn check(&self) -> Result<()> {
        self.moments.check()
    }

    fn update(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        step: &UpdateContext,
    ) -> (Tensor, Vec<Tensor>) {
        let shrink = 1.0 - step.lr * step.weight_decay(self.weight_decay);
        self.moments.update((value, shrink), gradient, state, step)
    }
}
