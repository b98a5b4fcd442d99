//! Tables as examples: each row one, or each run of rows that belong together a sequence.

mod known;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result};

pub(super) use known::TableSchema;

use super::csv::{CsvTable, number};
use super::offsets;
use super::reader::{
    DataFormat, Keys, LabeledData, MOST_CLASSES, ReadOptions, SequenceColumn, Task, classes_among, label_key, name,
    sorted,
};
use super::{Dataset, ReadBudget, Targets};

/// Whole numbers of so many values or fewer are classes.
const FEW_VALUES: usize = 20;

/// A column of more words than this holds names rather than kinds.
const MOST_WORDS: usize = 64;

/// The rows of a table, of text, of which somebody may know whether its first line has names, or of Parquet.
fn read_rows(path: &Path, known: impl Fn(&[String]) -> Option<bool>, budget: &ReadBudget) -> Result<CsvTable> {
    if !name(path).ends_with(".parquet") {
        return CsvTable::read_named(path, known, budget);
    }
    #[cfg(feature = "parquet")]
    return super::parquet::read(path, budget);
    #[cfg(not(feature = "parquet"))]
    Err(Error::mistake(format!("{}: this build reads no Parquet", path.display())).note("`--features parquet` adds it"))
}

/// An error if one of these columns has the name of another, read or not: by name the wrong one would be found.
fn check_names(table: &CsvTable, mut columns: impl Iterator<Item = usize>, path: &Path) -> Result<()> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    table.names.iter().enumerate().for_each(|(at, name)| places.entry(name).or_default().push(at + 1));
    match columns.find_map(|column| places.get(table.names[column].as_str()).filter(|places| places.len() > 1)) {
        Some(places) => {
            let (first, second, name) = (places[0], places[1], &table.names[places[0] - 1]);
            let message = format!("{}: columns {first} and {second} are both named `{name}`", path.display());
            let without = format!("or leave both out: `--drop-columns {first} --drop-columns {second}`");
            Err(Error::corrupt(message).note(format!("give one another name, {without}")))
        }
        None => Ok(()),
    }
}

/// A column that is learned from.
struct Column<'a> {
    place: usize,
    /// The places of its categories by their keys, if it holds no numbers.
    words: Option<HashMap<String, usize>>,
    name: &'a str,
    /// What is subtracted from its numbers.
    offset: f64,
}

impl Column<'_> {
    /// How many numbers it gives.
    fn width(&self) -> usize {
        self.words.as_ref().map_or(1, HashMap::len)
    }
}

/// Whether a cell stands for a value that is missing.
fn is_missing(cell: &str) -> bool {
    cell.is_empty() || cell.parse::<f32>().is_ok_and(f32::is_nan)
}

/// The words of those columns that hold more of them than numbers, or that are said to be categorical. Numbers among them are words, too.
fn categories_of(
    table: &CsvTable,
    columns: &[usize],
    categorical: &[usize],
    path: &Path,
) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found = BTreeMap::new();
    for column in columns {
        let cells = || (0..table.rows()).map(|row| table.cell(row, *column));
        let numbers = cells().filter(|cell| number(cell).is_some()).count();
        let missing = cells().filter(|cell| is_missing(cell)).count();
        if !categorical.contains(column) && table.rows() - numbers - missing <= numbers {
            continue;
        }
        let name = &table.names[*column];
        if let Some(row) = (0..table.rows()).find(|row| is_missing(table.cell(*row, *column))) {
            let cell = match table.cell(row, *column) {
                "" => "it is empty".to_string(),
                cell => format!("`{cell}` is no word"),
            };
            let message = format!("{}:{}: {name}: {cell}, in a column of words", path.display(), table.line(row));
            return Err(Error::corrupt(message).note(format!("`--drop-columns {name:?}` leaves the column out")));
        }
        let words = classes_among(&cells().collect::<Vec<&str>>());
        if words.len() > MOST_WORDS {
            let message =
                format!("{}: {name}: {} different words are no kinds of anything", path.display(), words.len());
            return Err(Error::corrupt(message).note(format!("`--drop-columns {name:?}` leaves the column out")));
        }
        found.insert(name.clone(), words);
    }
    Ok(found)
}

