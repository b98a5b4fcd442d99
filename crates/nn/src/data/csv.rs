//! Text tables: one example per line, cells separated by commas, semicolons, tabs, bars or spaces.
//!
//! This module detects the delimiter and the header; [`super::cells`] separates the cells.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use memchr::memchr;
use panoply_tensor::{Error, Result, parallel_map};

use super::cells::{Cells, PART, Records};
use super::columnar::Columns;
use super::dates::DateOrder;
use super::numbers::{date, number};
use super::reader::name;
use super::tables::{is_missing, lacks_number};
use super::{Dataset, ReadBudget, TextEncoding, read_text};
use crate::nearest::known_names;

/// A numeric table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Column names, if the first line has them.
    pub names: Option<Vec<String>>,
    /// Number of columns.
    pub width: usize,
    /// Values, row by row.
    pub values: Vec<f32>,
}

/// Reads a numeric table. The first line is a header if one of its cells is not a number. Empty lines are skipped.
///
/// # Errors
/// If the file cannot be read, or a cell of another line is not a number.
pub fn load(path: &Path) -> Result<Table> {
    let budget = ReadBudget::for_file(path)?;
    let (text, delimiter, count) = open(path, None, &budget)?;
    let wrong = |(line, what): (usize, String)| Error::corrupt(format!("{}:{line}: {what}", path.display()));
    let cells = Cells::parse(text, delimiter, count).map_err(wrong)?;
    budget.take_values(cells.ends.len(), size_of::<f32>(), path)?;
    let mut table = Table { names: None, width: cells.width, values: Vec::new() };
    for row in 0..cells.rows() {
        let texts = || (0..cells.width).map(|column| cells.cell(row, column));
        let numbers: Result<Vec<f32>, String> =
            texts().map(|cell| cell.parse().map_err(|_| format!("`{cell}` is not a number"))).collect();
        match numbers {
            Ok(numbers) => table.values.extend(numbers),
            Err(_) if row == 0 => table.names = Some(texts().map(str::to_string).collect()),
            Err(what) => return Err(wrong((cells.line(row), what))),
        }
    }
    Ok(table)
}

impl Table {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// Converts to a data set with the class, an integer below `classes`, in this column, counted from 0.
    ///
    /// # Errors
    /// If there is no such column, or a value in it is not a class.
    pub fn to_classification(&self, column: usize, classes: usize) -> Result<Dataset> {
        if column >= self.width {
            return Err(Error::mistake(format!("no column {column}; the table has {} columns", self.width)));
        }
        let (mut features, mut labels) = (Vec::with_capacity(self.values.len()), Vec::with_capacity(self.rows()));
        for (row, cells) in self.values.chunks_exact(self.width).enumerate() {
            let class = cells[column];
            if class.fract() != 0.0 || !(0.0..classes as f32).contains(&class) {
                return Err(Error::mistake(format!("row {row} has class {class}, which is not in 0 .. {classes}")));
            }
            labels.push(class as i32);
            features.extend(cells[..column].iter().chain(&cells[column + 1..]));
        }
        Dataset::classification(features, labels).example_shape(&[self.width - 1]).num_classes(classes).build()
    }
}

/// Number of records that are examined to detect a delimiter.
const LOOKED_AT: usize = 1000;

/// Number of rows, over the whole table, that are examined to detect a header.
const ROWS_LOOKED_AT: usize = 100_000;

/// Maximum number of columns that an error about a column's number names.
const LISTED: usize = 12;

/// Delimiters, the most common first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Statistics of the first records of a text for a candidate delimiter.
struct Division {
    /// Number of cells in each record, if equal for all and greater than one.
    width: Option<usize>,
    /// Fraction of cells that are numbers.
    numeric: f64,
    /// Number of records examined.
    records: usize,
    /// True if each record after the first has a number in it.
    numbers_below: bool,
}

impl Division {
    /// Examines at most `most` records.
    fn of(text: &str, delimiter: u8, most: usize) -> Division {
        let mut records = Records::of(text, delimiter);
        let (mut widths, mut cells, mut numbers, mut numbers_below) = (Vec::new(), 0, 0, true);
        while widths.len() < most {
            // An unclosed quote ends the examination; parsing the table reports it.
            let Ok(Some(_)) = records.next() else { break };
            let found = records.cells().filter(|cell| number(cell).is_some()).count();
            numbers_below &= widths.is_empty() || found > 0;
            widths.push(records.cells().count());
            numbers += found;
            cells += widths[widths.len() - 1];
        }
        let same = widths.first().copied().filter(|first| *first > 1 && widths.iter().all(|width| width == first));
        Division { width: same, numeric: numbers as f64 / cells.max(1) as f64, records: widths.len(), numbers_below }
    }
}

