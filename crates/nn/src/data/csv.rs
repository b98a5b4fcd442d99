//! Tables of numbers as text: one example a line, columns divided by commas, semicolons or tabs.

use std::collections::HashSet;
use std::path::Path;

use panoply_tensor::{Error, Result};

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
    let text = read_text(path, &budget)?;
    // A cell is a text of its own while its line is read, and a number then.
    budget.take_values(text.matches([',', ';', '\t', '\n']).count() + 1, size_of::<&str>() + size_of::<f32>(), path)?;
    parse(&text).map_err(|(line, what)| Error::corrupt(format!("{}:{line}: {what}", path.display())))
}

fn parse(text: &str) -> Result<Table, (usize, String)> {
    let text = text.trim_start_matches('\u{feff}');
    let divider =
        [',', ';', '\t'].into_iter().find(|divider| text.lines().next().is_some_and(|line| line.contains(*divider)));
    let mut table = Table { names: None, width: 0, values: Vec::new() };
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(divider.unwrap_or(',')).map(|cell| cell.trim().trim_matches('"')).collect();
        let numbers: Result<Vec<f32>, String> =
            cells.iter().map(|cell| cell.parse().map_err(|_| format!("`{cell}` is no number"))).collect();
        match numbers {
            Err(_) if table.width == 0 => {
                table.names = Some(cells.iter().map(|cell| cell.to_string()).collect());
                table.width = cells.len();
            }
            Err(what) => return Err((number + 1, what)),
            Ok(numbers) => {
                if table.width == 0 {
                    table.width = numbers.len();
                }
                if numbers.len() != table.width {
                    return Err((number + 1, format!("{} cells, not {} as above", numbers.len(), table.width)));
                }
                table.values.extend(numbers);
            }
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
    pub fn classified(&self, column: usize, classes: usize) -> Result<Dataset> {
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
        Dataset::new(features, self.width - 1, labels, classes)
    }
}

/// A table of text, of which one column may hold words.
#[derive(Clone, Debug, PartialEq)]
pub struct TextTable {
    /// Names of the columns, if the first line has them; otherwise `column 1` and so on.
    pub names: Vec<String>,
    /// Whether the first line has them.
    pub named: bool,
    /// Whether that is a guess: it has, but might be a row as well.
    pub doubtful: bool,
    /// Each row with its line, counted from 1.
    pub rows: Vec<(usize, Vec<String>)>,
}

/// Names under which a column of classes is looked for.
const LABELS: [&str; 8] = ["label", "labels", "class", "target", "y", "species", "category", "outcome"];

impl TextTable {
    /// Reads a table. The first line is taken as names if it has a word where most other lines have a number, or if nothing in it
    /// comes again though words below it do.
    pub fn read(path: &Path) -> Result<TextTable> {
        TextTable::read_named(path, |_| None, &ReadBudget::for_file(path)?)
    }

    /// Reads a table of which somebody may know whether this first line names the columns.
    pub(super) fn read_named(
        path: &Path,
        known: impl Fn(&[String]) -> Option<bool>,
        budget: &ReadBudget,
    ) -> Result<TextTable> {
        let text = read_text(path, budget)?;
        let text = text.trim_start_matches('\u{feff}');
        let dividers = [',', ';', '\t'];
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
        let divider = dividers.into_iter().find(|divider| first.contains(*divider)).unwrap_or(',');
        let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            budget.take(row_bytes(line.matches(divider).count() + 1, line.len()), path)?;
            let cells = cells(line, divider)
                .ok_or_else(|| Error::corrupt(format!("{}:{}: a quote is not closed", path.display(), at + 1)))?;
            if let Some((_, above)) = rows.first().filter(|(_, above)| above.len() != cells.len()) {
                let message =
                    format!("{}:{}: {} cells, not {} as above", path.display(), at + 1, cells.len(), above.len());
                return Err(Error::corrupt(message));
            }
            rows.push((at + 1, cells));
        }
        let Some(width) = rows.first().map(|(_, first)| first.len()) else {
            return Err(Error::corrupt(format!("{}: it has no rows", path.display())));
        };
        let (named, doubtful) = known(&rows[0].1).map_or_else(|| are_names(&rows), |named| (named, false));
        let names = match named {
            true => rows.remove(0).1,
            false => (1..=width).map(counted).collect(),
        };
        Ok(TextTable { names, named, doubtful, rows })
    }

    /// The positions of the columns to be learned: those that are said, or the one of a usual name, or the last.
    pub fn labels(&self, said: &[String]) -> Result<Vec<usize>> {
        let named = |name: &str| self.names.iter().position(|known| known.eq_ignore_ascii_case(name));
        if said.is_empty() {
            let usual = LABELS.iter().find_map(|name| named(name)).filter(|_| self.named);
            return Ok(vec![usual.unwrap_or(self.names.len() - 1)]);
        }
        let labels = self.columns(said)?;
        match (1..labels.len()).find(|at| labels[..*at].contains(&labels[*at])) {
            Some(at) => Err(Error::mistake(format!("the column {} is to be learned twice", self.names[labels[at]]))),
            None => Ok(labels),
        }
    }

    /// The positions of columns, by name or counted from 1; several may stand in one word with commas between if no column is called so.
    pub fn columns(&self, said: &[String]) -> Result<Vec<usize>> {
        let mut columns = Vec::new();
        for said in said {
            match self.column(said) {
                Err(_) if said.contains(',') => {
                    said.split(',').try_for_each(|part| self.column(part.trim()).map(|column| columns.push(column)))?;
                }
                column => columns.push(column?),
            }
        }
        Ok(columns)
    }

    /// The position of a column, by name or counted from 1.
    pub fn column(&self, said: &str) -> Result<usize> {
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

    /// The numbers of some columns, row after row.
    pub fn numbers(&self, columns: &[usize], path: &Path) -> Result<Vec<f32>> {
        let mut numbers = Vec::with_capacity(self.rows.len() * columns.len());
        for row in 0..self.rows.len() {
            for column in columns {
                numbers.push(self.number(row, *column, path)?);
            }
        }
        Ok(numbers)
    }

    /// One of its numbers.
    pub fn number(&self, row: usize, column: usize, path: &Path) -> Result<f32> {
        let (line, cells) = &self.rows[row];
        let (cell, name) = (&cells[column], &self.names[column]);
        let number = cell.parse::<f32>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| {
            let what = if cell.is_empty() { "is empty".to_string() } else { format!("`{cell}` is no finite number") };
            Error::corrupt(format!("{}:{line}: {name}: {what}", path.display()))
        })
    }
}

