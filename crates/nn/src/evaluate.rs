//! How good a model is on a data set, some of it at a time.

use panoply_tensor::{DType, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::data::{Batch, BatchFeed, Dataset, Targets};
use crate::layer::{ForwardContext, Layer};
use crate::metrics::r2_score;
use crate::network::Loss;

/// Labels or rows looked at together where nothing is learned from them.
const AT_ONCE: usize = 1024;

/// The same for sequences, in times.
const TIMES_AT_ONCE: usize = 8192;

/// What a score is; the larger the better, and 1 is perfect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The share of classes that are right, or of answers.
    #[default]
    Accuracy,
    /// The share of the numbers' variance that is explained: 0 is what their mean would reach, and worse is below. Of several numbers it
    /// is the mean of their shares, but for those that are the same in all examples; of such alone it is 1 if they are read exactly, or 0.
    R2,
}

impl Metric {
    /// What tells how well these are learned.
    pub fn for_targets(targets: &Targets) -> Metric {
        match targets {
            Targets::Classes { .. } | Targets::MultiLabel { .. } => Metric::Accuracy,
            Targets::Regression { .. } => Metric::R2,
        }
    }
}

/// How good a model is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// What [`Metric::for_targets`] the targets is.
    pub score: f64,
}

/// How good a model is on all of a data set. Smoothing of labels is left out of the loss. Balanced weights of classes are those of this
/// data set: to weigh as in training, give what [`Loss::for_targets`] makes of the loss and the targets that were learned from.
pub fn evaluate(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<Evaluation> {
    evaluate_feed(model, &BatchFeed::on_host(data), loss)
}

/// [`evaluate`] of examples that may be on the device.
pub(crate) fn evaluate_feed(model: &impl Layer, feed: &BatchFeed<'_>, loss: &Loss) -> Result<Evaluation> {
    let data = feed.data();
    let loss = &Loss { label_smoothing: 0.0, ..loss.for_targets(&data.targets)? };
    let spreads = match &data.targets {
        Targets::Classes { .. } | Targets::MultiLabel { .. } => Vec::new(),
        Targets::Regression { values, num_outputs: width } => {
            (0..*width).map(|column| TargetVariance::of(values, *width, column)).collect()
        }
    };
    let (_, sum, right) = with_batch_fallback(batch_of(data), |size| {
        feed.parts(size).try_fold((0, 0.0, vec![0.0; spreads.len().max(1)]), |(done, sum, mut right), part| {
            let (part_loss, part_right, rows) = evaluate_batch(model, &part, (data, loss), &spreads)?;
            let mass = loss.mass(&data.targets, done..done + rows);
            right.iter_mut().zip(part_right).for_each(|(all, part)| *all += f64::from(part) * rows as f64);
            Ok((done + rows, sum + part_loss * mass, right))
        })
    })?;
    let score = match &data.targets {
        Targets::Classes { .. } | Targets::MultiLabel { .. } => right[0] / data.len() as f64,
        Targets::Regression { .. } => {
            let explained = right.iter().zip(&spreads).map(|(squares, spread)| spread.explained(*squares));
            match explained.flatten().collect::<Vec<f64>>()[..] {
                // Nothing varies: it is read as it is, or not.
                [] => f64::from(u8::from(right.iter().all(|squares| *squares == 0.0))),
                ref explained => explained.iter().sum::<f64>() / explained.len() as f64,
            }
        }
    };
    Ok(Evaluation { loss: sum / loss.mass(&data.targets, 0..data.len()), score })
}

/// The mean loss of some examples; the share of their classes or answers that are right, or of each of their numbers the mean of squared
/// differences, each in its unit; and how many examples they are.
fn evaluate_batch(
    model: &impl Layer,
    batch: &Batch,
    (data, loss): (&Dataset, &Loss),
    spreads: &[TargetVariance],
) -> Result<(f64, Vec<f32>, usize)> {
    let outputs = outputs(model, batch);
    let (targets, rows) = (&batch.targets, batch.len()?);
    let value = loss.compute(&outputs, targets);
    let outputs = loss.predictions(&outputs, &data.targets);
    let right = match data.targets {
        Targets::Classes { .. } => outputs.argmax(-1).eq(targets).cast(DType::F32).mean(..),
        Targets::MultiLabel { .. } => {
            let yes = outputs.ge(&Tensor::scalar(0.5f32)).cast(DType::F32);
            yes.eq(targets).cast(DType::F32).mean(..)
        }
        // Tiny differences have no squares in f32.
        Targets::Regression { .. } => {
            let factors: Vec<f32> = spreads.iter().map(|spread| (1.0 / spread.unit) as f32).collect();
            ((&outputs - targets) * Tensor::from_slice(&factors, [factors.len()])).square().mean(0)
        }
    };
    panoply_tensor::eval(&[&value, &right])?;
    Ok((value.item()?, right.to_vec()?, rows))
}

/// How far a number of the examples is from its mean.
struct TargetVariance {
    /// The sum of squared differences.
    squares: f64,
    /// A unit in which such squares fit into f32: the number's deviation, or its size if it has none.
    unit: f64,
}

impl TargetVariance {
    /// Of one number of examples of so many.
    fn of(values: &[f32], width: usize, column: usize) -> TargetVariance {
        let rows = (values.len() / width).max(1) as f64;
        let column = || values.iter().skip(column).step_by(width).map(|value| f64::from(*value));
        let mean = column().sum::<f64>() / rows;
        let squares: f64 = column().map(|value| (value - mean).powi(2)).sum();
        let unit = match (squares / rows).sqrt() {
            0.0 => column().fold(0.0, |most, value| value.abs().max(most)),
            deviation => deviation,
        };
        TargetVariance { squares, unit: if unit == 0.0 { 1.0 } else { unit.clamp(1e-37, 1e37) } }
    }

    /// The share of the variance that is explained, of squared differences in the unit.
    fn explained(&self, squares: f64) -> Option<f64> {
        r2_score(squares * self.unit.powi(2), self.squares)
    }
}

/// What a model that was trained by this loss makes of each example, one row after another: the share of each class (at each time),
/// how likely the answer is yes, or numbers.
pub fn predict(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<Vec<f32>> {
    with_batch_fallback(batch_of(data), |size| {
        let mut rows = Vec::new();
        for part in data.chunks(size) {
            let values = loss.predictions(&outputs(model, &part.examples()), &data.targets);
            rows.extend(values.to_vec::<f32>()?);
        }
        Ok(rows)
    })
}

/// What a model in use makes of some examples, in f32.
fn outputs(model: &impl Layer, batch: &Batch) -> Tensor {
    model
        .forward(&batch.inputs, &mut ForwardContext::eval().with_seq_lengths(batch.seq_lengths.as_ref()))
        .cast(DType::F32)
}

/// What is done with so many examples at a time, or with half as many where those have no room on the device, down to one.
fn with_batch_fallback<T>(size: usize, run: impl Fn(usize) -> Result<T>) -> Result<T> {
    match run(size) {
        Err(error) if error.is_out_of_memory() && size > 1 => with_batch_fallback(size / 2, run),
        done => done,
    }
}

/// How many examples are in a batch at first.
fn batch_of(data: &Dataset) -> usize {
    match &data.targets {
        Targets::Classes { labels_per_example: 2.., .. } => (TIMES_AT_ONCE / data.num_features).max(1),
        _ => AT_ONCE,
    }
}