/// Columns with their words and offsets.
fn columns_of<'a>(
    table: &'a CsvTable,
    places: &[usize],
    words: &BTreeMap<String, Vec<String>>,
    offsets: &BTreeMap<String, f64>,
) -> Vec<Column<'a>> {
    let column = |place: &usize| {
        let name = &table.names[*place];
        let keys = |words: &Vec<String>| words.iter().enumerate().map(|(at, word)| (label_key(word), at)).collect();
        let offset = offsets.get(name).copied().unwrap_or(0.0);
        Column { place: *place, words: words.get(name).map(keys), name, offset }
    };
    places.iter().map(column).collect()
}

/// A table with the rows of each of its examples.
struct TableExamples<'a> {
    table: &'a CsvTable,
    path: &'a Path,
    budget: &'a ReadBudget,
    rows: Vec<Vec<usize>>,
    /// The column whose rows with the same in it are one example, if not each row is.
    sequence: Option<usize>,
}

impl<'a> TableExamples<'a> {
    /// Examples in the order in which they begin.
    fn of(
        table: &'a CsvTable,
        (path, budget): (&'a Path, &'a ReadBudget),
        sequence: Option<usize>,
    ) -> Result<TableExamples<'a>> {
        budget.take_values(table.rows(), size_of::<(Vec<usize>, usize)>(), path)?;
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for row in 0..table.rows() {
            let place = sequence.map(|column| *places.entry(table.cell(row, column)).or_insert(rows.len()));
            match place.filter(|place| *place < rows.len()) {
                Some(place) => rows[place].push(row),
                None => rows.push(vec![row]),
            }
        }
        let examples = TableExamples { table, path, budget, rows, sequence };
        match sequence.and_then(|column| Some((column, *places.get("")?))) {
            Some((column, blank)) => Err(Error::corrupt(format!("{}: it is empty", examples.at(blank, column)))
                .note("each row says of which sequence it is")),
            None => Ok(examples),
        }
    }

    /// Rows of the longest.
    fn longest(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Where the first row of an example stands, and a column of it.
    fn at(&self, example: usize, column: usize) -> String {
        self.at_row(self.rows[example][0], column)
    }

    fn at_row(&self, row: usize, column: usize) -> String {
        format!("{}:{}: {}", self.path.display(), self.table.line(row), self.table.names[column])
    }

    fn cell(&self, row: usize, column: usize) -> &'a str {
        self.table.cell(row, column)
    }

    /// What each example has in a column, in all of its rows.
    fn words(&self, column: usize) -> Result<Vec<&'a str>> {
        let word = |rows: &Vec<usize>| {
            let word = self.cell(rows[0], column);
            match rows.iter().find(|row| self.cell(**row, column) != word) {
                Some(row) => {
                    let message = format!(
                        "{}: `{}`, but `{word}` in line {} of the same sequence",
                        self.at_row(*row, column),
                        self.cell(*row, column),
                        self.table.line(rows[0])
                    );
                    Err(Error::corrupt(message).note("a sequence has one label, in each of its rows"))
                }
                None => Ok(word),
            }
        };
        self.rows.iter().map(word).collect()
    }

    /// The numbers of some columns, with zeros behind the end of what has fewer rows than this, and lengths of an example's axes.
    fn numbers(&self, columns: &[Column<'_>], time: usize) -> Result<(Vec<f32>, Vec<usize>)> {
        let width = columns.iter().map(Column::width).sum::<usize>();
        let count = self.rows.len().checked_mul(time).and_then(|count| count.checked_mul(width));
        let mut numbers = Vec::new();
        if let Some(count) = count.filter(|count| isize::try_from(*count).is_ok()) {
            let cut = |error: Error| error.notes().iter().fold(self.too_many(time, width), Error::note);
            self.budget.take_values(count, size_of::<f32>(), self.path).map_err(cut)?;
        }
        if count.is_none_or(|count| numbers.try_reserve_exact(count).is_err()) {
            return Err(self.too_many(time, width));
        }
        for (example, rows) in self.rows.iter().enumerate() {
            for row in rows {
                columns.iter().try_for_each(|column| self.read(*row, column, &mut numbers))?;
            }
            numbers.resize((example + 1) * time * width, 0.0);
        }
        Ok((numbers, if self.sequence.is_some() { vec![time, width] } else { vec![width] }))
    }

    /// Memory does not hold them.
    fn too_many(&self, time: usize, width: usize) -> Error {
        let (path, examples) = (self.path.display(), self.rows.len());
        let what = format!("{path}: {examples} examples of {time} rows of {width} numbers do not fit into memory");
        let longest = self.rows.iter().max_by_key(|rows| rows.len());
        match (self.sequence, longest) {
            (Some(column), Some(rows)) => {
                let (id, named) = (self.cell(rows[0], column), &self.table.names[column]);
                let longest = format!("the longest sequence, of {} rows, is {named} `{id}`", rows.len());
                Error::mistake(what).note(format!("{longest}; shorter ones take as much"))
            }
            _ => Error::mistake(what).note("`--drop-columns COLUMN` leaves a column out"),
        }
    }

    /// What a row has in a column: a number, or a 1 in the place of its word. A word that is not known has none.
    fn read(&self, row: usize, column: &Column<'_>, numbers: &mut Vec<f32>) -> Result<()> {
        let Some(words) = &column.words else {
            numbers.push(self.table.number(row, column.place, column.offset, self.path)?);
            return Ok(());
        };
        let place = words.get(&label_key(self.cell(row, column.place)));
        numbers.extend((0..words.len()).map(|at| f32::from(u8::from(Some(&at) == place))));
        Ok(())
    }

    /// Sentences about cells with words that are not known, one for each column that has some.
    fn unknown_words(&self, columns: &[Column<'_>]) -> Vec<String> {
        let sentence = |column: &Column<'_>| {
            let words = column.words.as_ref()?;
            let cells = || (0..self.table.rows()).map(|row| self.cell(row, column.place));
            let unknown: Vec<&str> = cells().filter(|cell| !words.contains_key(&label_key(cell))).collect();
            let names = sorted(&unknown);
            let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<String>>().join(", ");
            let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
            let (path, name, count) = (self.path.display(), column.name, unknown.len());
            let what = format!("{count} of {} cells hold words that the network does not know", self.table.rows());
            (count > 0)
                .then(|| format!("{path}: {name}: {what} ({shown}{more}); they are read as none of the known ones"))
        };
        columns.iter().filter_map(sentence).collect()
    }

    /// Data made of them that knows where they end.
    fn ending(&self, data: Dataset) -> Result<Dataset> {
        match self.sequence {
            Some(_) => data.with_seq_lengths(self.rows.iter().map(|rows| rows.len() as i32).collect()),
            None => Ok(data),
        }
    }
}

