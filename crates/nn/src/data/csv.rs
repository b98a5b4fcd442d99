//! Tables as text: one example a line, cells divided by commas, semicolons, tabs, bars or blanks.
//!
//! The `csv` crate reads the records (RFC 4180: quoted cells may hold delimiters and line breaks). This module chooses the delimiter,
//! says whether the first line names the columns, and keeps the cells as one text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use panoply_tensor::{Error, Result};

use super::reader::name;
use super::{Dataset, ReadBudget, read_text};

/// A table of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names of the columns, if the first line has them.
    pub names: Option<Vec<String>>,
    /// How many columns there are.
    pub width: usize,
    /// One row after another.
    pub values: Vec<f32>,
}

/// Reads a table. The first line is taken as names if a cell of it is no number. Empty lines are passed over.
pub fn load(path: &Path) -> Result<Table> {
    let budget = ReadBudget::for_file(path)?;
    let (text, delimiter) = open(path, &budget)?;
    let wrong = |(line, what): (usize, String)| Error::corrupt(format!("{}:{line}: {what}", path.display()));
    let cells = Cells::parse(&text, delimiter).map_err(wrong)?;
    budget.take_values(cells.ends.len(), size_of::<f32>(), path)?;
    let mut table = Table { names: None, width: cells.width, values: Vec::new() };
    for row in 0..cells.rows() {
        let texts = || (0..cells.width).map(|column| cells.cell(row, column));
        let numbers: Result<Vec<f32>, String> =
            texts().map(|cell| cell.parse().map_err(|_| format!("`{cell}` is no number"))).collect();
        match numbers {
            Ok(numbers) => table.values.extend(numbers),
            Err(_) if row == 0 => table.names = Some(texts().map(str::to_string).collect()),
            Err(what) => return Err(wrong((cells.line(row), what))),
        }
    }
    Ok(table)
}

impl Table {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// Examples of which this column, counted from 0, is the class: a whole number below `classes`.
    pub fn to_classification(&self, column: usize, classes: usize) -> Result<Dataset> {
        if column >= self.width {
            return Err(Error::mistake(format!("there is no column {column} in a table of {}", self.width)));
        }
        let (mut features, mut labels) = (Vec::with_capacity(self.values.len()), Vec::with_capacity(self.rows()));
        for (row, cells) in self.values.chunks_exact(self.width).enumerate() {
            let class = cells[column];
            if class.fract() != 0.0 || !(0.0..classes as f32).contains(&class) {
                return Err(Error::mistake(format!("row {row} has class {class}, not one of 0 .. {classes}")));
            }
            labels.push(class as i32);
            features.extend(cells[..column].iter().chain(&cells[column + 1..]));
        }
        Dataset::classification(features, self.width - 1, labels, classes)
    }
}

/// Cells of text, row after row: one text and where each cell ends in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cells {
    text: String,
    ends: Vec<u32>,
    lines: Vec<u32>,
    /// Cells of a row.
    width: usize,
}

impl Cells {
    /// No rows of so many cells.
    #[cfg(feature = "parquet")]
    pub fn new(width: usize) -> Cells {
        Cells { width, ..Cells::default() }
    }

    /// Adds a cell of the row under way.
    pub fn push(&mut self, cell: &str) -> Result<(), String> {
        self.text.push_str(cell);
        let end = u32::try_from(self.text.len()).map_err(|_| "its cells hold more than 4 GiB of text".to_string())?;
        self.ends.push(end);
        Ok(())
    }

    /// Ends the row under way, which began in this line.
    pub fn end_row(&mut self, line: usize) {
        self.lines.push(u32::try_from(line).unwrap_or(u32::MAX));
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.lines.len()
    }

