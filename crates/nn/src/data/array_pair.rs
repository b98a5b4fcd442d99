//! Examples and targets as two arrays: IDX or NumPy files side by side, or two arrays of one `.npz` file.

use std::fmt;
use std::path::{Path, PathBuf};

use panoply_tensor::{DType, Error, Result, Scalar};

use super::labels::{Keys, NumericLabels, classes_among};
use super::npy::{Array, Content};
use super::npz::Archive;
use super::reader::{DataFormat, FileKind, InferenceData, Label, LabeledData, MAX_CLASSES, Task, kind, name};
use super::{Dataset, MissingRows, ReadBudget, idx, offsets};

/// Location of an array: a whole file, or a name within an archive.
#[derive(Clone, Debug)]
pub(super) struct ArrayLocation {
    file: PathBuf,
    name: Option<String>,
}

impl fmt::Display for ArrayLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}: {name}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// Names of examples and labels in files and archives; training data first.
const NAMES: [(&str, &str); 7] = [
    ("x_train", "y_train"),
    ("train_images", "train_labels"),
    ("x", "y"),
    ("images", "labels"),
    ("data", "target"),
    ("features", "labels"),
    ("arr_0", "arr_1"),
];

/// Substitutions from the name of a file of examples to that of its labels.
const FILES: [(&str, &str); 8] = [
    ("images-idx3", "labels-idx1"),
    ("images.idx3", "labels.idx1"),
    ("images", "labels"),
    ("x_train", "y_train"),
    ("X_train", "y_train"),
    ("x.npy", "y.npy"),
    ("X.npy", "y.npy"),
    ("data", "target"),
];

/// Returns the file of examples in a folder, of the training set if there are several.
pub(super) fn examples_in(folder: &Path) -> Result<Option<PathBuf>> {
    let failed = |error| Error::io(format!("cannot read {}", folder.display()), error);
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // Opening a pipe or a device with such a name would block.
        if path.is_file() {
            files.push(path);
        }
    }
    // The training set before the test set, by the names of MNIST and similar data sets.
    files.sort_by_key(|file| (!name(file).contains("train"), name(file)));
    Ok(files.into_iter().find(|file| {
        let name = name(file);
        (name.contains("images") && name.contains("ubyte"))
            || matches!(name.trim_end_matches(".gz"), "x.npy" | "x_train.npy" | "images.npy")
    }))
}

/// Reads examples with their labels or targets; `file` is the file of examples.
pub(super) fn open(file: &Path, task: Option<Task>) -> Result<LabeledData> {
    let examples = examples(file)?;
    let targets = targets_of(&examples)?;
    let budget = &examples.budget(&targets)?;
    let (guess, note) = guess_task(&targets, &ReadBudget::new(budget.left()))?;
    let mut data = match task.unwrap_or(guess) {
        task @ (Task::Regression | Task::MultiLabel) => with_numbers(&examples, &targets, task, budget),
        Task::Classification | Task::Text => pair(&examples, &targets, budget),
    }?;
    data.assumptions.extend(note.filter(|_| task.is_none()));
    Ok(data)
}

/// The task that an array of targets suggests, and a sentence that names the option for another one.
///
/// Texts, rows with a single 1 (one-hot), and whole numbers of few values are classes; other rows are numbers.
fn guess_task(targets: &ArrayLocation, budget: &ReadBudget) -> Result<(Task, Option<String>)> {
    let array = match targets.content(budget)? {
        Content::Texts(..) => return Ok((Task::Classification, None)),
        Content::Numbers(array) => array,
    };
    if one_hot(&array).is_some() {
        let what = format!("{targets}: each row has a single 1, so it is a class (one-hot)");
        return Ok((Task::Classification, Some(format!("{what}; `--task multilabel` reads independent labels"))));
    }
    if array.dims.iter().skip(1).any(|length| *length != 1) {
        return Ok((Task::Regression, None));
    }
    budget.take_values(array.bytes.len() / array.dtype.bytes(), size_of::<f64>(), &targets.file)?;
    Ok((NumericLabels::of(&array.scalars().map(wide).collect::<Vec<f64>>()).task(), None))
}