/// The table of a file in which a name that was said names its columns.
fn read_said(path: &Path, reading: &ReadOptions, budget: &ReadBudget) -> Result<CsvTable> {
    if reading.header.is_some() && name(path).ends_with(".parquet") {
        let message =
            format!("--header: {} is a table of Parquet, which names its columns; leave it out", path.display());
        return Err(Error::mistake(message));
    }
    let lists = || reading.label_columns.iter().chain(&reading.drop_columns).chain(&reading.categorical);
    let parts = || lists().flat_map(|said| std::iter::once(said.as_str()).chain(said.split(',')));
    let said = || parts().chain(reading.sequence_column.as_deref()).map(str::trim);
    // A number counts the columns if there are so many.
    let is_name = |said: &str, width: usize| said.parse::<usize>().map_or(true, |number| number == 0 || number > width);
    let named = |first: &[String]| {
        let is_said = |cell: &String| {
            said().any(|said| said.eq_ignore_ascii_case(cell) && !said.is_empty() && is_name(said, first.len()))
        };
        reading.header.or_else(|| first.iter().any(is_said).then_some(true))
    };
    read_rows(path, named, budget)
}

/// Positions of columns by what is done with them.
struct Roles {
    labels: Vec<usize>,
    sequence: Option<usize>,
    /// Learned from.
    columns: Vec<usize>,
    categorical: Vec<usize>,
    /// Left out since they index the rows.
    index: Vec<usize>,
}

