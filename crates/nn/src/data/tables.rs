//! Tables as data sets: each row is an example, or rows are grouped into sequences.

mod columns;
mod examples;
mod known;
pub mod summary;
mod table_rows;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use panoply_tensor::{Error, Result, large_vec, parallel_map};

pub(super) use known::TableSchema;

use super::csv::{CsvOptions, CsvTable};
use super::labels::{Keys, NumericLabels, Spellings, classes_among};
use super::numbers::number;
use super::read_progress::{FITTED, ReadProgress, SEPARATED};
use super::reader::{DataFormat, LabeledData, MAX_CLASSES, MissingValues, ReadOptions, SequenceColumn, Task, name};
use super::{Dataset, MissingRows, ReadBudget, Targets};
use columns::columns_of;
pub(super) use columns::{is_missing, lacks_number, most_frequent, replacement};
pub use table_rows::TableRows;

use examples::{AT_ONCE, NAMES_SHOWN, TableExamples};

/// Reads a table of text or of Parquet. `known` returns whether the first line of a text, which it is given, names the columns.
fn read_rows(
    path: &Path,
    known: impl Fn(&[String]) -> Option<bool>,
    options: CsvOptions,
    (budget, progress): (&ReadBudget, &ReadProgress),
) -> Result<CsvTable> {
    if !name(path).ends_with(".parquet") {
        return CsvTable::read_named(path, known, options, budget);
    }
    #[cfg(feature = "parquet")]
    return super::parquet::read(path, budget, progress);
    #[cfg(not(feature = "parquet"))]
    let _ = progress;
    #[cfg(not(feature = "parquet"))]
    Err(Error::mistake(format!("{}: this build does not support Parquet", path.display()))
        .note("build with `--features parquet`"))
}

/// Fails if one of these columns shares its name with any other column: names would be ambiguous.
fn check_names(table: &CsvTable, mut columns: impl Iterator<Item = usize>, path: &Path) -> Result<()> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    table.names.iter().enumerate().for_each(|(at, name)| places.entry(name).or_default().push(at + 1));
    match columns.find_map(|column| places.get(table.names[column].as_str()).filter(|places| places.len() > 1)) {
        Some(places) => {
            let (first, second, name) = (places[0], places[1], &table.names[places[0] - 1]);
            let message = format!("{}: columns {first} and {second} are both named `{name}`", path.display());
            let without = format!("or remove both with `--drop-columns {first} --drop-columns {second}`");
            Err(Error::corrupt(message).note(format!("rename one, {without}")))
        }
        None => Ok(()),
    }
}

/// Reads the table of a file. A first line that contains a column name from the options is a header.
fn read_table(path: &Path, reading: &ReadOptions, budget: &ReadBudget) -> Result<CsvTable> {
    if reading.header.is_some() && name(path).ends_with(".parquet") {
        let message =
            format!("--header: {} is a Parquet table, which has column names; remove the option", path.display());
        return Err(Error::mistake(message));
    }
    let lists = || reading.label_columns.iter().chain(&reading.drop_columns).chain(&reading.categorical);
    let parts = || lists().flat_map(|name| std::iter::once(name.as_str()).chain(name.split(',')));
    let names =
        || parts().chain(reading.sequence_column.as_deref()).chain(reading.group_column.as_deref()).map(str::trim);
    // A number counts the columns, unless it is larger than their number.
    let is_name = |name: &str, width: usize| name.parse::<usize>().map_or(true, |number| number == 0 || number > width);
    let named = |first: &[String]| {
        let is_named = |cell: &String| {
            names().any(|name| name.eq_ignore_ascii_case(cell) && !name.is_empty() && is_name(name, first.len()))
        };
        reading.header.or_else(|| first.iter().any(is_named).then_some(true))
    };
    read_rows(path, named, reading.csv_options(), (budget, &reading.progress))
}

/// Positions of columns by their roles.
struct Roles {
    labels: Vec<usize>,
    sequence: Option<usize>,
    /// Rows with the same value in it stay in one part of a split.
    group: Option<usize>,
    /// Features.
    columns: Vec<usize>,
    categorical: Vec<usize>,
    /// Left out as indexes of the rows.
    index: Vec<usize>,
}

