//! Learning rates over time, as functions of the step; and one that listens to the loss.

use std::f64::consts::PI;

/// A factor of the learning rate for each step, counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum LrSchedule {
    /// Always 1.
    Constant,
    /// Times `factor` after every `step_size` steps.
    Step {
        /// Steps between changes; at least 1.
        step_size: u64,
        /// What the rate is multiplied by.
        gamma: f64,
    },
    /// Times this at every step.
    Exponential(f64),
    /// From 1 down to `min_factor` along half a cosine, and `min_factor` from then on. [Loshchilov and Hutter 2017]
    Cosine {
        /// Steps until `min_factor`.
        t_max: u64,
        /// Where it ends.
        min_factor: f64,
    },
    /// From `start` up to 1 in a straight line, then another schedule from its beginning.
    LinearWarmup {
        /// Steps until 1.
        steps: u64,
        /// The first factor.
        start_factor: f64,
        /// What follows.
        then: Box<LrSchedule>,
    },
    /// From `start` up to 1 and down to `end`, each along half a cosine. [Smith and Topin 2019]
    OneCycle {
        /// Steps in all.
        steps: u64,
        /// Share of the steps that go up.
        pct_start: f64,
        /// The first factor.
        start_factor: f64,
        /// The last factor.
        end_factor: f64,
    },
}

impl LrSchedule {
    /// One cycle as PyTorch's `OneCycleLR` has it: from 1/25 up in 30 % of the steps, then down to 1/250 000.
    pub fn one_cycle(steps: u64) -> LrSchedule {
        LrSchedule::OneCycle { steps, pct_start: 0.3, start_factor: 1.0 / 25.0, end_factor: 1.0 / 250_000.0 }
    }

    /// This schedule after a warm-up.
    #[must_use]
    pub fn with_warmup(self, steps: u64, start: f64) -> LrSchedule {
        LrSchedule::LinearWarmup { steps, start_factor: start, then: Box::new(self) }
    }

    /// The factor at a step.
    pub fn factor(&self, step: u64) -> f64 {
        let half_cosine =
            |from: f64, to: f64, share: f64| to + (from - to) * (1.0 + (PI * share.clamp(0.0, 1.0)).cos()) / 2.0;
        match self {
            LrSchedule::Constant => 1.0,
            LrSchedule::Step { step_size: every, gamma: factor } => factor.powf((step / every.max(&1)) as f64),
            LrSchedule::Exponential(factor) => factor.powf(step as f64),
            LrSchedule::Cosine { t_max: steps, min_factor: floor } => {
                half_cosine(1.0, *floor, step as f64 / (*steps).max(1) as f64)
            }
            LrSchedule::LinearWarmup { steps, start_factor: start, .. } if step < *steps => {
                start + (1.0 - start) * step as f64 / *steps as f64
            }
            LrSchedule::LinearWarmup { steps, then, .. } => then.factor(step - steps),
            LrSchedule::OneCycle { steps, pct_start: rising, start_factor: start, end_factor: end } => {
                let top = rising * *steps as f64 - 1.0;
                let last = steps.saturating_sub(1) as f64;
                let at = step as f64;
                if at <= top {
                    half_cosine(*start, 1.0, at / top.max(1.0))
                } else {
                    half_cosine(1.0, *end, (at - top) / (last - top).max(1.0))
                }
            }
        }
    }
}

/// Lowers the learning rate when the loss stops falling.
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceLrOnPlateau {
    /// What the rate is multiplied by.
    pub factor: f64,
    /// Observations without improvement that are tolerated.
    pub patience: u64,
    /// A loss below (1 - this) of the best one is an improvement.
    pub threshold: f64,
    best: f64,
    stale: u64,
}

impl ReduceLrOnPlateau {
    /// Threshold 1e-4.
    pub fn new(factor: f64, patience: u64) -> ReduceLrOnPlateau {
        ReduceLrOnPlateau { factor, patience, threshold: 1e-4, best: f64::INFINITY, stale: 0 }
    }

    /// The factor of the learning rate after these losses were seen from the beginning.
    pub fn factor_after(&self, losses: impl Iterator<Item = f64>) -> f64 {
        let mut seen =
            ReduceLrOnPlateau { threshold: self.threshold, ..ReduceLrOnPlateau::new(self.factor, self.patience) };
        losses.fold(1.0, |rate, loss| seen.step(loss, rate))
    }

    /// The learning rate after a loss was seen.
    pub fn step(&mut self, loss: f64, rate: f64) -> f64 {
        if loss < self.best * (1.0 - self.threshold) || self.best == f64::INFINITY {
            (self.best, self.stale) = (loss, 0);
            return rate;
        }
        self.stale += 1;
        if self.stale <= self.patience {
            return rate;
        }
        self.stale = 0;
        rate * self.factor
    }
}
