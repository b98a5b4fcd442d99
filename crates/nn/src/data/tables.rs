//! Tables as examples: each row one, or each run of rows that belong together a sequence.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result};

use super::csv::{TextTable, counted};
use super::source::{Labelled, MOST_CLASSES, Reading, Right, Sequences, Source, Task, Unlabelled, name, right, sorted};
use super::{Dataset, ReadBudget, Targets};

/// Whole numbers of so many values or fewer are classes.
const FEW_VALUES: usize = 20;

/// A column of more words than this holds names rather than kinds.
const MOST_WORDS: usize = 64;

/// The rows of a table, of text, of which somebody may know whether its first line has names, or of Parquet.
fn read_rows(path: &Path, known: impl Fn(&[String]) -> Option<bool>, budget: &ReadBudget) -> Result<TextTable> {
    if !name(path).ends_with(".parquet") {
        return TextTable::read_named(path, known, budget);
    }
    #[cfg(feature = "parquet")]
    return super::parquet::read(path, budget);
    #[cfg(not(feature = "parquet"))]
    Err(Error::mistake(format!("{}: this build reads no Parquet", path.display())).note("`--features parquet` adds it"))
}

/// An error if one of these columns has the name of another, read or not: by name the wrong one would be found.
fn check_names(table: &TextTable, mut columns: impl Iterator<Item = usize>, path: &Path) -> Result<()> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    table.names.iter().enumerate().for_each(|(at, name)| places.entry(name).or_default().push(at + 1));
    match columns.find_map(|column| places.get(table.names[column].as_str()).filter(|places| places.len() > 1)) {
        Some(places) => {
            let (first, second, name) = (places[0], places[1], &table.names[places[0] - 1]);
            let message = format!("{}: columns {first} and {second} are both named `{name}`", path.display());
            let without = format!("or leave both out: `--without {first} --without {second}`");
            Err(Error::corrupt(message).note(format!("give one another name, {without}")))
        }
        None => Ok(()),
    }
}

/// A column that is learned from.
struct Column<'a> {
    place: usize,
    /// Its words, if it holds no numbers.
    words: Option<&'a [String]>,
}

impl Column<'_> {
    /// How many numbers it gives.
    fn width(&self) -> usize {
        self.words.map_or(1, <[String]>::len)
    }
}

/// A cell of a column of words that is none: empty, a number, or what stands for a number that is missing.
fn is_no_word(cell: &str) -> bool {
    cell.is_empty() || cell.parse::<f32>().is_ok_and(|number| !number.is_infinite())
}

/// The words of those columns that hold more of them than numbers; all that they hold must be words.
fn words_of(table: &TextTable, columns: &[usize], path: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found = BTreeMap::new();
    for column in columns {
        let cells: Vec<&str> = table.rows.iter().map(|(_, cells)| cells[*column].as_str()).collect();
        let (no_words, all) = (cells.iter().filter(|cell| is_no_word(cell)), cells.len());
        let numbers = no_words.clone().filter(|cell| cell.parse::<f32>().is_ok_and(f32::is_finite)).count();
        if all - no_words.count() <= numbers {
            continue;
        }
        let (name, words) = (&table.names[*column], sorted(&cells));
        if let Some(row) = cells.iter().position(|cell| is_no_word(cell)) {
            let cell =
                if cells[row].is_empty() { "it is empty".into() } else { format!("`{}` is no word", cells[row]) };
            let line = table.rows[row].0;
            let message = format!("{}:{line}: {name}: {cell}, in a column of words", path.display());
            return Err(Error::corrupt(message).note(format!("`--without {name:?}` leaves the column out")));
        }
        if words.len() > MOST_WORDS {
            let message =
                format!("{}: {name}: {} different words are no kinds of anything", path.display(), words.len());
            return Err(Error::corrupt(message).note(format!("`--without {name:?}` leaves the column out")));
        }
        found.insert(name.clone(), words);
    }
    Ok(found)
}

/// Columns with their words.
fn columns_of<'a>(table: &TextTable, places: &[usize], words: &'a BTreeMap<String, Vec<String>>) -> Vec<Column<'a>> {
    let column = |place: &usize| Column { place: *place, words: words.get(&table.names[*place]).map(Vec::as_slice) };
    places.iter().map(column).collect()
}

/// A table with the rows of each of its examples.
struct Examples<'a> {
    table: &'a TextTable,
    path: &'a Path,
    budget: &'a ReadBudget,
    rows: Vec<Vec<usize>>,
    /// The column whose rows with the same in it are one example, if not each row is.
    sequence: Option<usize>,
}

