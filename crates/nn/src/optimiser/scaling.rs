//! Scaling the loss, so that gradients in f16 neither vanish nor overflow.
//!
//! Source: Micikevicius et al., Mixed Precision Training, 2018; the numbers are PyTorch's `GradScaler`'s.

use serde::{Deserialize, Serialize};

/// A factor of the loss that follows what the gradients bear.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// The factor now.
    pub factor: f64,
    /// What it is multiplied by after [`LossScale::interval`] good steps.
    pub growth: f64,
    /// What it is multiplied by after a step whose gradients were not finite.
    pub backoff: f64,
    /// Good steps until it grows.
    pub interval: u32,
    /// Good steps since it changed.
    pub good: u32,
    /// Steps that were left out.
    pub skipped: u64,
}

impl Default for LossScale {
    /// 2^16; doubled after 2000 good steps, halved after a bad one.
    fn default() -> LossScale {
        LossScale { factor: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, good: 0, skipped: 0 }
    }
}

impl LossScale {
    /// Below this no gradient of a sound loss overflows.
    pub const SMALLEST: f64 = 1.0 / 65536.0;

    /// Follows a step whose gradients were finite or not; whether the step stands.
    pub fn observe(&mut self, finite: bool) -> bool {
        if !finite {
            (self.factor, self.good, self.skipped) = (self.factor * self.backoff, 0, self.skipped + 1);
            return false;
        }
        self.good += 1;
        if self.good >= self.interval {
            // A larger factor would not be a float.
            (self.factor, self.good) = ((self.factor * self.growth).min(2f64.powi(100)), 0);
        }
        true
    }
}