/// The class of each row of a matrix in which every row has a single 1 and zeros; `None` for other arrays.
fn one_hot(array: &Array) -> Option<Vec<i32>> {
    let [rows, width] = array.dims[..] else { return None };
    if rows == 0 || width < 2 {
        return None;
    }
    let class = |row: usize| {
        let mut ones =
            (0..width).map(|at| wide(array.scalar(row * width + at))).enumerate().filter(|(_, value)| *value != 0.0);
        let (class, value) = ones.next()?;
        (value == 1.0 && ones.next().is_none()).then_some(class as i32)
    };
    (0..rows).map(class).collect()
}

/// Schema of the arrays that a trained network reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// Shape of an example.
    pub lengths: &'a [usize],
    /// Type of the targets.
    pub task: Task,
    /// Number of regression targets or labels of each example; 0 for a class.
    pub num_outputs: usize,
    pub offsets: &'a [f64],
    pub target_offsets: &'a [f64],
    pub classes: &'a [String],
}

impl Known<'_> {
    /// Reads examples, with labels if they exist.
    pub fn read(&self, path: &Path) -> Result<InferenceData> {
        let Known { lengths, task, num_outputs, .. } = *self;
        let file = if path.is_dir() { examples_in(path)? } else { None };
        let examples = examples(file.as_deref().unwrap_or(path))?;
        let targets = targets_of(&examples);
        let budget = &examples.budget(targets.as_ref().unwrap_or(&examples))?;
        let Numbers { values: features, lengths: own, .. } = examples.numbers(Some(self), budget)?;
        if own != *lengths {
            return Err(Error::mistake(format!("{examples}: the examples have shape {own:?}, expected {lengths:?}")));
        }
        let count = features.len() / lengths.iter().product::<usize>().max(1);
        let right = match targets {
            Ok(targets) if matches!(task, Task::Regression | Task::MultiLabel) => {
                let (values, width) = targets.wide(count, budget)?;
                if width != num_outputs {
                    return Err(Error::mistake(format!(
                        "{targets}: {width} numbers for each example, expected {num_outputs}"
                    )));
                }
                values.chunks(width).map(|row| Some(Label::Values(row.to_vec()))).collect()
            }
            Ok(labels) => {
                let keys = Keys::of(self.classes);
                labels.labels(count, budget)?.iter().map(|label| keys.right(label)).collect()
            }
            Err(_) => vec![None; count],
        };
        let names = (0..count).map(|at| at.to_string()).collect();
        let mut read = InferenceData::new(features, lengths, names, right, self.classes)?;
        read.offsets = self.target_offsets.to_vec();
        Ok(read.for_task(task, num_outputs))
    }
}

/// Returns the location of the examples: the whole file, or the array of an `.npz` with a known name or the only one.
fn examples(file: &Path) -> Result<ArrayLocation> {
    if !matches!(kind(file)?, FileKind::Npz) {
        return Ok(ArrayLocation { file: file.to_path_buf(), name: None });
    }
    let names = Archive::open(file, &ReadBudget::for_file(file)?)?.names();
    let called = |wanted: &str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
    let only = if names.len() == 1 { names.first() } else { None };
    let found = NAMES.iter().find_map(|(examples, _)| called(examples)).or(only).ok_or_else(|| {
        let message = format!("{}: none of its arrays ({}) is named x", file.display(), names.join(", "));
        Error::mistake(message).note("name the examples x or x_train, and their labels y or y_train")
    })?;
    Ok(ArrayLocation { file: file.to_path_buf(), name: Some(found.clone()) })
}

/// Returns the location of the targets: in a file beside the examples, or under another name in the same archive.
fn targets_of(examples: &ArrayLocation) -> Result<ArrayLocation> {
    if let Some(own) = &examples.name {
        let names = Archive::open(&examples.file, &ReadBudget::for_file(&examples.file)?)?.names();
        let wanted = NAMES.iter().filter(|(name, _)| own.eq_ignore_ascii_case(name)).map(|(_, classes)| *classes);
        let found = wanted.clone().find_map(|wanted| names.iter().find(|name| name.eq_ignore_ascii_case(wanted)));
        return match found {
            Some(name) => Ok(ArrayLocation { file: examples.file.clone(), name: Some(name.clone()) }),
            None => Err(missing(examples, &wanted.collect::<Vec<&str>>().join(", "))),
        };
    }
    let file = &examples.file;
    let own = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = own.trim_end_matches(".gz");
    let mut candidates: Vec<PathBuf> = Vec::new();
    for (from, to) in FILES.iter().filter(|(from, _)| own.contains(from)) {
        // Compressed like the examples, or not.
        let other = if plain == own { format!("{own}.gz") } else { plain.to_string() };
        candidates.extend([&own, &other].map(|name| file.with_file_name(name.replace(from, to))));
    }
    match candidates.iter().find(|classes| classes.is_file()) {
        Some(classes) => Ok(ArrayLocation { file: classes.clone(), name: None }),
        None => {
            let sought: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
            Err(missing(examples, &sought.join(", ")))
        }
    }
}

