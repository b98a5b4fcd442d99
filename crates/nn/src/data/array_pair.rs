//! Examples and what is to be learned of them as two arrays: IDX or NumPy files side by side, or two arrays of one `.npz` file.

use std::fmt;
use std::path::{Path, PathBuf};

use panoply_tensor::{DType, Error, Result, Scalar};

use super::npy::Array;
use super::npz::Archive;
use super::reader::{
    DataFormat, FileKind, InferenceData, Keys, Label, LabeledData, MOST_CLASSES, Task, classes_among, kind, name,
};
use super::{Dataset, ReadBudget, idx, offsets};

/// Where an array lies: in a file of its own, or under a name in one of several.
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

/// What examples and their classes are called, in files and in an `.npz`; those of training first.
const NAMES: [(&str, &str); 7] = [
    ("x_train", "y_train"),
    ("train_images", "train_labels"),
    ("x", "y"),
    ("images", "labels"),
    ("data", "target"),
    ("features", "labels"),
    ("arr_0", "arr_1"),
];

/// What stands for what in the names of a pair of files.
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

/// The examples of a folder: of training if it has several.
pub(super) fn examples_in(folder: &Path) -> Result<Option<PathBuf>> {
    let failed = |error| Error::io(format!("cannot read {}", folder.display()), error);
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // A pipe or a device of such a name would be waited for.
        if path.is_file() {
            files.push(path);
        }
    }
    // Training before testing, by what MNIST and its relatives call them.
    files.sort_by_key(|file| (!name(file).contains("train"), name(file)));
    Ok(files.into_iter().find(|file| {
        let name = name(file);
        (name.contains("images") && name.contains("ubyte"))
            || matches!(name.trim_end_matches(".gz"), "x.npy" | "x_train.npy" | "images.npy")
    }))
}

/// Reads examples with their classes or numbers, of which the file of the examples is named.
pub(super) fn open(file: &Path, task: Option<Task>) -> Result<LabeledData> {
    let examples = examples(file)?;
    let targets = targets_of(&examples)?;
    let budget = &examples.budget(&targets)?;
    let array = targets.array(&ReadBudget::new(budget.left()))?;
    let numbers = array.dims.iter().skip(1).any(|length| *length != 1) || array.dtype.is_float();
    match task.unwrap_or(if numbers { Task::Regression } else { Task::Classification }) {
        Task::Regression => with_numbers(&examples, &targets, false, budget),
        Task::MultiLabel => with_numbers(&examples, &targets, true, budget),
        Task::Classification | Task::Text => pair(&examples, &targets, budget),
    }
}

/// What a trained network knows of arrays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known<'a> {
    /// Lengths of an example's axes.
    pub lengths: &'a [usize],
    /// Numbers or answers that are learned of each example; 0 if a class is.
    pub numbers: usize,
    pub answers: bool,
    pub offsets: &'a [f64],
    pub target_offsets: &'a [f64],
    pub classes: &'a [String],
}

impl Known<'_> {
    /// Reads examples, with their labels where they are beside them.
    pub fn read(&self, path: &Path) -> Result<InferenceData> {
        let Known { lengths, numbers, answers, .. } = *self;
        let file = if path.is_dir() { examples_in(path)? } else { None };
        let examples = examples(file.as_deref().unwrap_or(path))?;
        let targets = targets_of(&examples);
        let budget = &examples.budget(targets.as_ref().unwrap_or(&examples))?;
        let Numbers { values: features, lengths: own, .. } = examples.numbers(Some(self.offsets), budget)?;
        if own != *lengths {
            return Err(Error::mistake(format!("{examples}: examples of {own:?}, not {lengths:?}")));
        }
        let count = features.len() / lengths.iter().product::<usize>().max(1);
        let right = match targets {
            Ok(targets) if numbers > 0 => {
                let (values, width) = targets.wide(count, budget)?;
                if width != numbers {
                    return Err(Error::mistake(format!("{targets}: {width} numbers for each example, not {numbers}")));
                }
                values.chunks(width).map(|row| Some(Label::Values(row.to_vec()))).collect()
            }
            Ok(labels) => {
                let keys = Keys::of(self.classes);
                labels.labels(count, budget)?.iter().map(|label| keys.right(label)).collect()
            }
            Err(_) => vec![None; count],
        };
        let mut read = InferenceData::new(features, lengths, (0..count).map(|at| at.to_string()).collect(), right)?;
        read.offsets = self.target_offsets.to_vec();
        Ok(if numbers > 0 { read.of_numbers(numbers, answers) } else { read })
    }
}