impl<'a> Examples<'a> {
    /// Examples in the order in which they begin.
    fn of(
        table: &'a TextTable,
        (path, budget): (&'a Path, &'a ReadBudget),
        sequence: Option<usize>,
    ) -> Result<Examples<'a>> {
        budget.take_values(table.rows.len(), size_of::<(Vec<usize>, usize)>(), path)?;
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (row, (_, cells)) in table.rows.iter().enumerate() {
            let place = sequence.map(|column| *places.entry(&cells[column]).or_insert(rows.len()));
            match place.filter(|place| *place < rows.len()) {
                Some(place) => rows[place].push(row),
                None => rows.push(vec![row]),
            }
        }
        let examples = Examples { table, path, budget, rows, sequence };
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
        format!("{}:{}: {}", self.path.display(), self.table.rows[row].0, self.table.names[column])
    }

    fn cell(&self, row: usize, column: usize) -> &'a str {
        &self.table.rows[row].1[column]
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
                        self.table.rows[rows[0]].0
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
            _ => Error::mistake(what).note("`--without COLUMN` leaves a column out"),
        }
    }

    /// What a row has in a column: a number, or a 1 in the place of its word.
    fn read(&self, row: usize, column: &Column<'_>, numbers: &mut Vec<f32>) -> Result<()> {
        let Some(words) = column.words else {
            numbers.push(self.table.number(row, column.place, self.path)?);
            return Ok(());
        };
        let cell = self.cell(row, column.place);
        let place = words.iter().position(|word| word == cell).ok_or_else(|| {
            let at = self.at_row(row, column.place);
            Error::corrupt(format!("{at}: `{cell}` is none of the {} words this network knows", words.len()))
                .note(format!("it knows {}", words.join(", ")))
        })?;
        numbers.extend((0..words.len()).map(|at| f32::from(u8::from(at == place))));
        Ok(())
    }

    /// Data made of them that knows where they end.
    fn ending(&self, data: Dataset) -> Result<Dataset> {
        match self.sequence {
            Some(_) => data.ending(self.rows.iter().map(|rows| rows.len() as i32).collect()),
            None => Ok(data),
        }
    }
}

/// Reads examples with what is to be learned of them.
pub(super) fn open(path: &Path, reading: &Reading) -> Result<Labelled> {
    if reading.header.is_some() && name(path).ends_with(".parquet") {
        let message =
            format!("--header: {} is a table of Parquet, which names its columns; leave it out", path.display());
        return Err(Error::mistake(message));
    }
    let lists = || reading.labels.iter().chain(&reading.without);
    let parts = || lists().flat_map(|said| std::iter::once(said.as_str()).chain(said.split(',')));
    let said = || parts().chain(reading.sequence.as_deref()).map(str::trim);
    let is_said = |cell: &String| cell.parse::<usize>().is_err() && said().any(|said| said.eq_ignore_ascii_case(cell));
    let budget = &ReadBudget::for_file(path)?;
    let named = |first: &[String]| reading.header.or_else(|| first.iter().any(is_said).then_some(true));
    let table = &read_rows(path, named, budget)?;
    let labels = table.labels(&reading.labels)?;
    let sequence = reading.sequence.as_deref().map(|said| table.column(said)).transpose()?;
    let learned = |column: &usize, so: &str| {
        let message = format!("{}: {} is learned, so it cannot {so}", path.display(), table.names[*column]);
        Err(Error::mistake(message).note("`--label COLUMN` names another column to learn"))
    };
    if let Some(column) = sequence.filter(|column| labels.contains(column)) {
        return learned(&column, "say which rows are one sequence");
    }
    let without = table.columns(&reading.without)?;
    if let Some(column) = without.iter().find(|column| labels.contains(column)) {
        return learned(column, "be left out");
    }
    let read = |column: &usize| !labels.contains(column) && Some(*column) != sequence && !without.contains(column);
    let columns: Vec<usize> = (0..table.names.len()).filter(read).collect();
    if columns.is_empty() || table.rows.is_empty() {
        let (rows, width) = (table.rows.len(), table.names.len());
        let message = format!("{}: {rows} rows of {width} columns are nothing to learn from", path.display());
        return Err(Error::corrupt(message));
    }
    check_names(table, columns.iter().chain(&labels).copied().chain(sequence), path)?;
    let examples = Examples::of(table, (path, budget), sequence)?;
    let learned = || format!("{} is learned from the others; `--label COLUMN` names another", table.names[labels[0]]);
    let explained = |error: Error| if reading.labels.is_empty() { error.note(learned()) } else { error };
    let words =
        labels.iter().map(|label| examples.words(*label)).collect::<Result<Vec<Vec<&str>>>>().map_err(explained)?;
    for (label, words) in labels.iter().zip(&words) {
        if let Some(at) = words.iter().position(|word| word.is_empty()) {
            return Err(explained(Error::corrupt(format!("{}: it is empty", examples.at(at, *label)))));
        }
    }
    let task = task(&examples, &labels, &words, reading.task)?;
    let (time, kinds) = (examples.longest(), words_of(table, &columns, path).map_err(explained)?);
    let named = |columns: &[usize]| columns.iter().map(|column| table.names[*column].clone()).collect();
    let source = Source::Csv {
        columns: named(&columns),
        labels: named(&labels),
        numbers: task == Task::Numbers,
        answers: task == Task::Answers,
        sequences: sequence.map(|column| Sequences { column: table.names[column].clone(), time }),
        words: kinds.clone(),
    };
    let (targets, classes) = match task {
        Task::Numbers => (numbers_of(&examples, &labels)?, Vec::new()),
        Task::Answers => (answers_of(&examples, &labels)?, Vec::new()),
        Task::Classes | Task::Text => classes_of(&examples, labels[0], &words[0])?,
    };
    let columns = columns_of(table, &columns, &kinds);
    let (features, lengths) = examples
        .numbers(&columns, time)
        .map_err(|error| explained(error.note("`--without COLUMN` leaves a column out")))?;
    let width = lengths.iter().product();
    let data = match targets {
        Targets::Numbers { values, width: each } => Dataset::numbers(features, width, values, each)?,
        Targets::Answers { values, width: each } => Dataset::answers(features, width, values, each)?,
        Targets::Classes { labels, classes, .. } => Dataset::new(features, width, labels, classes)?,
    };
    Ok(Labelled { source, data: examples.ending(data.shaped(&lengths)?)?, classes, guesses: guesses(table, path) })
}

