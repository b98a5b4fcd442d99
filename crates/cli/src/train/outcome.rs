//! What came of a run: measured on the examples that were held out, written into its folder, said in a few lines.

use panoply::nn::data::source::Source;
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::metrics::{Confusion, auc, perplexity, r2, top_k_accuracy};
use panoply::nn::{EpochReport, Measure, Model, generate, predict};
use panoply::{Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::manifest::Manifest;
use crate::console::escaped;

/// Characters of the sample that a network of text writes.
const SAMPLE: usize = 400;

/// Among how many of the likeliest classes the right one is looked for, where there are more.
const LIKELIEST: usize = 3;

/// How good the best model is beyond its score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measures {
    /// Mean of F1 over the classes or the answers, where there are some.
    pub macro_f1: Option<f64>,
    /// The share of examples whose class is among the three likeliest, where there are more.
    pub top_3_accuracy: Option<f64>,
    /// The area under the curve of true over false positives, where there are two classes, of which the second is the positive one; the
    /// mean over the answers, where there are answers of both kinds.
    pub auc: Option<f64>,
    /// How far off numbers are on average, where numbers are learned.
    pub absolute_error: Option<f64>,
    /// How good each of several numbers is, or each answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<Each>,
}

/// How good a number is that is one of several, or an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Each {
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
    pub auc: Option<f64>,
    /// The share of the number's variance that is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// How far off the number is on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absolute_error: Option<f64>,
}

