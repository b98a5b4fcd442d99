//! Loss scaling, so that f16 gradients neither underflow nor overflow.
//!
//! Source: Micikevicius et al., Mixed Precision Training, 2018; the defaults are those of PyTorch's `GradScaler`.

use serde::{Deserialize, Serialize};

/// A dynamic loss scale: it grows after a number of steps with finite gradients and shrinks when gradients overflow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradScaler {
    /// Current scale.
    pub scale: f64,
    /// Factor of the scale after [`GradScaler::growth_interval`] consecutive steps with finite gradients.
    pub growth_factor: f64,
    /// Factor of the scale after a step whose gradients were not finite.
    pub backoff_factor: f64,
    /// Number of consecutive steps with finite gradients before the scale grows.
    pub growth_interval: u32,
    /// Number of steps with finite gradients since the last change of the scale.
    pub growth_tracker: u32,
    /// Number of skipped steps.
    pub skipped_steps: u64,
}

impl Default for GradScaler {
    /// Scale 2^16, doubled after 2000 steps with finite gradients and halved after one without.
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
    /// Smallest scale, 2^-16: if a step overflows and its scale becomes smaller, scaling cannot help and training fails.
    pub const MIN_SCALE: f64 = 1.0 / 65536.0;

    /// Updates the scale after a step. Returns true if the step is applied (`finite`), false if it is skipped.
    pub fn update(&mut self, finite: bool) -> bool {
        if !finite {
            (self.scale, self.growth_tracker, self.skipped_steps) =
                (self.scale * self.backoff_factor, 0, self.skipped_steps + 1);
            return false;
        }
        self.growth_tracker += 1;
        if self.growth_tracker >= self.growth_interval {
            // The limit keeps the scale in the range of f32.
            (self.scale, self.growth_tracker) = ((self.scale * self.growth_factor).min(2f64.powi(100)), 0);
        }
        true
    }
}
