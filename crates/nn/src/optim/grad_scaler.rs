//! Scaling the loss, so that gradients in f16 neither vanish nor overflow.
//!
//! Source: Micikevicius et al., Mixed Precision Training, 2018; the numbers are PyTorch's `GradScaler`'s.

use serde::{Deserialize, Serialize};

/// A factor of the loss that follows what the gradients bear.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradScaler {
    /// The factor now.
    pub scale: f64,
    /// What it is multiplied by after [`GradScaler::growth_interval`] good steps.
    pub growth_factor: f64,
    /// What it is multiplied by after a step whose gradients were not finite.
    pub backoff_factor: f64,
    /// Good steps until it grows.
    pub growth_interval: u32,
    /// Good steps since it changed.
    pub growth_tracker: u32,
    /// Steps that were left out.
    pub skipped_steps: u64,
}

impl Default for GradScaler {
    /// 2^16; doubled after 2000 good steps, halved after a bad one.
    fn default() -> GradScaler {
        GradScaler {
            scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            growth_tracker: 0,
            skipped_steps: 0,
        }
    }
}

impl GradScaler {
    /// Below this no gradient of a sound loss overflows.
    pub const SMALLEST: f64 = 1.0 / 65536.0;

    /// Follows a step whose gradients were finite or not; whether the step stands.
    pub fn update(&mut self, finite: bool) -> bool {
        if !finite {
            (self.scale, self.growth_tracker, self.skipped_steps) =
                (self.scale * self.backoff_factor, 0, self.skipped_steps + 1);
            return false;
        }
        self.growth_tracker += 1;
        if self.growth_tracker >= self.growth_interval {
            // A larger factor would not be a float.
            (self.scale, self.growth_tracker) = ((self.scale * self.growth_factor).min(2f64.powi(100)), 0);
        }
        true
    }
}
