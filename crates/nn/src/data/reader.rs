//! Where examples come from: one call for tables, texts, images and arrays, and what must be remembered to read more of the same
//! kind later.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use panoply_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Dataset, Targets, array_pair, digits, images, tables, text};

/// A kind of data with what a trained network needs to read more of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DataFormat {
    /// The handwritten digits that ship.
    Digits,
    /// A table, of text or of Parquet.
    Csv {
        /// The columns that are read, by name, or by place if the table has no names.
        feature_columns: Vec<String>,
        /// The columns that are learned.
        #[serde(with = "one_or_several")]
        label_columns: Vec<String>,
        /// Classification, regression or multilabel.
        task: Task,
        /// Which rows are one example, if not each is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sequence: Option<SequenceColumn>,
        /// The words of columns that hold no numbers, each a number of its own: 1 where it stands, 0 elsewhere.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        categories: BTreeMap<String, Vec<String>>,
        /// What is subtracted in f64 from the numbers of columns before they become f32, where they are far from 0 and close together.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        offsets: BTreeMap<String, f64>,
    },
    /// A text, character by character.
    Text {
        /// Its characters, sorted.
        vocabulary: String,
        /// Characters of a window.
        context_length: usize,
    },
    /// Folders of images.
    Images {
        /// 1 for gray and 3 for colors; 2 and 4 if alpha follows them.
        channels: usize,
        /// To which they are scaled.
        height: usize,
        /// To which they are scaled.
        width: usize,
    },
    /// Bytes as MNIST has them.
    Idx {
        /// Lengths of an example's axes.
        shape: Vec<usize>,
    },
    /// Arrays of NumPy, in files of their own or in one.
    Npy {
        /// Lengths of an example's axes.
        shape: Vec<usize>,
        /// Numbers that are learned of each example; 0 if a class is.
        #[serde(default)]
        num_outputs: usize,
        /// Classification, regression or multilabel.
        task: Task,
        /// What is subtracted in f64 from each number of an example before it becomes f32; none if all are as they are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        offsets: Vec<f64>,
        /// The same of the numbers that are learned.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        target_offsets: Vec<f64>,
    },
}

/// A list that stands in a file as nothing, as one word or as a list.
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

/// Which rows of a table are one example, in the order in which they stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceColumn {
    /// Those with the same in this column.
    pub column: String,
    /// Rows of the longest example; shorter ones end earlier.
    pub max_len: usize,
}

/// Examples with what is to be learned of them.
#[derive(Clone, Debug, PartialEq)]
pub struct LabeledData {
    /// Where they come from.
    pub format: DataFormat,
    /// The examples.
    pub dataset: Dataset,
    /// Names of the classes; none if numbers are to be learned.
    pub class_names: Vec<String>,
    /// What was guessed and may be otherwise, a sentence each.
    pub assumptions: Vec<String>,
}

/// What is right of an example.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// A class.
    Class(i32),
    /// A label that is none of the classes that were learned.
    Unknown(String),
    /// As many numbers as are learned, or answers, each 0 or 1.
    Values(Vec<f64>),
}

/// Examples to be judged.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceData {
    /// The examples; only the kind of their targets means something.
    pub dataset: Dataset,
    /// A name for each: a line, a file, a place.
    pub names: Vec<String>,
    /// What is right, where it is known.
    pub labels: Vec<Option<Label>>,
    /// What is added in f64 to each number that the network gives; none if nothing is.
    pub offsets: Vec<f64>,
    /// What a reader of the results should know of how the examples were read, a sentence each.
    pub notes: Vec<String>,
}

/// How to read data where the files leave it open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadOptions {
    /// The columns of a table that are to be learned, by name or counted from 1; several may stand in one word with commas between.
    #[serde(with = "one_or_several")]
    pub label_columns: Vec<String>,
    /// The column of a table whose rows with the same in it are one example, a sequence.
    pub sequence_column: Option<String>,
    /// Columns of a table that are not read, said as labels are.
    pub drop_columns: Vec<String>,
    /// Columns of a table whose cells are categories, whatever they look like, said as labels are.
    pub categorical: Vec<String>,
    /// Whether columns of a table that index its rows are read, too.
    pub keep_columns: bool,
    /// Whether the first line of a table names its columns; it is told by what stands below it if nothing is said.
    pub header: Option<bool>,
    /// What is to be learned, if the data leave it open.
    pub task: Option<Task>,
    /// Characters of a window of text.
    pub context_length: Option<usize>,
    /// Rows and columns to which images are scaled.
    pub image_size: Option<(usize, usize)>,
}