impl Roles {
    /// Determines the roles from the options or the column names.
    fn of(table: &CsvTable, path: &Path, reading: &ReadOptions) -> Result<Roles> {
        let labels = table.label_columns(&reading.label_columns)?;
        let sequence = reading.sequence_column.as_deref().map(|name| table.resolve_column(name)).transpose()?;
        let learned = |column: &usize, so: &str| {
            let message = format!("{}: {} is a label, so it cannot {so}", path.display(), table.names[*column]);
            Err(Error::mistake(message).note("use `--label COLUMN` to select another label"))
        };
        if let Some(column) = sequence.filter(|column| labels.contains(column)) {
            return learned(&column, "identify sequences");
        }
        let group = reading.group_column.as_deref().map(|name| table.resolve_column(name)).transpose()?;
        if let Some(column) = group.filter(|column| labels.contains(column)) {
            return learned(&column, "group the rows of a split");
        }
        let without = table.resolve_columns(&reading.drop_columns)?;
        if let Some(column) = without.iter().find(|column| labels.contains(column)) {
            return learned(column, "be ignored");
        }
        let categorical = table.resolve_columns(&reading.categorical)?;
        let is_named = |column: &usize| {
            labels.contains(column) || [sequence, group].contains(&Some(*column)) || categorical.contains(column)
        };
        let index: Vec<usize> = match reading.keep_columns {
            true => Vec::new(),
            false => {
                let index = table.index_columns();
                index.into_iter().filter(|column| !is_named(column) && !without.contains(column)).collect()
            }
        };
        let read = |column: &usize| {
            let left_out = without.contains(column) || index.contains(column);
            !labels.contains(column) && ![sequence, group].contains(&Some(*column)) && !left_out
        };
        let columns: Vec<usize> = (0..table.names.len()).filter(read).collect();
        if columns.is_empty() || table.rows() == 0 {
            let lacking = if table.rows() == 0 { "no rows below the header" } else { "no column beside the target" };
            return Err(Error::corrupt(format!("{}: the table has {lacking}", path.display())));
        }
        check_names(table, columns.iter().chain(&labels).copied().chain(sequence), path)?;
        Ok(Roles { labels, sequence, group, columns, categorical, index })
    }
}