/// Returns the delimiter with which all records have the same number of cells, greater than one; among several the one with most numeric
/// cells. Otherwise returns the first common delimiter in the first line, then a space if it gives equal numbers of cells, then a comma.
fn delimiter(text: &str) -> u8 {
    let mut best: Option<(u8, f64)> = None;
    // The first record has it.
    let start = &text.as_bytes()[..text.len().min(LONGEST_ROW)];
    for delimiter in DELIMITERS.into_iter().filter(|delimiter| memchr(*delimiter, start).is_some()) {
        let Division { width, numeric, .. } = Division::of(text, delimiter, LOOKED_AT);
        if width.is_some() && best.is_none_or(|(_, most)| numeric > most) {
            best = Some((delimiter, numeric));
        }
    }
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    let usual = || DELIMITERS.into_iter().find(|delimiter| first.as_bytes().contains(delimiter));
    let blank = || Division::of(text, b' ', LOOKED_AT).width.map(|_| b' ');
    best.map(|(delimiter, _)| delimiter).or_else(usual).or_else(blank).unwrap_or(b',')
}

/// Number of records that are examined to decide whether a text is a table.
const LOOKED_AT_OF_TEXT: usize = 20;

/// Maximum length of a line that can be a row of a table, in bytes.
const LONGEST_ROW: usize = 1 << 22;

/// Returns true if the first twenty lines of a text, at least two, are rows of a table: each has the same number of cells, or is a number.
/// With spaces as the delimiter, each line after the first must also contain a number, since spaces separate words, too.
pub(super) fn is_table(text: &str) -> bool {
    let text = &unified(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(LOOKED_AT_OF_TEXT).collect();
    let [first, _, ..] = lines[..] else { return false };
    if lines.iter().any(|line| line.len() > LONGEST_ROW) {
        return false;
    }
    let of = |delimiter: u8| Division::of(text, delimiter, LOOKED_AT_OF_TEXT);
    if DELIMITERS.into_iter().map(of).any(|found| found.width.is_some() && found.records > 1) {
        return true;
    }
    if !first.bytes().any(|byte| DELIMITERS.contains(&byte))
        && lines.iter().skip(1).all(|line| number(line.trim()).is_some())
    {
        return true;
    }
    let blanks = of(b' ');
    blanks.width.is_some() && blanks.records > 2 && blanks.numbers_below
}

/// Replaces the carriage returns of old Mac files by line feeds, and removes a byte order mark.
fn unified(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    let contains = |byte: u8| memchr(byte, text.as_bytes()).is_some();
    // Most texts have a line feed near their start.
    match !contains(b'\n') && contains(b'\r') {
        true => text.replace('\r', "\n").into(),
        false => text.into(),
    }
}

/// Maximum memory of a cell of the current record, in bytes.
const RECORD_BYTES: usize = 2 * size_of::<usize>();

/// The number of bytes at which a cell could end.
fn divisions(bytes: &[u8]) -> usize {
    let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    parallel_map(&parts, |part| Ok(divisions_of(part))).map_or_else(|_| divisions_of(bytes), |parts| parts.iter().sum())
}

fn divisions_of(bytes: &[u8]) -> usize {
    // Without branches and with sums that fit into a byte, so that the compiler counts many bytes at once.
    let divides = |byte: &u8| b",;\t| \n\r".iter().fold(0, |found, divider| found | u8::from(byte == divider));
    bytes.chunks(u8::MAX as usize).map(|part| usize::from(part.iter().map(divides).sum::<u8>())).sum()
}

/// The text of a table, its delimiter (a tab if the file's name says so), and how many cells it has at most.
fn open(path: &Path, encoding: Option<TextEncoding>, budget: &ReadBudget) -> Result<(String, u8, usize)> {
    let read = read_text(path, encoding, budget)?;
    // Budget of the table: the end of each cell, the text of all cells, and the ends of the cells of the record that is being read.
    let cells = divisions(read.as_bytes()) + 1;
    budget.take_values(cells, 2 * size_of::<u32>(), path)?;
    budget.take(read.len() as u64, path)?;
    budget.take_values(cells, RECORD_BYTES, path)?;
    budget.give_back((cells * RECORD_BYTES) as u64);
    // Tables are large: they are copied only if they change.
    let changed = match unified(&read) {
        Cow::Borrowed(same) if same.len() == read.len() => None,
        other => Some(other.into_owned()),
    };
    let text = changed.unwrap_or(read);
    let name = name(path);
    let delimiter = match name.strip_suffix(".gz").unwrap_or(&name).ends_with(".tsv") {
        true => b'\t',
        false => delimiter(&text),
    };
    Ok((text, delimiter, cells))
}

/// A table of text, or of columns with types.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvTable {
    /// Column names from the first line, otherwise `column 1` and so on.
    pub names: Vec<String>,
    /// True if the first line has the column names.
    pub has_header: bool,
    /// True if the header is a guess and might be a row.
    pub header_guessed: bool,
    /// True if the file writes numbers with decimal commas.
    pub decimal_comma: bool,
    /// Columns that its writer calls an index of the rows.
    pub(super) index: Vec<String>,
    contents: Contents,
}