    fn cell(&self, row: usize, column: usize) -> &str {
        let at = row * self.width + column;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[at] as usize]
    }

    fn line(&self, row: usize) -> usize {
        self.lines[row] as usize
    }

    fn remove_first(&mut self) {
        let start = self.ends[self.width - 1];
        self.text.drain(..start as usize);
        self.ends.drain(..self.width);
        self.ends.iter_mut().for_each(|end| *end -= start);
        self.lines.remove(0);
    }

    /// The records of a text. On error the line and what is wrong with it.
    fn parse(text: &str, delimiter: u8) -> Result<Cells, (usize, String)> {
        let mut cells = Cells::default();
        let mut records = Records::of(text, delimiter);
        while let Some(line) = records.next()? {
            let found = records.cells().count();
            if cells.rows() == 0 {
                cells.width = found;
            }
            if found != cells.width {
                return Err((line, format!("{found} cells, not {} as above", cells.width)));
            }
            records.cells().try_for_each(|cell| cells.push(cell)).map_err(|what| (line, what))?;
            cells.end_row(line);
        }
        Ok(cells)
    }
}

/// What stands behind the text: a record of its own unless a quote is open.
const END: &str = "\n\0\n";

/// The records of a text without those that are blank.
struct Records<'a> {
    text: &'a str,
    reader: csv::Reader<std::io::Chain<&'a [u8], &'static [u8]>>,
    record: StringRecord,
    /// Whether runs of the delimiter count once.
    collapsed: bool,
    /// A position in the text and its line, counted from 1.
    reached: (usize, usize),
}