fn missing(examples: &ArrayLocation, sought: &str) -> Error {
    let sought = if sought.is_empty() { "a name with `images` or `x` in it" } else { sought };
    Error::mistake(format!("{examples}: no labels found beside it; looked for {sought}"))
}

fn with_numbers(
    examples: &ArrayLocation,
    targets: &ArrayLocation,
    task: Task,
    budget: &ReadBudget,
) -> Result<LabeledData> {
    let Numbers { values: features, lengths, offsets, notes } = examples.numbers(None, budget)?;
    let width: usize = lengths.iter().product();
    let count = features.len().checked_div(width).unwrap_or(0);
    let (wide, numbers) = targets.wide(count, budget)?;
    let own = match task {
        Task::MultiLabel => Numbers::plain(&wide),
        Task::Classification | Task::Regression | Task::Text => Numbers::moved(&wide, numbers, targets),
    };
    let (offsets, target_offsets) = (offsets, own.offsets);
    let source = DataFormat::Npy { shape: lengths.clone(), num_outputs: numbers, task, offsets, target_offsets };
    let data = match task {
        Task::MultiLabel => Dataset::multilabel(features, own.values),
        Task::Classification | Task::Regression | Task::Text => Dataset::regression(features, own.values),
    };
    let data = data.example_shape(&lengths).targets_per_example(numbers).build().map_err(|error| match task {
        Task::MultiLabel => error.note(format!("in {targets}; use `--task regression` for other numbers")),
        Task::Classification | Task::Regression | Task::Text => error,
    })?;
    Ok(LabeledData {
        format: source,
        dataset: data,
        class_names: Vec::new(),
        groups: None,
        missing: MissingRows::default(),
        assumptions: notes.into_iter().chain(own.notes).collect(),
    })
}

fn pair(examples: &ArrayLocation, classes: &ArrayLocation, budget: &ReadBudget) -> Result<LabeledData> {
    let Numbers { values: features, lengths, offsets, notes } = examples.numbers(None, budget)?;
    let width: usize = lengths.iter().product();
    let labels = classes.labels(features.len().checked_div(width).unwrap_or(0), budget)?;
    let names = classes_among(&labels.iter().map(String::as_str).collect::<Vec<&str>>());
    if names.len() > MAX_CLASSES {
        let message = format!("{classes}: {} classes; at most {MAX_CLASSES} are supported", names.len());
        return Err(Error::corrupt(message).note("use `--task regression` for numbers"));
    }
    if names.len() < 2 {
        return Err(Error::corrupt(format!("{classes}: {} examples, all of class {}", labels.len(), names.join("")))
            .note("classification needs examples of at least two classes"));
    }
    let keys = Keys::of(&names);
    let labels = labels.iter().map(|label| keys.class(label).unwrap_or(0)).collect();
    let source = match kind(&examples.file)? {
        FileKind::Idx => DataFormat::Idx { shape: lengths.clone() },
        _ => DataFormat::Npy {
            shape: lengths.clone(),
            num_outputs: 0,
            task: Task::Classification,
            offsets,
            target_offsets: Vec::new(),
        },
    };
    Ok(LabeledData {
        format: source,
        dataset: Dataset::classification(features, labels).example_shape(&lengths).num_classes(names.len()).build()?,
        class_names: names,
        groups: None,
        missing: MissingRows::default(),
        assumptions: notes,
    })
}

/// Numbers of examples in f32.
struct Numbers {
    /// Values minus offsets, one example after another.
    values: Vec<f32>,
    /// Shape of an example.
    lengths: Vec<usize>,
    /// Offset subtracted in f64 from each element of an example; empty if there is none.
    offsets: Vec<f64>,
    /// Warnings about numbers that lose precision in f32.
    notes: Vec<String>,
}

