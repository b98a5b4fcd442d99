//! Reading of labeled data: one function for tables, texts, images and arrays, and the format that is needed to read more such data later.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use panoply_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Dataset, Targets, array_pair, digits, images, tables, text};

/// Format of data, with what a trained network needs to read more of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DataFormat {
    /// The built-in handwritten digits.
    Digits,
    /// A text or Parquet table.
    Csv {
        /// Names of the feature columns, or their generated names if the table has no header.
        feature_columns: Vec<String>,
        /// Names of the label columns.
        #[serde(with = "one_or_several")]
        label_columns: Vec<String>,
        /// Classification, regression or multi-label.
        task: Task,
        /// Grouping of rows into sequences; `None` if each row is an example.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sequence: Option<SequenceColumn>,
        /// Categories of text columns, each one-hot encoded.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        categories: BTreeMap<String, Vec<String>>,
        /// Offsets subtracted in f64 from columns of large, closely spaced numbers before the conversion to f32.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        offsets: BTreeMap<String, f64>,
    },
    /// A text, as a sequence of characters.
    Text {
        /// Characters of the text, sorted.
        vocabulary: String,
        /// Number of characters in a window.
        context_length: usize,
    },
    /// Image folders.
    Images {
        /// Number of channels: 1 for gray and 3 for colors; 2 and 4 with alpha.
        channels: usize,
        /// Height to which images are resized.
        height: usize,
        /// Width to which images are resized.
        width: usize,
    },
    /// IDX files, the format of MNIST.
    Idx {
        /// Shape of an example.
        shape: Vec<usize>,
    },
    /// NumPy arrays, in separate files or in one archive.
    Npy {
        /// Shape of an example.
        shape: Vec<usize>,
        /// Number of regression targets or labels of an example; 0 for a class.
        #[serde(default)]
        num_outputs: usize,
        /// Classification, regression or multi-label.
        task: Task,
        /// Offset subtracted in f64 from each element of an example before the conversion to f32; empty if there is none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        offsets: Vec<f64>,
        /// Offsets of the targets.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        target_offsets: Vec<f64>,
    },
}

/// Serialization of a list as null, a single string or a list.
mod one_or_several {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        One(String),
        Several(Vec<String>),
    }

    pub fn serialize<S: Serializer>(said: &[String], to: S) -> Result<S::Ok, S::Error> {
        match said {
            [] => None::<String>.serialize(to),
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Option::<Said>::deserialize(from)? {
            None => Vec::new(),
            Some(Said::One(one)) => vec![one],
            Some(Said::Several(several)) => several,
        })
    }
}

/// Grouping of a table's rows into sequences, in the order of the rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceColumn {
    /// Column whose value is equal in all rows of a sequence.
    pub column: String,
    /// Number of rows of the longest sequence; shorter ones are padded.
    pub max_len: usize,
}

/// Examples with their targets.
#[derive(Clone, Debug, PartialEq)]
pub struct LabeledData {
    /// Format of the data.
    pub format: DataFormat,
    /// Examples and targets.
    pub dataset: Dataset,
    /// Names of the classes; empty for other targets.
    pub class_names: Vec<String>,
    /// Messages about assumptions that can be wrong.
    pub assumptions: Vec<String>,
}

/// True label of an example.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// Class index.
    Class(i32),
    /// A label that is not one of the network's classes.
    Unknown(String),
    /// Regression targets, or multi-label targets as 0 or 1.
    Values(Vec<f64>),
}

/// Examples for inference.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceData {
    /// Examples; of the targets only the type is meaningful.
    pub dataset: Dataset,
    /// Name of each example: a line, a file, a position.
    pub names: Vec<String>,
    /// Labels, where known.
    pub labels: Vec<Option<Label>>,
    /// Offset to add in f64 to each output of the network; empty if there is none.
    pub offsets: Vec<f64>,
    /// Messages about how the examples were read.
    pub notes: Vec<String>,
}

/// Options for reading data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadOptions {
    /// Label columns of a table, by name or counted from 1. A string can contain several, separated by commas.
    #[serde(with = "one_or_several")]
    pub label_columns: Vec<String>,
    /// Column of a table whose value is equal in all rows of a sequence.
    pub sequence_column: Option<String>,
    /// Columns of a table to ignore, in the same notation as labels.
    pub drop_columns: Vec<String>,
    /// Columns of a table to treat as categorical, in the same notation as labels.
    pub categorical: Vec<String>,
    /// True to also read columns that index the rows of a table.
    pub keep_columns: bool,
    /// True if the first line of a table is a header; detected by default.
    pub header: Option<bool>,
    /// Task; inferred from the data by default.
    pub task: Option<Task>,
    /// Number of characters in a window of text.
    pub context_length: Option<usize>,
    /// Height and width to which images are resized.
    pub image_size: Option<(usize, usize)>,
}