impl<'a> Records<'a> {
    fn of(text: &'a str, delimiter: u8) -> Records<'a> {
        let (collapsed, source) = (delimiter == b' ', text.as_bytes().chain(END.as_bytes()));
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(source);
        Records { text, reader, record: StringRecord::new(), collapsed, reached: (0, 1) }
    }

    /// Reads the next record: the line where it begins, or nothing at the end.
    fn next(&mut self) -> Result<Option<usize>, (usize, String)> {
        loop {
            let more = self.reader.read_record(&mut self.record);
            let start = self.record.position().map_or(self.text.len(), |position| position.byte() as usize);
            let line = self.line_of(start);
            if !more.map_err(|error| (line, error.to_string()))? {
                return Ok(None);
            }
            if self.reader.position().byte() as usize > self.text.len() + 1 {
                // What stands behind the text was read: alone, or within a quote that is still open.
                let alone = self.record.len() == 1 && &self.record[0] == "\0";
                return if alone { Ok(None) } else { Err((line, "a quote is not closed".to_string())) };
            }
            if self.record.len() > 1 || self.cells().any(|cell| !cell.is_empty()) {
                return Ok(Some(line));
            }
        }
    }

    /// The line of the first cell at or behind a position, which is not before the last one asked for.
    fn line_of(&mut self, position: usize) -> usize {
        let bytes = self.text.as_bytes();
        let start = position.min(bytes.len()).max(self.reached.0);
        let blank = bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let lines = bytes[self.reached.0..start + blank].iter().filter(|byte| **byte == b'\n').count();
        self.reached = (start + blank, self.reached.1 + lines);
        self.reached.1
    }

    /// The cells of the record, without blanks around them.
    fn cells(&self) -> impl Iterator<Item = &str> {
        // A quote behind a blank is part of an unquoted cell to the reader.
        let collapsed = self.collapsed;
        let plain = |cell: &str| cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')).map(str::len);
        self.record
            .iter()
            .map(move |cell| {
                let trimmed = cell.trim();
                match plain(trimmed).filter(|_| trimmed.len() < cell.len()) {
                    Some(inner) => &trimmed[1..=inner],
                    None => trimmed,
                }
            })
            .filter(move |cell| !collapsed || !cell.is_empty())
    }
}

/// Records that are looked at to choose a delimiter.
const LOOKED_AT: usize = 1000;

/// Delimiters of cells, the usual first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// How a delimiter divides the first records of a text.
struct Division {
    /// Cells of each record, if all have the same number of them and more than one.
    width: Option<usize>,
    /// The share of cells that are numbers.
    numeric: f64,
    /// Records that were looked at.
    records: usize,
    /// Whether each record but the first has a number in it.
    numbers_below: bool,
}

impl Division {
    /// Of so many records at most.
    fn of(text: &str, delimiter: u8, most: usize) -> Division {
        let mut records = Records::of(text, delimiter);
        let (mut widths, mut cells, mut numbers, mut numbers_below) = (Vec::new(), 0, 0, true);
        while widths.len() < most {
            // A quote that is not closed ends what can be looked at; reading the table names it.
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

/// The delimiter by which all records have the same number of cells, more than one; of several the one with most cells that are numbers.
/// Blanks count only if no other does. If none does, it is the first of the usual ones in the first line.
fn delimiter(text: &str) -> u8 {
    let mut best: Option<(u8, f64)> = None;
    for delimiter in DELIMITERS.into_iter().filter(|delimiter| text.as_bytes().contains(delimiter)) {
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

/// Records of a text that are looked at to see whether it is a table.
const LOOKED_AT_OF_TEXT: usize = 20;

/// Bytes of a line that may be a row of a table, at most.
const LONGEST_ROW: usize = 1 << 22;

/// Whether the first twenty lines of a text, two at least, are rows of a table: of the same number of cells each, or of a number each. By
/// blanks only numbers are divided, since words are, too.
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

/// A text with line feeds where old Macs wrote carriage returns alone, and without a byte order mark.
fn unified(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    match text.contains('\r') && !text.contains('\n') {
        true => text.replace('\r', "\n").into(),
        false => text.into(),
    }
}

/// Bytes that a cell of the record under way takes, at most.
const RECORD_BYTES: usize = 2 * size_of::<usize>();

/// The text of a table and its delimiter: a tab if the file's name says so.
fn open(path: &Path, budget: &ReadBudget) -> Result<(String, u8)> {
    let read = read_text(path, budget)?;
    // What becomes of it: where each cell ends and all of their text; and while a record is read, where its cells end.
    let divides = |byte: &&u8| DELIMITERS.contains(byte) || matches!(byte, b' ' | b'\n' | b'\r');
    let cells = read.as_bytes().iter().filter(divides).count() + 1;
    budget.take_values(cells, 2 * size_of::<u32>(), path)?;
    budget.take(read.len() as u64, path)?;
    budget.take_values(cells, RECORD_BYTES, path)?;
    budget.give_back((cells * RECORD_BYTES) as u64);
    // Tables are large: only what changes is copied.
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
    Ok((text, delimiter))
}

/// The finite number that a cell is: as Rust writes it, or with a percent sign, a currency sign or groups of three digits around or in
/// it (`45%`, `$12.50`, `1,234`).
pub(super) fn number(cell: &str) -> Option<f64> {
    let plain = |cell: &str| cell.parse::<f64>().ok().filter(|number| number.is_finite());
    if let Some(number) = plain(cell) {
        return Some(number);
    }
    if !cell.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (sign, rest) = match cell.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, cell),
    };
    let bare = rest.trim_start_matches(CURRENCIES).trim_end_matches(CURRENCIES);
    let bare = bare.strip_suffix('%').unwrap_or(bare).trim();
    let digits = match bare.contains(',') {
        true => ungrouped(bare)?,
        false => bare.to_string(),
    };
    // The sign was taken already, and words for infinity have no digits.
    if !digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return None;
    }
    plain(&digits).map(|number| sign * number)
}

/// Signs that stand before or behind an amount.
const CURRENCIES: [char; 6] = ['$', '€', '£', '¥', '₹', '₩'];

/// The digits of a number whose whole part has a comma before each group of three; nothing if it is not written so.
fn ungrouped(text: &str) -> Option<String> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next().filter(|first| (1..=3).contains(&first.len()) && digits(first))?;
    let rest: Vec<&str> = groups.collect();
    let grouped = !rest.is_empty() && rest.iter().all(|group| group.len() == 3 && digits(group));
    let fraction = fraction.map_or(Some(String::new()), |fraction| digits(fraction).then(|| format!(".{fraction}")))?;
    grouped.then(|| format!("{first}{}{fraction}", rest.concat()))
}

/// A table of text, of which one column may hold words.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvTable {
    /// Names of the columns, if the first line has them; otherwise `column 1` and so on.
    pub names: Vec<String>,
    /// Whether the first line has them.
    pub has_header: bool,
    /// Whether that is a guess: it has, but might be a row as well.
    pub header_guessed: bool,
    /// Columns that its writer calls an index of the rows.
    pub(super) index: Vec<String>,
    cells: Cells,
}

/// Names under which a column of classes is looked for.
const LABELS: [&str; 8] = ["label", "labels", "class", "target", "y", "species", "category", "outcome"];

impl CsvTable {
    /// Reads a table. The first line is taken as names if it has a word where most other lines have a number, if nothing in it
    /// comes again though words below it do, or if it counts the columns over numbers with fractions.
    pub fn read(path: &Path) -> Result<CsvTable> {
        CsvTable::read_named(path, |_| None, &ReadBudget::for_file(path)?)
    }