/// The cells of a table.
#[derive(Clone, Debug, PartialEq)]
enum Contents {
    /// Row by row, as text.
    Cells(Cells),
    /// Column by column, with types.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only Parquet files have such columns"))]
    Columns(Columns),
}

/// Options for reading a table of text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CsvOptions {
    /// Detected if `None`.
    pub encoding: Option<TextEncoding>,
    /// True for decimal commas; detected if `None`.
    pub decimal_comma: Option<bool>,
}

/// Names under which a column of classes is looked for.
const LABELS: [&str; 8] = ["label", "labels", "class", "target", "y", "species", "category", "outcome"];

impl CsvTable {
    /// Reads a table. The first line is a header in three cases: a cell of it is text above a mostly numeric column; none of its cells
    /// recurs below although texts below do; or it numbers columns that contain fractions.
    ///
    /// # Errors
    /// If the file cannot be read, or rows differ in the number of cells.
    pub fn read(path: &Path) -> Result<CsvTable> {
        CsvTable::read_named(path, |_| None, CsvOptions::default(), &ReadBudget::for_file(path)?)
    }

    /// Reads a table. `known` returns whether its first line, which it is given, names the columns; detected if `None`.
    pub(super) fn read_named(
        path: &Path,
        known: impl Fn(&[String]) -> Option<bool>,
        options: CsvOptions,
        budget: &ReadBudget,
    ) -> Result<CsvTable> {
        let (text, delimiter, count) = open(path, options.encoding, budget)?;
        let wrong = |(line, what): (usize, String)| Error::corrupt(format!("{}:{line}: {what}", path.display()));
        let mut cells = Cells::parse(text, delimiter, count).map_err(wrong)?;
        let decimal_comma = options.decimal_comma.unwrap_or_else(|| cells.have_decimal_commas());
        if decimal_comma {
            cells.use_decimal_points();
        }
        if cells.rows() == 0 {
            return Err(Error::corrupt(format!("{}: it has no rows", path.display())));
        }
        let first: Vec<String> = (0..cells.width).map(|column| cells.cell(0, column).to_string()).collect();
        let (named, doubtful) = known(&first).map_or_else(|| are_names(&cells), |named| (named, false));
        let names = match named {
            true => first,
            false => (1..=cells.width).map(counted).collect(),
        };
        if named {
            cells.remove_first();
        }
        Ok(CsvTable {
            names,
            has_header: named,
            header_guessed: doubtful,
            decimal_comma,
            index: Vec::new(),
            contents: Contents::Cells(cells),
        })
    }

    /// Creates a table with these columns.
    #[cfg(feature = "parquet")]
    pub(super) fn of(names: Vec<String>, index: Vec<String>, columns: Columns) -> CsvTable {
        let contents = Contents::Columns(columns);
        CsvTable { names, has_header: true, header_guessed: false, decimal_comma: false, index, contents }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match &self.contents {
            Contents::Cells(cells) => cells.rows(),
            Contents::Columns(table) => table.rows,
        }
    }

    /// Returns a cell, trimmed. The first call for a column that is not stored as text formats the whole column.
    ///
    /// # Panics
    /// If there is no such row or column.
    pub fn cell(&self, row: usize, column: usize) -> &str {
        match &self.contents {
            Contents::Cells(cells) => cells.cell(row, column),
            Contents::Columns(table) => table.columns[column].cell(row),
        }
    }