/// The examples of a file: all of it, or the array of an `.npz` that is called so or is the only one.
fn examples(file: &Path) -> Result<ArrayLocation> {
    if !matches!(kind(file)?, FileKind::Npz) {
        return Ok(ArrayLocation { file: file.to_path_buf(), name: None });
    }
    let names = Archive::open(file, &ReadBudget::for_file(file)?)?.names();
    let called = |wanted: &str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
    let only = if names.len() == 1 { names.first() } else { None };
    let found = NAMES.iter().find_map(|(examples, _)| called(examples)).or(only).ok_or_else(|| {
        let message = format!("{}: none of its arrays ({}) is called x", file.display(), names.join(", "));
        Error::mistake(message).note("examples are looked for as x or x_train, their classes as y or y_train")
    })?;
    Ok(ArrayLocation { file: file.to_path_buf(), name: Some(found.clone()) })
}

/// What is to be learned of examples: in a file beside theirs, or under another name in the same.
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
        // As packed as the examples, or not.
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
    Error::mistake(format!("{examples}: its classes are not beside it; looked for {sought}"))
}

fn with_numbers(
    examples: &ArrayLocation,
    targets: &ArrayLocation,
    answers: bool,
    budget: &ReadBudget,
) -> Result<LabeledData> {
    let Numbers { values: features, lengths, offsets, notes } = examples.numbers(None, budget)?;
    let width: usize = lengths.iter().product();
    let count = features.len().checked_div(width).unwrap_or(0);
    let (wide, numbers) = targets.wide(count, budget)?;
    let own = if answers { Numbers::plain(&wide) } else { Numbers::moved(&wide, numbers, targets) };
    let (offsets, target_offsets) = (offsets, own.offsets);
    let task = if answers { Task::MultiLabel } else { Task::Regression };
    let source = DataFormat::Npy { shape: lengths.clone(), num_outputs: numbers, task, offsets, target_offsets };
    let data = match answers {
        true => Dataset::multilabel(features, width, own.values, numbers)
            .map_err(|error| error.note(format!("in {targets}; `--task regression` learns any numbers")))?,
        false => Dataset::regression(features, width, own.values, numbers)?,
    };
    let data = data.with_shape(&lengths)?;
    Ok(LabeledData {
        format: source,
        dataset: data,
        class_names: Vec::new(),
        assumptions: notes.into_iter().chain(own.notes).collect(),
    })
}

fn pair(examples: &ArrayLocation, classes: &ArrayLocation, budget: &ReadBudget) -> Result<LabeledData> {
    let Numbers { values: features, lengths, offsets, notes } = examples.numbers(None, budget)?;
    let width: usize = lengths.iter().product();
    let labels = classes.labels(features.len().checked_div(width).unwrap_or(0), budget)?;
    let names = classes_among(&labels.iter().map(String::as_str).collect::<Vec<&str>>());
    if names.len() > MOST_CLASSES {
        let message = format!("{classes}: {} classes, and {MOST_CLASSES} are the most", names.len());
        return Err(Error::corrupt(message).note("`--task regression` learns numbers"));
    }
    if names.len() < 2 {
        return Err(Error::corrupt(format!("{classes}: {} examples, all of class {}", labels.len(), names.join("")))
            .note("learning classes takes examples of two at least"));
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
        dataset: Dataset::classification(features, width, labels, names.len())?.with_shape(&lengths)?,
        class_names: names,
        assumptions: notes,
    })
}

/// Numbers of examples as f32.
struct Numbers {
    /// One example after another, less the offsets.
    values: Vec<f32>,
    /// Lengths of an example's axes.
    lengths: Vec<usize>,
    /// What was subtracted in f64 from each number of an example; none if nothing was.
    offsets: Vec<f64>,
    /// Sentences about numbers that f32 holds badly.
    notes: Vec<String>,
}

/// Bytes that the text of a label takes of the heap.
const LABEL_BYTES: usize = 32;

/// Examples that are looked at for offsets.
const SAMPLED: usize = 1000;

impl Numbers {
    /// As they are.
    fn plain(wide: &[f64]) -> Numbers {
        let values = wide.iter().map(|value| *value as f32).collect();
        Numbers { values, lengths: Vec::new(), offsets: Vec::new(), notes: Vec::new() }
    }

    /// With offsets where rows of so many numbers need them.
    fn moved(wide: &[f64], width: usize, place: &ArrayLocation) -> Numbers {
        let (offsets, notes) = offsets_of(|at| wide[at], wide.len(), width, place);
        let offset = |at: usize| offsets.get(at % width).copied().unwrap_or(0.0);
        let values = wide.iter().enumerate().map(|(at, value)| (value - offset(at)) as f32).collect();
        Numbers { values, lengths: Vec::new(), offsets, notes }
    }
}

