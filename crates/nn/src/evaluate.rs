//! Evaluation of a model on a data set, in batches.

use panoply_tensor::{DType, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::data::{Batch, BatchFeed, Dataset, Targets};
use crate::layer::{ForwardContext, Layer};
use crate::metrics::{ConfusionMatrix, r2_score};
use crate::network::Loss;

/// Batch size of evaluation.
const AT_ONCE: usize = 1024;

/// Time steps in a batch of evaluation, for one label per time step.
const TIMES_AT_ONCE: usize = 8192;

/// Definition of a score: larger is better, 1 is perfect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Fraction of correct classes, or of correct labels in multi-label classification.
    #[default]
    Accuracy,
    /// Coefficient of determination: 0 for predicting the mean, negative for worse. With several outputs, the mean over the outputs that
    /// vary. If none varies, 1 for exact predictions, otherwise 0. NaN for a single example, as in scikit-learn.
    R2,
}

impl Metric {
    /// Returns the metric for these targets.
    pub fn for_targets(targets: &Targets) -> Metric {
        match targets {
            Targets::Classes { .. } | Targets::MultiLabel { .. } => Metric::Accuracy,
            Targets::Regression { .. } => Metric::R2,
        }
    }
}

/// Loss and score of a model on a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean loss.
    pub loss: f64,
    /// Score by [`Metric::for_targets`].
    pub score: f64,
}

/// Evaluates a model on a data set. Label smoothing is not applied. Balanced class weights are computed from this data set; to weight as in
/// training, pass the result of [`Loss::for_targets`] for the training targets.
///
/// # Errors
/// If the loss does not fit the targets, or the forward pass fails.
pub fn evaluate(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<Evaluation> {
    evaluate_feed(model, &BatchFeed::on_host(data), loss)
}

/// [`evaluate`] for examples that can be on the device.
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
        Targets::Regression { .. } if data.len() < 2 => f64::NAN,
        Targets::Regression { .. } => {
            let explained = right.iter().zip(&spreads).map(|(squares, spread)| spread.explained(*squares));
            match explained.flatten().collect::<Vec<f64>>()[..] {
                // All outputs are constant.
                [] => f64::from(u8::from(right.iter().all(|squares| *squares == 0.0))),
                ref explained => explained.iter().sum::<f64>() / explained.len() as f64,
            }
        }
    };
    Ok(Evaluation { loss: sum / loss.mass(&data.targets, 0..data.len()), score })
}

/// Returns the mean loss of a batch, its score and its number of examples. The score is the accuracy, or for regression the mean squared
/// error of each output in units of [`TargetVariance::unit`].
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
        // Squares of tiny differences underflow in f32, hence the unit.
        Targets::Regression { .. } => {
            let factors: Vec<f32> = spreads.iter().map(|spread| (1.0 / spread.unit) as f32).collect();
            ((&outputs - targets) * Tensor::from_slice(&factors, [factors.len()])).square().mean(0)
        }
    };
    panoply_tensor::eval(&[&value, &right])?;
    Ok((value.item()?, right.to_vec()?, rows))
}

/// Variance of one regression target.
struct TargetVariance {
    /// Sum of squared differences from the mean.
    squares: f64,
    /// Unit in which squared errors fit into f32: the standard deviation, or the largest magnitude if the deviation is 0.
    unit: f64,
}

impl TargetVariance {
    /// Computes the variance of a column of targets `[rows, width]`.
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

    /// Returns R² for a sum of squared errors in this unit.
    fn explained(&self, squares: f64) -> Option<f64> {
        r2_score(squares * self.unit.powi(2), self.squares)
    }
}

/// Returns the predictions of a model that was trained with this loss, in f32: class probabilities `[examples, classes]` (`[examples, time,
/// classes]` for a class per time step), label probabilities `[examples, labels]`, or numbers `[examples, outputs]`.
///
/// # Errors
/// If there are no examples, or the forward pass fails.
pub fn predict(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<Tensor> {
    if data.is_empty() {
        return Err(Error::mistake("predict: the data set has no examples"));
    }
    let (values, mut shape) = with_batch_fallback(batch_of(data), |size| {
        let (mut values, mut shape) = (Vec::new(), Vec::new());
        for part in data.chunks(size) {
            let predicted = loss.predictions(&outputs(model, &part.full_batch()), &data.targets);
            values.extend(predicted.to_vec::<f32>()?);
            shape = predicted.shape()?.dims().to_vec();
        }
        Ok((values, shape))
    })?;
    // The last batch can be smaller.
    shape.iter_mut().take(1).for_each(|rows| *rows = data.len());
    let predictions = Tensor::from_slice(&values, shape);
    predictions.check().map(|()| predictions)
}

/// The macro-averaged F1 score of a classification.
pub(crate) fn macro_f1(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<f64> {
    let classes = data.num_classes().max(1);
    let rows = predict(model, data, loss)?.to_vec::<f32>()?;
    let largest =
        |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(class, _)| class as i32);
    let predicted: Vec<i32> = rows.chunks_exact(classes).map(largest).collect();
    Ok(ConfusionMatrix::of(data.labels(), &predicted, classes)?.macro_f1())
}

/// Outputs of a model in evaluation mode, in f32.
fn outputs(model: &impl Layer, batch: &Batch) -> Tensor {
    model
        .forward(&batch.inputs, &mut ForwardContext::eval().with_seq_lengths(batch.seq_lengths.as_ref()))
        .cast(DType::F32)
}

/// Runs with this batch size, and again with half of it while device memory is insufficient, down to 1.
fn with_batch_fallback<T>(size: usize, run: impl Fn(usize) -> Result<T>) -> Result<T> {
    match run(size) {
        Err(error) if error.is_out_of_memory() && size > 1 => with_batch_fallback(size / 2, run),
        done => done,
    }
}

/// Returns the initial batch size.
fn batch_of(data: &Dataset) -> usize {
    match &data.targets {
        Targets::Classes { labels_per_example: 2.., .. } => (TIMES_AT_ONCE / data.num_features).max(1),
        _ => AT_ONCE,
    }
}