/// Reads examples with their targets.
pub(super) fn open(path: &Path, reading: &ReadOptions) -> Result<LabeledData> {
    let budget = &ReadBudget::for_file(path)?;
    let table = &read_table(path, reading, budget)?;
    reading.progress.report(SEPARATED);
    let Roles { labels, sequence, group, mut columns, categorical, index } = Roles::of(table, path, reading)?;
    let (rows, dropped) = kept_rows(table, columns.iter().chain(&labels), (path, budget), reading.missing)?;
    let examples = TableExamples::of(table, &rows, (path, budget), sequence)?;
    let learned = || format!("{} is the label; use `--label COLUMN` to select another", table.names[labels[0]]);
    let explained = |error: Error| if reading.label_columns.is_empty() { error.note(learned()) } else { error };
    // The targets of each example, as text and as numbers.
    budget.take_values(examples.rows.len().saturating_mul(labels.len()), size_of::<(&str, f64)>(), path)?;
    let stored: Option<Vec<Vec<f64>>> = labels.iter().map(|label| examples.stored_numbers(*label)).collect();
    // Numbers to predict need no text.
    let without_words = stored.as_ref().is_some_and(|numbers| match (reading.task, &numbers[..]) {
        (None, [numbers]) => NumericLabels::of(numbers).task() == Task::Regression,
        (task, _) => task.is_none_or(|task| task == Task::Regression),
    });
    let words = match without_words {
        true => Vec::new(),
        false => {
            labels.iter().map(|label| examples.words(*label)).collect::<Result<Vec<Vec<&str>>>>().map_err(explained)?
        }
    };
    for (label, words) in labels.iter().zip(&words) {
        if let Some(at) = words.iter().position(|word| is_missing_target(word)) {
            let error = Error::corrupt(format!("{}: the target is missing", examples.at(at, *label)));
            return Err(explained(error.note("`--missing drop` leaves such rows out")));
        }
    }
    let numbers = match stored {
        Some(stored) => Some(stored),
        None => words.iter().map(|words| numbers_of(words)).collect::<Result<Option<Vec<Vec<f64>>>>>()?,
    };
    let task = task(&examples, &labels, (&words, numbers.as_deref()), reading.task)?;
    let time = examples.longest();
    // The numbers of all columns, and in f64 those of the columns that are parsed at the same time.
    let cells = table.rows().saturating_mul(columns.len());
    budget.take_values(cells, size_of::<f32>() + size_of::<f64>(), path)?;
    let mut found = columns::fit(table, &mut columns, &categorical, (&rows, reading.missing, path), &reading.progress)
        .map_err(explained)?;
    budget.give_back((cells * size_of::<f64>()) as u64);
    if let (Task::Regression, Some(numbers)) = (task, &numbers) {
        target_offsets(&examples, (&labels, numbers), &mut found);
    }
    let (targets, classes) = match task {
        Task::Regression => (regression_targets(&examples, (&labels, numbers.as_deref()), &found.offsets)?, Vec::new()),
        Task::MultiLabel => (multilabel_targets(&examples, &labels)?, Vec::new()),
        Task::Classification | Task::Text => class_targets(&examples, labels[0], &words[0])?,
    };
    let maps = (&found.categories, &found.offsets, &found.scales, &found.imputation, &found.date_orders);
    let mut encoded = columns_of(table, &columns, maps);
    encoded.iter_mut().zip(found.numbers).for_each(|(column, numbers)| column.numbers = numbers);
    let (features, lengths) = examples.numbers(&encoded, time, (&reading.progress, FITTED)).map_err(explained)?;
    let missing = MissingRows { policy: reading.missing, rows: examples.missing(&encoded, time)? };
    let data = match targets {
        Targets::Regression { values, num_outputs } => {
            Dataset::regression(features, values).targets_per_example(num_outputs)
        }
        Targets::MultiLabel { values, num_labels } => {
            Dataset::multilabel(features, values).targets_per_example(num_labels)
        }
        Targets::Classes { labels, num_classes, .. } => {
            Dataset::classification(features, labels).num_classes(num_classes)
        }
    };
    let groups = group.map(|column| examples.groups(column)).transpose()?;
    let decimals = format!("{}: numbers are read with decimal commas; `--decimal point` reads points", path.display());
    let decimals = (table.decimal_comma && reading.decimal.is_none()).then_some(decimals);
    let assumptions = guesses(table, path).into_iter().chain(left_out(table, &index, path)).chain(decimals);
    let assumptions = assumptions.chain(dropped).chain(found.notes).collect();
    let named = |columns: &[usize]| columns.iter().map(|column| table.names[*column].clone()).collect();
    let format = DataFormat::Csv {
        feature_columns: named(&columns),
        label_columns: named(&labels),
        task,
        sequence: sequence.map(|column| SequenceColumn { column: table.names[column].clone(), max_len: time }),
        categories: found.categories,
        offsets: found.offsets,
        scales: found.scales,
        imputation: found.imputation,
        date_orders: found.date_orders,
        decimal_comma: table.decimal_comma,
    };
    let dataset = examples.ending(data.example_shape(&lengths).build()?)?;
    Ok(LabeledData { format, dataset, class_names: classes, groups, missing, assumptions })
}

/// The numbers in some cells, if all hold numbers.
fn numbers_of(cells: &[&str]) -> Result<Option<Vec<f64>>> {
    if cells.first().is_some_and(|cell| number(cell).is_none()) {
        return Ok(None);
    }
    let mut numbers = large_vec(cells.len());
    numbers.resize(cells.len(), 0.0);
    let parts: Vec<(&[&str], Mutex<&mut [f64]>)> =
        cells.chunks(AT_ONCE).zip(numbers.chunks_mut(AT_ONCE).map(Mutex::new)).collect();
    let parse = |(cells, part): &(&[&str], Mutex<&mut [f64]>)| {
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parsed = cells.iter().zip(part.iter_mut());
        Ok(parsed.all(|(cell, to)| number(cell).map(|number| *to = number).is_some()))
    };
    let are_numbers = parallel_map(&parts, parse)?.into_iter().all(|all| all);
    drop(parts);
    Ok(are_numbers.then_some(numbers))
}

/// True if a target has no value. Words such as `none` are classes.
fn is_missing_target(cell: &str) -> bool {
    is_missing(cell) && cell != "?"
}