impl Roles {
    /// As they are said, or as the names tell.
    fn of(table: &CsvTable, path: &Path, reading: &ReadOptions) -> Result<Roles> {
        let labels = table.label_columns(&reading.label_columns)?;
        let sequence = reading.sequence_column.as_deref().map(|said| table.resolve_column(said)).transpose()?;
        let learned = |column: &usize, so: &str| {
            let message = format!("{}: {} is learned, so it cannot {so}", path.display(), table.names[*column]);
            Err(Error::mistake(message).note("`--label COLUMN` names another column to learn"))
        };
        if let Some(column) = sequence.filter(|column| labels.contains(column)) {
            return learned(&column, "say which rows are one sequence");
        }
        let without = table.resolve_columns(&reading.drop_columns)?;
        if let Some(column) = without.iter().find(|column| labels.contains(column)) {
            return learned(column, "be left out");
        }
        let categorical = table.resolve_columns(&reading.categorical)?;
        let said =
            |column: &usize| labels.contains(column) || Some(*column) == sequence || categorical.contains(column);
        let index: Vec<usize> = match reading.keep_columns {
            true => Vec::new(),
            false => {
                let index = table.index_columns();
                index.into_iter().filter(|column| !said(column) && !without.contains(column)).collect()
            }
        };
        let read = |column: &usize| {
            let left_out = without.contains(column) || index.contains(column);
            !labels.contains(column) && Some(*column) != sequence && !left_out
        };
        let columns: Vec<usize> = (0..table.names.len()).filter(read).collect();
        if columns.is_empty() || table.rows() == 0 {
            let (rows, width) = (table.rows(), table.names.len());
            let message = format!("{}: {rows} rows of {width} columns are nothing to learn from", path.display());
            return Err(Error::corrupt(message));
        }
        check_names(table, columns.iter().chain(&labels).copied().chain(sequence), path)?;
        Ok(Roles { labels, sequence, columns, categorical, index })
    }
}

/// Reads examples with what is to be learned of them.
pub(super) fn open(path: &Path, reading: &ReadOptions) -> Result<LabeledData> {
    let budget = &ReadBudget::for_file(path)?;
    let table = &read_said(path, reading, budget)?;
    let Roles { labels, sequence, columns, categorical, index } = &Roles::of(table, path, reading)?;
    let examples = TableExamples::of(table, (path, budget), *sequence)?;
    let learned = || format!("{} is learned from the others; `--label COLUMN` names another", table.names[labels[0]]);
    let explained = |error: Error| if reading.label_columns.is_empty() { error.note(learned()) } else { error };
    let words =
        labels.iter().map(|label| examples.words(*label)).collect::<Result<Vec<Vec<&str>>>>().map_err(explained)?;
    for (label, words) in labels.iter().zip(&words) {
        if let Some(at) = words.iter().position(|word| word.is_empty()) {
            return Err(explained(Error::corrupt(format!("{}: it is empty", examples.at(at, *label)))));
        }
    }
    let task = task(&examples, labels, &words, reading.task)?;
    let time = examples.longest();
    let kinds = categories_of(table, columns, categorical, path).map_err(explained)?;
    let (offsets, mut notes) =
        offsets_of(table, path, columns.iter().filter(|at| !kinds.contains_key(&table.names[**at])));
    let (targets, target_notes) = match task {
        Task::Regression => offsets_of(table, path, labels.iter()),
        Task::Classification | Task::MultiLabel | Task::Text => Default::default(),
    };
    let offsets: BTreeMap<String, f64> = offsets.into_iter().chain(targets).collect();
    let (targets, classes) = match task {
        Task::Regression => (regression_targets(&examples, labels, &offsets)?, Vec::new()),
        Task::MultiLabel => (multilabel_targets(&examples, labels)?, Vec::new()),
        Task::Classification | Task::Text => class_targets(&examples, labels[0], &words[0])?,
    };
    let (features, lengths) = examples
        .numbers(&columns_of(table, columns, &kinds, &offsets), time)
        .map_err(|error| explained(error.note("`--drop-columns COLUMN` leaves a column out")))?;
    let width = lengths.iter().product();
    let data = match targets {
        Targets::Regression { values, num_outputs: each } => Dataset::regression(features, width, values, each)?,
        Targets::MultiLabel { values, num_labels: each } => Dataset::multilabel(features, width, values, each)?,
        Targets::Classes { labels, num_classes: classes, .. } => {
            Dataset::classification(features, width, labels, classes)?
        }
    };
    let named = |columns: &[usize]| columns.iter().map(|column| table.names[*column].clone()).collect();
    let source = DataFormat::Csv {
        feature_columns: named(columns),
        label_columns: named(labels),
        task,
        sequence: sequence.map(|column| SequenceColumn { column: table.names[column].clone(), max_len: time }),
        categories: kinds,
        offsets,
    };
    notes.extend(target_notes);
    let guesses = guesses(table, path).into_iter().chain(left_out(table, index, path)).chain(notes).collect();
    Ok(LabeledData {
        format: source,
        dataset: examples.ending(data.with_shape(&lengths)?)?,
        class_names: classes,
        assumptions: guesses,
    })
}