impl ReadOptions {
    /// Checks that all given options apply to data of this format.
    ///
    /// # Errors
    /// If an option does not apply.
    pub fn check_for(&self, source: &DataFormat) -> Result<()> {
        let (what, task) = match source {
            DataFormat::Digits => ("digits", Task::Classification),
            DataFormat::Csv { task, .. } => ("tables", *task),
            DataFormat::Text { .. } => ("texts", Task::Text),
            DataFormat::Images { .. } => ("images", Task::Classification),
            DataFormat::Npy { task, .. } => ("arrays", *task),
            DataFormat::Idx { .. } => ("arrays", Task::Classification),
        };
        let unused = |said: bool, used: bool, name: &str| (said && !used).then(|| format!("--{name}"));
        let idle = unused(!self.label_columns.is_empty(), matches!(source, DataFormat::Csv { .. }), "label")
            .or_else(|| {
                unused(self.sequence_column.is_some(), matches!(source, DataFormat::Csv { .. }), "sequence-column")
            })
            .or_else(|| unused(self.header.is_some(), matches!(source, DataFormat::Csv { .. }), "header"))
            .or_else(|| unused(!self.drop_columns.is_empty(), matches!(source, DataFormat::Csv { .. }), "drop-columns"))
            .or_else(|| unused(!self.categorical.is_empty(), matches!(source, DataFormat::Csv { .. }), "categorical"))
            .or_else(|| unused(self.keep_columns, matches!(source, DataFormat::Csv { .. }), "keep-columns"))
            .or_else(|| unused(self.context_length.is_some(), task == Task::Text, "context-length"))
            .or_else(|| unused(self.image_size.is_some(), matches!(source, DataFormat::Images { .. }), "image-size"))
            .or_else(|| unused(self.task.is_some(), self.task == Some(task), "task"));
        match idle {
            Some(name) => Err(Error::mistake(format!("{name} does not apply to {what}; remove it"))),
            None => Ok(()),
        }
    }
}

/// Type of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A class for each example.
    Classification,
    /// Numbers for each example.
    Regression,
    /// Independent yes/no labels for each example.
    MultiLabel,
    /// The next character at each position of a text.
    Text,
}

/// Maximum number of classes; more indicate a wrong label column.
pub(super) const MOST_CLASSES: usize = 10_000;

/// Loads the built-in handwritten digits as images with one channel.
///
/// # Errors
/// If the embedded data are corrupt.
pub fn digits() -> Result<LabeledData> {
    let data = digits::load()?.with_shape(&[1, 8, 8])?;
    Ok(LabeledData {
        format: DataFormat::Digits,
        dataset: data,
        class_names: (0..10).map(|digit| digit.to_string()).collect(),
        assumptions: Vec::new(),
    })
}

/// Reads examples with their targets. `path` is a table (`.csv`, `.tsv`, `.txt`, `.parquet`), a text (`.txt`, `.md`), a folder with a
/// sub-folder of images for each class, a folder of IDX or NumPy files, one file of a pair (`train-images-idx3-ubyte`, or `x.npy` with
/// `y.npy` beside it), or an archive with both (`.npz`). All except images and Parquet can be compressed with gzip, with `.gz` appended to
/// the name.
///
/// # Errors
/// If the data cannot be read, or the options do not fit them.
pub fn open(path: &Path, reading: &ReadOptions) -> Result<LabeledData> {
    if path.is_dir() {
        return match array_pair::examples_in(path)? {
            Some(examples) => array_pair::open(&examples, reading.task),
            None => open_images(path, reading),
        };
    }
    if reading.task == Some(Task::Text) {
        return open_text(path, reading);
    }
    match kind(path)? {
        FileKind::Table => tables::open(path, reading),
        FileKind::Text if reading.task.is_none() => open_text(path, reading),
        FileKind::Text => Err(Error::mistake(format!("{} is text, not a table", path.display()))),
        FileKind::Idx | FileKind::Npy | FileKind::Npz => array_pair::open(path, reading.task),
        FileKind::Image => Err(Error::mistake(format!("{} is a single image; use a folder of images", path.display()))),
    }
}