    /// Returns a cell as [`CsvTable::cell`], without formatting the column.
    pub(super) fn text(&self, row: usize, column: usize) -> Cow<'_, str> {
        match &self.contents {
            Contents::Cells(cells) => cells.cell(row, column).into(),
            Contents::Columns(table) => table.columns[column].text(row),
        }
    }

    /// Returns the memory in bytes that the first call of [`CsvTable::cell`] for a column takes.
    pub(super) fn bytes_of_cells(&self, column: usize) -> usize {
        match &self.contents {
            Contents::Cells(_) => 0,
            Contents::Columns(table) => table.columns[column].bytes_of_cells(),
        }
    }

    /// Returns the finite number in a cell, if it has one.
    pub(super) fn finite_number(&self, row: usize, column: usize) -> Option<f64> {
        match &self.contents {
            Contents::Cells(cells) => number(cells.cell(row, column)),
            Contents::Columns(table) => table.columns[column].number(row),
        }
    }

    /// True for a column whose file stores dates or times, not text.
    pub(super) fn stores_times(&self, column: usize) -> bool {
        match &self.contents {
            Contents::Cells(_) => false,
            Contents::Columns(table) => table.columns[column].stores_times(),
        }
    }

    /// True if a cell has no value.
    pub(super) fn is_missing(&self, row: usize, column: usize) -> bool {
        self.missing_number(row, column).unwrap_or_else(|| is_missing(self.cell(row, column)))
    }

    /// True if a cell of a column of numbers has no number.
    pub(super) fn lacks_number(&self, row: usize, column: usize) -> bool {
        self.missing_number(row, column).unwrap_or_else(|| lacks_number(self.cell(row, column)))
    }

    /// True if a number is missing; `None` for text.
    fn missing_number(&self, row: usize, column: usize) -> Option<bool> {
        match &self.contents {
            Contents::Cells(_) => None,
            Contents::Columns(table) => table.columns[column].lacks_number(row),
        }
    }

    /// True if the cells of a column are next to each other in memory, and not those of a row.
    pub(super) fn is_columnar(&self) -> bool {
        matches!(self.contents, Contents::Columns(_))
    }

    /// Returns the line of the file in which a row begins, counted from 1; of a table without lines the row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn line(&self, row: usize) -> usize {
        match &self.contents {
            Contents::Cells(cells) => cells.line(row),
            Contents::Columns(_) => row + 1,
        }
    }

    /// Returns the columns that index the rows: those that the writer declared, and those without a name, as pandas writes them.
    pub fn index_columns(&self) -> Vec<usize> {
        let unnamed = |name: &str| {
            let number = name.strip_prefix("Unnamed: ");
            name.is_empty() || number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
        };
        let is_index = |name: &String| self.has_header && (unnamed(name) || self.index.contains(name));
        (0..self.names.len()).filter(|column| is_index(&self.names[*column])).collect()
    }

    /// Returns the positions of the label columns: the given ones, otherwise the one with a usual name, otherwise the last that is not an
    /// index.
    ///
    /// # Errors
    /// If there is no such column, or a column is given twice.
    pub fn label_columns(&self, names: &[String]) -> Result<Vec<usize>> {
        let named = |name: &str| self.names.iter().position(|known| known.eq_ignore_ascii_case(name));
        if names.is_empty() {
            let usual = LABELS.iter().find_map(|name| named(name)).filter(|_| self.has_header);
            let index = self.index_columns();
            let last = (0..self.names.len()).rev().find(|column| !index.contains(column));
            return Ok(vec![usual.or(last).unwrap_or(self.names.len() - 1)]);
        }
        let labels = self.resolve_columns(names)?;
        match (1..labels.len()).find(|at| labels[..*at].contains(&labels[*at])) {
            Some(at) => Err(Error::mistake(format!("the label column {} is given twice", self.names[labels[at]]))),
            None => Ok(labels),
        }
    }

    /// Returns the positions of columns, by name or counted from 1. A string can contain several, separated by commas, unless a column has
    /// that name.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn resolve_columns(&self, names: &[String]) -> Result<Vec<usize>> {
        let mut columns = Vec::new();
        for name in names {
            match self.resolve_column(name) {
                Err(_) if name.contains(',') => {
                    name.split(',')
                        .try_for_each(|part| self.resolve_column(part.trim()).map(|column| columns.push(column)))?;
                }
                column => columns.push(column?),
            }
        }
        Ok(columns)
    }

    /// Returns the position of a column, by name or counted from 1.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn resolve_column(&self, name: &str) -> Result<usize> {
        if name.is_empty() {
            let message = "a column name is empty, such as after a trailing comma";
            return Err(Error::mistake(message).note("select a column without a name by its position, counted from 1"));
        }
        let counted = || name.parse::<usize>().ok()?.checked_sub(1).filter(|column| *column < self.names.len());
        let named = self.names.iter().position(|known| known.eq_ignore_ascii_case(name));
        named.or_else(counted).ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
            let list = match (name.parse::<usize>(), known.len()) {
                (Err(_), _) => known_names(name, &known, ("the columns are", "")),
                (Ok(_), count @ ..=LISTED) => format!("columns 1 to {count} are {}", known.join(", ")),
                (Ok(_), count) => format!("the columns are numbered from 1 to {count}"),
            };
            Error::mistake(format!("no column `{name}`; {list}"))
        })
    }

    /// Parses a cell as a number, or as a date in the given order or as YYYY-MM-DD; subtracts an offset, and divides by a scale.
    pub(super) fn number(
        &self,
        row: usize,
        column: usize,
        (dates, offset, scale): (Option<DateOrder>, f64, f64),
        path: &Path,
    ) -> Result<f32> {
        let found = match dates {
            // A plain number is not a date, unless the file stores times.
            Some(order) if !self.stores_times(column) => {
                order.seconds(self.cell(row, column)).or_else(|| date(self.cell(row, column)))
            }
            Some(_) | None => self.finite_number(row, column),
        };
        let found = found.map(|number| ((number - offset) / scale) as f32).filter(|number| number.is_finite());
        found.ok_or_else(|| {
            let (line, name) = (self.line(row), &self.names[column]);
            let at = format!("{}:{line}: {name}", path.display());
            let cell = self.cell(row, column);
            match (is_missing(cell), dates) {
                (true, _) => Error::corrupt(format!("{at}: the value is missing"))
                    .note("`--missing median` in training replaces missing values"),
                (false, Some(order)) => {
                    Error::corrupt(format!("{at}: `{cell}` is not a date such as {}", order.example()))
                        .note("write dates as in training, or as YYYY-MM-DD")
                }
                (false, None) => Error::corrupt(format!("{at}: `{cell}` is not a finite number")).note(format!(
                    "`--categorical {name:?}` treats the column as categories, `--drop-columns {name:?}` leaves it out"
                )),
            }
        })
    }
}