/// Heap bytes of a label as text.
const LABEL_BYTES: usize = 32;

/// Number of examples that are sampled to determine offsets.
const SAMPLED: usize = 1000;

impl Numbers {
    /// Converts numbers without offsets.
    fn plain(wide: &[f64]) -> Numbers {
        let values = wide.iter().map(|value| *value as f32).collect();
        Numbers { values, lengths: Vec::new(), offsets: Vec::new(), notes: Vec::new() }
    }

    /// Converts rows of `width` numbers, with offsets where needed.
    fn moved(wide: &[f64], width: usize, place: &ArrayLocation) -> Numbers {
        let (offsets, notes) = offsets_of(|at| wide[at], wide.len(), width, place);
        let offset = |at: usize| offsets.get(at % width).copied().unwrap_or(0.0);
        let values = wide.iter().enumerate().map(|(at, value)| (value - offset(at)) as f32).collect();
        Numbers { values, lengths: Vec::new(), offsets, notes }
    }
}

/// Returns the offset of each column of rows with `width` numbers (empty if none is needed), and warnings about lost precision.
fn offsets_of(
    value: impl Fn(usize) -> f64,
    count: usize,
    width: usize,
    place: &ArrayLocation,
) -> (Vec<f64>, Vec<String>) {
    let rows = count.checked_div(width).unwrap_or(0);
    let (mut offsets, mut notes) = (Vec::with_capacity(width), Vec::new());
    for column in 0..width {
        let step = rows.div_ceil(SAMPLED).max(1);
        let sample: Vec<f64> = (0..rows).step_by(step).map(|row| value(row * width + column)).collect();
        let offset = offsets::offset(&sample).unwrap_or(0.0);
        if let Some(what) = offsets::loss(&sample, offset).filter(|_| notes.is_empty()) {
            notes.push(format!("{place}: element {column} of an example: {what}"));
        }
        offsets.push(offset);
    }
    if offsets.iter().all(|offset| *offset == 0.0) {
        offsets.clear();
    }
    (offsets, notes)
}

/// Returns an element as f64.
fn wide(element: Scalar) -> f64 {
    if element.dtype.is_float() { element.to_f64() } else { element.to_i128() as f64 }
}

impl ArrayLocation {
    /// Returns the memory budget for reading examples and targets.
    fn budget(&self, targets: &ArrayLocation) -> Result<ReadBudget> {
        let size = |place: &ArrayLocation| {
            let file = std::fs::metadata(&place.file);
            file.map_or_else(|error| Err(Error::io(format!("cannot read {place}"), error)), |file| Ok(file.len()))
        };
        let own = size(self)?;
        ReadBudget::for_size(if targets.file == self.file { own } else { own.saturating_add(size(targets)?) })
    }

    /// Reads the array of numbers.
    fn array(&self, budget: &ReadBudget) -> Result<Array> {
        self.content(budget)?.numbers().map_err(|what| Error::corrupt(format!("{self}: {what}")))
    }

    fn content(&self, budget: &ReadBudget) -> Result<Content> {
        match &self.name {
            Some(name) => Archive::open(&self.file, budget)?.content(name),
            None if matches!(kind(&self.file)?, FileKind::Npy) => Content::read(&self.file, budget),
            None => idx::load_within(&self.file, budget)
                .map(|idx::Bytes { dims, data }| Content::Numbers(Array { dtype: DType::U8, dims, bytes: data })),
        }
    }

