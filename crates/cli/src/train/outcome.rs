//! What came of a run: measured on the examples that were held out, written into its folder, said in a few lines.

use panoply::nn::data::source::Source;
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::metrics::{Confusion, auc, top_k_accuracy};
use panoply::nn::{EpochReport, Measure, Model, generate, predict};
use panoply::{Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::manifest::Manifest;

/// Characters of the sample that a network of text writes.
const SAMPLE: usize = 400;

/// Among how many of the likeliest classes the right one is looked for, where there are more.
const LIKELIEST: usize = 3;

/// How good the best model is beyond its score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measures {
    /// Mean of F1 over the classes, where there are classes.
    pub macro_f1: Option<f64>,
    /// The share of examples whose class is among the three likeliest, where there are more.
    pub top_3_accuracy: Option<f64>,
    /// The area under the curve of true over false positives, where there are two classes, of which the second is the positive one.
    pub auc: Option<f64>,
    /// How far off numbers are on average, where numbers are learned.
    pub absolute_error: Option<f64>,
}

impl Measures {
    /// In a few words, but for those that another line has.
    pub fn in_words(&self) -> Option<String> {
        let said = [
            self.macro_f1.map(|f1| format!("mean F1 {:.2} %", f1 * 100.0)),
            self.top_3_accuracy.map(|share| format!("{:.2} % among the three likeliest", share * 100.0)),
            self.auc.map(|auc| format!("area under the ROC curve {auc:.4}")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join(", "))
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
            absolute_error: None,
        })
    }
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
            let [labels, read] = [right, &read].map(|classes| Tensor::from_slice(classes, [classes.len()]));
            let counts = Confusion::new(&labels, &read, *classes)?;
            folder.write_confusion(&counts, &manifest.data.classes)?;
            Measures::of_classes(&rows, right, &counts)
        }
        Targets::Numbers { values, .. } => {
            folder.write_predictions(values, &rows)?;
            let off: f64 = values.iter().zip(&rows).map(|(right, read)| f64::from((right - read).abs())).sum();
            Ok(Measures { absolute_error: Some(off / values.len().max(1) as f64), ..Measures::default() })
        }
    }
}

/// What an epoch reached on the examples that were held out, in a few words.
pub fn in_words(report: &EpochReport, text: bool) -> String {
    match report.measure {
        Measure::Accuracy if text => {
            format!("perplexity {:.2}, {:.1} % right", report.validation_loss.exp(), report.score * 100.0)
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
                loss.exp(),
                best.epoch
            )
        }
        Source::Csv { numbers: true, .. } | Source::Npy { numbers: 1.., .. } => {
            let label = if let Source::Csv { label, .. } = &data.source { label } else { "y" };
            let off = result.as_ref().and_then(|result| result.measures.absolute_error).unwrap_or(f64::NAN);
            format!(
                "R² {:.3} on the held-out examples, {label} {} off on average (epoch {})",
                best.score,
                measured(off),
                best.epoch
            )
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
        Source::Csv { numbers: true, .. } | Source::Npy { numbers: 1.., .. } => "predictions.svg",
        _ => "confusion.svg",
    }
}

/// The position of the largest of some shares.
pub fn largest(shares: &[f32]) -> usize {
    shares.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at)
}
