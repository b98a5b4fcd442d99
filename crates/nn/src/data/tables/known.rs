//! Reading of tables for a trained network: its columns in any order, with labels if they exist.

use std::collections::BTreeMap;
use std::path::Path;

use panoply_tensor::{Error, Result};

use super::super::ReadBudget;
use super::super::csv::{CsvOptions, CsvTable};
use super::super::dates::DateOrder;
use super::super::labels::Keys;
use super::super::numbers::number;
use super::super::read_progress::SEPARATED;
use super::super::reader::{Imputation, InferenceData, Label, ReadOptions, SequenceColumn, Task};
use super::examples::TableExamples;
use super::{TableRows, answer, check_names, columns_of, read_rows};

/// Schema of the tables that a trained network reads.
pub(in crate::data) struct TableSchema<'a> {
    pub columns: &'a [String],
    pub labels: &'a [String],
    pub task: Task,
    pub sequences: Option<&'a SequenceColumn>,
    pub words: &'a BTreeMap<String, Vec<String>>,
    pub offsets: &'a BTreeMap<String, f64>,
    pub scales: &'a BTreeMap<String, f64>,
    pub imputation: &'a BTreeMap<String, Imputation>,
    pub date_orders: &'a BTreeMap<String, DateOrder>,
    pub decimal_comma: bool,
    pub classes: &'a [String],
}

impl TableSchema<'_> {
    /// Reads examples for prediction, with their labels where the table has them.
    pub fn read(&self, path: &Path, reading: &ReadOptions) -> Result<InferenceData> {
        let needed = || self.columns.iter().chain(self.sequences.map(|sequences| &sequences.column));
        let unnamed = needed().all(|name| name.strip_prefix("column ").is_some_and(|at| at.parse::<usize>().is_ok()));
        let budget = ReadBudget::for_file(path)?;
        let options = CsvOptions { encoding: reading.encoding, decimal_comma: Some(self.decimal_comma) };
        let known_names = |first: &[String]| {
            let named = needed().all(|name| first.contains(name));
            named.then_some(true).or_else(|| unnamed.then_some(false))
        };
        let table = self.without_labels(read_rows(path, known_names, options, (&budget, &reading.progress))?);
        reading.progress.report(SEPARATED);
        let place = |name: &str| {
            let at = table.names.iter().position(|known| known == name);
            at.filter(|_| unnamed || !self.begins_with_other_names(&table))
        };
        let missing: Vec<&str> = needed().map(String::as_str).filter(|name| place(name).is_none()).collect();
        if !missing.is_empty() {
            let message = format!("{}: {} columns are missing ({})", path.display(), missing.len(), missing.join(", "));
            return Err(Error::corrupt(message));
        }
        if table.rows() == 0 {
            return Err(Error::corrupt(format!("{}: it has no rows after the header", path.display())));
        }
        let known: Option<Vec<usize>> = self.labels.iter().map(|name| place(name)).collect();
        let sequence = self.sequences.and_then(|sequences| place(&sequences.column));
        let places: Vec<usize> = self.columns.iter().filter_map(|name| place(name)).collect();
        check_names(&table, places.iter().chain(known.iter().flatten()).copied().chain(sequence), path)?;
        let rows: Vec<usize> = (0..table.rows()).collect();
        let examples = TableExamples::of(&table, &rows, (path, &budget), sequence)?;
        // Sequences may be longer than those of training; a network that cannot take them says so.
        let time = self.sequences.map_or(1, |sequences| sequences.max_len.max(examples.longest()));
        let maps = (self.words, self.offsets, self.scales, self.imputation, self.date_orders);
        let columns = columns_of(&table, &places, maps);
        let (features, lengths) = examples.numbers(&columns, time, (&reading.progress, SEPARATED))?;
        let name = |rows: &[usize]| match sequence {
            Some(column) => format!("{} {}", table.names[column], examples.cell(rows[0], column)),
            None => format!("line {}", table.line(rows[0])),
        };
        let (names, right) = (examples.rows.iter().map(name).collect(), self.right(&examples, known.as_deref()));
        let mut read = InferenceData::new(features, &lengths, names, right, self.classes)?;
        read.dataset = examples.ending(read.dataset)?;
        read.notes = examples.unknown_categories(&columns);
        budget.take_values(table.rows(), size_of::<(usize, usize)>(), path)?;
        let numbered = examples.rows.iter().enumerate();
        let rows = numbered.flat_map(|(example, rows)| rows.iter().map(move |row| (*row, example))).collect();
        let offsets = self.labels.iter().map(|label| self.offsets.get(label).copied().unwrap_or(0.0));
        read.offsets = if self.task == Task::Regression { offsets.collect() } else { Vec::new() };
        read.table = Some(TableRows::new(table, rows));
        Ok(read.for_task(self.task, self.labels.len()))
    }

    /// Returns the label of each example from these columns, where known.
    fn right(&self, examples: &TableExamples<'_>, labels: Option<&[usize]>) -> Vec<Option<Label>> {
        let keys = Keys::of(self.classes);
        let right = |rows: &[usize]| {
            let mut cells = labels?.iter().map(|column| examples.cell(rows[0], *column));
            match self.task {
                Task::Regression => cells.map(number).collect::<Option<Vec<f64>>>().map(Label::Values),
                Task::MultiLabel => {
                    cells.map(|cell| answer(cell).map(f64::from)).collect::<Option<Vec<f64>>>().map(Label::Values)
                }
                Task::Classification | Task::Text => keys.right(cells.next()?),
            }
        };
        examples.rows.iter().map(right).collect()
    }

    /// Returns true if the first row of a table without a recognized header is a header rather than an example: none of its texts is a
    /// known category, but those of another row are.
    fn begins_with_other_names(&self, table: &CsvTable) -> bool {
        let place = |name: &String| table.names.iter().position(|known| known == name);
        let columns: Vec<(usize, &Vec<String>)> =
            self.words.iter().filter_map(|(name, words)| Some((place(name)?, words))).collect();
        let is_known = |row: usize| {
            move |(at, words): &(usize, &Vec<String>)| words.iter().any(|word| word == table.cell(row, *at))
        };
        let others = 1..table.rows();
        !table.has_header
            && !columns.is_empty()
            && !columns.iter().any(is_known(0))
            && others.into_iter().any(|row| columns.iter().all(is_known(row)))
    }

    /// Renames the columns of a table without a header that has exactly the feature columns: they are in their order, without the labels.
    fn without_labels(&self, mut table: CsvTable) -> CsvTable {
        let all = self.columns.len() + usize::from(self.sequences.is_some());
        if !table.has_header && table.names.len() == all {
            let place = |name: &&String| name.strip_prefix("column ").and_then(|at| at.parse::<usize>().ok());
            let mut names: Vec<&String> =
                self.columns.iter().chain(self.sequences.map(|sequences| &sequences.column)).collect();
            names.sort_by_key(place);
            table.names = names.into_iter().cloned().collect();
        }
        table
    }
}
