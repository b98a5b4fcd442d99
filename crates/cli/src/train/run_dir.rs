//! The folder of a run, which holds all its files.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use panoply::nn::metrics::ConfusionMatrix;
use panoply::nn::{EpochReport, Metric, checkpoint};
use panoply::{Error, Result};
use serde_json::json;

use super::lock::{self, RunLock};
use super::metrics::LabelMetrics;
use super::{confusion, curves, scatter};
use crate::shell;

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunDir(pub PathBuf);

impl RunDir {
    /// Creates and locks a folder: the requested one, which must be new or empty, or `runs/NAME-N` with the next free number.
    pub fn new(requested: Option<&Path>, name: &str) -> Result<(RunDir, RunLock)> {
        let note = "`--output-dir` must name a new or empty folder that is writable";
        let failed =
            |path: &Path, error| Error::io(format!("cannot create the folder {}", path.display()), error).note(note);
        if let Some(path) = requested {
            RunLock::check(path)?;
            let taken = || {
                let message = format!("{} already contains a run", path.display());
                let note = format!(
                    "use `--resume {}` to continue it, or another `--output-dir` for a new run",
                    shell::quoted(path)
                );
                Err(Error::mistake(message).note(note))
            };
            if path.join("manifest.json").exists() {
                return taken();
            }
            let made = std::fs::create_dir_all(path).and_then(|()| std::fs::read_dir(path)?.collect());
            let there: Vec<DirEntry> = made.map_err(|error| failed(path, error))?;
            let own = |name: &std::ffi::OsString| name != lock::NAME;
            if let Some(first) = there.iter().map(DirEntry::file_name).filter(own).min() {
                let message = format!("{} is not empty: it contains {}", path.display(), first.display());
                return Err(Error::mistake(message).note(note));
            }
            let lock = RunLock::acquire(path)?;
            // Another run can have started in the folder since the check above.
            return if path.join("manifest.json").exists() { taken() } else { Ok((RunDir(path.to_path_buf()), lock)) };
        }
        let runs = Path::new("runs");
        std::fs::create_dir_all(runs).map_err(|error| failed(runs, error))?;
        for number in 1u32.. {
            let path = runs.join(format!("{name}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let lock = RunLock::acquire(&path)?;
                    return Ok((RunDir(path), lock));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        unreachable!("the numbers of run folders are exhausted")
    }

    /// Opens the folder of an existing run, which this process has locked, and removes temporary files that a killed process left.
    pub fn existing(path: &Path, _: &RunLock) -> RunDir {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if checkpoint::is_temporary(&entry.file_name()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        RunDir(path.to_path_buf())
    }

    /// Adds a note to the error of a checkpoint that is corrupt or of another network: it has no backup.
    pub fn without_its_state(&self, error: Error) -> Error {
        if !error.is_corrupt() && !error.is_mistake() {
            return error;
        }
        let kept = match self.model_path() {
            model if model.exists() => format!("; {} is kept", model.display()),
            _ => String::new(),
        };
        let note = format!("the run cannot be resumed from it{kept}; start another run");
        Error::corrupt(error.message()).note(note).with_source(error)
    }

    /// Returns a file that an earlier epoch wrote, if there is one.
    pub fn leftover(&self) -> Option<PathBuf> {
        let is_there = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
        [self.model_path(), self.0.join("history.jsonl")].into_iter().find(is_there)
    }

    /// Path of the checkpoint: the complete training state.
    pub fn checkpoint_path(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// Path of the best model.
    pub fn model_path(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// Writes the history of the epochs as JSON lines, as CSV and as an image.
    pub fn write_history(&self, history: &[EpochReport]) -> Result<()> {
        let lines: Vec<String> = history.iter().map(|epoch| json!(epoch).to_string() + "\n").collect();
        self.write("history.jsonl", &lines.concat())?;
        let mut table = "epoch,train_loss,val_loss,metric,train_score,val_score,seconds\n".to_string();
        for report in history {
            let EpochReport { epoch, train_loss, val_loss, metric, train_score, val_score, seconds, .. } = report;
            let metric = match metric {
                Metric::Accuracy => "accuracy",
                Metric::R2 => "r2",
            };
            // R² of a single example is undefined.
            let [train_score, val_score] =
                [train_score, val_score].map(|score| if score.is_nan() { String::new() } else { score.to_string() });
            table += &format!("{epoch},{train_loss},{val_loss},{metric},{train_score},{val_score},{seconds}\n");
        }
        self.write("history.csv", &table)?;
        self.write("curves.svg", &curves::draw(history))
    }

    /// Writes the confusion matrix as text and as an image.
    pub fn write_confusion(&self, counts: &ConfusionMatrix, classes: &[String]) -> Result<()> {
        self.write("confusion_matrix.txt", &confusion::text(counts, classes))?;
        self.write("confusion_matrix.svg", &confusion::draw(counts, classes))
    }

    /// Writes the validation examples with their predictions as CSV.
    pub fn write_predictions(&self, table: &str) -> Result<()> {
        self.write("predictions.csv", table)
    }

    /// Writes a scatter plot of targets and predictions. Each example has one value per name; the offset of the name is added to it.
    pub fn write_scatter(&self, targets: &[f32], predictions: &[f32], offsets: &[f64], names: &[String]) -> Result<()> {
        let offset = |at: usize| offsets.get(at % names.len().max(1)).copied().unwrap_or(0.0);
        let with_offset = |values: &[f32]| -> Vec<f64> {
            values.iter().enumerate().map(|(at, value)| f64::from(*value) + offset(at)).collect()
        };
        self.write("predictions.svg", &scatter::draw(&with_offset(targets), &with_offset(predictions), names))
    }

    /// Writes the metrics of each label.
    pub fn write_answers(&self, each: &[LabelMetrics], counts: &[ConfusionMatrix]) -> Result<()> {
        self.write("classification_report.txt", &confusion::answers(each, counts))
    }

    /// Writes a text file atomically.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        checkpoint::write_atomic(&self.0.join(name), text.as_bytes())
    }
}

/// Parses the path of a model file, or of a run folder, which stands for its model file.
pub fn model_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| if path.is_dir() { RunDir(path).model_path() } else { path })
}
