//! Metrics of a run: measured on the validation data, written to the run folder and printed.

use panoply::nn::data::reader::{DataFormat, Task};
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::metrics::{ConfusionMatrix, perplexity, r2_score, roc_auc, top_k_accuracy};
use panoply::nn::{EpochReport, Metric, Model, generate, predict};
use panoply::{Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, TestResult};
use super::predictions;
use super::run_dir::RunDir;
use crate::console::escaped;

/// Length of the sample that a text model generates.
const SAMPLE_CHARS: usize = 400;

/// The `k` of top-k accuracy.
const TOP_K: usize = 3;

/// Metrics of the best model besides its score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Mean F1 over the classes or labels, for classification.
    pub macro_f1: Option<f64>,
    /// Top-3 accuracy, with more than three classes.
    pub top_3_accuracy: Option<f64>,
    /// Area under the ROC curve: of the second class if there are two, or the mean over the labels that have examples of both values.
    pub roc_auc: Option<f64>,
    /// Mean absolute error, for regression.
    pub mae: Option<f64>,
    /// Metrics of each label or target, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_label: Vec<LabelMetrics>,
}

/// Metrics of one of several labels or targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelMetrics {
    /// Name of the column.
    pub label: String,
    /// Accuracy of the label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// F1 of the positive value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// Area under the ROC curve, if there are examples of both values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roc_auc: Option<f64>,
    /// Coefficient of determination of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Mean absolute error of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
}