/// The offsets of each place of rows of so many numbers, none if no place needs one, and sentences about numbers that f32 holds badly.
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
            notes.push(format!("{place}: number {column} of an example: {what}"));
        }
        offsets.push(offset);
    }
    if offsets.iter().all(|offset| *offset == 0.0) {
        offsets.clear();
    }
    (offsets, notes)
}

/// An element as f64.
fn wide(element: Scalar) -> f64 {
    if element.dtype.is_float() { element.to_f64() } else { element.to_i128() as f64 }
}

impl ArrayLocation {
    /// The memory that reading examples and what is to be learned of them may take.
    fn budget(&self, targets: &ArrayLocation) -> Result<ReadBudget> {
        let size = |place: &ArrayLocation| {
            let file = std::fs::metadata(&place.file);
            file.map_or_else(|error| Err(Error::io(format!("cannot read {place}"), error)), |file| Ok(file.len()))
        };
        let own = size(self)?;
        ReadBudget::for_size(if targets.file == self.file { own } else { own.saturating_add(size(targets)?) })
    }

    fn array(&self, budget: &ReadBudget) -> Result<Array> {
        match &self.name {
            Some(name) => Archive::open(&self.file, budget)?.array(name),
            None if matches!(kind(&self.file)?, FileKind::Npy) => Array::read_within(&self.file, budget),
            None => idx::load_within(&self.file, budget).map(|idx::Bytes { dims, data }| Array {
                dtype: DType::U8,
                dims,
                bytes: data,
            }),
        }
    }

    /// The numbers of examples, bytes scaled to 0 ..= 1, less these offsets or those that they need. Images have a channel.
    fn numbers(&self, known: Option<&[f64]>, budget: &ReadBudget) -> Result<Numbers> {
        let array = self.array(budget)?;
        let count = array.bytes.len() / array.dtype.bytes();
        budget.take_values(count, size_of::<f32>(), &self.file)?;
        let lengths = match array.dims[..] {
            [_, rows, columns] => vec![1, rows, columns],
            [_, ref lengths @ ..] if !lengths.is_empty() => lengths.to_vec(),
            _ => {
                let message = format!("{self}: {:?} is not an array for each example", array.dims);
                return Err(Error::corrupt(message));
            }
        };
        let width = lengths.iter().product::<usize>();
        let narrow = array.dtype.bytes() < 4 || array.dtype == DType::F32;
        let (offsets, notes) = match known {
            Some(known) => (known.to_vec(), Vec::new()),
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
            let message = format!("{self}: example {} holds {}, which is no finite number", at / width, values[at]);
            return Err(Error::corrupt(message));
        }
        Ok(Numbers { values, lengths, offsets, notes })
    }

    /// The label of each of so many examples, as text.
    fn labels(&self, count: usize, budget: &ReadBudget) -> Result<Vec<String>> {
        let array = self.array(budget)?;
        // A label is a text of its own until the classes are known, and its place then.
        let each = size_of::<String>() + LABEL_BYTES + size_of::<i32>();
        budget.take_values(array.bytes.len() / array.dtype.bytes(), each, &self.file)?;
        let Array { dtype, dims, .. } = &array;
        if dims.is_empty() || dims[1..].iter().any(|length| *length != 1) {
            return Err(Error::corrupt(format!("{self}: {dtype}{dims:?} is not one label for each example")));
        }
        let label = |(at, label): (usize, Scalar)| match dtype.is_float() {
            false => Ok(label.to_i128().to_string()),
            true if label.to_f64().is_finite() && label.to_f64().fract() == 0.0 => Ok(label.to_f64().to_string()),
            true => {
                let message = format!("{self}: example {at} has {}, which is no class", label.to_f64());
                Err(Error::corrupt(message)
                    .note("classes are whole numbers or bools; `--task regression` learns numbers"))
            }
        };
        let labels: Vec<String> = array.scalars().enumerate().map(label).collect::<Result<_>>()?;
        if labels.len() != count {
            return Err(Error::corrupt(format!("{self}: {} classes for {count} examples", labels.len())));
        }
        Ok(labels)
    }

    /// The numbers of so many examples in f64, and how many each has.
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
            let message = format!("{self}: example {} has {}, which is no finite number", at / width, values[at]);
            return Err(Error::corrupt(message));
        }
        Ok((values, width))
    }
}