    /// Reads the numbers of examples. Bytes are scaled to 0 ..= 1, others are reduced by known or measured offsets. Images get a channel
    /// axis, if the network takes one.
    fn numbers(&self, known: Option<&Known<'_>>, budget: &ReadBudget) -> Result<Numbers> {
        let array = self.array(budget)?;
        let count = array.bytes.len() / array.dtype.bytes();
        budget.take_values(count, size_of::<f32>(), &self.file)?;
        let lengths = match array.dims[..] {
            // Matrices are images without a channel axis, unless the network takes matrices, such as sequences.
            [_, rows, columns] if known.is_none_or(|known| known.lengths.len() == 3) => vec![1, rows, columns],
            [_, ref lengths @ ..] if !lengths.is_empty() => lengths.to_vec(),
            _ => {
                let message = format!("{self}: shape {:?} has no axis besides the examples", array.dims);
                return Err(Error::corrupt(message));
            }
        };
        let width = lengths.iter().product::<usize>();
        let narrow = array.dtype.bytes() < 4 || array.dtype == DType::F32;
        let (offsets, notes) = match known {
            Some(known) => (known.offsets.to_vec(), Vec::new()),
            None if narrow => (Vec::new(), Vec::new()),
            None => offsets_of(|at| wide(array.scalar(at)), count, width, self),
        };
        let mut values = match offsets.len() {
            0 => array.to_f32_vec(),
            _ => array.scalars().zip(offsets.iter().cycle()).map(|(x, offset)| (wide(x) - offset) as f32).collect(),
        };
        if array.dtype == DType::U8 {
            values.iter_mut().for_each(|byte| *byte /= 255.0);
        }
        if values.is_empty() {
            return Err(Error::corrupt(format!("{self}: it holds no examples")));
        }
        if let Some(at) = values.iter().position(|number| !number.is_finite()) {
            let message = format!("{self}: example {} holds {}, which is not a finite number", at / width, values[at]);
            return Err(Error::corrupt(message));
        }
        Ok(Numbers { values, lengths, offsets, notes })
    }

    /// Reads the label of each of `count` examples as text.
    fn labels(&self, count: usize, budget: &ReadBudget) -> Result<Vec<String>> {
        // A label is a text until the classes are known, and the number of its class then.
        let each = size_of::<String>() + LABEL_BYTES + size_of::<i32>();
        let counted = |labels: Vec<String>| match labels.len() == count {
            true => Ok(labels),
            false => Err(Error::corrupt(format!("{self}: {} labels for {count} examples", labels.len()))),
        };
        let array = match self.content(budget)? {
            Content::Texts(texts, dims) => {
                budget.take_values(texts.len(), each, &self.file)?;
                if dims.is_empty() || dims[1..].iter().any(|length| *length != 1) {
                    return Err(Error::corrupt(format!("{self}: text{dims:?} is not one label for each example")));
                }
                return counted(texts);
            }
            Content::Numbers(array) => array,
        };
        budget.take_values(array.bytes.len() / array.dtype.bytes(), each, &self.file)?;
        if let Some(classes) = one_hot(&array) {
            return counted(classes.iter().map(i32::to_string).collect());
        }
        let Array { dtype, dims, .. } = &array;
        if dims.is_empty() || dims[1..].iter().any(|length| *length != 1) {
            return Err(Error::corrupt(format!("{self}: {dtype}{dims:?} is not one label for each example")));
        }
        let label = |(at, label): (usize, Scalar)| match dtype.is_float() {
            false => Ok(label.to_i128().to_string()),
            true if label.to_f64().is_finite() && label.to_f64().fract() == 0.0 => Ok(label.to_f64().to_string()),
            true => {
                let message = format!("{self}: example {at} has {}, which is not a class", label.to_f64());
                Err(Error::corrupt(message).note("classes are integers or bools; use `--task regression` for numbers"))
            }
        };
        counted(array.scalars().enumerate().map(label).collect::<Result<_>>()?)
    }

    /// Reads the targets of `count` examples in f64. Returns them with the number of targets per example.
    fn wide(&self, count: usize, budget: &ReadBudget) -> Result<(Vec<f64>, usize)> {
        let array = self.array(budget)?;
        let each = size_of::<f64>() + size_of::<f32>();
        budget.take_values(array.bytes.len() / array.dtype.bytes(), each, &self.file)?;
        let values: Vec<f64> = array.scalars().map(wide).collect();
        let width = values.len().checked_div(count).unwrap_or(0);
        if array.dims.first() != Some(&count) || array.dims.len() > 2 || width == 0 {
            let (dtype, dims) = (array.dtype, &array.dims);
            let message = format!("{self}: {dtype}{dims:?} is not a row of numbers for each of {count} examples");
            return Err(Error::corrupt(message));
        }
        if let Some(at) = values.iter().position(|number| !(*number as f32).is_finite()) {
            let message = format!("{self}: example {} has {}, which is not a finite number", at / width, values[at]);
            return Err(Error::corrupt(message));
        }
        Ok((values, width))
    }
}
