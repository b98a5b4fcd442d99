//! Examples and what is to be learned of them as two arrays: IDX or NumPy files side by side, or two arrays of one `.npz` file.

use std::fmt;
use std::path::{Path, PathBuf};

use panoply_tensor::{DType, Error, Result};

use super::npy::Array;
use super::npz::Archive;
use super::source::{FileKind, Labelled, MOST_CLASSES, Right, Source, Task, Unlabelled, kind, name};
use super::{Dataset, ReadBudget, idx};

/// Where an array lies: in a file of its own, or under a name in one of several.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: PathBuf,
    name: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}: {name}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// What examples and their classes are called, in files and in an `.npz`; those of training first.
const NAMES: [(&str, &str); 6] = [
    ("x_train", "y_train"),
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
pub(super) fn open(file: &Path, task: Option<Task>) -> Result<Labelled> {
    let examples = examples(file)?;
    let targets = targets_of(&examples)?;
    let budget = &examples.budget(&targets)?;
    let array = targets.array(&ReadBudget::new(budget.left()))?;
    let numbers = array.dims.iter().skip(1).any(|length| *length != 1) || array.dtype.is_float();
    match task.unwrap_or(if numbers { Task::Numbers } else { Task::Classes }) {
        Task::Numbers => with_numbers(&examples, &targets, false, budget),
        Task::Answers => with_numbers(&examples, &targets, true, budget),
        Task::Classes | Task::Text => pair(&examples, &targets, budget),
    }
}

/// Reads examples of these lengths, with their classes, or so many numbers or answers each, where they are beside them.
pub(super) fn read(path: &Path, lengths: &[usize], numbers: usize, answers: bool) -> Result<Unlabelled> {
    let file = if path.is_dir() { examples_in(path)? } else { None };
    let examples = examples(file.as_deref().unwrap_or(path))?;
    let targets = targets_of(&examples);
    let budget = &examples.budget(targets.as_ref().unwrap_or(&examples))?;
    let (features, own) = examples.numbers(budget)?;
    if own != *lengths {
        return Err(Error::mistake(format!("{examples}: examples of {own:?}, not {lengths:?}")));
    }
    let count = features.len() / lengths.iter().product::<usize>().max(1);
    let right = match targets {
        Ok(targets) if numbers > 0 => {
            let (values, width) = targets.values(count, budget)?;
            if width != numbers {
                return Err(Error::mistake(format!("{targets}: {width} numbers for each example, not {numbers}")));
            }
            values.chunks(width).map(|row| Some(Right::Numbers(row.to_vec()))).collect()
        }
        Ok(classes) => classes.classes(count, budget)?.into_iter().map(|label| Some(Right::Class(label))).collect(),
        Err(_) => vec![None; count],
    };
    let read = Unlabelled::new(features, lengths, (0..count).map(|at| at.to_string()).collect(), right)?;
    Ok(if numbers > 0 { read.of_numbers(numbers, answers) } else { read })
}

/// The examples of a file: all of it, or the array of an `.npz` that is called so or is the only one.
fn examples(file: &Path) -> Result<Place> {
    if !matches!(kind(file)?, FileKind::Npz) {
        return Ok(Place { file: file.to_path_buf(), name: None });
    }
    let names = Archive::open(file, &ReadBudget::for_file(file)?)?.names();
    let called = |wanted: &str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
    let only = if names.len() == 1 { names.first() } else { None };
    let found = NAMES.iter().find_map(|(examples, _)| called(examples)).or(only).ok_or_else(|| {
        let message = format!("{}: none of its arrays ({}) is called x", file.display(), names.join(", "));
        Error::mistake(message).note("examples are looked for as x or x_train, their classes as y or y_train")
    })?;
    Ok(Place { file: file.to_path_buf(), name: Some(found.clone()) })
}

/// What is to be learned of examples: in a file beside theirs, or under another name in the same.
fn targets_of(examples: &Place) -> Result<Place> {
    if let Some(own) = &examples.name {
        let names = Archive::open(&examples.file, &ReadBudget::for_file(&examples.file)?)?.names();
        let wanted = NAMES.iter().filter(|(name, _)| own.eq_ignore_ascii_case(name)).map(|(_, classes)| *classes);
        let found = wanted.clone().find_map(|wanted| names.iter().find(|name| name.eq_ignore_ascii_case(wanted)));
        return match found {
            Some(name) => Ok(Place { file: examples.file.clone(), name: Some(name.clone()) }),
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
        Some(classes) => Ok(Place { file: classes.clone(), name: None }),
        None => {
            let sought: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
            Err(missing(examples, &sought.join(", ")))
        }
    }
}

fn missing(examples: &Place, sought: &str) -> Error {
    let sought = if sought.is_empty() { "a name with `images` or `x` in it" } else { sought };
    Error::mistake(format!("{examples}: its classes are not beside it; looked for {sought}"))
}

fn with_numbers(examples: &Place, targets: &Place, answers: bool, budget: &ReadBudget) -> Result<Labelled> {
    let (features, lengths) = examples.numbers(budget)?;
    let width: usize = lengths.iter().product();
    let (values, numbers) = targets.values(features.len().checked_div(width).unwrap_or(0), budget)?;
    let source = Source::Npy { lengths: lengths.clone(), numbers, answers };
    let data = match answers {
        true => Dataset::answers(features, width, values, numbers)
            .map_err(|error| error.note(format!("in {targets}; `--task numbers` learns any numbers")))?,
        false => Dataset::numbers(features, width, values, numbers)?,
    };
    let data = data.shaped(&lengths)?;
    Ok(Labelled { source, data, classes: Vec::new(), guesses: Vec::new() })
}

fn pair(examples: &Place, classes: &Place, budget: &ReadBudget) -> Result<Labelled> {
    let (features, lengths) = examples.numbers(budget)?;
    let width: usize = lengths.iter().product();
    let labels = classes.classes(features.len().checked_div(width).unwrap_or(0), budget)?;
    let largest = labels.iter().enumerate().max_by_key(|(_, label)| **label);
    let count = largest.map_or(0, |(_, most)| *most as usize + 1);
    if let Some((example, most)) = largest.filter(|_| count > MOST_CLASSES) {
        let message =
            format!("{classes}: example {example} is of class {most}, and {MOST_CLASSES} classes are the most");
        return Err(Error::corrupt(message).note("`--task numbers` learns numbers"));
    }
    if count < 2 {
        return Err(Error::corrupt(format!("{classes}: {} examples, none of a class but 0", labels.len()))
            .note("learning classes takes examples of two at least"));
    }
    let classes = (0..count).map(|class| class.to_string()).collect();
    let source = match kind(&examples.file)? {
        FileKind::Idx => Source::Idx { lengths: lengths.clone() },
        _ => Source::Npy { lengths: lengths.clone(), numbers: 0, answers: false },
    };
    Ok(Labelled {
        source,
        data: Dataset::new(features, width, labels, count)?.shaped(&lengths)?,
        classes,
        guesses: Vec::new(),
    })
}

impl Place {
    /// The memory that reading examples and what is to be learned of them may take.
    fn budget(&self, targets: &Place) -> Result<ReadBudget> {
        let size = |place: &Place| {
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

    /// The numbers of examples, bytes scaled to 0 ..= 1, and the lengths of an example's axes. Images have a channel.
    fn numbers(&self, budget: &ReadBudget) -> Result<(Vec<f32>, Vec<usize>)> {
        let array = self.array(budget)?;
        let lengths = match array.dims[..] {
            [_, rows, columns] => vec![1, rows, columns],
            [_, ref lengths @ ..] if !lengths.is_empty() => lengths.to_vec(),
            _ => {
                let message = format!("{self}: {:?} is not an array for each example", array.dims);
                return Err(Error::corrupt(message));
            }
        };
        let mut numbers = self.floats(&array, budget)?;
        if array.dtype == DType::U8 {
            numbers.iter_mut().for_each(|byte| *byte /= 255.0);
        }
        if numbers.is_empty() {
            return Err(Error::corrupt(format!("{self}: it holds no examples")));
        }
        let width = lengths.iter().product::<usize>();
        if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
            let message = format!("{self}: example {} holds {}, which is no finite number", at / width, numbers[at]);
            return Err(Error::corrupt(message));
        }
        Ok((numbers, lengths))
    }

    /// The elements of an array as f32.
    fn floats(&self, array: &Array, budget: &ReadBudget) -> Result<Vec<f32>> {
        budget.take_values(array.bytes.len() / array.dtype.bytes(), size_of::<f32>(), &self.file)?;
        Ok(array.floats())
    }

    /// The class of each of so many examples.
    fn classes(&self, count: usize, budget: &ReadBudget) -> Result<Vec<i32>> {
        let labels = self.whole(budget)?;
        let wrong = |what: String| Err(Error::corrupt(format!("{self}: {what}")));
        if let Some(at) = labels.iter().position(|label| *label < 0) {
            return wrong(format!("example {at} has class {}, which is below 0", labels[at]));
        }
        if labels.len() != count {
            return wrong(format!("{} classes for {count} examples", labels.len()));
        }
        Ok(labels)
    }

    /// The numbers of so many examples, and how many each has.
    fn values(&self, count: usize, budget: &ReadBudget) -> Result<(Vec<f32>, usize)> {
        let array = self.array(budget)?;
        let (values, dims) = (self.floats(&array, budget)?, &array.dims);
        let width = values.len().checked_div(count).unwrap_or(0);
        if dims.first() != Some(&count) || dims.len() > 2 || width == 0 {
            let message =
                format!("{self}: {}{dims:?} is not a row of numbers for each of {count} examples", array.dtype);
            return Err(Error::corrupt(message));
        }
        if let Some(at) = values.iter().position(|number| !number.is_finite()) {
            let message = format!("{self}: example {} has {}, which is no finite number", at / width, values[at]);
            return Err(Error::corrupt(message));
        }
        Ok((values, width))
    }

    /// One whole number for each example.
    fn whole(&self, budget: &ReadBudget) -> Result<Vec<i32>> {
        let array = self.array(budget)?;
        budget.take_values(array.bytes.len() / array.dtype.bytes(), size_of::<i32>(), &self.file)?;
        let Array { dtype, dims, .. } = &array;
        if !dtype.is_int() || dims.is_empty() || dims[1..].iter().any(|length| *length != 1) {
            return Err(Error::corrupt(format!("{self}: {dtype}{dims:?} is not one whole number for each example")));
        }
        let whole = |(at, class): (usize, panoply_tensor::Scalar)| {
            i32::try_from(class.to_i128())
                .map_err(|_| Error::corrupt(format!("{self}: example {at} has class {}", class.to_i128())))
        };
        array.scalars().enumerate().map(whole).collect()
    }
}