/// Type of a file by its name.
pub(super) enum FileKind {
    Table,
    Text,
    Idx,
    Npy,
    Npz,
    Image,
}

pub(super) fn kind(path: &Path) -> Result<FileKind> {
    std::fs::metadata(path).map_err(|error| Error::io(format!("cannot read {}", path.display()), error))?;
    let name = name(path);
    if name.ends_with(".parquet.gz") {
        let message = format!("{}: decompress it first; Parquet compresses its own columns", path.display());
        return Err(Error::mistake(message));
    }
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[".csv", ".tsv", ".parquet"]) {
        Ok(FileKind::Table)
    } else if ends(&[".txt", ".md"]) {
        Ok(if text::is_table(&text::load(path)?) { FileKind::Table } else { FileKind::Text })
    } else if ends(&[".npy"]) {
        Ok(FileKind::Npy)
    } else if ends(&[".npz"]) {
        Ok(FileKind::Npz)
    } else if images::is_image(path) {
        Ok(FileKind::Image)
    } else if name.contains("ubyte") || name.contains("idx") {
        Ok(FileKind::Idx)
    } else {
        let what = "is not a .csv, .tsv, .txt, .md, .npy, .npz or IDX file (…-ubyte), each optionally .gz, nor .parquet or a folder";
        Err(Error::mistake(format!("{} {what}", path.display())).note("use `--task text` for other text files"))
    }
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default()
}

fn open_text(path: &Path, reading: &ReadOptions) -> Result<LabeledData> {
    let text = text::load(path)?;
    let vocabulary = text::vocabulary(&text);
    let time = reading.context_length.unwrap_or(text::DEFAULT_CONTEXT_LENGTH);
    let data = text::windows(&text, &vocabulary, time, path)?;
    let source = DataFormat::Text { vocabulary: vocabulary.iter().collect(), context_length: time };
    Ok(LabeledData {
        format: source,
        dataset: data,
        class_names: vocabulary.iter().map(char::to_string).collect(),
        assumptions: Vec::new(),
    })
}

/// Sorts and deduplicates strings: numerically if all are numbers, otherwise alphabetically.
pub(super) fn sorted(words: &[&str]) -> Vec<String> {
    let mut classes: Vec<&str> = words.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let numbers: Option<Vec<f64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if let Some(numbers) = numbers {
        let mut order: Vec<usize> = (0..classes.len()).collect();
        order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        return order.into_iter().map(|at| classes[at].to_string()).collect();
    }
    classes.into_iter().map(str::to_string).collect()
}

fn open_images(folder: &Path, reading: &ReadOptions) -> Result<LabeledData> {
    let images::ImageFolder { classes, files, labels, skipped } = images::scan(folder)?;
    if classes.len() < 2 {
        let message = format!("{}: {} is the only class", folder.display(), classes[0]);
        return Err(Error::mistake(message).note("each class is a sub-folder"));
    }
    let images = images::load(&files, reading.image_size, None)?;
    let (channels, (rows, columns)) = (images.channels, images.size);
    let data = Dataset::classification(images.features, channels * rows * columns, labels, classes.len())?;
    let data = data.with_shape(&[channels, rows, columns])?;
    let guesses = images::left_out(folder, &skipped).into_iter().collect();
    Ok(LabeledData {
        format: DataFormat::Images { channels, height: rows, width: columns },
        dataset: data,
        class_names: classes,
        assumptions: guesses,
    })
}

impl DataFormat {
    /// Reads examples of this format for inference, with labels if they exist.
    ///
    /// # Errors
    /// If the data cannot be read or do not have this format.
    pub fn read(&self, path: &Path, classes: &[String]) -> Result<InferenceData> {
        match self {
            DataFormat::Digits => {
                let message = format!(
                    "{}: this network was trained on the built-in digits and does not read files",
                    path.display()
                );
                Err(Error::mistake(message))
            }
            DataFormat::Csv {
                feature_columns: columns,
                label_columns: labels,
                task,
                sequence: sequences,
                categories: words,
                offsets,
            } => {
                let (task, sequences) = (*task, sequences.as_ref());
                tables::TableSchema { columns, labels, task, sequences, words, offsets, classes }.read(path)
            }
            DataFormat::Text { .. } => {
                let message = format!("{}: this network is a language model and predicts no classes", path.display());
                Err(Error::mistake(message))
            }
            DataFormat::Images { channels, height: rows, width: columns } => {
                let (files, labels, note) = image_files(path, classes)?;
                let images = images::load(&files, Some((*rows, *columns)), Some(*channels))?;
                let names = files.iter().map(|file| file.display().to_string()).collect();
                let mut read = InferenceData::new(images.features, &[*channels, *rows, *columns], names, labels)?;
                read.notes.extend(note);
                Ok(read)
            }
            DataFormat::Idx { shape: lengths } => {
                array_pair::Known { lengths, classes, ..Default::default() }.read(path)
            }
            DataFormat::Npy { shape: lengths, num_outputs, task, offsets, target_offsets } => {
                let (numbers, answers) = (*num_outputs, *task == Task::MultiLabel);
                array_pair::Known { lengths, numbers, answers, offsets, target_offsets, classes }.read(path)
            }
        }
    }
}