/// So many names of columns are shown.
const NAMES_SHOWN: usize = 8;

/// What the names of the columns might be instead.
fn guesses(table: &TextTable, path: &Path) -> Vec<String> {
    let names: Vec<&str> = table.names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = if table.names.len() > NAMES_SHOWN { ", …" } else { "" };
    let guess = format!(
        "{}: its first line ({}{more}) is taken as the names of its columns; if it is an example, `--header no` says so",
        path.display(),
        names.join(", ")
    );
    if table.doubtful { vec![guess] } else { Vec::new() }
}

/// What is to be learned of these columns, of which somebody may have said it: one of words or of few whole numbers is one of classes,
/// several of zeros and ones alone are answers.
fn task(examples: &Examples<'_>, labels: &[usize], words: &[Vec<&str>], said: Option<Task>) -> Result<Task> {
    if let ([words], None) = (words, said) {
        return Ok(if are_numbers(words) { Task::Numbers } else { Task::Classes });
    }
    let (path, names) = (examples.path.display(), |at: usize| &examples.table.names[labels[at]]);
    match said {
        Some(Task::Classes) if labels.len() > 1 => {
            let message = format!("{path}: {} and {} cannot be classes both", names(0), names(1));
            Err(Error::mistake(message).note("several columns are learned as numbers, or as answers, 0 and 1"))
        }
        Some(task) => Ok(task),
        None => {
            let answers: Vec<bool> =
                words.iter().map(|words| words.iter().all(|word| answer(word).is_some())).collect();
            let number = |word: &&str| word.parse::<f32>().is_ok();
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
                    Err(Error::mistake(format!("{path}: {kinds}")).note("`--task numbers` learns both as numbers"))
                }
                (Some(_), None) => Ok(Task::Answers),
                (None, _) => Ok(Task::Numbers),
            }
        }
    }
}

/// A cell as an answer, if it is one.
fn answer(cell: &str) -> Option<f32> {
    cell.parse().ok().filter(|answer| [0.0, 1.0].contains(answer))
}

/// The numbers of each example.
fn numbers_of(examples: &Examples<'_>, labels: &[usize]) -> Result<Targets> {
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for rows in &examples.rows {
        for label in labels {
            values.push(examples.table.number(rows[0], *label, examples.path)?);
        }
    }
    Ok(Targets::Numbers { values, width: labels.len() })
}

/// The answers of each example.
fn answers_of(examples: &Examples<'_>, labels: &[usize]) -> Result<Targets> {
    let mut values = Vec::with_capacity(examples.rows.len() * labels.len());
    for (example, rows) in examples.rows.iter().enumerate() {
        for label in labels {
            let cell = examples.cell(rows[0], *label);
            values.push(answer(cell).ok_or_else(|| {
                let message = format!("{}: `{cell}` is neither 0 nor 1", examples.at(example, *label));
                Error::corrupt(message).note("answers are 0 for no and 1 for yes; `--task numbers` learns any numbers")
            })?);
        }
    }
    Ok(Targets::Answers { values, width: labels.len() })
}

