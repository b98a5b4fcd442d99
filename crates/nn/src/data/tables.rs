//! Tables as data sets: each row is an example, or rows are grouped into sequences.

mod columns;
mod known;
pub mod summary;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use panoply_tensor::{Error, Result, parallel_map};

pub(super) use known::TableSchema;

use super::csv::{CsvOptions, CsvTable};
use super::labels::{Keys, NumericLabels, classes_among, sorted};
use super::numbers::number;
use super::read_progress::{FITTED, SEPARATED};
use super::reader::{DataFormat, LabeledData, MOST_CLASSES, MissingValues, ReadOptions, SequenceColumn, Task, name};
use super::{Dataset, MissingRows, ReadBudget, ReadProgress, Targets};
use columns::{Column, columns_of};
pub(super) use columns::{is_missing, most_frequent, replacement};

/// Examples that a thread encodes at a time.
const AT_ONCE: usize = 1 << 12;

/// Reads a table of text or of Parquet. `known` returns whether the first line of a text, which it is given, names the columns.
fn read_rows(
    path: &Path,
    known: impl Fn(&[String]) -> Option<bool>,
    options: CsvOptions,
    budget: &ReadBudget,
) -> Result<CsvTable> {
    if !name(path).ends_with(".parquet") {
        return CsvTable::read_named(path, known, options, budget);
    }
    #[cfg(feature = "parquet")]
    return super::parquet::read(path, budget);
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

/// The rows of each example.
enum ExampleRows<'a> {
    /// One for each example.
    Single(&'a [usize]),
    /// Those of sequences.
    Several(Vec<Vec<usize>>),
}

impl ExampleRows<'_> {
    fn len(&self) -> usize {
        match self {
            ExampleRows::Single(rows) => rows.len(),
            ExampleRows::Several(rows) => rows.len(),
        }
    }

    fn of(&self, example: usize) -> &[usize] {
        match self {
            ExampleRows::Single(rows) => std::slice::from_ref(&rows[example]),
            ExampleRows::Several(rows) => &rows[example],
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[usize]> + Clone {
        (0..self.len()).map(|example| self.of(example))
    }
}

/// A table with the rows of each of its examples.
struct TableExamples<'a> {
    table: &'a CsvTable,
    path: &'a Path,
    budget: &'a ReadBudget,
    rows: ExampleRows<'a>,
    /// Column whose value is equal in all rows of an example; `None` if each row is an example.
    sequence: Option<usize>,
}

impl<'a> TableExamples<'a> {
    /// The examples among these rows, in the order in which they begin.
    fn of(
        table: &'a CsvTable,
        kept: &'a [usize],
        (path, budget): (&'a Path, &'a ReadBudget),
        sequence: Option<usize>,
    ) -> Result<TableExamples<'a>> {
        let Some(column) = sequence else {
            return Ok(TableExamples { table, path, budget, rows: ExampleRows::Single(kept), sequence });
        };
        budget.take_values(kept.len(), size_of::<(Vec<usize>, usize)>(), path)?;
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for row in kept.iter().copied() {
            let place = *places.entry(table.cell(row, column)).or_insert(rows.len());
            match place < rows.len() {
                true => rows[place].push(row),
                false => rows.push(vec![row]),
            }
        }
        let examples = TableExamples { table, path, budget, rows: ExampleRows::Several(rows), sequence };
        match places.get("").map(|place| (column, *place)) {
            Some((column, blank)) => Err(Error::corrupt(format!("{}: it is empty", examples.at(blank, column)))
                .note("each row needs a sequence identifier")),
            None => Ok(examples),
        }
    }

    /// Returns the number of rows of the longest example.
    fn longest(&self) -> usize {
        self.rows.iter().map(<[usize]>::len).max().unwrap_or(0)
    }

    /// Formats the location of a column in the first row of an example.
    fn at(&self, example: usize, column: usize) -> String {
        self.at_row(self.rows.of(example)[0], column)
    }

    fn at_row(&self, row: usize, column: usize) -> String {
        format!("{}:{}: {}", self.path.display(), self.table.line(row), self.table.names[column])
    }

    fn cell(&self, row: usize, column: usize) -> &'a str {
        self.table.cell(row, column)
    }

    /// Returns the cell of each example in a column, which must be equal in all its rows.
    fn words(&self, column: usize) -> Result<Vec<&'a str>> {
        let word = |rows: &[usize]| {
            let word = self.cell(rows[0], column);
            match rows.iter().find(|row| self.cell(**row, column) != word) {
                Some(row) => {
                    let message = format!(
                        "{}: `{}`, but `{word}` in line {} of the same sequence",
                        self.at_row(*row, column),
                        self.cell(*row, column),
                        self.table.line(rows[0])
                    );
                    Err(Error::corrupt(message).note("a sequence needs the same label in each of its rows"))
                }
                None => Ok(word),
            }
        };
        self.rows.iter().map(word).collect()
    }

    /// Returns the features of all examples, padded with zeros to `time` rows, and the shape of an example.
    ///
    /// Reports the progress of the read from the fraction `from` on.
    fn numbers(
        &self,
        columns: &[Column<'_>],
        time: usize,
        (progress, from): (&ReadProgress, f64),
    ) -> Result<(Vec<f32>, Vec<usize>)> {
        let width = columns.iter().map(Column::width).sum::<usize>();
        let count = self.rows.len().checked_mul(time).and_then(|count| count.checked_mul(width));
        if let Some(count) = count.filter(|count| isize::try_from(*count).is_ok()) {
            let cut = |error: Error| error.notes().iter().fold(self.too_many(time, width), Error::note);
            self.budget.take_values(count, size_of::<f32>(), self.path).map_err(cut)?;
        }
        if count.is_none_or(|count| Vec::<f32>::new().try_reserve_exact(count).is_err()) {
            return Err(self.too_many(time, width));
        }
        let (table, path, rows) = (self.table, self.path, &self.rows);
        // Zeroed memory has no pages until it is written.
        let (stride, mut numbers) = (time * width, vec![0.0; rows.len() * time * width]);
        let parts: Vec<(usize, Mutex<&mut [f32]>)> = numbers
            .chunks_mut(AT_ONCE * stride.max(1))
            .enumerate()
            .map(|(at, part)| (at * AT_ONCE, Mutex::new(part)))
            .collect();
        let step = progress.steps(parts.len(), (from, 1.0));
        let encode = |(first, part): &(usize, Mutex<&mut [f32]>)| {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let mut encoded = Vec::with_capacity(stride);
            for (at, example) in part.chunks_exact_mut(stride.max(1)).enumerate() {
                encoded.clear();
                for row in rows.of(first + at) {
                    columns.iter().try_for_each(|column| column.read(table, *row, path, &mut encoded))?;
                }
                example[..encoded.len()].copy_from_slice(&encoded);
            }
            step();
            Ok(())
        };
        parallel_map(&parts, encode)?;
        drop(parts);
        Ok((numbers, if self.sequence.is_some() { vec![time, width] } else { vec![width] }))
    }

    /// The positions of rows whose value is missing and replaced, by column, where examples take `time` rows.
    fn missing(&self, columns: &[Column<'_>], time: usize) -> Result<BTreeMap<String, Vec<usize>>> {
        let mut missing = BTreeMap::new();
        for column in columns.iter().filter(|column| column.is_imputed() && column.may_lack_values()) {
            let placed =
                self.rows.iter().enumerate().flat_map(|(example, rows)| {
                    rows.iter().enumerate().map(move |(at, row)| (example * time + at, *row))
                });
            let rows = placed.filter(|(_, row)| column.is_missing(self.table, *row)).map(|(place, _)| place);
            let rows: Vec<usize> = rows.collect();
            self.budget.take_values(rows.len(), size_of::<usize>(), self.path)?;
            if !rows.is_empty() {
                missing.insert(column.name.to_string(), rows);
            }
        }
        Ok(missing)
    }

    /// Returns the error for examples that do not fit into memory.
    fn too_many(&self, time: usize, width: usize) -> Error {
        let (path, examples) = (self.path.display(), self.rows.len());
        let what = format!("{path}: {examples} examples of {time} rows of {width} numbers do not fit into memory");
        let longest = self.rows.iter().max_by_key(|rows| rows.len());
        match (self.sequence, longest) {
            (Some(column), Some(rows)) => {
                let (id, named) = (self.cell(rows[0], column), &self.table.names[column]);
                let longest = format!("the longest sequence, of {} rows, is {named} `{id}`", rows.len());
                Error::mistake(what).note(format!("{longest}; shorter ones are padded to it"))
            }
            _ => Error::mistake(what).note("use `--drop-columns COLUMN` to ignore a column"),
        }
    }

    /// Sentences about cells with categories that training did not have, one for each column that has some.
    fn unknown_categories(&self, columns: &[Column<'_>]) -> Vec<String> {
        let sentence = |column: &Column<'_>| {
            let unknown = column.unknown(self.table, self.rows.iter().flatten().copied());
            let names = sorted(&unknown);
            let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<String>>().join(", ");
            let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
            let (path, name, count) = (self.path.display(), column.name, unknown.len());
            let what = format!("{count} of {} cells have categories unknown to the network", self.table.rows());
            (count > 0).then(|| format!("{path}: {name}: {what} ({shown}{more}); they are encoded as zeros"))
        };
        columns.iter().filter_map(sentence).collect()
    }

    /// A number for each example that is equal for those with the same value in a column.
    ///
    /// # Errors
    /// A sequence with several values, and an empty cell.
    fn groups(&self, column: usize) -> Result<Vec<u32>> {
        let words = self.words(column)?;
        if let Some(at) = words.iter().position(|word| word.is_empty()) {
            return Err(
                Error::corrupt(format!("{}: it is empty", self.at(at, column))).note("each row must name its group")
            );
        }
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        Ok(words
            .iter()
            .map(|word| {
                let next = numbers.len() as u32;
                *numbers.entry(word).or_insert(next)
            })
            .collect())
    }

    /// Returns a data set of these examples with the lengths of their sequences, if they are sequences.
    fn ending(&self, data: Dataset) -> Result<Dataset> {
        match self.sequence {
            Some(_) => data.with_seq_lengths(self.rows.iter().map(|rows| rows.len() as i32).collect()),
            None => Ok(data),
        }
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
    read_rows(path, named, reading.csv_options(), budget)
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
            let (rows, width) = (table.rows(), table.names.len());
            let message =
                format!("{}: a table of {rows} rows and {width} columns has no features or no rows", path.display());
            return Err(Error::corrupt(message));
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
    let words =
        labels.iter().map(|label| examples.words(*label)).collect::<Result<Vec<Vec<&str>>>>().map_err(explained)?;
    for (label, words) in labels.iter().zip(&words) {
        if let Some(at) = words.iter().position(|word| is_missing_target(word)) {
            let error = Error::corrupt(format!("{}: the target is missing", examples.at(at, *label)));
            return Err(explained(error.note("`--missing drop` leaves such rows out")));
        }
    }
    let numbers = words.iter().map(|words| numbers_of(words)).collect::<Result<Option<Vec<Vec<f64>>>>>()?;
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
    let maps = (&found.categories, &found.offsets, &found.scales, &found.imputation);
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
        decimal_comma: table.decimal_comma,
    };
    let dataset = examples.ending(data.example_shape(&lengths).build()?)?;
    Ok(LabeledData { format, dataset, class_names: classes, groups, missing, assumptions })
}

/// The numbers in some cells, if all hold numbers.
fn numbers_of(cells: &[&str]) -> Result<Option<Vec<f64>>> {
    let parts: Vec<&[&str]> = cells.chunks(AT_ONCE).collect();
    let parse = |cells: &&[&str]| Ok(cells.iter().map(|cell| number(cell)).collect::<Option<Vec<f64>>>());
    let parts: Option<Vec<Vec<f64>>> = parallel_map(&parts, parse)?.into_iter().collect();
    Ok(parts.map(|parts| parts.concat()))
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
    let whole = |row: &usize| !columns.clone().any(|column| is_missing(table.cell(*row, *column)));
    let drops = policy == Some(MissingValues::Drop);
    let rows: Vec<usize> = (0..table.rows()).filter(|row| !drops || whole(row)).collect();
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

/// Number of column names in a message.
const NAMES_SHOWN: usize = 8;

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
/// of zeros and ones are labels.
fn task(
    examples: &TableExamples<'_>,
    labels: &[usize],
    (words, numbers): (&[Vec<&str>], Option<&[Vec<f64>]>),
    given: Option<Task>,
) -> Result<Task> {
    if let ([_], None) = (words, given) {
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
            let answers: Vec<bool> =
                words.iter().map(|words| words.iter().all(|word| answer(word).is_some())).collect();
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
        let value = |example: usize| columns.iter().map(move |(values, offset)| (values[example] - offset) as f32);
        let values: Vec<f32> = (0..examples.rows.len()).flat_map(value).collect();
        // Others are an error below that names the cell.
        if values.iter().all(|value| value.is_finite()) {
            return Ok(Targets::Regression { values, num_outputs: labels.len() });
        }
    }
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for rows in examples.rows.iter() {
        for label in labels {
            values.push(examples.table.number(rows[0], *label, (offset(label), 1.0), examples.path)?);
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
    if let Some(at) = words.iter().position(fraction) {
        let note = "classes are texts or integers; use `--label COLUMN` to select their column, or `--task regression` for numbers";
        return Err(Error::corrupt(format!("{}: `{}` is not a class", examples.at(at, label), words[at])).note(note));
    }
    let classes = classes_among(words);
    if words.len() < 2 && examples.sequence.is_none() {
        let what = match examples.table.has_header {
            true => "there is only one row after the header",
            false => "there is only one line; if it is a header, there are no rows",
        };
        let message = format!("{}: {what}", examples.path.display());
        return Err(Error::corrupt(message).note("classification needs rows of at least two classes"));
    }
    if classes.len() < 2 || classes.len() > MOST_CLASSES {
        let (named, what) =
            (&examples.table.names[label], if examples.sequence.is_some() { "sequences" } else { "rows" });
        let message =
            format!("{}: {named}: {} classes in {} {what}", examples.path.display(), classes.len(), words.len());
        return Err(Error::corrupt(message).note("use `--label COLUMN` to select the column of classes"));
    }
    let keys = Keys::of(&classes);
    let labels = words.iter().map(|word| keys.class(word).unwrap_or(0)).collect();
    Ok((Targets::Classes { labels, num_classes: classes.len(), labels_per_example: 1 }, classes))
}
