//! Reading of labeled data: one function for tables, texts, images and arrays, and the format that is needed to read more such data later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use panoply_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::csv::CsvOptions;
use super::labels::Keys;
use super::{
    Dataset, DateOrder, MissingRows, ReadProgress, TableRows, TextEncoding, array_pair, digits, images, tables, text,
};

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
        /// Divisors of feature columns whose values are all too small or too large for f32, by name. The division is in f64.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        scales: BTreeMap<String, f64>,
        /// Replacements of missing values, by column. A column without one must have a value in each row.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        imputation: BTreeMap<String, Imputation>,
        /// Orders of dates that are not written as year, month, day, by feature column.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        date_orders: BTreeMap<String, DateOrder>,
        /// True if numbers are written with decimal commas.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        decimal_comma: bool,
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
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }

    pub fn serialize<S: Serializer>(columns: &[String], to: S) -> Result<S::Ok, S::Error> {
        match columns {
            [] => None::<String>.serialize(to),
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Option::<OneOrSeveral>::deserialize(from)? {
            None => Vec::new(),
            Some(OneOrSeveral::One(one)) => vec![one],
            Some(OneOrSeveral::Several(several)) => several,
        })
    }
}

/// The replacement of missing values in a column of features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imputation {
    /// The value that replaces missing ones.
    pub value: Replacement,
    /// True if a further feature is 1 where the value was missing and 0 elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indicator: bool,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Replacement {
    /// Of a column of numbers.
    Number(f64),
    /// Of a column of categories.
    Category(String),
}

/// The treatment of missing values of a table in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingValues {
    /// They are an error.
    Error,
    /// Their rows are left out.
    Drop,
    /// The mean of the column replaces them; the most frequent category in a column of categories.
    Mean,
    /// The median of the column replaces them; the most frequent category in a column of categories.
    Median,
    /// The most frequent value of the column replaces them.
    MostFrequent,
}

/// The decimal mark of numbers in a table of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecimalMark {
    /// `1,234.5`
    Point,
    /// `1.234,5`
    Comma,
}

/// A column that groups the rows of a table into sequences; the rows keep their order.
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
    /// A number for each example, equal for those of one group, if [`ReadOptions::group_column`] is given. A split keeps a group together.
    pub groups: Option<Vec<u32>>,
    /// Rows of a table whose missing values were replaced.
    pub missing: MissingRows,
    /// Decisions that the data leave open, a sentence each.
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
    /// Examples. Their targets have the type, the number of classes and the widths of the training data; the values are placeholders.
    pub dataset: Dataset,
    /// Name of each example: a line, a file, a position.
    pub names: Vec<String>,
    /// Labels, where known.
    pub labels: Vec<Option<Label>>,
    /// Offset to add in f64 to each output of the network; empty if there is none.
    pub offsets: Vec<f64>,
    /// Rows of the examples with all columns, if they were read from a table.
    pub table: Option<TableRows>,
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
    /// The column of a table whose value groups rows: a split keeps rows with the same value together. It is not a feature.
    pub group_column: Option<String>,
    /// The treatment of missing values in a table. If `None`, the median replaces numbers and the most frequent category others.
    pub missing: Option<MissingValues>,
    /// The decimal mark of a table of text; detected if `None`.
    pub decimal: Option<DecimalMark>,
    /// The encoding of a text or of a table of text. If `None`, UTF-8, or UTF-16 if its bytes are that.
    pub encoding: Option<TextEncoding>,
    /// True if the first line of a table names its columns; detected if `None`.
    pub header: Option<bool>,
    /// Task; inferred from the data by default.
    pub task: Option<Task>,
    /// Number of characters in a window of text.
    pub context_length: Option<usize>,
    /// Height and width to which images are resized.
    pub image_size: Option<(usize, usize)>,
    /// Called while a table or images are read.
    #[serde(skip)]
    pub progress: ReadProgress,
}

impl ReadOptions {
    pub(super) fn csv_options(&self) -> CsvOptions {
        CsvOptions { encoding: self.encoding, decimal_comma: self.decimal.map(|decimal| decimal == DecimalMark::Comma) }
    }

