//! How good a model is, beyond its loss.

use std::collections::BTreeMap;

use panoply_tensor::{DType, Error, Result, Tensor};

/// The share of rows of logits `[batch, classes]` whose right class, `[batch]` i32, is among the `count` largest: a tensor
/// of shape `[]`.
pub fn top_k_accuracy(logits: &Tensor, labels: &Tensor, count: usize) -> Tensor {
    let (_, places) = logits.topk(count, -1);
    places.eq(&labels.unsqueeze(-1)).any(-1).cast(DType::F32).mean(..)
}

/// A confusion matrix: how often each class was predicted for each. It holds the cells above 0 alone, of which there are no more
/// than examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    /// How many classes there are.
    pub num_classes: usize,
    /// Counts above 0 by right and predicted class.
    cells: BTreeMap<(u32, u32), u64>,
    /// Examples of each class.
    right: Vec<u64>,
    /// Predictions of each class.
    predicted: Vec<u64>,
}

impl ConfusionMatrix {
    /// From right and predicted classes, `[batch]` i32 both. The counting is done on the host.
    pub fn new(labels: &Tensor, predicted: &Tensor, classes: usize) -> Result<ConfusionMatrix> {
        if labels.shape()? != predicted.shape()? || labels.shape()?.ndim() != 1 {
            return Err(Error::mistake(format!("{labels:?} and {predicted:?} are not one class for each example")));
        }
        ConfusionMatrix::of(&labels.to_vec::<i32>()?, &predicted.to_vec::<i32>()?, classes)
    }

    /// From right and predicted classes in host memory.
    pub fn of(labels: &[i32], predicted: &[i32], classes: usize) -> Result<ConfusionMatrix> {
        if labels.len() != predicted.len() {
            let message = format!("{} right and {} predicted classes", labels.len(), predicted.len());
            return Err(Error::mistake(message).note("each example needs one of both"));
        }
        let mut counts = ConfusionMatrix {
            num_classes: classes,
            cells: BTreeMap::new(),
            right: vec![0; classes],
            predicted: vec![0; classes],
        };
        for (label, found) in labels.iter().zip(predicted) {
            let place = |class: i32| usize::try_from(class).ok().filter(|class| *class < classes);
            let (Some(label), Some(found)) = (place(*label), place(*found)) else {
                return Err(Error::mistake(format!("class {label} or {found} is not one of 0 .. {classes}")));
            };
            *counts.cells.entry((label as u32, found as u32)).or_default() += 1;
            counts.right[label] += 1;
            counts.predicted[found] += 1;
        }
        Ok(counts)
    }

    /// How many examples of a class were taken for another.
    pub fn count(&self, right: usize, predicted: usize) -> u64 {
        self.cells.get(&(right as u32, predicted as u32)).copied().unwrap_or(0)
    }

    /// The counts above 0 with right and predicted class, in the order of the classes.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        self.cells.iter().map(|((right, predicted), count)| (*right as usize, *predicted as usize, *count))
    }

    /// Examples of a class.
    pub fn support(&self, class: usize) -> u64 {
        self.right[class]
    }

    /// Wrong predictions that a class has part in, as the right or as the predicted class.
    pub fn errors(&self, class: usize) -> u64 {
        self.right[class] + self.predicted[class] - 2 * self.count(class, class)
    }

    /// Share of right answers.
    pub fn accuracy(&self) -> f64 {
        let right: u64 = (0..self.num_classes).map(|class| self.count(class, class)).sum();
        ratio(right, self.right.iter().sum())
    }

    /// Of what was taken for a class, the share that is it.
    pub fn precision(&self, class: usize) -> f64 {
        ratio(self.count(class, class), self.predicted[class])
    }

    /// Of a class, the share that was found.
    pub fn recall(&self, class: usize) -> f64 {
        ratio(self.count(class, class), self.right[class])
    }

    /// Harmonic mean of precision and recall; 0 if both are.
    pub fn f1(&self, class: usize) -> f64 {
        let (precision, recall) = (self.precision(class), self.recall(class));
        if precision + recall > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
    }

    /// Mean of [`ConfusionMatrix::f1`] over the classes that occur, be it that they are right or that they were taken for it.
    pub fn macro_f1(&self) -> f64 {
        let occurs = |class: &usize| self.right[*class] + self.predicted[*class] > 0;
        let found: Vec<f64> = (0..self.num_classes).filter(occurs).map(|class| self.f1(class)).collect();
        found.iter().sum::<f64>() / found.len().max(1) as f64
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

/// The number of equally likely choices that a mean cross-entropy (in nats) is that of.
pub fn perplexity(mean_cross_entropy: f64) -> f64 {
    mean_cross_entropy.exp()
}

/// The share of variance that is explained: 1 less the sum of squared differences between what was read and what is right over that
/// between what is right and its mean. None of numbers that are all the same.
pub fn r2_score(squares: f64, spread: f64) -> Option<f64> {
    (spread > 0.0).then(|| 1.0 - squares / spread)
}

/// The area under the curve of true over false positives: how likely a positive example scores above a negative one, a tie
/// counting half. [Hanley and McNeil 1982] An error if one kind is missing or a score is NaN.
pub fn roc_auc(scores: &[f32], positive: &[bool]) -> Result<f64> {
    let positives = positive.iter().filter(|positive| **positive).count();
    let negatives = positive.len() - positives;
    if scores.len() != positive.len() || positives == 0 || negatives == 0 || scores.iter().any(|score| score.is_nan()) {
        let message = format!("auc: {} scores of {positives} positive and {negatives} negative examples", scores.len());
        return Err(Error::mistake(message).note("both kinds and a number for each example are needed"));
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let (mut below, mut doubled) = (0u64, 0u64);
    for equal in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let up = equal.iter().filter(|i| positive[**i]).count() as u64;
        let down = equal.len() as u64 - up;
        doubled += up * (2 * below + down);
        below += down;
    }
    Ok(doubled as f64 / 2.0 / (positives as f64 * negatives as f64))
}