impl ReadOptions {
    /// A mistake if something is said that such data have no use for.
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
            Some(name) => Err(Error::mistake(format!("{name}: {what} have no use for it; leave it out"))),
            None => Ok(()),
        }
    }
}

/// What is to be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A class for each example.
    Classification,
    /// Numbers for each example.
    Regression,
    /// Answers of yes or no for each example, which exclude nothing.
    MultiLabel,
    /// Each character of a text.
    Text,
}

/// More classes than this are taken for a mistake in the choice of the column.
pub(super) const MOST_CLASSES: usize = 10_000;

/// The handwritten digits that ship, as images of one channel.
pub fn digits() -> Result<LabeledData> {
    let data = digits::load()?.with_shape(&[1, 8, 8])?;
    Ok(LabeledData {
        format: DataFormat::Digits,
        dataset: data,
        class_names: (0..10).map(|digit| digit.to_string()).collect(),
        assumptions: Vec::new(),
    })
}

/// Reads examples with what is to be learned of them: a table (`.csv`, `.tsv`, `.txt`, `.parquet`), a text (`.txt`, `.md`), a folder of
/// images with a sub-folder for each class, a folder of IDX or NumPy files, one file of a pair (`train-images-idx3-ubyte`, `x.npy`, whose
/// partner lies beside it), or both in one (`.npz`). All but images and Parquet may be packed by gzip, `.gz` at the end of the name.
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
        FileKind::Text => Err(Error::mistake(format!("{} is a text, no table", path.display()))),
        FileKind::Idx | FileKind::Npy | FileKind::Npz => array_pair::open(path, reading.task),
        FileKind::Image => Err(Error::mistake(format!("{} is one image; training takes a folder", path.display()))),
    }
}

/// What a file holds, by its name.
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
        let message = format!("{}: unpack it first; Parquet packs its own columns", path.display());
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
        let what = "is no .csv, .tsv, .txt, .md, .npy, .npz, IDX file (…-ubyte), any of them .gz, .parquet or folder";
        Err(Error::mistake(format!("{} {what}", path.display())).note("`--task text` reads any text"))
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

/// Each word once: in the order of the numbers if all are numbers, of the letters otherwise.
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
    /// Reads examples of this kind to be judged; classes where they are known.
    pub fn read(&self, path: &Path, classes: &[String]) -> Result<InferenceData> {
        match self {
            DataFormat::Digits => {
                let message = format!("{}: this network reads the digits that ship, no files", path.display());
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
                let message = format!("{}: this network tells what follows a text; there is no class", path.display());
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

/// Files of images with their labels, and a note about files that were left out.
type ImageFiles = (Vec<PathBuf>, Vec<Option<Label>>, Option<String>);

/// The images of a file or folder.
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

/// What two spellings of a label have in common: the number, for numbers and `true` and `false`, or the trimmed text.
pub(super) fn label_key(label: &str) -> String {
    let label = label.trim();
    match label.parse::<f64>() {
        // Without a sign of zero.
        Ok(number) if number.is_finite() => (number + 0.0).to_string(),
        _ if label.eq_ignore_ascii_case("true") => "1".to_string(),
        _ if label.eq_ignore_ascii_case("false") => "0".to_string(),
        _ => label.to_string(),
    }
}

/// Classes by what their spellings have in common.
pub(super) struct Keys(HashMap<String, i32>);

impl Keys {
    /// Of these names; of equal ones the first counts.
    pub fn of(names: &[String]) -> Keys {
        let mut keys = HashMap::new();
        for (at, name) in names.iter().enumerate() {
            keys.entry(label_key(name)).or_insert(at as i32);
        }
        Keys(keys)
    }

    /// The class of a label; none of an empty one.
    pub fn right(&self, label: &str) -> Option<Label> {
        if label.is_empty() {
            return None;
        }
        let known = self.class(label).map(Label::Class);
        Some(known.unwrap_or_else(|| Label::Unknown(label.to_string())))
    }

    /// The class of a label, if it is one.
    pub fn class(&self, label: &str) -> Option<i32> {
        self.0.get(&label_key(label)).copied()
    }
}

/// The classes among some labels in the order of [`sorted`], each once: of the spellings of one value the shortest.
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

    /// The same where so many numbers, or answers, of each are learned.
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
