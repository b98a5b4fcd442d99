//! The rows of a table that examples were read from, with all their columns.

use std::borrow::Cow;

use super::super::csv::CsvTable;
use super::super::numbers::stored_time_text;

/// A table with the rows of its examples, one example after another.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRows {
    table: CsvTable,
    /// Position of each row in the table, and its example.
    rows: Vec<(usize, usize)>,
}

impl TableRows {
    pub(super) fn new(table: CsvTable, rows: Vec<(usize, usize)>) -> TableRows {
        TableRows { table, rows }
    }

    /// Returns the names of all columns of the table.
    pub fn column_names(&self) -> &[String] {
        &self.table.names
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the line of the file in which a row begins, counted from 1; for a table without lines, the row counted from 1.
    ///
    /// # Panics
    /// If `row` is out of range.
    pub fn line(&self, row: usize) -> usize {
        self.table.line(self.rows[row].0)
    }

    /// Returns the example that a row belongs to.
    ///
    /// # Panics
    /// If `row` is out of range.
    pub fn example(&self, row: usize) -> usize {
        self.rows[row].1
    }

    /// Returns the trimmed text of a cell, a stored date or time in the order year, month, day; empty without a value.
    ///
    /// # Panics
    /// If `row` or `column` is out of range.
    pub fn text(&self, row: usize, column: usize) -> Cow<'_, str> {
        let text = self.table.text(self.rows[row].0, column);
        match self.table.stores_times(column) {
            true => stored_time_text(&text).map_or(text, Cow::Owned),
            false => text,
        }
    }

    /// Returns true if the file stores the cells of a column as dates or times.
    ///
    /// # Panics
    /// If `column` is out of range.
    pub fn stores_times(&self, column: usize) -> bool {
        self.table.stores_times(column)
    }

    /// Returns true if a cell is empty or a mark of a missing value, such as `NA`.
    ///
    /// # Panics
    /// If `row` or `column` is out of range.
    pub fn is_missing(&self, row: usize, column: usize) -> bool {
        self.table.is_missing(self.rows[row].0, column)
    }

    /// Returns the rows of these examples, which are numbered anew.
    ///
    /// # Panics
    /// If an example is out of range.
    #[must_use]
    pub fn select(self, examples: &[usize]) -> TableRows {
        let mut rows = Vec::with_capacity(examples.len());
        for (number, example) in examples.iter().enumerate() {
            let start = self.rows.partition_point(|(_, of)| of < example);
            let own = self.rows[start..].iter().take_while(|(_, of)| of == example);
            rows.extend(own.map(|(row, _)| (*row, number)));
        }
        TableRows { table: self.table, rows }
    }
}
