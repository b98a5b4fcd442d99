//! How good a model is on a data set, some of it at a time.

use panoply_tensor::{DType, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::data::{Dataset, Examples, Feed, Targets};
use crate::layer::{Layer, Pass};
use crate::network::Loss;

/// Labels or rows looked at together where nothing is learned from them.
const AT_ONCE: usize = 1024;

/// The same for sequences, in times.
const TIMES_AT_ONCE: usize = 8192;

/// What a score is; the larger the better, and 1 is perfect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The share of classes that are right.
    #[default]
    Accuracy,
    /// The share of the numbers' variance that is explained: 0 is what their mean would reach, and worse is below.
    R2,
}

impl Measure {
    /// What tells how well these are learned.
    pub fn of(targets: &Targets) -> Measure {
        match targets {
            Targets::Classes { .. } => Measure::Accuracy,
            Targets::Numbers { .. } => Measure::R2,
        }
    }
}

/// How good a model is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// What [`Measure::of`] the targets is.
    pub score: f64,
}

/// How good a model is on all of a data set. Smoothing of labels is left out of the loss. Balanced weights of classes are those of this
/// data set: to weigh as in training, give what [`Loss::fitted`] makes of the loss and the targets that were learned from.
pub fn evaluate(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<Evaluation> {
    evaluate_feed(model, &Feed::on_host(data), loss)
}

/// [`evaluate`] of examples that may be on the device.
pub(crate) fn evaluate_feed(model: &impl Layer, feed: &Feed<'_>, loss: &Loss) -> Result<Evaluation> {
    let data = feed.data();
    let loss = &Loss { label_smoothing: 0.0, ..loss.fitted(&data.targets)? };
    let (spread, unit) = match &data.targets {
        Targets::Classes { .. } => (0.0, 1.0),
        Targets::Numbers { values, width } => spread(values, *width),
    };
    let (_, sum, right) = with_room(at_once(data), |size| {
        feed.parts(size).try_fold((0, 0.0, 0.0), |(done, sum, right), part| {
            let (part_loss, part_right, rows) = on_part(model, &part, (data, loss), unit)?;
            let mass = loss.mass(&data.targets, done..done + rows);
            Ok((done + rows, sum + part_loss * mass, right + part_right * rows as f64))
        })
    })?;
    let rows = data.len() as f64;
    let score = match &data.targets {
        Targets::Classes { .. } => right / rows,
        Targets::Numbers { .. } => explained(right * unit.powi(2), spread),
    };
    Ok(Evaluation { loss: sum / loss.mass(&data.targets, 0..data.len()), score })
}

/// The mean loss of some examples; the share of their classes that are right, or an example's mean of squared differences, in this
/// unit, summed over its numbers; and how many examples they are.
fn on_part(
    model: &impl Layer,
    batch: &Examples,
    (data, loss): (&Dataset, &Loss),
    unit: f64,
) -> Result<(f64, f64, usize)> {
    let outputs = outputs(model, batch);
    let (targets, rows) = (&batch.targets, batch.examples()?);
    let value = loss.of(&outputs, targets);
    let outputs = loss.values(&outputs, &data.targets);
    let right = match targets.dtype().is_int() {
        true => outputs.argmax(-1).eq(targets).cast(DType::F32).mean(..),
        // Tiny differences have no squares in f32.
        false => ((&outputs - targets) * (1.0 / unit)).square().sum(..) * (1.0 / rows as f64),
    };
    panoply_tensor::eval(&[&value, &right])?;
    Ok((value.item()?, right.item()?, rows))
}

/// The squared differences of numbers from their own means, and a unit in which such squares fit into f32: the numbers' deviation,
/// or their size if they have none.
fn spread(values: &[f32], width: usize) -> (f64, f64) {
    let rows = (values.len() / width).max(1) as f64;
    let spread: f64 = (0..width)
        .map(|column| {
            let column = || values.iter().skip(column).step_by(width).map(|value| f64::from(*value));
            let mean = column().sum::<f64>() / rows;
            column().map(|value| (value - mean).powi(2)).sum::<f64>()
        })
        .sum();
    let unit = match (spread / values.len().max(1) as f64).sqrt() {
        0.0 => f64::from(values.iter().fold(0f32, |most, value| most.max(value.abs()))),
        deviation => deviation,
    };
    (spread, if unit == 0.0 { 1.0 } else { unit.clamp(1e-37, 1e37) })
}

/// 1 less the squared differences over those from the numbers' own means.
fn explained(squares: f64, spread: f64) -> f64 {
    match (squares, spread) {
        (0.0, _) => 1.0,
        (_, 0.0) => 0.0,
        _ => 1.0 - squares / spread,
    }
}

/// What a model that was trained by this loss makes of each example, one row after another: the share of each class (at each time), or
/// numbers.
pub fn predict(model: &impl Layer, data: &Dataset, loss: &Loss) -> Result<Vec<f32>> {
    with_room(at_once(data), |size| {
        let mut rows = Vec::new();
        for part in data.parts(size) {
            let values = loss.values(&outputs(model, &part.examples()), &data.targets);
            rows.extend(values.to_vec::<f32>()?);
        }
        Ok(rows)
    })
}

/// What a model in use makes of some examples, in f32.
fn outputs(model: &impl Layer, batch: &Examples) -> Tensor {
    model.forward(&batch.inputs, &mut Pass::eval().over(batch.times.as_ref())).cast(DType::F32)
}

/// What is done with so many examples at a time, or with half as many where those have no room on the device, down to one.
fn with_room<T>(size: usize, run: impl Fn(usize) -> Result<T>) -> Result<T> {
    match run(size) {
        Err(error) if error.is_out_of_memory() && size > 1 => with_room(size / 2, run),
        done => done,
    }
}

fn at_once(data: &Dataset) -> usize {
    match &data.targets {
        Targets::Classes { places: 2.., .. } => (TIMES_AT_ONCE / data.width).max(1),
        _ => AT_ONCE,
    }
}