    /// A mistake if an option is given that such data do not use.
    pub fn check_for(&self, source: &DataFormat) -> Result<()> {
        let (what, task) = match source {
            DataFormat::Digits => ("digits", Task::Classification),
            DataFormat::Csv { task, .. } => ("tables", *task),
            DataFormat::Text { .. } => ("texts", Task::Text),
            DataFormat::Images { .. } => ("images", Task::Classification),
            DataFormat::Npy { task, .. } => ("arrays", *task),
            DataFormat::Idx { .. } => ("arrays", Task::Classification),
        };
        let unused = |given: bool, used: bool, name: &str| (given && !used).then(|| format!("--{name}"));
        let idle = unused(!self.label_columns.is_empty(), matches!(source, DataFormat::Csv { .. }), "label")
            .or_else(|| {
                unused(self.sequence_column.is_some(), matches!(source, DataFormat::Csv { .. }), "sequence-column")
            })
            .or_else(|| unused(self.header.is_some(), matches!(source, DataFormat::Csv { .. }), "header"))
            .or_else(|| unused(!self.drop_columns.is_empty(), matches!(source, DataFormat::Csv { .. }), "drop-columns"))
            .or_else(|| unused(!self.categorical.is_empty(), matches!(source, DataFormat::Csv { .. }), "categorical"))
            .or_else(|| unused(self.keep_columns, matches!(source, DataFormat::Csv { .. }), "keep-columns"))
            .or_else(|| unused(self.missing.is_some(), matches!(source, DataFormat::Csv { .. }), "missing"))
            .or_else(|| unused(self.decimal.is_some(), matches!(source, DataFormat::Csv { .. }), "decimal"))
            .or_else(|| {
                unused(self.group_column.is_some(), matches!(source, DataFormat::Csv { .. }), "val-split group")
            })
            .or_else(|| {
                let is_text = matches!(source, DataFormat::Csv { .. } | DataFormat::Text { .. });
                unused(self.encoding.is_some(), is_text, "encoding")
            })
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
pub(super) const MAX_CLASSES: usize = 10_000;

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
        groups: None,
        missing: MissingRows::default(),
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
    match text_kind(path, reading.encoding)? {
        FileKind::Table => tables::open(path, reading),
        FileKind::Text if reading.task.is_none() => open_text(path, reading),
        FileKind::Text => Err(Error::mistake(format!("{} is text, not a table", path.display()))),
        FileKind::Idx | FileKind::Npy | FileKind::Npz => array_pair::open(path, reading.task),
        FileKind::Image => Err(Error::mistake(format!("{} is a single image; use a folder of images", path.display()))),
    }
}

/// True for a file that [`open`] reads as a table.
///
/// # Errors
/// A file that cannot be read, or whose format is not known.
pub fn is_table(path: &Path, reading: &ReadOptions) -> Result<bool> {
    Ok(path.is_file()
        && reading.task != Some(Task::Text)
        && matches!(text_kind(path, reading.encoding)?, FileKind::Table))
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
    text_kind(path, None)
}

/// [`kind`] of a file whose text may be in this encoding.
fn text_kind(path: &Path, encoding: Option<TextEncoding>) -> Result<FileKind> {
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
        Ok(if text::is_table(&text::load(path, encoding)?) { FileKind::Table } else { FileKind::Text })
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
    let text = text::load(path, reading.encoding)?;
    let vocabulary = text::vocabulary(&text);
    let time = reading.context_length.unwrap_or(text::DEFAULT_CONTEXT_LENGTH);
    let data = text::windows(&text, &vocabulary, time, path)?;
    let source = DataFormat::Text { vocabulary: vocabulary.iter().collect(), context_length: time };
    Ok(LabeledData {
        format: source,
        dataset: data,
        class_names: vocabulary.iter().map(char::to_string).collect(),
        groups: None,
        missing: MissingRows::default(),
        assumptions: Vec::new(),
    })
}

fn open_images(folder: &Path, reading: &ReadOptions) -> Result<LabeledData> {
    let images::ImageFolder { classes, files, labels, skipped } = images::scan(folder)?;
    if classes.len() < 2 {
        let message = format!("{}: {} is the only class", folder.display(), classes[0]);
        return Err(Error::mistake(message).note("each class is a sub-folder"));
    }
    let images = images::load_reporting(&files, reading.image_size, None, &reading.progress)?;
    let (channels, (rows, columns)) = (images.channels, images.size);
    let data = Dataset::classification(images.features, labels)
        .example_shape(&[channels, rows, columns])
        .num_classes(classes.len())
        .build()?;
    let guesses = images::left_out(folder, &skipped).into_iter().collect();
    Ok(LabeledData {
        format: DataFormat::Images { channels, height: rows, width: columns },
        dataset: data,
        class_names: classes,
        groups: None,
        missing: MissingRows::default(),
        assumptions: guesses,
    })
}

impl DataFormat {
    /// Reads examples in this format for prediction, with their labels where the file has them. `classes` are the names of the classes,
    /// `reading` the options with which the training data were read.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged or lacks columns of the training data.
    pub fn read(&self, path: &Path, classes: &[String], reading: &ReadOptions) -> Result<InferenceData> {
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
                scales,
                imputation,
                date_orders,
                decimal_comma,
            } => {
                let (task, sequences) = (*task, sequences.as_ref());
                let decimal_comma = *decimal_comma;
                let schema = tables::TableSchema {
                    columns,
                    labels,
                    task,
                    sequences,
                    words,
                    offsets,
                    scales,
                    imputation,
                    date_orders,
                    decimal_comma,
                    classes,
                };
                schema.read(path, reading)
            }
            DataFormat::Text { .. } => {
                let message = format!("{}: this network is a language model and predicts no classes", path.display());
                Err(Error::mistake(message))
            }
            DataFormat::Images { channels, height: rows, width: columns } => {
                let (files, labels, note) = image_files(path, classes)?;
                let size = Some((*rows, *columns));
                let images = images::load_reporting(&files, size, Some(*channels), &reading.progress)?;
                let names = files.iter().map(|file| file.display().to_string()).collect();
                let lengths = &[*channels, *rows, *columns];
                let mut read = InferenceData::new(images.features, lengths, names, labels, classes)?;
                read.notes.extend(note);
                Ok(read)
            }
            DataFormat::Idx { shape: lengths } => {
                let (task, num_outputs, offsets, target_offsets) = (Task::Classification, 0, &[][..], &[][..]);
                array_pair::Known { lengths, task, num_outputs, offsets, target_offsets, classes }.read(path)
            }
            DataFormat::Npy { shape: lengths, num_outputs, task, offsets, target_offsets } => {
                let (task, num_outputs) = (*task, *num_outputs);
                array_pair::Known { lengths, task, num_outputs, offsets, target_offsets, classes }.read(path)
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
