//! A summary of the columns of a table: role, type, missing and distinct values.

use std::collections::HashSet;
use std::path::Path;

use panoply_tensor::Result;
use serde::{Deserialize, Serialize};

use super::super::ReadBudget;
use super::super::csv::CsvTable;
use super::super::dates::{ColumnDates, DateOrder};
use super::super::labels::label_key;
use super::super::numbers::{date, number, stored_time_text};
use super::super::reader::ReadOptions;
use super::columns::{is_missing, lacks_number};
use super::{Roles, read_table};

/// The summary of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableSummary {
    /// Number of rows, without a header.
    pub rows: usize,
    /// True if the first line names the columns.
    pub header: bool,
    /// The columns in their order.
    pub columns: Vec<ColumnSummary>,
}

/// The summary of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnSummary {
    /// The name, or `column N` in a table without a header.
    pub name: String,
    /// Its use in training.
    pub role: ColumnRole,
    /// The type of its values.
    pub kind: ColumnKind,
    /// Rows without a value.
    pub missing: usize,
    /// Distinct values, missing ones not counted.
    pub distinct: usize,
    /// The smallest and the largest number of a column of numbers.
    pub range: Option<(f64, f64)>,
    /// The first and the last date of a column of dates, as the file writes them; dates and times of Parquet in the order year, month, day.
    #[serde(default)]
    pub date_range: Option<(String, String)>,
    /// The first distinct values, as the file writes them.
    pub examples: Vec<String>,
}

/// The use of a column in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnRole {
    /// An input.
    Feature,
    /// A target.
    Label,
    /// Groups rows into sequences.
    Sequence,
    /// Groups rows for a split.
    Group,
    /// Left out: an index of the rows, or an option says so.
    LeftOut,
}

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Whole numbers.
    Integer,
    /// Numbers of which some have fractions.
    Float,
    /// Dates, with or without a time of day.
    Date,
    /// Texts, or numbers that an option makes categories.
    Category,
    /// No row has a value.
    Empty,
}

/// Notation of the cells of a column of dates.
enum Dates {
    /// As text in the order year, month, day.
    Iso,
    /// As text in another order.
    Ordered(DateOrder),
    /// As seconds since 1970: the file stores dates or times.
    Stored,
}

impl Dates {
    /// Returns how a column is read as dates; `None` if a cell is none. Only features are read in other orders than year, month, day.
    fn of(table: &CsvTable, column: usize, is_feature: bool) -> Option<Dates> {
        if table.stores_times(column) {
            return Some(Dates::Stored);
        }
        let cells = || (0..table.rows()).map(|row| table.cell(row, column)).filter(|cell| !lacks_number(cell));
        let first = cells().next()?;
        if date(first).is_some() {
            return cells().all(|cell| date(cell).is_some()).then_some(Dates::Iso);
        }
        match ColumnDates::of(cells()).filter(|_| is_feature)? {
            ColumnDates::Order(order) => Some(Dates::Ordered(order)),
            ColumnDates::Ambiguous => None,
        }
    }

    /// Returns the seconds since 1970 of a cell.
    fn seconds(&self, cell: &str) -> Option<f64> {
        match self {
            Dates::Iso => date(cell),
            Dates::Ordered(order) => order.seconds(cell),
            Dates::Stored => number(cell),
        }
    }

    /// Returns a cell as a date.
    fn text(&self, cell: &str) -> String {
        let stored = match self {
            Dates::Stored => stored_time_text(cell),
            Dates::Iso | Dates::Ordered(_) => None,
        };
        stored.unwrap_or_else(|| cell.to_string())
    }

    /// Returns the first and the last date.
    fn range<'c>(&self, cells: impl Iterator<Item = &'c str>) -> Option<(String, String)> {
        let mut ends: Option<[(f64, &str); 2]> = None;
        for cell in cells {
            let Some(seconds) = self.seconds(cell) else { continue };
            let [first, last] = ends.get_or_insert([(seconds, cell); 2]);
            if seconds < first.0 {
                *first = (seconds, cell);
            }
            if seconds > last.0 {
                *last = (seconds, cell);
            }
        }
        ends.map(|[first, last]| (self.text(first.1), self.text(last.1)))
    }
}

/// Examples of a column, at most.
const EXAMPLES: usize = 4;

/// Summarizes the table of a file, read with these options.
///
/// # Errors
/// A file that cannot be read, is damaged, or does not have the columns of the options.
pub fn summarize(path: &Path, reading: &ReadOptions) -> Result<TableSummary> {
    let budget = &ReadBudget::for_file(path)?;
    let table = &read_table(path, reading, budget)?;
    let roles = Roles::of(table, path, reading)?;
    let column = |at: usize| {
        let cells = || (0..table.rows()).map(|row| table.cell(row, at));
        let numbers = || cells().filter_map(number);
        let words = cells().filter(|cell| number(cell).is_none() && !lacks_number(cell)).count();
        let count = numbers().count();
        let is_named_category = roles.categorical.contains(&at);
        let dates = Dates::of(table, at, roles.columns.contains(&at)).filter(|_| !is_named_category);
        let is_category = (is_named_category || words > count) && dates.is_none();
        let kind = match (words + count, is_category) {
            (0, _) => ColumnKind::Empty,
            (_, _) if dates.is_some() => ColumnKind::Date,
            (_, true) => ColumnKind::Category,
            (_, false) if numbers().all(|number| number.fract() == 0.0) => ColumnKind::Integer,
            (_, false) => ColumnKind::Float,
        };
        let lacks = if is_category { is_missing } else { lacks_number };
        let (mut distinct, mut examples) = (HashSet::new(), Vec::new());
        for cell in cells().filter(|cell| !lacks(cell)) {
            if distinct.insert(label_key(cell)) && examples.len() < EXAMPLES {
                examples.push(dates.as_ref().map_or_else(|| cell.to_string(), |dates| dates.text(cell)));
            }
        }
        let ends = numbers().fold(None, |ends: Option<(f64, f64)>, number| {
            Some(ends.map_or((number, number), |(low, high)| (low.min(number), high.max(number))))
        });
        ColumnSummary {
            name: table.names[at].clone(),
            role: match at {
                at if roles.labels.contains(&at) => ColumnRole::Label,
                at if roles.sequence == Some(at) => ColumnRole::Sequence,
                at if roles.group == Some(at) => ColumnRole::Group,
                at if roles.columns.contains(&at) => ColumnRole::Feature,
                _ => ColumnRole::LeftOut,
            },
            kind,
            missing: cells().filter(|cell| lacks(cell)).count(),
            distinct: distinct.len(),
            range: ends.filter(|_| !is_category && dates.is_none()),
            date_range: dates.and_then(|dates| dates.range(cells())),
            examples,
        }
    };
    Ok(TableSummary {
        rows: table.rows(),
        header: table.has_header,
        columns: (0..table.names.len()).map(column).collect(),
    })
}