/// Bytes of memory that a row takes, with this many cells and all of their text.
pub(super) fn row_bytes(cells: usize, text: usize) -> u64 {
    let row = size_of::<(usize, Vec<String>)>() as u64;
    row + (cells as u64).saturating_mul(size_of::<String>() as u64).saturating_add(text as u64)
}

/// The name of a column that has none, counted from 1.
pub(super) fn counted(column: usize) -> String {
    format!("column {column}")
}

/// Whether the first row names the columns, and whether it might be a row of words as well. An empty cell tells nothing, and a number
/// with a fraction is no name.
fn are_names(rows: &[(usize, Vec<String>)]) -> (bool, bool) {
    let Some(((_, first), below)) = rows.split_first() else { return (false, false) };
    let column = |at: usize| below.iter().map(move |(_, cells)| cells[at].as_str()).filter(|cell| !cell.is_empty());
    let numbers = |at: usize| column(at).filter(|cell| cell.parse::<f32>().is_ok()).count();
    let word = |at: &usize| !first[*at].is_empty() && first[*at].parse::<f32>().is_err();
    let over_numbers = |at: usize| 2 * numbers(at) > column(at).count();
    let comes_again = |at: usize| !first[at].is_empty() && column(at).any(|cell| cell == first[at]);
    let repeats = |at: usize| column(at).collect::<HashSet<&str>>().len() < column(at).count();
    let names = || (0..first.len()).filter(word);
    let fraction = first.iter().any(|cell| cell.parse::<f32>().is_ok_and(|number| number.fract() != 0.0));
    let sure = !fraction && names().any(over_numbers);
    let likely = !fraction && !(0..first.len()).any(comes_again) && names().any(repeats);
    (sure || likely, likely && !sure)
}

/// The cells of a line; none if a quote is not closed. Within quotes dividers are text and `""` is a quote.
pub(super) fn cells(line: &str, divider: char) -> Option<Vec<String>> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' if quoted || cell.trim().is_empty() => quoted = !quoted,
            _ if letter == divider && !quoted => cells.push(std::mem::take(&mut cell).trim().to_string()),
            _ => cell.push(letter),
        }
    }
    cells.push(cell.trim().to_string());
    (!quoted).then_some(cells)
}
