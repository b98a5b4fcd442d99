//! What came of a run: measured on the examples that were held out, written into its folder, said in a few lines.

use panoply::nn::data::reader::{DataFormat, Task};
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::metrics::{ConfusionMatrix, perplexity, r2_score, roc_auc, top_k_accuracy};
use panoply::nn::{EpochReport, Metric, Model, generate, predict};
use panoply::{Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use super::run_dir::RunDir;
use crate::console::escaped;

/// Characters of the sample that a network of text writes.
const SAMPLE_CHARS: usize = 400;

/// Among how many of the likeliest classes the right one is looked for, where there are more.
const TOP_K: usize = 3;

/// How good the best model is beyond its score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Mean of F1 over the classes or the answers, where there are some.
    pub macro_f1: Option<f64>,
    /// The share of examples whose class is among the three likeliest, where there are more.
    pub top_3_accuracy: Option<f64>,
    /// The area under the curve of true over false positives, where there are two classes, of which the second is the positive one; the
    /// mean over the answers, where there are answers of both kinds.
    pub roc_auc: Option<f64>,
    /// How far off numbers are on average, where numbers are learned.
    pub mae: Option<f64>,
    /// How good each of several numbers is, or each answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_label: Vec<LabelMetrics>,
}

/// How good a number is that is one of several, or an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelMetrics {
    /// The column.
    pub label: String,
    /// The share of answers that are right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// F1 of the answer yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// The area under the curve of true over false positives, where there are answers of both kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roc_auc: Option<f64>,
    /// The share of the number's variance that is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// How far off the number is on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
}