impl Measures {
    /// In a few words, but for those that another line has.
    pub fn in_words(&self) -> Vec<String> {
        let said = [
            self.macro_f1.map(|f1| format!("mean F1 {:.2} %", f1 * 100.0)),
            self.top_3_accuracy.map(|share| format!("{:.2} % among the three likeliest", share * 100.0)),
            self.auc.map(|auc| format!("area under the ROC curve {auc:.4}")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        let all = (!said.is_empty()).then(|| said.join(", "));
        // Of one alone all is said already.
        let each = if self.each.len() > 1 { &self.each[..] } else { &[] };
        all.into_iter().chain(each.iter().map(Each::in_words)).collect()
    }

    /// Of shares of classes, one row for each example.
    fn of_classes(shares: &[f32], labels: &[i32], counts: &Confusion) -> Result<Measures> {
        let classes = counts.classes;
        let top = || -> Result<f64> {
            let shares = Tensor::from_slice(shares, [labels.len(), classes]);
            top_k_accuracy(&shares, &Tensor::from_slice(labels, [labels.len()]), LIKELIEST).item()
        };
        let second: Vec<f32> = shares.iter().skip(1).step_by(classes).copied().collect();
        let positive: Vec<bool> = labels.iter().map(|label| *label == 1).collect();
        Ok(Measures {
            macro_f1: Some(counts.macro_f1()),
            top_3_accuracy: (classes > LIKELIEST).then(top).transpose()?,
            // Where only one kind is held out, there is no curve.
            auc: if classes == 2 { auc(&second, &positive).ok() } else { None },
            ..Measures::default()
        })
    }

    /// Of how likely each answer is yes, and what is right, one row for each example.
    fn of_answers(shares: &[f32], right: &[f32], labels: Vec<String>) -> Result<(Measures, Vec<Confusion>)> {
        let width = labels.len();
        let column =
            |values: &[f32], at: usize| -> Vec<f32> { values.iter().skip(at).step_by(width).copied().collect() };
        let (mut each, mut counted) = (Vec::new(), Vec::new());
        for (at, label) in labels.into_iter().enumerate() {
            let (shares, right) = (column(shares, at), column(right, at));
            let classes = |values: &[f32]| {
                let classes: Vec<i32> = values.iter().map(|value| i32::from(*value >= YES)).collect();
                Tensor::from_slice(&classes, [classes.len()])
            };
            let counts = Confusion::new(&classes(&right), &classes(&shares), 2)?;
            let positive: Vec<bool> = right.iter().map(|right| *right >= YES).collect();
            let (accuracy, f1) = (Some(counts.accuracy()), Some(counts.f1(1)));
            each.push(Each { label, accuracy, f1, auc: auc(&shares, &positive).ok(), ..Each::default() });
            counted.push(counts);
        }
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let macro_f1 = mean(each.iter().filter_map(|each| each.f1).collect());
        let auc = mean(each.iter().filter_map(|each| each.auc).collect());
        Ok((Measures { macro_f1, auc, each, ..Measures::default() }, counted))
    }

    /// Of numbers that are right and what was read instead, one row for each example.
    fn of_numbers(right: &[f32], read: &[f32], labels: Vec<String>) -> Measures {
        let off = |pairs: &[(f64, f64)]| {
            pairs.iter().map(|(right, read)| (right - read).abs()).sum::<f64>() / pairs.len().max(1) as f64
        };
        let pairs: Vec<(f64, f64)> =
            right.iter().zip(read).map(|(right, read)| (f64::from(*right), f64::from(*read))).collect();
        let width = labels.len();
        let of_column = |(at, label): (usize, String)| {
            let pairs: Vec<(f64, f64)> = pairs.iter().skip(at).step_by(width).copied().collect();
            Each { label, r2: explained(&pairs), absolute_error: Some(off(&pairs)), ..Each::default() }
        };
        let each = if width > 1 { labels.into_iter().enumerate().map(of_column).collect() } else { Vec::new() };
        Measures { absolute_error: Some(off(&pairs)), each, ..Measures::default() }
    }
}

impl Each {
    /// In a few words.
    fn in_words(&self) -> String {
        let said = [
            self.accuracy.map(|share| format!("{:.2} % right", share * 100.0)),
            self.f1.map(|f1| format!("F1 {:.2} %", f1 * 100.0)),
            self.auc.map(|auc| format!("area under the ROC curve {auc:.4}")),
            self.r2.map(|r2| format!("R² {r2:.3}")),
            self.absolute_error.map(|off| format!("{} off on average", measured(off))),
        ];
        format!("{}: {}", escaped(&self.label), said.into_iter().flatten().collect::<Vec<String>>().join(", "))
    }
}

/// From which share on an answer is taken for a yes.
pub const YES: f32 = 0.5;

/// The share of variance that is explained of numbers that are right, each with what was read; none of numbers that are all the same.
fn explained(pairs: &[(f64, f64)]) -> Option<f64> {
    let mean = pairs.iter().map(|(right, _)| right).sum::<f64>() / pairs.len().max(1) as f64;
    let spread: f64 = pairs.iter().map(|(right, _)| (right - mean).powi(2)).sum();
    r2(pairs.iter().map(|(right, read)| (right - read).powi(2)).sum(), spread)
}

/// Measures the best model and writes what the folder shows of it.
pub fn measure(model: &Model, held: &Dataset, manifest: &Manifest, folder: &Folder) -> Result<Measures> {
    if let Source::Text { vocabulary, .. } = &manifest.data.source {
        let letters: Vec<char> = vocabulary.chars().collect();
        let sample = generate::Sampling { count: SAMPLE, ..Default::default() };
        let text = generate::continue_text(model, &letters, "", &sample, &mut Rng::seed(manifest.settings.seed))?;
        folder.write("sample.txt", &(text + "\n"))?;
        return Ok(Measures::default());
    }
    let rows = predict(model, held, &manifest.network.loss)?;
    match &held.targets {
        Targets::Classes { labels: right, classes, .. } => {
            let read: Vec<i32> = rows.chunks_exact(*classes).map(|row| largest(row) as i32).collect();
            let counts = Confusion::of(right, &read, *classes)?;
            folder.write_confusion(&counts, &manifest.data.classes)?;
            Measures::of_classes(&rows, right, &counts)
        }
        Targets::Numbers { values, width } => {
            let labels = manifest.data.labels(*width);
            folder.write_predictions(values, &rows, &manifest.data.offsets(), &labels)?;
            Ok(Measures::of_numbers(values, &rows, labels))
        }
        Targets::Answers { values, width } => {
            let (measures, counts) = Measures::of_answers(&rows, values, manifest.data.labels(*width))?;
            folder.write_answers(&measures.each, &counts)?;
            Ok(measures)
        }
    }
}

/// What an epoch reached on the examples that were held out, in a few words.
pub fn in_words(report: &EpochReport, text: bool) -> String {
    match report.measure {
        Measure::Accuracy if text => {
            format!("perplexity {:.2}, {:.1} % right", perplexity(report.validation_loss), report.score * 100.0)
        }
        Measure::Accuracy => format!("{:.1} % right", report.score * 100.0),
        Measure::R2 => format!("R² {:.3}", report.score),
    }
}

/// The first of the lines that a person reads at the end, but for the time it took.
pub fn headline(manifest: &Manifest, best: &EpochReport) -> String {
    let Manifest { data, result, .. } = manifest;
    match &data.source {
        Source::Text { .. } => {
            let loss = best.validation_loss;
            format!(
                "{loss:.3} nats for each held-out character, a perplexity of {:.2} (epoch {})",
                perplexity(loss),
                best.epoch
            )
        }
        Source::Csv { answers: true, .. } | Source::Npy { answers: true, .. } => {
            format!("{:.1} % of the held-out answers right (epoch {})", best.score * 100.0, best.epoch)
        }
        Source::Csv { numbers: true, .. } | Source::Npy { numbers: 1.., .. } => {
            let measures = result.as_ref().map(|result| &result.measures);
            let said = match measures.map_or(0, |measures| measures.each.len()) {
                several @ 2.. => format!("of {several} numbers together"),
                _ => {
                    let label = data.labels(1).into_iter().next().unwrap_or_default();
                    let label = escaped(&label);
                    let off = measures.and_then(|measures| measures.absolute_error).unwrap_or(f64::NAN);
                    format!("{label} {} off on average", measured(off))
                }
            };
            format!("R² {:.3} on the held-out examples, {said} (epoch {})", best.score, best.epoch)
        }
        source => {
            let what = if *source == Source::Digits { "digits" } else { "examples" };
            format!("{:.1} % of the held-out {what} right (epoch {})", best.score * 100.0, best.epoch)
        }
    }
}

/// A number that was measured: four places behind the point where that says something.
pub fn measured(number: f64) -> String {
    let plain = number == 0.0 || (1e-2..1e9).contains(&number.abs());
    if plain { format!("{number:.4}") } else { format!("{number:.3e}") }
}

/// What the folder shows besides model and history.
pub fn picture(source: &Source) -> &'static str {
    match source {
        Source::Text { .. } => "sample.txt",
        Source::Csv { answers: true, .. } | Source::Npy { answers: true, .. } => "answers.txt",
        Source::Csv { numbers: true, .. } | Source::Npy { numbers: 1.., .. } => "predictions.svg",
        _ => "confusion.svg",
    }
}

/// The position of the largest of some shares.
pub fn largest(shares: &[f32]) -> usize {
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
            let (measures, counts) = Measures::of_answers(&shares, &right, labels).unwrap();
            // Of `a` one of two was found and one of two findings is right; of four pairs three are in order.
            let a = &measures.each[0];
            assert_eq!((a.accuracy, a.f1, a.auc), (Some(0.5), Some(0.5), Some(0.75)));
            let never = &measures.each[1];
            assert_eq!((never.accuracy, never.f1, never.auc), (Some(0.75), Some(0.0), None));
            assert_eq!((measures.macro_f1, measures.auc), (Some(0.25), Some(0.75)));
            let table = super::super::confusion::answers(&measures.each, &counts);
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
        let measures = Measures::of_numbers(&[1.0, 10.0, 2.0, 20.0], &[1.0, 15.0, 2.0, 15.0], labels);
        let each: Vec<_> = measures.each.iter().map(|each| (each.r2, each.absolute_error)).collect();
        assert_eq!(each, [(Some(1.0), Some(0.0)), (Some(0.0), Some(5.0))]);
        assert_eq!(measures.absolute_error, Some(2.5));
    }
}