/// The class of each example, and the names of the classes.
fn classes_of(examples: &Examples<'_>, label: usize, words: &[&str]) -> Result<(Targets, Vec<String>)> {
    let fraction = |word: &&str| word.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() != 0.0);
    if let Some(at) = words.iter().position(fraction) {
        let note =
            "classes are words or whole numbers; `--label COLUMN` names their column, `--task numbers` learns numbers";
        return Err(Error::corrupt(format!("{}: `{}` is no class", examples.at(at, label), words[at])).note(note));
    }
    let classes = sorted(words);
    if words.len() < 2 && examples.sequence.is_none() {
        let what = match examples.table.named {
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
    let place = |word: &&str| classes.iter().position(|class| class == word).map_or(0, |at| at as i32);
    let labels = words.iter().map(place).collect();
    Ok((Targets::Classes { labels, classes: classes.len(), places: 1 }, classes))
}

/// Whether a column is one of numbers to be learned, not of classes: all are numbers, and one has a fraction or they are of many
/// values for so few rows.
fn are_numbers(words: &[&str]) -> bool {
    let Ok(numbers) = words.iter().map(|word| word.parse::<f64>()).collect::<Result<Vec<f64>, _>>() else {
        return false;
    };
    let values = sorted(words).len();
    let many = values > FEW_VALUES && values > words.len() / FEW_VALUES;
    many || numbers.iter().any(|number| number.fract() != 0.0)
}

/// What a trained network knows of tables.
pub(super) struct Known<'a> {
    pub columns: &'a [String],
    pub labels: &'a [String],
    pub numbers: bool,
    pub answers: bool,
    pub sequences: Option<&'a Sequences>,
    pub words: &'a BTreeMap<String, Vec<String>>,
    pub classes: &'a [String],
}

impl Known<'_> {
    /// Reads examples to be judged, and what is right where it is known.
    pub fn read(&self, path: &Path) -> Result<Unlabelled> {
        let needed = || self.columns.iter().chain(self.sequences.map(|sequences| &sequences.column));
        let budget = ReadBudget::for_file(path)?;
        let known_names = |first: &[String]| {
            let unnamed = needed().all(|name| (1..=first.len()).any(|column| counted(column) == *name));
            let named = needed().all(|name| first.contains(name));
            named.then_some(true).or_else(|| unnamed.then_some(false))
        };
        let table = read_rows(path, known_names, &budget)?;
        let place = |name: &str| table.names.iter().position(|known| known == name);
        let missing: Vec<&str> = needed().map(String::as_str).filter(|name| place(name).is_none()).collect();
        if !missing.is_empty() {
            let message = format!("{}: {} columns are missing ({})", path.display(), missing.len(), missing.join(", "));
            return Err(Error::corrupt(message));
        }
        let known: Option<Vec<usize>> = self.labels.iter().map(|name| place(name)).collect();
        let sequence = self.sequences.and_then(|sequences| place(&sequences.column));
        let places: Vec<usize> = self.columns.iter().filter_map(|name| place(name)).collect();
        check_names(&table, places.iter().chain(known.iter().flatten()).copied().chain(sequence), path)?;
        let examples = Examples::of(&table, (path, &budget), sequence)?;
        let time = self.sequences.map_or(1, |sequences| sequences.time);
        if let (Some(column), Some(long)) = (sequence, examples.rows.iter().position(|rows| rows.len() > time)) {
            let (place, id) = (examples.at(long, column), examples.cell(examples.rows[long][0], column));
            let rows = examples.rows[long].len();
            return Err(Error::corrupt(format!("{place}: `{id}` has {rows} rows, this network takes up to {time}")));
        }
        let (features, lengths) = examples.numbers(&columns_of(&table, &places, self.words), time)?;
        let right = |rows: &Vec<usize>| {
            let mut cells = known.as_ref()?.iter().map(|column| examples.cell(rows[0], *column));
            match (self.numbers, self.answers) {
                (true, _) => cells.map(|cell| cell.parse().ok()).collect::<Option<Vec<f32>>>().map(Right::Numbers),
                (_, true) => cells.map(answer).collect::<Option<Vec<f32>>>().map(Right::Numbers),
                (false, false) => right(self.classes, cells.next()?),
            }
        };
        let name = |rows: &Vec<usize>| match sequence {
            Some(column) => format!("{} {}", table.names[column], examples.cell(rows[0], column)),
            None => format!("line {}", table.rows[rows[0]].0),
        };
        let (names, known) = (examples.rows.iter().map(name).collect(), examples.rows.iter().map(right).collect());
        let mut read = Unlabelled::new(features, &lengths, names, known)?;
        read.data = examples.ending(read.data)?;
        let several = self.numbers || self.answers;
        Ok(if several { read.of_numbers(self.labels.len(), self.answers) } else { read })
    }
}