/// Returns the name of a column without a header, counted from 1.
pub(super) fn counted(column: usize) -> String {
    format!("column {column}")
}

/// Returns whether the first row is a header, and whether that is a guess. An empty cell is not evidence, and a number with a fraction is
/// not a name.
fn are_names(cells: &Cells) -> (bool, bool) {
    let first: Vec<&str> = (0..cells.width).map(|at| cells.cell(0, at)).collect();
    let column = |at: usize| (1..cells.rows()).map(move |row| cells.cell(row, at)).filter(|cell| !cell.is_empty());
    // A part of the rows decides whether a column has numbers.
    let step = cells.rows().div_ceil(ROWS_LOOKED_AT).max(1);
    let sample =
        |at: usize| (1..cells.rows()).step_by(step).map(move |row| cells.cell(row, at)).filter(|cell| !cell.is_empty());
    let numbers = |at: usize| sample(at).filter(|cell| number(cell).is_some()).count();
    let word = |at: &usize| !first[*at].is_empty() && first[*at].parse::<f32>().is_err();
    let over_numbers = |at: usize| number(first[at]).is_none() && 2 * numbers(at) > sample(at).count();
    let comes_again = |at: usize| !first[at].is_empty() && column(at).any(|cell| cell == first[at]);
    let repeats = |at: usize| column(at).collect::<HashSet<&str>>().len() < column(at).count();
    let names = || (0..first.len()).filter(word);
    let fraction = first.iter().any(|cell| cell.parse::<f32>().is_ok_and(|number| number.fract() != 0.0));
    let sure = !fraction && names().any(over_numbers);
    let likely = !sure && !fraction && !(0..first.len()).any(comes_again) && names().any(repeats);
    let counting = !sure && !likely && are_numbered(&first, cells);
    (sure || likely || counting, likely || counting)
}

/// Returns true if the first row numbers the columns, as pandas and NumPy do for columns without names: consecutive integers over a column
/// in which every number has a fraction, or increasing integers over two such columns.
fn are_numbered(first: &[&str], cells: &Cells) -> bool {
    // An index column has no name.
    let start = usize::from(first.first().is_some_and(|cell| cell.is_empty()));
    let whole = |cell: &&str| cell.parse::<u64>().ok().filter(|_| !cell.starts_with('+'));
    let Some(numbers) = first[start..].iter().map(whole).collect::<Option<Vec<u64>>>() else { return false };
    if numbers.len() < 2 || cells.rows() < 3 || !numbers.windows(2).all(|pair| pair[0] < pair[1]) {
        return false;
    }
    let fraction = |cell: &str| cell.contains(['.', 'e', 'E']) && number(cell).is_some();
    let fractions = |column: &usize| (1..cells.rows()).all(|row| fraction(cells.cell(row, *column)));
    let consecutive = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    (start..first.len()).filter(fractions).take(2).count() >= if consecutive { 1 } else { 2 }
}
