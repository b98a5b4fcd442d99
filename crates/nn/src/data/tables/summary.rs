//! A summary of the columns of a table: role, type, missing and distinct values.

use std::collections::HashSet;
use std::path::Path;

use panoply_tensor::Result;
use serde::{Deserialize, Serialize};

use super::super::ReadBudget;
use super::super::labels::label_key;
use super::super::numbers::number;
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
    /// Texts, or numbers that an option makes categories.
    Category,
    /// No row has a value.
    Empty,
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
        let is_category = roles.categorical.contains(&at) || words > count;
        let kind = match (words + count, is_category) {
            (0, _) => ColumnKind::Empty,
            (_, true) => ColumnKind::Category,
            (_, false) if numbers().all(|number| number.fract() == 0.0) => ColumnKind::Integer,
            (_, false) => ColumnKind::Float,
        };
        let lacks = if is_category { is_missing } else { lacks_number };
        let (mut distinct, mut examples) = (HashSet::new(), Vec::new());
        for cell in cells().filter(|cell| !lacks(cell)) {
            if distinct.insert(label_key(cell)) && examples.len() < EXAMPLES {
                examples.push(cell.to_string());
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
            range: ends.filter(|_| !is_category),
            examples,
        }
    };
    Ok(TableSummary {
        rows: table.rows(),
        header: table.has_header,
        columns: (0..table.names.len()).map(column).collect(),
    })
}