    /// Reads a table of which somebody may know whether this first line names the columns.
    pub(super) fn read_named(
        path: &Path,
        known: impl Fn(&[String]) -> Option<bool>,
        budget: &ReadBudget,
    ) -> Result<CsvTable> {
        let (text, delimiter) = open(path, budget)?;
        let wrong = |(line, what): (usize, String)| Error::corrupt(format!("{}:{line}: {what}", path.display()));
        let mut cells = Cells::parse(&text, delimiter).map_err(wrong)?;
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
        Ok(CsvTable { names, has_header: named, header_guessed: doubtful, index: Vec::new(), cells })
    }

    /// A table of columns of these names.
    #[cfg(feature = "parquet")]
    pub(super) fn of(names: Vec<String>, index: Vec<String>, cells: Cells) -> CsvTable {
        CsvTable { names, has_header: true, header_guessed: false, index, cells }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.cells.rows()
    }

    /// What a row has in a column, without blanks around it.
    pub fn cell(&self, row: usize, column: usize) -> &str {
        self.cells.cell(row, column)
    }

    /// The line of the file in which a row begins, counted from 1.
    pub fn line(&self, row: usize) -> usize {
        self.cells.line(row)
    }

    /// The columns that index the rows: those that their writer calls so, and those without a name of their own, as pandas writes them.
    pub fn index_columns(&self) -> Vec<usize> {
        let unnamed = |name: &str| {
            let number = name.strip_prefix("Unnamed: ");
            name.is_empty() || number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
        };
        let is_index = |name: &String| self.has_header && (unnamed(name) || self.index.contains(name));
        (0..self.names.len()).filter(|column| is_index(&self.names[*column])).collect()
    }

    /// The positions of the columns to be learned: those that are said, or the one of a usual name, or the last that is not an index.
    pub fn label_columns(&self, said: &[String]) -> Result<Vec<usize>> {
        let named = |name: &str| self.names.iter().position(|known| known.eq_ignore_ascii_case(name));
        if said.is_empty() {
            let usual = LABELS.iter().find_map(|name| named(name)).filter(|_| self.has_header);
            let index = self.index_columns();
            let last = (0..self.names.len()).rev().find(|column| !index.contains(column));
            return Ok(vec![usual.or(last).unwrap_or(self.names.len() - 1)]);
        }
        let labels = self.resolve_columns(said)?;
        match (1..labels.len()).find(|at| labels[..*at].contains(&labels[*at])) {
            Some(at) => Err(Error::mistake(format!("the column {} is to be learned twice", self.names[labels[at]]))),
            None => Ok(labels),
        }
    }