/// Rows of a column that are looked at for its offset.
const SAMPLED: usize = 1000;

/// The offsets of those columns of numbers that need one, by name, and sentences about those that f32 holds badly all the same.
fn offsets_of<'c>(
    table: &CsvTable,
    path: &Path,
    columns: impl Iterator<Item = &'c usize>,
) -> (BTreeMap<String, f64>, Vec<String>) {
    let (mut offsets, mut notes) = (BTreeMap::new(), Vec::new());
    let step = table.rows().div_ceil(SAMPLED).max(1);
    for column in columns {
        let sample: Vec<f64> =
            (0..table.rows()).step_by(step).filter_map(|row| number(table.cell(row, *column))).collect();
        let (name, offset) = (&table.names[*column], offsets::offset(&sample));
        if let Some(what) = offsets::loss(&sample, offset.unwrap_or(0.0)) {
            notes.push(format!("{}: {name}: {what}", path.display()));
        }
        offsets.extend(offset.map(|offset| (name.clone(), offset)));
    }
    (offsets, notes)
}

/// A sentence about columns that are left out since they index the rows, if there are some.
fn left_out(table: &CsvTable, index: &[usize], path: &Path) -> Option<String> {
    let named = |column: &usize| match table.names[*column].as_str() {
        "" => format!("column {} without a name", column + 1),
        name => name.to_string(),
    };
    let names: Vec<String> = index.iter().map(named).collect();
    let what = format!("{}: {} is left out as an index of the rows", path.display(), names.join(", "));
    (!index.is_empty()).then(|| format!("{what}; `--keep-columns` reads it"))
}

/// So many names of columns are shown.
const NAMES_SHOWN: usize = 8;

/// What the names of the columns might be instead.
fn guesses(table: &CsvTable, path: &Path) -> Vec<String> {
    let names: Vec<&str> = table.names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = if table.names.len() > NAMES_SHOWN { ", …" } else { "" };
    let guess = format!(
        "{}: its first line ({}{more}) is taken as the names of its columns; if it is an example, `--header no` says so",
        path.display(),
        names.join(", ")
    );
    if table.header_guessed { vec![guess] } else { Vec::new() }
}

/// What is to be learned of these columns, of which somebody may have said it: one of words or of few whole numbers is one of classes,
/// several of zeros and ones alone are answers.
fn task(examples: &TableExamples<'_>, labels: &[usize], words: &[Vec<&str>], said: Option<Task>) -> Result<Task> {
    if let ([words], None) = (words, said) {
        return Ok(if are_numbers(words) { Task::Regression } else { Task::Classification });
    }
    let (path, names) = (examples.path.display(), |at: usize| &examples.table.names[labels[at]]);
    match said {
        Some(Task::Classification) if labels.len() > 1 => {
            let message = format!("{path}: {} and {} cannot be classes both", names(0), names(1));
            Err(Error::mistake(message).note("several columns are learned as numbers, or as answers, 0 and 1"))
        }
        Some(task) => Ok(task),
        None => {
            let answers: Vec<bool> =
                words.iter().map(|words| words.iter().all(|word| answer(word).is_some())).collect();
            let number = |word: &&str| number(word).is_some();
            if let Some(at) = words.iter().position(|words| !words.iter().all(number)) {
                let row = words[at].iter().position(|word| !number(word)).unwrap_or(0);
                let message =
                    format!("{}: `{}` is neither a number nor an answer", examples.at(row, labels[at]), words[at][row]);
                return Err(
                    Error::corrupt(message).note("several columns are learned as numbers, or as answers, 0 and 1")
                );
            }
            match (answers.iter().position(|all| *all), answers.iter().position(|all| !all)) {
                (Some(answer), Some(number)) => {
                    let kinds =
                        format!("{} holds answers, 0 and 1, and {} other numbers", names(answer), names(number));
                    Err(Error::mistake(format!("{path}: {kinds}")).note("`--task regression` learns both as numbers"))
                }
                (Some(_), None) => Ok(Task::MultiLabel),
                (None, _) => Ok(Task::Regression),
            }
        }
    }
}

