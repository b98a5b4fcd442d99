//! Sampling of a token from logits.

use panoply_tensor::random::philox;
use panoply_tensor::{Error, Result};

/// Sampling parameters. The filters are applied in the order top-k, top-p, min-p, then the temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the most likely token.
    pub temperature: f32,
    /// Keeps this number of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set of most likely tokens whose probabilities sum to this; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens whose probability is at least this fraction of the highest; 0 keeps all.
    pub min_p: f32,
}

impl Default for Sampling {
    /// Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05.
    fn default() -> Sampling {
        Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05 }
    }
}

impl Sampling {
    /// Returns parameters that always take the most likely token.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    ///
    /// If the temperature is negative or not finite, or a probability is outside 0 to 1.
    pub fn check(&self) -> Result<()> {
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return Err(Error::mistake(format!("temperature {} is not finite and at least 0", self.temperature)));
        }
        for (name, value) in [("top-p", self.top_p), ("min-p", self.min_p)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::mistake(format!("{name} {value} is not between 0 and 1")));
            }
        }
        Ok(())
    }

    /// Samples the token after `position`. The random number depends on `seed` and `position` only, not on earlier draws.
    ///
    /// # Errors
    ///
    /// If a logit is NaN or no logit is finite.
    pub fn sample(&self, logits: &[f32], seed: u64, position: usize) -> Result<u32> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if !largest.is_finite() || logits.iter().any(|logit| logit.is_nan()) {
            return Err(Error::diverged(format!("the logits at position {position} are not finite")));
        }
        if self.temperature == 0.0 {
            let best = logits.iter().position(|logit| *logit == largest);
            return Ok(best.expect("the largest logit is one of them") as u32);
        }
        let kept = self.kept(logits, largest);
        let weight = |logit: f32| f64::from((logit - largest) / self.temperature).exp();
        let total: f64 = kept.iter().map(|(_, logit)| weight(*logit)).sum();
        let [high, low, ..] = philox([position as u32, (position as u64 >> 32) as u32, 0, 0], seed);
        let uniform = ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = uniform * total;
        let drawn = kept.iter().find(|(_, logit)| {
            left -= weight(*logit);
            left < 0.0
        });
        // After rounding, a small rest can remain beyond the last token.
        Ok(drawn.or(kept.last()).expect("the most likely token is kept").0)
    }

    /// Returns the tokens that pass the filters with their logits, most likely first; equal ones by id.
    fn kept(&self, logits: &[f32], largest: f32) -> Vec<(u32, f32)> {
        let mut sorted: Vec<(u32, f32)> = logits.iter().enumerate().map(|(id, logit)| (id as u32, *logit)).collect();
        sorted.sort_unstable_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        if self.top_k > 0 {
            sorted.truncate(self.top_k);
        }
        let weights: Vec<f64> = sorted.iter().map(|(_, logit)| f64::from(logit - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let before = weights.iter().take_while(|weight| {
            let is_needed = sum < f64::from(self.top_p) * total;
            sum += **weight;
            is_needed
        });
        let nucleus = before.count().max(1);
        let likely = weights.iter().take_while(|weight| **weight >= f64::from(self.min_p)).count().max(1);
        sorted.truncate(nucleus.min(likely));
        sorted
    }
}