impl Metrics {
    /// Returns lines with these metrics, without those of the headline.
    pub fn summary(&self) -> Vec<String> {
        let parts = [
            self.macro_f1.map(|f1| format!("macro F1 {:.2} %", f1 * 100.0)),
            self.top_3_accuracy.map(|share| format!("top-3 accuracy {:.2} %", share * 100.0)),
            self.roc_auc.map(|auc| format!("ROC AUC {auc:.4}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let all = (!parts.is_empty()).then(|| parts.join(", "));
        // The headline covers a single label.
        let each = if self.per_label.len() > 1 { &self.per_label[..] } else { &[] };
        all.into_iter().chain(each.iter().map(LabelMetrics::summary)).collect()
    }

    /// Computes the metrics of class probabilities, one row per example.
    fn of_classes(probabilities: &[f32], labels: &[i32], counts: &ConfusionMatrix) -> Result<Metrics> {
        let classes = counts.num_classes;
        let top = || -> Result<f64> {
            let probabilities = Tensor::from_slice(probabilities, [labels.len(), classes]);
            top_k_accuracy(&probabilities, &Tensor::from_slice(labels, [labels.len()]), TOP_K).item()
        };
        let second: Vec<f32> = probabilities.iter().skip(1).step_by(classes).copied().collect();
        let positive: Vec<bool> = labels.iter().map(|label| *label == 1).collect();
        Ok(Metrics {
            macro_f1: Some(counts.macro_f1()),
            top_3_accuracy: (classes > TOP_K).then(top).transpose()?,
            // Undefined if the validation data have only one class.
            roc_auc: if classes == 2 { roc_auc(&second, &positive).ok() } else { None },
            ..Metrics::default()
        })
    }

    /// Computes the metrics of label probabilities and actual labels, one row per example.
    fn of_answers(
        probabilities: &[f32],
        right: &[f32],
        labels: Vec<String>,
    ) -> Result<(Metrics, Vec<ConfusionMatrix>)> {
        let width = labels.len();
        let column =
            |values: &[f32], at: usize| -> Vec<f32> { values.iter().skip(at).step_by(width).copied().collect() };
        let (mut each, mut counted) = (Vec::new(), Vec::new());
        for (at, label) in labels.into_iter().enumerate() {
            let (probabilities, right) = (column(probabilities, at), column(right, at));
            let classes = |values: &[f32]| {
                let classes: Vec<i32> = values.iter().map(|value| i32::from(*value >= POSITIVE_THRESHOLD)).collect();
                Tensor::from_slice(&classes, [classes.len()])
            };
            let counts = ConfusionMatrix::new(&classes(&right), &classes(&probabilities), 2)?;
            let positive: Vec<bool> = right.iter().map(|right| *right >= POSITIVE_THRESHOLD).collect();
            let (accuracy, f1) = (Some(counts.accuracy()), Some(counts.f1(1)));
            each.push(LabelMetrics {
                label,
                accuracy,
                f1,
                roc_auc: roc_auc(&probabilities, &positive).ok(),
                ..LabelMetrics::default()
            });
            counted.push(counts);
        }
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let macro_f1 = mean(each.iter().filter_map(|each| each.f1).collect());
        let auc = mean(each.iter().filter_map(|each| each.roc_auc).collect());
        Ok((Metrics { macro_f1, roc_auc: auc, per_label: each, ..Metrics::default() }, counted))
    }

    /// Computes the metrics of actual and predicted numbers, one row per example.
    fn of_numbers(right: &[f32], read: &[f32], labels: Vec<String>) -> Metrics {
        let off = |pairs: &[(f64, f64)]| {
            pairs.iter().map(|(right, read)| (right - read).abs()).sum::<f64>() / pairs.len().max(1) as f64
        };
        let pairs: Vec<(f64, f64)> =
            right.iter().zip(read).map(|(right, read)| (f64::from(*right), f64::from(*read))).collect();
        let width = labels.len();
        let of_column = |(at, label): (usize, String)| {
            let pairs: Vec<(f64, f64)> = pairs.iter().skip(at).step_by(width).copied().collect();
            LabelMetrics { label, r2: explained(&pairs), mae: Some(off(&pairs)), ..LabelMetrics::default() }
        };
        let each = if width > 1 { labels.into_iter().enumerate().map(of_column).collect() } else { Vec::new() };
        Metrics { mae: Some(off(&pairs)), per_label: each, ..Metrics::default() }
    }
}

impl LabelMetrics {
    /// Returns a line with these metrics.
    fn summary(&self) -> String {
        let parts = [
            self.accuracy.map(|share| format!("accuracy {:.2} %", share * 100.0)),
            self.f1.map(|f1| format!("F1 {:.2} %", f1 * 100.0)),
            self.roc_auc.map(|auc| format!("ROC AUC {auc:.4}")),
            self.r2.map(|r2| format!("R² {r2:.3}")),
            self.mae.map(|off| format!("mean absolute error {}", format_number(off))),
        ];
        format!("{}: {}", escaped(&self.label), parts.into_iter().flatten().collect::<Vec<String>>().join(", "))
    }
}

/// Probability from which a label is predicted as yes.
pub const POSITIVE_THRESHOLD: f32 = 0.5;

/// Returns R² of pairs of actual and predicted numbers; `None` if all actual numbers are equal.
fn explained(pairs: &[(f64, f64)]) -> Option<f64> {
    let mean = pairs.iter().map(|(right, _)| right).sum::<f64>() / pairs.len().max(1) as f64;
    let spread: f64 = pairs.iter().map(|(right, _)| (right - mean).powi(2)).sum();
    r2_score(pairs.iter().map(|(right, read)| (right - read).powi(2)).sum(), spread)
}

/// Measures the best model and writes the results to the run folder.
pub fn measure(model: &Model, held: &Dataset, manifest: &Manifest, folder: &RunDir) -> Result<Metrics> {
    if let DataFormat::Text { vocabulary, .. } = &manifest.data.format {
        let letters: Vec<char> = vocabulary.chars().collect();
        let sample = generate::GenerationConfig { max_new_tokens: SAMPLE_CHARS, ..Default::default() };
        let text = generate::generate(model, &letters, "", &sample, &mut Rng::seed_from_u64(manifest.settings.seed))?;
        folder.write("sample.txt", &(text + "\n"))?;
        return Ok(Metrics::default());
    }
    let rows = predict(model, held, &manifest.network.loss)?.to_vec::<f32>()?;
    match &held.targets {
        Targets::Classes { labels: right, num_classes: classes, .. } => {
            let read: Vec<i32> = rows.chunks_exact(*classes).map(|row| argmax(row) as i32).collect();
            let counts = ConfusionMatrix::of(right, &read, *classes)?;
            folder.write_confusion(&counts, &manifest.data.class_names)?;
            folder.write_predictions(&predictions::of_classes(held, &rows, &manifest.data.class_names))?;
            Metrics::of_classes(&rows, right, &counts)
        }
        Targets::Regression { values, num_outputs: width } => {
            let labels = manifest.data.labels(*width);
            let offsets = manifest.data.offsets();
            folder.write_predictions(&predictions::of_numbers(held, values, &rows, &offsets, &labels))?;
            folder.write_scatter(values, &rows, &offsets, &labels)?;
            Ok(Metrics::of_numbers(values, &rows, labels))
        }
        Targets::MultiLabel { values, num_labels: width } => {
            let labels = manifest.data.labels(*width);
            folder.write_predictions(&predictions::of_numbers(held, values, &rows, &[], &labels))?;
            let (measures, counts) = Metrics::of_answers(&rows, values, labels)?;
            folder.write_answers(&measures.per_label, &counts)?;
            Ok(measures)
        }
    }
}

/// Returns the validation score of an epoch as text.
pub fn summary(report: &EpochReport, text: bool) -> String {
    match report.metric {
        Metric::Accuracy if text => {
            format!("perplexity {:.2}, accuracy {:.1} %", perplexity(report.val_loss), report.val_score * 100.0)
        }
        metric => score_in_words(metric, report.val_score),
    }
}

/// Formats a score with the name of its metric. R² is NaN for a single example, and if predictions are not finite.
pub fn score_in_words(metric: Metric, score: f64) -> String {
    match metric {
        Metric::Accuracy => format!("accuracy {:.1} %", score * 100.0),
        Metric::R2 if score.is_nan() => "R² undefined".to_string(),
        Metric::R2 => format!("R² {score:.3}"),
    }
}

/// Returns the score of the test set as text, with the number of its examples.
pub fn test_summary(metric: Metric, test: &TestResult) -> String {
    let examples = if test.examples == 1 { "example" } else { "examples" };
    format!("{} of {} {examples}", score_in_words(metric, test.score), test.examples)
}

/// Returns the first line of the report, without the time.
pub fn headline(manifest: &Manifest, best: &EpochReport) -> String {
    let Manifest { data, result, .. } = manifest;
    match &data.format {
        DataFormat::Text { .. } => {
            let loss = best.val_loss;
            format!(
                "validation loss {loss:.3} nats per character, perplexity {:.2} (epoch {})",
                perplexity(loss),
                best.epoch
            )
        }
        DataFormat::Csv { task: Task::Regression, .. } | DataFormat::Npy { task: Task::Regression, .. } => {
            let measures = result.as_ref().map(|result| &result.measures);
            let detail = match measures.map_or(0, |measures| measures.per_label.len()) {
                several @ 2.. => format!("over {several} targets"),
                _ => {
                    let label = data.labels(1).into_iter().next().unwrap_or_default();
                    let label = escaped(&label);
                    let off = measures.and_then(|measures| measures.mae).unwrap_or(f64::NAN);
                    format!("mean absolute error of {label} {}", format_number(off))
                }
            };
            format!("validation {}, {detail} (epoch {})", score_in_words(Metric::R2, best.val_score), best.epoch)
        }
        DataFormat::Digits
        | DataFormat::Csv { .. }
        | DataFormat::Images { .. }
        | DataFormat::Idx { .. }
        | DataFormat::Npy { .. } => {
            format!("validation {} (epoch {})", score_in_words(Metric::Accuracy, best.val_score), best.epoch)
        }
    }
}

/// Formats a measured number: with four decimals, or in scientific notation if it is very small or large.
pub fn format_number(number: f64) -> String {
    let plain = number == 0.0 || (1e-2..1e9).contains(&number.abs());
    if plain { format!("{number:.4}") } else { format!("{number:.3e}") }
}

/// Returns the name of the file that shows the result.
pub fn main_artifact(source: &DataFormat) -> &'static str {
    match source {
        DataFormat::Text { .. } => "sample.txt",
        DataFormat::Csv { task: Task::MultiLabel, .. } | DataFormat::Npy { task: Task::MultiLabel, .. } => {
            "classification_report.txt"
        }
        DataFormat::Csv { task: Task::Regression, .. } | DataFormat::Npy { task: Task::Regression, .. } => {
            "predictions.svg"
        }
        _ => "confusion_matrix.svg",
    }
}

/// Returns the index of the largest element.
pub fn argmax(probabilities: &[f32]) -> usize {
    probabilities.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use panoply::Device;

    use super::*;

    /// Computed by hand, as scikit-learn's `f1_score(average="macro")` and `roc_auc_score(average="macro")` define them.
    #[test]
    fn multilabel_metrics_match_scikit_learn() {
        Device::get("cpu").unwrap().scope(|| {
            let right = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
            let probabilities = [0.9, 0.1, 0.6, 0.7, 0.4, 0.2, 0.1, 0.3];
            let labels = vec!["a".to_string(), "never".to_string()];
            let (measures, counts) = Metrics::of_answers(&probabilities, &right, labels).unwrap();
            // For `a`, recall and precision are 1 of 2; 3 of 4 pairs are ranked correctly.
            let a = &measures.per_label[0];
            assert_eq!((a.accuracy, a.f1, a.roc_auc), (Some(0.5), Some(0.5), Some(0.75)));
            let never = &measures.per_label[1];
            assert_eq!((never.accuracy, never.f1, never.roc_auc), (Some(0.75), Some(0.0), None));
            assert_eq!((measures.macro_f1, measures.roc_auc), (Some(0.25), Some(0.75)));
            let table = super::super::confusion::answers(&measures.per_label, &counts);
            let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
            assert_eq!(
                rows[1],
                ["a", "1", "1", "1", "1", "50.0", "%", "50.0", "%", "50.0", "%", "50.0", "%", "0.7500"]
            );
            assert_eq!(rows[2], ["never", "0", "0", "1", "3", "75.0", "%", "0.0", "%", "0.0", "%", "0.0", "%", "–"]);
        });
    }

    /// R² is 1 for the first target, and 0 for the second, whose mean is predicted.
    #[test]
    fn metrics_of_several_targets() {
        let labels = vec!["x".to_string(), "y".to_string()];
        let measures = Metrics::of_numbers(&[1.0, 10.0, 2.0, 20.0], &[1.0, 15.0, 2.0, 15.0], labels);
        let each: Vec<_> = measures.per_label.iter().map(|each| (each.r2, each.mae)).collect();
        assert_eq!(each, [(Some(1.0), Some(0.0)), (Some(0.0), Some(5.0))]);
        assert_eq!(measures.mae, Some(2.5));
    }
}