/// The rows that are read, and a sentence about those that are left out: with [`MissingValues::Drop`] rows without a value in one of the
/// columns.
fn kept_rows<'c>(
    table: &CsvTable,
    columns: impl Iterator<Item = &'c usize> + Clone,
    (path, budget): (&Path, &ReadBudget),
    policy: Option<MissingValues>,
) -> Result<(Vec<usize>, Option<String>)> {
    budget.take_values(table.rows(), size_of::<usize>(), path)?;
    let whole = |row: &usize| !columns.clone().any(|column| table.is_missing(*row, *column));
    let drops = policy == Some(MissingValues::Drop);
    let mut rows: Vec<usize> = large_vec(table.rows());
    rows.extend((0..table.rows()).filter(|row| !drops || whole(row)));
    let dropped = table.rows() - rows.len();
    if rows.is_empty() {
        return Err(Error::corrupt(format!("{}: every row has a missing value", path.display()))
            .note("`--missing median` replaces missing values, `--drop-columns COLUMN` leaves a column out"));
    }
    let what = format!("{}: {dropped} of {} rows have missing values and are left out", path.display(), table.rows());
    Ok((rows, (dropped > 0).then_some(what)))
}

/// Adds the offsets of regression targets.
fn target_offsets(
    examples: &TableExamples<'_>,
    (labels, numbers): (&[usize], &[Vec<f64>]),
    found: &mut columns::Encodings,
) {
    for (label, values) in labels.iter().zip(numbers) {
        let (name, (offset, note)) = (&examples.table.names[*label], columns::offset_of(values));
        found.notes.extend(note.map(|note| format!("{}: {name}: {note}", examples.path.display())));
        found.offsets.extend(offset.map(|offset| (name.clone(), offset)));
    }
}

/// Returns a message about columns that are ignored because they index the rows; `None` if there are none.
fn left_out(table: &CsvTable, index: &[usize], path: &Path) -> Option<String> {
    let named = |column: &usize| match table.names[*column].as_str() {
        "" => format!("column {} without a name", column + 1),
        name => name.to_string(),
    };
    let names: Vec<String> = index.iter().map(named).collect();
    let what = format!("{}: {} is ignored as an index of the rows", path.display(), names.join(", "));
    (!index.is_empty()).then(|| format!("{what}; use `--keep-columns` to read it"))
}

/// Returns a message if the header is a guess.
fn guesses(table: &CsvTable, path: &Path) -> Vec<String> {
    let names: Vec<&str> = table.names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = if table.names.len() > NAMES_SHOWN { ", …" } else { "" };
    let guess = format!(
        "{}: its first line ({}{more}) is taken as the header; if it is an example, use `--no-header`",
        path.display(),
        names.join(", ")
    );
    if table.header_guessed { vec![guess] } else { Vec::new() }
}

/// The task of these target columns, if it is not given: a column of words or of few whole numbers is a classification, several columns
/// of zeros and ones are labels. `words` is empty if all are numbers that need no text.
fn task(
    examples: &TableExamples<'_>,
    labels: &[usize],
    (words, numbers): (&[Vec<&str>], Option<&[Vec<f64>]>),
    given: Option<Task>,
) -> Result<Task> {
    if let ([_], None) = (labels, given) {
        return Ok(numbers.map_or(Task::Classification, |numbers| NumericLabels::of(&numbers[0]).task()));
    }
    let (path, names) = (examples.path.display(), |at: usize| &examples.table.names[labels[at]]);
    match given {
        Some(Task::Classification) if labels.len() > 1 => {
            let message = format!("{path}: {} and {} cannot both be class labels", names(0), names(1));
            Err(Error::mistake(message).note("several label columns must be numbers, or yes/no labels, 0 and 1"))
        }
        Some(task) => Ok(task),
        None => {
            let answers: Vec<bool> = match (numbers, words) {
                (Some(numbers), []) => {
                    numbers.iter().map(|numbers| numbers.iter().all(|number| [0.0, 1.0].contains(number))).collect()
                }
                _ => words.iter().map(|words| words.iter().all(|word| answer(word).is_some())).collect(),
            };
            let number = |word: &&str| number(word).is_some();
            if let Some(at) = words.iter().position(|words| !words.iter().all(number)) {
                let row = words[at].iter().position(|word| !number(word)).unwrap_or(0);
                let message = format!("{}: `{}` is not a number", examples.at(row, labels[at]), words[at][row]);
                return Err(
                    Error::corrupt(message).note("several label columns must be numbers, or yes/no labels, 0 and 1")
                );
            }
            match (answers.iter().position(|all| *all), answers.iter().position(|all| !all)) {
                (Some(answer), Some(number)) => {
                    let kinds =
                        format!("{} has yes/no labels, 0 and 1, and {} other numbers", names(answer), names(number));
                    Err(Error::mistake(format!("{path}: {kinds}"))
                        .note("use `--task regression` to predict both as numbers"))
                }
                (Some(_), None) => Ok(Task::MultiLabel),
                (None, _) => Ok(Task::Regression),
            }
        }
    }
}

