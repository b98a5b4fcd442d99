//! Columns of a table whose file stores each column with a type, as Parquet does.
//!
//! Numbers stay numbers. The text of a cell, which labels and messages need, is formatted when a column is first asked for it.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::OnceLock;

use super::numbers::number;

/// The columns of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Columns {
    pub rows: usize,
    pub columns: Vec<Column>,
}

/// A column: a value or nothing in each row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    values: Values,
    /// True for each row without a value; empty if there are none, and for texts, whose cells are then empty.
    nulls: Vec<bool>,
    texts: OnceLock<Texts>,
}

/// The values of a column. A row without one has any.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Singles(Vec<f32>),
    /// Counts of 10^−`digits` seconds, with `digits` ≤ 9.
    Times {
        counts: Vec<i64>,
        digits: usize,
    },
    Texts(Texts),
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Values::Integers(values) | Values::Times { counts: values, .. } => values.len(),
            Values::Floats(values) => values.len(),
            Values::Singles(values) => values.len(),
            Values::Texts(texts) => texts.ends.len(),
        }
    }
}

/// Texts in one string, with the end of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    /// Creates a list for this many texts.
    pub fn with_capacity(count: usize) -> Texts {
        Texts { text: String::new(), ends: Vec::with_capacity(count) }
    }

    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    fn get(&self, row: usize) -> &str {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[row]]
    }
}

/// Bytes of the text of a number, at most for those of common length, with its end.
const BYTES_OF_NUMBER: usize = 20 + size_of::<usize>();

impl Column {
    /// A column of these values, of which `nulls` have none.
    pub fn new(values: Values, nulls: Vec<bool>) -> Column {
        Column { values, nulls, texts: OnceLock::new() }
    }

    /// The text of a row, trimmed; empty without a value.
    pub fn cell(&self, row: usize) -> &str {
        match &self.values {
            Values::Texts(texts) => texts.get(row),
            _ => self.texts.get_or_init(|| self.formatted()).get(row),
        }
    }

    /// The text of a row as [`Column::cell`] returns it, without memory for those of the other rows.
    pub fn text(&self, row: usize) -> Cow<'_, str> {
        match &self.values {
            Values::Texts(texts) => texts.get(row).into(),
            _ => {
                let mut cell = String::new();
                self.format(row, &mut cell);
                cell.into()
            }
        }
    }

    /// Memory in bytes that the first call of [`Column::cell`] takes.
    pub fn bytes_of_cells(&self) -> usize {
        match &self.values {
            Values::Texts(_) => 0,
            values => values.len() * BYTES_OF_NUMBER,
        }
    }

    /// The finite number of a row; `None` for others, and without a value.
    pub fn number(&self, row: usize) -> Option<f64> {
        // Integers below are exact in f64, so the quotient is rounded once.
        const EXACT: u64 = 1 << 53;
        if self.is_null(row) {
            return None;
        }
        match &self.values {
            Values::Integers(values) => Some(values[row] as f64),
            Values::Floats(values) => Some(values[row]).filter(|value| value.is_finite()),
            Values::Singles(values) => Some(f64::from(values[row])).filter(|value| value.is_finite()),
            Values::Times { counts, digits } => match counts[row] {
                count if count.unsigned_abs() < EXACT => Some(count as f64 / 10f64.powi(*digits as i32)),
                count => seconds(count, *digits).parse().ok(),
            },
            Values::Texts(texts) => number(texts.get(row)),
        }
    }

    /// True for a number that is missing; `None` for texts.
    pub fn lacks_number(&self, row: usize) -> Option<bool> {
        let is_nan = match &self.values {
            Values::Integers(_) | Values::Times { .. } => false,
            Values::Floats(values) => values[row].is_nan(),
            Values::Singles(values) => values[row].is_nan(),
            Values::Texts(_) => return None,
        };
        Some(is_nan || self.is_null(row))
    }

    /// True for dates and times.
    pub fn stores_times(&self) -> bool {
        match &self.values {
            Values::Times { .. } => true,
            Values::Integers(_) | Values::Floats(_) | Values::Singles(_) | Values::Texts(_) => false,
        }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.get(row) == Some(&true)
    }

    /// The text of each row, as a table of text would contain it.
    fn formatted(&self) -> Texts {
        let mut texts = Texts::with_capacity(self.values.len());
        let mut cell = String::new();
        for row in 0..self.values.len() {
            cell.clear();
            self.format(row, &mut cell);
            texts.push(&cell);
        }
        texts
    }

    /// Appends the text of a row.
    fn format(&self, row: usize, cell: &mut String) {
        if self.is_null(row) {
            return;
        }
        // Writing to a string does not fail.
        let _ = match &self.values {
            Values::Integers(values) => write!(cell, "{}", values[row]),
            Values::Floats(values) => write!(cell, "{}", values[row]),
            Values::Singles(values) => write!(cell, "{}", values[row]),
            Values::Times { counts, digits } => write!(cell, "{}", seconds(counts[row], *digits)),
            Values::Texts(texts) => write!(cell, "{}", texts.get(row)),
        };
    }
}

/// Converts a count of 10^−`digits` seconds to seconds.
pub(super) fn seconds(count: i64, digits: usize) -> String {
    let unit = 10i64.pow(digits as u32);
    let (whole, part) = (count.div_euclid(unit), count.rem_euclid(unit));
    match (whole, part) {
        (whole, 0) => whole.to_string(),
        // For a negative number the fraction counts up from the floor, its digits count down.
        (..0, part) => format!("-{}.{:0digits$}", -(whole + 1), unit - part),
        (whole, part) => format!("{whole}.{part:0digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from `pandas.Timestamp(count, unit=…).timestamp()`.
    #[test]
    fn timestamps_are_seconds() {
        assert_eq!(seconds(1_700_000_000_250, 3), "1700000000.250");
        assert_eq!(
            (seconds(5_000_000, 6), seconds(-250, 3), seconds(-1_000, 3)),
            ("5".into(), "-0.250".into(), "-1".into())
        );
        assert_eq!((seconds(-1_750, 3), seconds(1, 9)), ("-1.750".into(), "0.000000001".into()));
    }

    /// The number of a cell is that of its text, but for f32, whose text is shorter than its value in f64.
    #[test]
    fn numbers_are_those_of_the_texts() {
        let times = vec![0, -250, 1_700_000_000_123_456_789, i64::MIN, i64::MAX, 9_007_199_254_740_993];
        let columns = [
            Values::Integers(vec![0, -7, 9_007_199_254_740_993, i64::MIN, i64::MAX, 1]),
            Values::Floats(vec![0.1, -1e300, 5e-324, f64::NAN, f64::INFINITY, 3.0]),
            Values::Times { counts: times.clone(), digits: 3 },
            Values::Times { counts: times, digits: 9 },
        ];
        for values in columns {
            let column = Column::new(values, vec![false, false, false, false, false, true]);
            for row in 0..5 {
                assert_eq!(column.number(row), number(column.cell(row)), "{}", column.cell(row));
                assert_eq!(column.text(row), column.cell(row));
            }
            assert_eq!((column.number(5), column.cell(5), column.lacks_number(5)), (None, "", Some(true)));
        }
        let singles = Column::new(Values::Singles(vec![0.1, f32::NAN, f32::NEG_INFINITY]), Vec::new());
        assert_eq!((singles.cell(0), singles.number(0)), ("0.1", Some(f64::from(0.1f32))));
        assert_eq!(
            [1, 2].map(|row| (singles.number(row), singles.lacks_number(row))),
            [(None, Some(true)), (None, Some(false))]
        );
    }
}
