//! The examples of a table: each row is one, or the rows of a sequence are.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use panoply_tensor::{Error, Result, large_vec, parallel_map, prefer_huge_pages};

use super::super::csv::CsvTable;
use super::super::labels::sorted;
use super::super::read_progress::ReadProgress;
use super::super::{Dataset, ReadBudget};
use super::columns::Column;

/// Number of column names in a message.
pub(super) const NAMES_SHOWN: usize = 8;

/// Examples that a thread encodes at a time.
pub(super) const AT_ONCE: usize = 1 << 12;

/// The rows of each example.
pub(super) enum ExampleRows<'a> {
    /// One for each example.
    Single(&'a [usize]),
    /// Those of sequences.
    Several(Vec<Vec<usize>>),
}

impl ExampleRows<'_> {
    pub fn len(&self) -> usize {
        match self {
            ExampleRows::Single(rows) => rows.len(),
            ExampleRows::Several(rows) => rows.len(),
        }
    }

    pub fn of(&self, example: usize) -> &[usize] {
        match self {
            ExampleRows::Single(rows) => std::slice::from_ref(&rows[example]),
            ExampleRows::Several(rows) => &rows[example],
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &[usize]> + Clone {
        (0..self.len()).map(|example| self.of(example))
    }
}

/// Formats the location of a cell.
fn place(table: &CsvTable, path: &Path, row: usize, column: usize) -> String {
    format!("{}:{}: {}", path.display(), table.line(row), table.names[column])
}

/// A table with the rows of each of its examples.
pub(super) struct TableExamples<'a> {
    pub table: &'a CsvTable,
    pub path: &'a Path,
    pub budget: &'a ReadBudget,
    pub rows: ExampleRows<'a>,
    /// Column whose value is equal in all rows of an example; `None` if each row is an example.
    pub sequence: Option<usize>,
}

impl<'a> TableExamples<'a> {
    /// The examples among these rows, in the order in which they begin.
    pub fn of(
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
    pub fn longest(&self) -> usize {
        self.rows.iter().map(<[usize]>::len).max().unwrap_or(0)
    }

    /// Formats the location of a column in the first row of an example.
    pub fn at(&self, example: usize, column: usize) -> String {
        self.at_row(self.rows.of(example)[0], column)
    }

    pub fn at_row(&self, row: usize, column: usize) -> String {
        place(self.table, self.path, row, column)
    }

    pub fn cell(&self, row: usize, column: usize) -> &'a str {
        self.table.cell(row, column)
    }

    /// Returns the cell of each example in a column, which must be equal in all its rows.
    pub fn words(&self, column: usize) -> Result<Vec<&'a str>> {
        let (table, path, examples) = (self.table, self.path, &self.rows);
        self.budget.take_values(table.bytes_of_cells(column), 1, path)?;
        let word = |rows: &[usize]| {
            let word = table.cell(rows[0], column);
            match rows[1..].iter().find(|row| table.cell(**row, column) != word) {
                Some(row) => {
                    let message = format!(
                        "{}: `{}`, but `{word}` in line {} of the same sequence",
                        place(table, path, *row, column),
                        table.cell(*row, column),
                        table.line(rows[0])
                    );
                    Err(Error::corrupt(message).note("a sequence needs the same label in each of its rows"))
                }
                None => Ok(word),
            }
        };
        let mut words = large_vec(self.rows.len());
        words.resize(self.rows.len(), "");
        let parts: Vec<(usize, Mutex<&mut [&'a str]>)> =
            words.chunks_mut(AT_ONCE).enumerate().map(|(at, part)| (at * AT_ONCE, Mutex::new(part))).collect();
        let read = |(first, part): &(usize, Mutex<&mut [&'a str]>)| {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.iter_mut().enumerate().try_for_each(|(at, to)| word(examples.of(first + at)).map(|word| *to = word))
        };
        parallel_map(&parts, read)?;
        drop(parts);
        Ok(words)
    }

    /// Returns the number of each example in a column whose file stores numbers; `None` for text, for sequences, and if one is missing.
    pub fn stored_numbers(&self, column: usize) -> Option<Vec<f64>> {
        let ExampleRows::Single(rows) = &self.rows else { return None };
        let is_stored = self.sequence.is_none() && self.table.bytes_of_cells(column) > 0;
        let mut numbers = large_vec(if is_stored { rows.len() } else { 0 });
        for row in rows.iter().take_while(|_| is_stored) {
            numbers.push(self.table.finite_number(*row, column)?);
        }
        is_stored.then_some(numbers)
    }

    /// Returns the features of all examples, padded with zeros to `time` rows, and the shape of an example.
    ///
    /// Reports the progress of the read from the fraction `from` on.
    pub fn numbers(
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
        prefer_huge_pages(&mut numbers);
        let parts: Vec<(usize, Mutex<&mut [f32]>)> = numbers
            .chunks_mut(AT_ONCE * stride.max(1))
            .enumerate()
            .map(|(at, part)| (at * AT_ONCE, Mutex::new(part)))
            .collect();
        let step = progress.steps(parts.len(), (from, 1.0));
        let plain: Option<Vec<&[f32]>> = columns.iter().map(Column::plain_numbers).collect();
        let encode = |(first, part): &(usize, Mutex<&mut [f32]>)| {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let mut encoded = Vec::with_capacity(stride);
            for (at, example) in part.chunks_exact_mut(stride.max(1)).enumerate() {
                encoded.clear();
                if let (Some(plain), [row]) = (&plain, rows.of(first + at)) {
                    example.iter_mut().zip(plain).for_each(|(feature, numbers)| *feature = numbers[*row]);
                    if !example.iter().any(|feature| feature.is_nan()) {
                        continue;
                    }
                }
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
    pub fn missing(&self, columns: &[Column<'_>], time: usize) -> Result<BTreeMap<String, Vec<usize>>> {
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
    pub fn too_many(&self, time: usize, width: usize) -> Error {
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
    pub fn unknown_categories(&self, columns: &[Column<'_>]) -> Vec<String> {
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
    pub fn groups(&self, column: usize) -> Result<Vec<u32>> {
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

    /// Returns a data set of these examples with the lines where they begin, and the lengths of their sequences, if they are sequences.
    pub fn ending(&self, mut data: Dataset) -> Result<Dataset> {
        self.budget.take_values(self.rows.len(), size_of::<usize>(), self.path)?;
        data.row_numbers = Some(self.rows.iter().map(|rows| self.table.line(rows[0])).collect());
        match self.sequence {
            Some(_) => data.with_seq_lengths(self.rows.iter().map(|rows| rows.len() as i32).collect()),
            None => Ok(data),
        }
    }
}
