//! Learning-rate schedules as functions of the step, and a schedule that follows the loss.

use std::f64::consts::PI;

use super::Optimizer;

/// A factor of the learning rate for each step, counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum LrSchedule {
    /// Factor 1.
    Constant,
    /// Multiplies by `gamma` after every `step_size` steps.
    #[doc(alias = "StepLR")]
    Step {
        /// Steps between changes; at least 1.
        step_size: u64,
        /// Factor of each change.
        gamma: f64,
    },
    /// Multiplies by `gamma` at every step.
    #[doc(alias = "ExponentialLR")]
    Exponential {
        /// Factor of each step.
        gamma: f64,
    },
    /// Falls from 1 to `min_factor` along half a cosine, and stays there. [Loshchilov and Hutter 2017]
    #[doc(alias = "CosineAnnealingLR")]
    Cosine {
        /// Number of steps to `min_factor`.
        t_max: u64,
        /// Final factor.
        min_factor: f64,
    },
    /// Rises linearly from `start_factor` to 1, then continues with another schedule from its step 0.
    #[doc(alias = "LinearLR")]
    LinearWarmup {
        /// Number of warm-up steps.
        steps: u64,
        /// Factor of the first step.
        start_factor: f64,
        /// Schedule after the warm-up.
        then: Box<LrSchedule>,
    },
    /// Rises from `start_factor` to 1, then falls to `end_factor`, each along half a cosine. [Smith and Topin 2019]
    #[doc(alias = "OneCycleLR")]
    OneCycle {
        /// Total number of steps.
        steps: u64,
        /// Fraction of the steps that rise.
        pct_start: f64,
        /// Factor of the first step.
        start_factor: f64,
        /// Factor of the last step.
        end_factor: f64,
    },
}

impl LrSchedule {
    /// Returns the one-cycle schedule with the defaults of PyTorch's `OneCycleLR`: from 1/25 up in 30 % of the steps, then down to 1/250
    /// 000.
    pub fn one_cycle(steps: u64) -> LrSchedule {
        LrSchedule::OneCycle { steps, pct_start: 0.3, start_factor: 1.0 / 25.0, end_factor: 1.0 / 250_000.0 }
    }

    /// Puts a linear warm-up before this schedule.
    #[must_use]
    pub fn with_warmup(self, steps: u64, start: f64) -> LrSchedule {
        LrSchedule::LinearWarmup { steps, start_factor: start, then: Box::new(self) }
    }

    /// Returns the factor at a step.
    pub fn factor(&self, step: u64) -> f64 {
        let half_cosine =
            |from: f64, to: f64, share: f64| to + (from - to) * (1.0 + (PI * share.clamp(0.0, 1.0)).cos()) / 2.0;
        match self {
            LrSchedule::Constant => 1.0,
            LrSchedule::Step { step_size: every, gamma: factor } => factor.powf((step / every.max(&1)) as f64),
            LrSchedule::Exponential { gamma } => gamma.powf(step as f64),
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

/// Sets an optimizer's learning rate by a schedule, in a training loop of one's own.
///
/// ```
/// use panoply_nn::optim::LrScheduler;
/// use panoply_nn::{ForwardContext, Layer, Linear, LrSchedule, Sgd};
/// use panoply_tensor::{Device, Result, Rng};
///
/// # fn main() -> Result<()> { Device::get("cpu")?.scope(|| {
/// let mut rng = Rng::seed_from_u64(0);
/// let mut model = Linear::new(4, 1, &mut rng);
/// let mut optimizer = Sgd::new(0.1);
/// let scheduler = LrScheduler::new(&mut optimizer, LrSchedule::Step { step_size: 2, gamma: 0.5 });
/// for _ in 0..3 {
///     let x = rng.normal([8, 4]);
///     let mut pass = ForwardContext::train(&mut rng);
///     let loss = model.forward(&x, &mut pass).square().mean(..);
///     optimizer.step(&mut model, loss, pass)?;
///     scheduler.step(&mut optimizer);
/// }
/// assert_eq!(optimizer.learning_rate, 0.05);
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LrScheduler {
    /// Learning rate that the factors multiply.
    pub base_lr: f64,
    /// Factors by step.
    pub schedule: LrSchedule,
}

impl LrScheduler {
    /// Creates a scheduler whose base is the optimizer's present learning rate, and sets that of its next step.
    pub fn new<R>(optimizer: &mut Optimizer<R>, schedule: LrSchedule) -> LrScheduler {
        let scheduler = LrScheduler { base_lr: optimizer.learning_rate, schedule };
        scheduler.step(optimizer);
        scheduler
    }

    /// Sets the learning rate of the optimizer's next step. The position in the schedule is the number of steps that the optimizer has
    /// made, so a resumed optimizer continues where it was, and steps that loss scaling skips do not count.
    pub fn step<R>(&self, optimizer: &mut Optimizer<R>) {
        optimizer.learning_rate = self.base_lr * self.schedule.factor(optimizer.steps);
    }
}

/// Lowers the learning rate when the loss stops falling.
#[doc(alias = "ReduceLROnPlateau")]
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceLrOnPlateau {
    /// Factor of each reduction.
    pub factor: f64,
    /// Number of observations without improvement before a reduction.
    pub patience: u64,
    /// Relative improvement that counts: the loss must fall below (1 − `threshold`) · best.
    pub threshold: f64,
    best: f64,
    stale: u64,
}

impl ReduceLrOnPlateau {
    /// Creates a schedule with threshold 1e-4.
    pub fn new(factor: f64, patience: u64) -> ReduceLrOnPlateau {
        ReduceLrOnPlateau { factor, patience, threshold: 1e-4, best: f64::INFINITY, stale: 0 }
    }

    /// Returns the factor of the learning rate after these losses, starting from the initial state.
    pub fn factor_after(&self, losses: impl Iterator<Item = f64>) -> f64 {
        let mut seen =
            ReduceLrOnPlateau { threshold: self.threshold, ..ReduceLrOnPlateau::new(self.factor, self.patience) };
        losses.fold(1.0, |rate, loss| seen.step(loss, rate))
    }

    /// Returns the learning rate after observing a loss.
    pub fn step(&mut self, loss: f64, learning_rate: f64) -> f64 {
        if loss < self.best * (1.0 - self.threshold) || self.best == f64::INFINITY {
            (self.best, self.stale) = (loss, 0);
            return learning_rate;
        }
        self.stale += 1;
        if self.stale <= self.patience {
            return learning_rate;
        }
        self.stale = 0;
        learning_rate * self.factor
    }
}
