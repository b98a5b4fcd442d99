//! Training for epochs, with a validation part, history and early stopping.

use std::time::{Duration, Instant};

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::Serialize;

use crate::data::Dataset;
use crate::layer::{Layer, Pass};
use crate::module::Module;
use crate::optimiser::{Optimiser, Rule};

/// How to train.
#[derive(Clone, Debug)]
pub struct Training {
    /// How often every example is seen.
    pub epochs: usize,
    /// Examples of a step.
    pub batch: usize,
    /// Epochs without a better validation loss after which to stop.
    pub patience: Option<usize>,
}

/// What one epoch reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochReport {
    /// Counted from 1.
    pub epoch: usize,
    /// Mean loss over the training examples, before each step.
    pub loss: f64,
    /// Mean loss over the validation examples, after the epoch.
    pub validation_loss: f64,
    /// Share of validation examples classified rightly.
    pub accuracy: f64,
    /// Time for the epoch, validation included.
    pub seconds: f64,
}

/// Progress within an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Counted from 1.
    pub epoch: usize,
    /// Counted from 1 within the epoch.
    pub step: usize,
    /// Steps of an epoch.
    pub steps: usize,
    /// Loss before this step.
    pub loss: f64,
}

/// Whoever watches training. Answers whether to go on.
pub trait Watch {
    /// After every step.
    fn step(&mut self, report: &StepReport) -> bool;

    /// After every epoch.
    fn epoch(&mut self, report: &EpochReport) -> bool;
}

impl Training {
    /// Trains a classifier with cross-entropy and gives the history. The model is the best one seen in validation.
    pub fn classify<M: Module + Layer + Clone, R: Rule>(
        &self,
        model: &mut M,
        optimiser: &mut Optimiser<R>,
        (train, validation): (&Dataset, &Dataset),
        rng: &mut Rng,
        watch: &mut dyn Watch,
    ) -> Result<Vec<EpochReport>> {
        if train.is_empty() || validation.is_empty() {
            let message = format!("{} training and {} validation examples", train.len(), validation.len());
            return Err(Error::mistake(message).note("both parts need at least one"));
        }
        let mut history: Vec<EpochReport> = Vec::new();
        let mut best: Option<(f64, usize, M)> = None;
        let held = validation.whole();
        'epochs: for epoch in 1..=self.epochs {
            let start = Instant::now();
            let mut sum = 0.0;
            let batches = train.batches(self.batch, rng);
            let steps = batches.len();
            for (step, batch) in batches.enumerate() {
                let (inputs, labels) = batch?;
                let examples = labels.dims::<1>()?[0] as f64;
                let mut pass = Pass::train(rng);
                let loss = model.forward(&inputs, &mut pass).cross_entropy(&labels);
                let loss = optimiser.step(model, &loss, pass)?;
                if !loss.is_finite() {
                    return Err(Error::mistake(format!("the loss became {loss} in epoch {epoch}, step {}", step + 1))
                        .note("a smaller learning rate or `clip_norm` helps"));
                }
                sum += loss * examples;
                if !watch.step(&StepReport { epoch, step: step + 1, steps, loss }) {
                    break 'epochs;
                }
            }
            let (validation_loss, accuracy) = evaluate(model, &held)?;
            let seconds = Duration::as_secs_f64(&start.elapsed());
            let loss = sum / train.len() as f64;
            let report = EpochReport { epoch, loss, validation_loss, accuracy, seconds };
            let better = best.as_ref().is_none_or(|(loss, _, _)| validation_loss < *loss);
            if better {
                best = Some((validation_loss, epoch, model.clone()));
            }
            let go_on = watch.epoch(&report);
            history.push(report);
            let stale = best.as_ref().map_or(0, |(_, at, _)| epoch - at);
            if !go_on || self.patience.is_some_and(|patience| stale >= patience) {
                break;
            }
        }
        if let Some((_, _, snapshot)) = best {
            *model = snapshot;
        }
        Ok(history)
    }
}

/// Mean cross-entropy and the share of right answers.
pub fn evaluate(model: &impl Layer, (inputs, labels): &(Tensor, Tensor)) -> Result<(f64, f64)> {
    let logits = model.forward(inputs, &mut Pass::eval());
    let loss = logits.cross_entropy(labels);
    let right = logits.argmax(-1).eq(labels).cast(panoply_tensor::DType::F32).mean(..);
    panoply_tensor::eval(&[&loss, &right])?;
    Ok((loss.item()?, right.item()?))
}