/// Parses a cell as a yes/no label.
fn answer(cell: &str) -> Option<f32> {
    cell.parse().ok().filter(|answer| [0.0, 1.0].contains(answer))
}

/// Returns the regression targets of each example. `numbers` are the values of each label column, if all are numbers.
fn regression_targets(
    examples: &TableExamples<'_>,
    (labels, numbers): (&[usize], Option<&[Vec<f64>]>),
    offsets: &BTreeMap<String, f64>,
) -> Result<Targets> {
    let offset = |label: &usize| offsets.get(&examples.table.names[*label]).copied().unwrap_or(0.0);
    if let Some(numbers) = numbers {
        let columns: Vec<(&Vec<f64>, f64)> = numbers.iter().zip(labels.iter().map(offset)).collect();
        let mut values: Vec<f32> = large_vec(examples.rows.len() * labels.len());
        for example in 0..examples.rows.len() {
            values.extend(columns.iter().map(|(numbers, offset)| (numbers[example] - offset) as f32));
        }
        // Others are an error below that names the cell.
        if values.iter().all(|value| value.is_finite()) {
            return Ok(Targets::Regression { values, num_outputs: labels.len() });
        }
    }
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for rows in examples.rows.iter() {
        for label in labels {
            values.push(examples.table.number(rows[0], *label, (None, offset(label), 1.0), examples.path)?);
        }
    }
    Ok(Targets::Regression { values, num_outputs: labels.len() })
}

/// Returns the yes/no labels of each example.
fn multilabel_targets(examples: &TableExamples<'_>, labels: &[usize]) -> Result<Targets> {
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for (example, rows) in examples.rows.iter().enumerate() {
        for label in labels {
            let cell = examples.cell(rows[0], *label);
            values.push(answer(cell).ok_or_else(|| {
                let message = format!("{}: `{cell}` is neither 0 nor 1", examples.at(example, *label));
                Error::corrupt(message)
                    .note("labels are 0 for no and 1 for yes; use `--task regression` for other numbers")
            })?);
        }
    }
    Ok(Targets::MultiLabel { values, num_labels: labels.len() })
}

/// Returns the class of each example, and the names of the classes.
fn class_targets(examples: &TableExamples<'_>, label: usize, words: &[&str]) -> Result<(Targets, Vec<String>)> {
    let fraction = |word: &&str| word.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() != 0.0);
    let spellings = Spellings::of(words);
    if let Some(found) = spellings.distinct.iter().find(|word| fraction(word)) {
        let at = words.iter().position(|word| word == found).unwrap_or(0);
        let note = "classes are texts or integers; use `--label COLUMN` to select their column, or `--task regression` for numbers";
        return Err(Error::corrupt(format!("{}: `{}` is not a class", examples.at(at, label), words[at])).note(note));
    }
    let classes = classes_among(&spellings.distinct);
    if words.len() < 2 && examples.sequence.is_none() {
        let what = match examples.table.has_header {
            true => "there is only one row after the header",
            false => "there is only one line; if it is a header, there are no rows",
        };
        let message = format!("{}: {what}", examples.path.display());
        return Err(Error::corrupt(message).note("classification needs rows of at least two classes"));
    }
    if classes.len() < 2 || classes.len() > MAX_CLASSES {
        let (named, what) =
            (&examples.table.names[label], if examples.sequence.is_some() { "sequences" } else { "rows" });
        let message =
            format!("{}: {named}: {} classes in {} {what}", examples.path.display(), classes.len(), words.len());
        return Err(Error::corrupt(message).note("use `--label COLUMN` to select the column of classes"));
    }
    let keys = Keys::of(&classes);
    let class_of: Vec<i32> = spellings.distinct.iter().map(|word| keys.class(word).unwrap_or(0)).collect();
    let labels = spellings.indices.iter().map(|index| class_of[*index as usize]).collect();
    Ok((Targets::Classes { labels, num_classes: classes.len(), labels_per_example: 1 }, classes))
}