/// Image files with their labels, and a message about skipped files.
type ImageFiles = (Vec<PathBuf>, Vec<Option<Label>>, Option<String>);

/// Lists the images of a file or folder.
fn image_files(path: &Path, classes: &[String]) -> Result<ImageFiles> {
    if !path.is_dir() {
        kind(path)?;
        return Ok((vec![path.to_path_buf()], vec![None], None));
    }
    let (own, beside) = images::list_images(path)?;
    if !own.is_empty() {
        let labels = vec![None; own.len()];
        return Ok((own, labels, images::left_out(path, &beside)));
    }
    let found = images::scan(path)?;
    let keys = Keys::of(classes);
    let place = |label: &i32| keys.right(&found.classes[*label as usize]);
    let labels = found.labels.iter().map(place).collect();
    Ok((found.files, labels, images::left_out(path, &found.skipped)))
}

/// Returns the canonical form of a label: the number for numbers and for `true` and `false`, otherwise the trimmed text.
pub(super) fn label_key(label: &str) -> String {
    let label = label.trim();
    match label.parse::<f64>() {
        // Normalizes negative zero.
        Ok(number) if number.is_finite() => (number + 0.0).to_string(),
        _ if label.eq_ignore_ascii_case("true") => "1".to_string(),
        _ if label.eq_ignore_ascii_case("false") => "0".to_string(),
        _ => label.to_string(),
    }
}

/// Class indices by canonical label.
pub(super) struct Keys(HashMap<String, i32>);

impl Keys {
    /// Creates the map for these class names; of equal ones the first counts.
    pub fn of(names: &[String]) -> Keys {
        let mut keys = HashMap::new();
        for (at, name) in names.iter().enumerate() {
            keys.entry(label_key(name)).or_insert(at as i32);
        }
        Keys(keys)
    }

    /// Returns the class of a label as [`Label`]; `None` if it is empty.
    pub fn right(&self, label: &str) -> Option<Label> {
        if label.is_empty() {
            return None;
        }
        let known = self.class(label).map(Label::Class);
        Some(known.unwrap_or_else(|| Label::Unknown(label.to_string())))
    }

    /// Returns the class of a label, if there is one.
    pub fn class(&self, label: &str) -> Option<i32> {
        self.0.get(&label_key(label)).copied()
    }
}

/// Returns the distinct classes of labels in the order of [`sorted`], each in its shortest spelling.
pub(super) fn classes_among(labels: &[&str]) -> Vec<String> {
    let mut shortest: HashMap<String, &str> = HashMap::new();
    let mut distinct: Vec<&str> = labels.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    for label in distinct {
        let kept = shortest.entry(label_key(label)).or_insert(label);
        if label.len() < kept.len() {
            *kept = label;
        }
    }
    sorted(&shortest.into_values().collect::<Vec<&str>>())
}

impl InferenceData {
    pub(super) fn new(
        features: Vec<f32>,
        lengths: &[usize],
        names: Vec<String>,
        right: Vec<Option<Label>>,
    ) -> Result<InferenceData> {
        let data = Dataset::classification(features, lengths.iter().product(), vec![0; names.len()], 1)?
            .with_shape(lengths)?;
        Ok(InferenceData { dataset: data, names, labels: right, offsets: Vec::new(), notes: Vec::new() })
    }

    /// Changes the targets to `width` numbers, or yes/no labels, per example.
    pub(super) fn of_numbers(mut self, width: usize, answers: bool) -> InferenceData {
        let values = vec![0.0; self.names.len() * width];
        self.dataset.targets = if answers {
            Targets::MultiLabel { values, num_labels: width }
        } else {
            Targets::Regression { values, num_outputs: width }
        };
        self
    }
}