    /// The positions of columns, by name or counted from 1; several may stand in one word with commas between if no column is called so.
    pub fn resolve_columns(&self, said: &[String]) -> Result<Vec<usize>> {
        let mut columns = Vec::new();
        for said in said {
            match self.resolve_column(said) {
                Err(_) if said.contains(',') => {
                    said.split(',')
                        .try_for_each(|part| self.resolve_column(part.trim()).map(|column| columns.push(column)))?;
                }
                column => columns.push(column?),
            }
        }
        Ok(columns)
    }

    /// The position of a column, by name or counted from 1.
    pub fn resolve_column(&self, said: &str) -> Result<usize> {
        if said.is_empty() {
            let message = "a name of a column is empty, as behind a last comma";
            return Err(Error::mistake(message).note("a column that has no name is said by its place, counted from 1"));
        }
        let counted = || said.parse::<usize>().ok()?.checked_sub(1).filter(|column| *column < self.names.len());
        let named = self.names.iter().position(|known| known.eq_ignore_ascii_case(said));
        named
            .or_else(counted)
            .ok_or_else(|| Error::mistake(format!("there is no column `{said}`; there are {}", self.names.join(", "))))
    }

    /// One of its numbers, less an offset.
    pub(super) fn number(&self, row: usize, column: usize, offset: f64, path: &Path) -> Result<f32> {
        let cell = self.cell(row, column);
        let found = number(cell).map(|number| (number - offset) as f32).filter(|number| number.is_finite());
        found.ok_or_else(|| {
            let what = if cell.is_empty() { "is empty".to_string() } else { format!("`{cell}` is no finite number") };
            Error::corrupt(format!("{}:{}: {}: {what}", path.display(), self.line(row), self.names[column]))
        })
    }
}

/// Bytes of memory that a row of so many cells takes besides their text.
#[cfg(feature = "parquet")]
pub(super) fn row_bytes(cells: usize) -> u64 {
    (cells as u64 + 1).saturating_mul(size_of::<u32>() as u64)
}

/// The name of a column that has none, counted from 1.
pub(super) fn counted(column: usize) -> String {
    format!("column {column}")
}

/// Whether the first row names the columns, and whether it might be a row of words as well. An empty cell tells nothing, and a number
/// with a fraction is no name.
fn are_names(cells: &Cells) -> (bool, bool) {
    let first: Vec<&str> = (0..cells.width).map(|at| cells.cell(0, at)).collect();
    let column = |at: usize| (1..cells.rows()).map(move |row| cells.cell(row, at)).filter(|cell| !cell.is_empty());
    let numbers = |at: usize| column(at).filter(|cell| number(cell).is_some()).count();
    let word = |at: &usize| !first[*at].is_empty() && first[*at].parse::<f32>().is_err();
    let over_numbers = |at: usize| number(first[at]).is_none() && 2 * numbers(at) > column(at).count();
    let comes_again = |at: usize| !first[at].is_empty() && column(at).any(|cell| cell == first[at]);
    let repeats = |at: usize| column(at).collect::<HashSet<&str>>().len() < column(at).count();
    let names = || (0..first.len()).filter(word);
    let fraction = first.iter().any(|cell| cell.parse::<f32>().is_ok_and(|number| number.fract() != 0.0));
    let sure = !fraction && names().any(over_numbers);
    let likely = !fraction && !(0..first.len()).any(comes_again) && names().any(repeats);
    let counting = !sure && !likely && are_numbered(&first, cells);
    (sure || likely || counting, (likely || counting) && !sure)
}

/// Whether the first row numbers the columns, as pandas and NumPy name columns that have no names: whole numbers, each one more than the
/// one before, over a column in which every number is written with a fraction; or rising ones over two such columns.
fn are_numbered(first: &[&str], cells: &Cells) -> bool {
    // The index of the rows has no name.
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