impl Metrics {
    /// In a few words, but for those that another line has.
    pub fn in_words(&self) -> Vec<String> {
        let said = [
            self.macro_f1.map(|f1| format!("mean F1 {:.2} %", f1 * 100.0)),
            self.top_3_accuracy.map(|share| format!("{:.2} % among the three likeliest", share * 100.0)),
            self.roc_auc.map(|auc| format!("area under the ROC curve {auc:.4}")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        let all = (!said.is_empty()).then(|| said.join(", "));
        // Of one alone all is said already.
        let each = if self.per_label.len() > 1 { &self.per_label[..] } else { &[] };
        all.into_iter().chain(each.iter().map(LabelMetrics::in_words)).collect()
    }

    /// Of shares of classes, one row for each example.
    fn of_classes(shares: &[f32], labels: &[i32], counts: &ConfusionMatrix) -> Result<Metrics> {
        let classes = counts.num_classes;
        let top = || -> Result<f64> {
            let shares = Tensor::from_slice(shares, [labels.len(), classes]);
            top_k_accuracy(&shares, &Tensor::from_slice(labels, [labels.len()]), TOP_K).item()
        };
        let second: Vec<f32> = shares.iter().skip(1).step_by(classes).copied().collect();
        let positive: Vec<bool> = labels.iter().map(|label| *label == 1).collect();
        Ok(Metrics {
            macro_f1: Some(counts.macro_f1()),
            top_3_accuracy: (classes > TOP_K).then(top).transpose()?,
            // Where only one kind is held out, there is no curve.
            roc_auc: if classes == 2 { roc_auc(&second, &positive).ok() } else { None },
            ..Metrics::default()
        })
    }

    /// Of how likely each answer is yes, and what is right, one row for each example.
    fn of_answers(shares: &[f32], right: &[f32], labels: Vec<String>) -> Result<(Metrics, Vec<ConfusionMatrix>)> {
        let width = labels.len();
        let column =
            |values: &[f32], at: usize| -> Vec<f32> { values.iter().skip(at).step_by(width).copied().collect() };
        let (mut each, mut counted) = (Vec::new(), Vec::new());
        for (at, label) in labels.into_iter().enumerate() {
            let (shares, right) = (column(shares, at), column(right, at));
            let classes = |values: &[f32]| {
                let classes: Vec<i32> = values.iter().map(|value| i32::from(*value >= POSITIVE_THRESHOLD)).collect();
                Tensor::from_slice(&classes, [classes.len()])
            };
            let counts = ConfusionMatrix::new(&classes(&right), &classes(&shares), 2)?;
            let positive: Vec<bool> = right.iter().map(|right| *right >= POSITIVE_THRESHOLD).collect();
            let (accuracy, f1) = (Some(counts.accuracy()), Some(counts.f1(1)));
            each.push(LabelMetrics {
                label,
                accuracy,
                f1,
                roc_auc: roc_auc(&shares, &positive).ok(),
                ..LabelMetrics::default()
            });
            counted.push(counts);
        }
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let macro_f1 = mean(each.iter().filter_map(|each| each.f1).collect());
        let auc = mean(each.iter().filter_map(|each| each.roc_auc).collect());
        Ok((Metrics { macro_f1, roc_auc: auc, per_label: each, ..Metrics::default() }, counted))
    }

    /// Of numbers that are right and what was read instead, one row for each example.
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
    /// In a few words.
    fn in_words(&self) -> String {
        let said = [
            self.accuracy.map(|share| format!("{:.2} % right", share * 100.0)),
            self.f1.map(|f1| format!("F1 {:.2} %", f1 * 100.0)),
            self.roc_auc.map(|auc| format!("area under the ROC curve {auc:.4}")),
            self.r2.map(|r2| format!("R² {r2:.3}")),
            self.mae.map(|off| format!("{} off on average", format_number(off))),
        ];
        format!("{}: {}", escaped(&self.label), said.into_iter().flatten().collect::<Vec<String>>().join(", "))
    }
}

/// From which share on an answer is taken for a yes.
pub const POSITIVE_THRESHOLD: f32 = 0.5;

/// The share of variance that is explained of numbers that are right, each with what was read; none of numbers that are all the same.
fn explained(pairs: &[(f64, f64)]) -> Option<f64> {
    let mean = pairs.iter().map(|(right, _)| right).sum::<f64>() / pairs.len().max(1) as f64;
    let spread: f64 = pairs.iter().map(|(right, _)| (right - mean).powi(2)).sum();
    r2_score(pairs.iter().map(|(right, read)| (right - read).powi(2)).sum(), spread)
}

/// Measures the best model and writes what the folder shows of it.
pub fn measure(model: &Model, held: &Dataset, manifest: &Manifest, folder: &RunDir) -> Result<Metrics> {
    if let DataFormat::Text { vocabulary, .. } = &manifest.data.format {
        let letters: Vec<char> = vocabulary.chars().collect();
        let sample = generate::GenerationConfig { max_new_tokens: SAMPLE_CHARS, ..Default::default() };
        let text = generate::generate(model, &letters, "", &sample, &mut Rng::seed_from_u64(manifest.settings.seed))?;
        folder.write("sample.txt", &(text + "\n"))?;
        return Ok(Metrics::default());
    }
    let rows = predict(model, held, &manifest.network.loss)?;
    match &held.targets {
        Targets::Classes { labels: right, num_classes: classes, .. } => {
            let read: Vec<i32> = rows.chunks_exact(*classes).map(|row| argmax(row) as i32).collect();
            let counts = ConfusionMatrix::of(right, &read, *classes)?;
            folder.write_confusion(&counts, &manifest.data.class_names)?;
            Metrics::of_classes(&rows, right, &counts)
        }
        Targets::Regression { values, num_outputs: width } => {
            let labels = manifest.data.labels(*width);
            folder.write_predictions(values, &rows, &manifest.data.offsets(), &labels)?;
            Ok(Metrics::of_numbers(values, &rows, labels))
        }
        Targets::MultiLabel { values, num_labels: width } => {
            let (measures, counts) = Metrics::of_answers(&rows, values, manifest.data.labels(*width))?;
            folder.write_answers(&measures.per_label, &counts)?;
            Ok(measures)
        }
    }
}

/// What an epoch reached on the examples that were held out, in a few words.
pub fn in_words(report: &EpochReport, text: bool) -> String {
    match report.metric {
        Metric::Accuracy if text => {
            format!("perplexity {:.2}, {:.1} % right", perplexity(report.val_loss), report.val_score * 100.0)
        }
        Metric::Accuracy => format!("{:.1} % right", report.val_score * 100.0),
        Metric::R2 => format!("R² {:.3}", report.val_score),
    }
}

/// The first of the lines that a person reads at the end, but for the time it took.
pub fn headline(manifest: &Manifest, best: &EpochReport) -> String {
    let Manifest { data, result, .. } = manifest;
    match &data.format {
        DataFormat::Text { .. } => {
            let loss = best.val_loss;
            format!(
                "{loss:.3} nats for each held-out character, a perplexity of {:.2} (epoch {})",
                perplexity(loss),
                best.epoch
            )
        }
        DataFormat::Csv { task: Task::MultiLabel, .. } | DataFormat::Npy { task: Task::MultiLabel, .. } => {
            format!("{:.1} % of the held-out answers right (epoch {})", best.val_score * 100.0, best.epoch)
        }
        DataFormat::Csv { task: Task::Regression, .. } | DataFormat::Npy { task: Task::Regression, .. } => {
            let measures = result.as_ref().map(|result| &result.measures);
            let said = match measures.map_or(0, |measures| measures.per_label.len()) {
                several @ 2.. => format!("of {several} numbers together"),
                _ => {
                    let label = data.labels(1).into_iter().next().unwrap_or_default();
                    let label = escaped(&label);
                    let off = measures.and_then(|measures| measures.mae).unwrap_or(f64::NAN);
                    format!("{label} {} off on average", format_number(off))
                }
            };
            format!("R² {:.3} on the held-out examples, {said} (epoch {})", best.val_score, best.epoch)
        }
        source => {
            let what = if *source == DataFormat::Digits { "digits" } else { "examples" };
            format!("{:.1} % of the held-out {what} right (epoch {})", best.val_score * 100.0, best.epoch)
        }
    }
}

/// A number that was measured: four places behind the point where that says something.
pub fn format_number(number: f64) -> String {
    let plain = number == 0.0 || (1e-2..1e9).contains(&number.abs());
    if plain { format!("{number:.4}") } else { format!("{number:.3e}") }
}

/// What the folder shows besides model and history.
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

/// The position of the largest of some shares.
pub fn argmax(shares: &[f32]) -> usize {
    shares.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use panoply::Device;

    use super::*;

    /// Counted by hand, as scikit-learn's `f1_score(average="macro")` and `roc_auc_score(average="macro")` define them.
    #[test]
    fn measures_of_answers() {
        Device::get("cpu").unwrap().scope(|| {
            let right = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
            let shares = [0.9, 0.1, 0.6, 0.7, 0.4, 0.2, 0.1, 0.3];
            let labels = vec!["a".to_string(), "never".to_string()];
            let (measures, counts) = Metrics::of_answers(&shares, &right, labels).unwrap();
            // Of `a` one of two was found and one of two findings is right; of four pairs three are in order.
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

    /// Of the first number all of the variance is explained, of the second none is: its mean is read.
    #[test]
    fn measures_of_several_numbers() {
        let labels = vec!["x".to_string(), "y".to_string()];
        let measures = Metrics::of_numbers(&[1.0, 10.0, 2.0, 20.0], &[1.0, 15.0, 2.0, 15.0], labels);
        let each: Vec<_> = measures.per_label.iter().map(|each| (each.r2, each.mae)).collect();
        assert_eq!(each, [(Some(1.0), Some(0.0)), (Some(0.0), Some(5.0))]);
        assert_eq!(measures.mae, Some(2.5));
    }
}