/// A cell as an answer, if it is one.
fn answer(cell: &str) -> Option<f32> {
    cell.parse().ok().filter(|answer| [0.0, 1.0].contains(answer))
}

/// The numbers of each example.
fn regression_targets(
    examples: &TableExamples<'_>,
    labels: &[usize],
    offsets: &BTreeMap<String, f64>,
) -> Result<Targets> {
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for rows in &examples.rows {
        for label in labels {
            let offset = offsets.get(&examples.table.names[*label]).copied().unwrap_or(0.0);
            values.push(examples.table.number(rows[0], *label, offset, examples.path)?);
        }
    }
    Ok(Targets::Regression { values, num_outputs: labels.len() })
}

/// The answers of each example.
fn multilabel_targets(examples: &TableExamples<'_>, labels: &[usize]) -> Result<Targets> {
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for (example, rows) in examples.rows.iter().enumerate() {
        for label in labels {
            let cell = examples.cell(rows[0], *label);
            values.push(answer(cell).ok_or_else(|| {
                let message = format!("{}: `{cell}` is neither 0 nor 1", examples.at(example, *label));
                Error::corrupt(message)
                    .note("answers are 0 for no and 1 for yes; `--task regression` learns any numbers")
            })?);
        }
    }
    Ok(Targets::MultiLabel { values, num_labels: labels.len() })
}

/// The class of each example, and the names of the classes.
fn class_targets(examples: &TableExamples<'_>, label: usize, words: &[&str]) -> Result<(Targets, Vec<String>)> {
    let fraction = |word: &&str| word.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() != 0.0);
    if let Some(at) = words.iter().position(fraction) {
        let note = "classes are words or whole numbers; `--label COLUMN` names their column, `--task regression` learns numbers";
        return Err(Error::corrupt(format!("{}: `{}` is no class", examples.at(at, label), words[at])).note(note));
    }
    let classes = classes_among(words);
    if words.len() < 2 && examples.sequence.is_none() {
        let what = match examples.table.has_header {
            true => "there is one row beside the names",
            false => "there is one line; with names in the first there is no row to learn from",
        };
        let message = format!("{}: {what}", examples.path.display());
        return Err(Error::corrupt(message).note("learning classes takes rows of two classes at least"));
    }
    if classes.len() < 2 || classes.len() > MOST_CLASSES {
        let (named, what) =
            (&examples.table.names[label], if examples.sequence.is_some() { "sequences" } else { "rows" });
        let message =
            format!("{}: {named}: {} classes in {} {what}", examples.path.display(), classes.len(), words.len());
        return Err(Error::corrupt(message).note("`--label COLUMN` names the column of classes"));
    }
    let keys = Keys::of(&classes);
    let labels = words.iter().map(|word| keys.class(word).unwrap_or(0)).collect();
    Ok((Targets::Classes { labels, num_classes: classes.len(), labels_per_example: 1 }, classes))
}

/// Whether a column is one of numbers to be learned, not of classes: all are numbers, and one has a fraction or they are of many
/// values for so few rows.
fn are_numbers(words: &[&str]) -> bool {
    let Some(numbers) = words.iter().map(|word| number(word)).collect::<Option<Vec<f64>>>() else {
        return false;
    };
    let values = classes_among(words).len();
    let many = values > FEW_VALUES && values > words.len() / FEW_VALUES;
    many || numbers.iter().any(|number| number.fract() != 0.0)
}
