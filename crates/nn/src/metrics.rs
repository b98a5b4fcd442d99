//! Evaluation metrics.

use std::collections::BTreeMap;

use panoply_tensor::{DType, Error, Result, Tensor};

/// Returns the fraction of rows of logits `[batch, classes]` whose label, `[batch]` i32, is among the `k` largest logits, as a tensor
/// of shape `[]`.
pub fn top_k_accuracy(logits: &Tensor, labels: &Tensor, k: usize) -> Tensor {
    let places = logits.topk(k, -1).indices;
    places.eq(&labels.unsqueeze(-1)).any(-1).cast(DType::F32).mean(..)
}

/// A confusion matrix: the number of examples for each pair of label and predicted class. It is sparse and stores only nonzero counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    /// Number of classes.
    pub num_classes: usize,
    /// Nonzero counts by label and predicted class.
    cells: BTreeMap<(u32, u32), u64>,
    /// Number of examples of each class.
    actual: Vec<u64>,
    /// Number of predictions of each class.
    predicted: Vec<u64>,
}

impl ConfusionMatrix {
    /// Counts labels and predicted classes, both `[batch]` i32, on the host.
    ///
    /// # Errors
    /// If shapes or element types differ from that, or a class is not in 0 .. `num_classes`.
    pub fn new(labels: &Tensor, predicted: &Tensor, num_classes: usize) -> Result<ConfusionMatrix> {
        if labels.shape()? != predicted.shape()? || labels.shape()?.ndim() != 1 {
            return Err(Error::mistake(format!(
                "labels {labels:?} and predictions {predicted:?} must have the same shape [batch]"
            )));
        }
        ConfusionMatrix::of(&labels.to_vec::<i32>()?, &predicted.to_vec::<i32>()?, num_classes)
    }

    /// Counts labels and predicted classes in host memory.
    ///
    /// # Errors
    /// If the lengths differ, or a class is not in 0 .. `classes`.
    pub fn of(labels: &[i32], predicted: &[i32], classes: usize) -> Result<ConfusionMatrix> {
        if labels.len() != predicted.len() {
            let message = format!("{} labels and {} predictions", labels.len(), predicted.len());
            return Err(Error::mistake(message).note("pass one prediction for each label"));
        }
        let mut counts = ConfusionMatrix {
            num_classes: classes,
            cells: BTreeMap::new(),
            actual: vec![0; classes],
            predicted: vec![0; classes],
        };
        for (label, found) in labels.iter().zip(predicted) {
            let place = |class: i32| usize::try_from(class).ok().filter(|class| *class < classes);
            let (Some(label), Some(found)) = (place(*label), place(*found)) else {
                return Err(Error::mistake(format!("label {label} or prediction {found} is not in 0 .. {classes}")));
            };
            *counts.cells.entry((label as u32, found as u32)).or_default() += 1;
            counts.actual[label] += 1;
            counts.predicted[found] += 1;
        }
        Ok(counts)
    }

    /// Returns the number of examples of class `actual` that were predicted as `predicted`.
    pub fn count(&self, actual: usize, predicted: usize) -> u64 {
        self.cells.get(&(actual as u32, predicted as u32)).copied().unwrap_or(0)
    }

    /// Returns the nonzero counts as (label, predicted class, count), in the order of the classes.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        self.cells.iter().map(|((actual, predicted), count)| (*actual as usize, *predicted as usize, *count))
    }

    /// Returns the number of examples of a class.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn support(&self, class: usize) -> u64 {
        self.actual[class]
    }

    /// Returns the number of false positives plus false negatives of a class.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn errors(&self, class: usize) -> u64 {
        self.actual[class] + self.predicted[class] - 2 * self.count(class, class)
    }

    /// Returns the fraction of correct predictions.
    pub fn accuracy(&self) -> f64 {
        let correct: u64 = (0..self.num_classes).map(|class| self.count(class, class)).sum();
        ratio(correct, self.actual.iter().sum())
    }

    /// Returns the precision of a class: true positives / predictions of the class, or 0 without predictions.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn precision(&self, class: usize) -> f64 {
        ratio(self.count(class, class), self.predicted[class])
    }

    /// Returns the recall of a class: true positives / examples of the class, or 0 without examples.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn recall(&self, class: usize) -> f64 {
        ratio(self.count(class, class), self.actual[class])
    }

    /// Returns the harmonic mean of precision and recall, or 0 if both are 0.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn f1(&self, class: usize) -> f64 {
        let (precision, recall) = (self.precision(class), self.recall(class));
        if precision + recall > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
    }

    /// Returns the mean of [`ConfusionMatrix::f1`] over the classes that occur among labels or predictions.
    pub fn macro_f1(&self) -> f64 {
        let occurs = |class: &usize| self.actual[*class] + self.predicted[*class] > 0;
        let found: Vec<f64> = (0..self.num_classes).filter(occurs).map(|class| self.f1(class)).collect();
        found.iter().sum::<f64>() / found.len().max(1) as f64
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

/// Returns exp(mean cross-entropy in nats).
pub fn perplexity(mean_cross_entropy: f64) -> f64 {
    mean_cross_entropy.exp()
}

/// Returns the coefficient of determination R² = 1 − `ss_res` / `ss_tot`, from the residual sum of squares and the total sum of squares
/// around the mean. `None` if the targets are constant.
pub fn r2_score(ss_res: f64, ss_tot: f64) -> Option<f64> {
    (ss_tot > 0.0).then(|| 1.0 - ss_res / ss_tot)
}

/// Returns the area under the ROC curve: the probability that a positive example scores above a negative one; ties count half. [Hanley and
/// McNeil 1982]
///
/// # Errors
/// If the lengths differ, one of the two classes is missing, or a score is NaN.
pub fn roc_auc(scores: &[f32], positive: &[bool]) -> Result<f64> {
    let positives = positive.iter().filter(|positive| **positive).count();
    let negatives = positive.len() - positives;
    if scores.len() != positive.len() || positives == 0 || negatives == 0 || scores.iter().any(|score| score.is_nan()) {
        let message =
            format!("roc_auc: {} scores for {positives} positive and {negatives} negative examples", scores.len());
        return Err(
            Error::mistake(message).note("pass one score (not NaN) for each example, and examples of both classes")
        );
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
