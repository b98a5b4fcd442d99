//! Encoding of the columns of a table as features: categories, offsets of numbers far from 0, and replacements of missing values.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result};

use super::super::csv::CsvTable;
use super::super::labels::{classes_among, label_key};
use super::super::numbers::number;
use super::super::offsets;
use super::super::reader::{Imputation, MissingValues, Replacement};

/// Categories of a column, at most. Of more the most frequent are kept.
const MOST_CATEGORIES: usize = 64;

/// Rows of a column that are examined for its offset.
const SAMPLED: usize = 1000;

/// Fraction of missing values above which an indicator feature is added.
const MARKED: f64 = 0.05;

/// True if a cell stands for a missing value: those of pandas, and `?`.
///
/// Source: `pandas.read_csv`, parameter `na_values`. `None` is not among them: as a category it is a value.
pub(in crate::data) fn is_missing(cell: &str) -> bool {
    const MARKS: [&str; 12] =
        ["NA", "N/A", "n/a", "NULL", "null", "<NA>", "#N/A", "#NA", "?", "1.#QNAN", "-1.#IND", "1.#IND"];
    cell.is_empty() || MARKS.contains(&cell) || cell.parse::<f32>().is_ok_and(f32::is_nan)
}

/// True if a cell of a column of numbers has no number: missing values, and `None`.
pub(super) fn lacks_number(cell: &str) -> bool {
    is_missing(cell) || cell.eq_ignore_ascii_case("none") || cell == "-"
}

/// A column of features.
pub(super) struct Column<'a> {
    pub place: usize,
    pub name: &'a str,
    /// The positions of its categories by their keys, if it holds no numbers.
    pub categories: Option<HashMap<String, usize>>,
    /// A value that is subtracted from its numbers, and one by which the differences are divided.
    offset: f64,
    scale: f64,
    imputation: Option<&'a Imputation>,
}

impl Column<'_> {
    /// Number of its features.
    pub fn width(&self) -> usize {
        let indicator = self.imputation.is_some_and(|imputation| imputation.indicator);
        self.categories.as_ref().map_or(1, HashMap::len) + usize::from(indicator)
    }

    /// Appends the features of a cell: a number, or a 1 at the position of its category and zeros at the others. An unknown category
    /// has no 1. A missing value is replaced, and marked if the column has an indicator.
    ///
    /// # Errors
    /// A cell that is not a number in a column of numbers, and a missing value in a column without a replacement.
    pub fn read(&self, table: &CsvTable, row: usize, path: &Path, features: &mut Vec<f32>) -> Result<()> {
        let cell = table.cell(row, self.place);
        let is_missing = self.is_missing(table, row);
        let replaced = self.imputation.filter(|_| is_missing).map(|imputation| &imputation.value);
        match (&self.categories, replaced) {
            (None, Some(Replacement::Number(value))) => features.push(((value - self.offset) / self.scale) as f32),
            (None, _) => features.push(table.number(row, self.place, (self.offset, self.scale), path)?),
            (Some(categories), replaced) => {
                let key = match replaced {
                    Some(Replacement::Category(category)) => label_key(category),
                    _ => label_key(cell),
                };
                let position = categories.get(&key);
                features.extend((0..categories.len()).map(|at| f32::from(u8::from(Some(&at) == position))));
            }
        }
        if self.imputation.is_some_and(|imputation| imputation.indicator) {
            features.push(f32::from(u8::from(is_missing)));
        }
        Ok(())
    }

    /// True if a row has no value.
    pub fn is_missing(&self, table: &CsvTable, row: usize) -> bool {
        let cell = table.cell(row, self.place);
        if self.categories.is_some() { is_missing(cell) } else { lacks_number(cell) }
    }

    /// True if missing values are replaced.
    pub fn is_imputed(&self) -> bool {
        self.imputation.is_some()
    }

    /// The cells of these rows with categories that training did not have.
    pub fn unknown<'t>(&self, table: &'t CsvTable, rows: impl Iterator<Item = usize>) -> Vec<&'t str> {
        let Some(categories) = &self.categories else { return Vec::new() };
        let cells = rows.map(|row| table.cell(row, self.place));
        let replaced = |cell: &str| self.imputation.is_some() && is_missing(cell);
        cells.filter(|cell| !replaced(cell) && !categories.contains_key(&label_key(cell))).collect()
    }
}

/// Encodings that are learned from the columns of a table, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Encodings {
    pub categories: BTreeMap<String, Vec<String>>,
    pub offsets: BTreeMap<String, f64>,
    pub scales: BTreeMap<String, f64>,
    pub imputation: BTreeMap<String, Imputation>,
    /// Sentences about decisions that the data leave open.
    pub notes: Vec<String>,
}

/// Categories, offsets, scales and replacements of missing values, by column.
pub(super) type EncodingMaps<'a> = (
    &'a BTreeMap<String, Vec<String>>,
    &'a BTreeMap<String, f64>,
    &'a BTreeMap<String, f64>,
    &'a BTreeMap<String, Imputation>,
);

/// The columns with their encodings.
pub(super) fn columns_of<'a>(
    table: &'a CsvTable,
    places: &[usize],
    (categories, offsets, scales, imputation): EncodingMaps<'a>,
) -> Vec<Column<'a>> {
    let column = |place: &usize| {
        let name = &table.names[*place];
        let keys = |words: &Vec<String>| words.iter().enumerate().map(|(at, word)| (label_key(word), at)).collect();
        let offset = offsets.get(name).copied().unwrap_or(0.0);
        let scale = scales.get(name).copied().unwrap_or(1.0);
        Column {
            place: *place,
            categories: categories.get(name).map(keys),
            name,
            offset,
            scale,
            imputation: imputation.get(name),
        }
    };
    places.iter().map(column).collect()
}

/// Learns the encodings of these columns from these rows. Columns without any value are removed from `columns`.
///
/// # Errors
/// A missing value if the policy is [`MissingValues::Error`], or if the column has none to replace it by.
pub(super) fn fit(
    table: &CsvTable,
    columns: &mut Vec<usize>,
    categorical: &[usize],
    (rows, policy, path): (&[usize], Option<MissingValues>, &Path),
) -> Result<Encodings> {
    let mut found = Encodings::default();
    let mut empty = Vec::new();
    for column in columns.iter().copied() {
        let name = &table.names[column];
        let cells = || rows.iter().map(|row| table.cell(*row, column));
        let numbers = cells().filter(|cell| number(cell).is_some()).count();
        let words = cells().filter(|cell| number(cell).is_none() && !lacks_number(cell)).count();
        let is_categorical = categorical.contains(&column) || words > numbers;
        let lacks = if is_categorical { is_missing } else { lacks_number };
        let missing = cells().filter(|cell| lacks(cell)).count();
        if missing == rows.len() {
            found.notes.push(format!("{}: {name}: no row has a value; the column is left out", path.display()));
            empty.push(column);
            continue;
        }
        if policy == Some(MissingValues::Error) && missing > 0 {
            let row = rows.iter().copied().find(|row| lacks(table.cell(*row, column))).unwrap_or(0);
            let message = format!("{}:{}: {name}: the value is missing", path.display(), table.line(row));
            return Err(Error::corrupt(message).note("`--missing median` replaces missing values"));
        }
        let indicator = missing as f64 > MARKED * rows.len() as f64;
        let value = match is_categorical {
            true => {
                let (categories, note) = categories_of(&cells().filter(|cell| !lacks(cell)).collect::<Vec<_>>());
                found.notes.extend(note.map(|note| format!("{}: {name}: {note}", path.display())));
                let value = most_frequent(cells().filter(|cell| !lacks(cell)).map(label_key));
                found.categories.insert(name.clone(), categories);
                Replacement::Category(value.unwrap_or_default())
            }
            false => {
                let values: Vec<f64> = cells().filter_map(number).collect();
                let (offset, note) = offset_of(&values);
                found.notes.extend(note.map(|note| format!("{}: {name}: {note}", path.display())));
                found.offsets.extend(offset.map(|offset| (name.clone(), offset)));
                let scale = offsets::scale(&values).filter(|_| offset.is_none());
                found.scales.extend(scale.map(|scale| (name.clone(), scale)));
                if counts_rows(&values, rows.len()) {
                    found.notes.push(format!(
                        "{}: {name}: it counts the rows; `--drop-columns {name:?}` leaves it out",
                        path.display()
                    ));
                }
                Replacement::Number(replacement(values, policy))
            }
        };
        if missing > 0 && policy != Some(MissingValues::Drop) {
            let shown = match (&value, policy) {
                (Replacement::Category(_), _) | (_, Some(MissingValues::MostFrequent)) => "the most frequent value",
                (_, Some(MissingValues::Mean)) => "the mean",
                (_, Some(MissingValues::Median | MissingValues::Error | MissingValues::Drop) | None) => "the median",
            };
            let marked = if indicator { "; a feature marks them" } else { "" };
            let what = format!("{missing} of {} values are missing and become {shown}{marked}", rows.len());
            found.notes.push(format!("{}: {name}: {what}", path.display()));
        }
        if !matches!(policy, Some(MissingValues::Error)) {
            found.imputation.insert(name.clone(), Imputation { value, indicator });
        }
    }
    columns.retain(|column| !empty.contains(column));
    match columns.is_empty() {
        true => Err(Error::corrupt(format!("{}: no column of features has a value", path.display()))),
        false => Ok(found),
    }
}

/// The offset of targets or features, if they need one, and a sentence about what f32 does not represent.
pub(super) fn offset_of(values: &[f64]) -> (Option<f64>, Option<String>) {
    let sample: Vec<f64> = values.iter().step_by(values.len().div_ceil(SAMPLED).max(1)).copied().collect();
    let offset = offsets::offset(&sample);
    (offset, offsets::loss(&sample, offset.unwrap_or(0.0)))
}

/// The number that replaces missing ones: the median unless the policy is another; of an even count the mean of the middle two.
pub(in crate::data) fn replacement(mut values: Vec<f64>, policy: Option<MissingValues>) -> f64 {
    match policy {
        Some(MissingValues::Mean) => values.iter().sum::<f64>() / values.len().max(1) as f64,
        Some(MissingValues::MostFrequent) => {
            let most = most_frequent(values.iter().map(|value| (value + 0.0).to_bits()));
            most.map_or(0.0, f64::from_bits)
        }
        Some(MissingValues::Median | MissingValues::Error | MissingValues::Drop) | None => {
            let middle = values.len() / 2;
            if values.is_empty() {
                return 0.0;
            }
            let is_even = values.len().is_multiple_of(2);
            let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
            let lower = below.iter().copied().max_by(f64::total_cmp);
            lower.filter(|_| is_even).map_or(*upper, |lower| f64::midpoint(lower, *upper))
        }
    }
}

/// The value that comes most often, the smallest of several.
pub(in crate::data) fn most_frequent<T: Ord + std::hash::Hash + Clone>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by(|(a, n), (b, m)| n.cmp(m).then_with(|| b.cmp(a))).map(|(value, _)| value)
}

/// The categories among cells in their order, and a sentence if only the most frequent are kept.
fn categories_of(cells: &[&str]) -> (Vec<String>, Option<String>) {
    let categories = classes_among(cells);
    if categories.len() <= MOST_CATEGORIES {
        return (categories, None);
    }
    let mut counts: HashMap<String, usize> = HashMap::new();
    cells.iter().for_each(|cell| *counts.entry(label_key(cell)).or_default() += 1);
    let mut order: Vec<&String> = categories.iter().collect();
    // Stable: of equally frequent ones the first stay.
    order.sort_by_key(|category| std::cmp::Reverse(counts[&label_key(category)]));
    order.truncate(MOST_CATEGORIES);
    let kept: Vec<String> = categories.iter().filter(|category| order.contains(category)).cloned().collect();
    let what = match categories.len() == cells.len() {
        true => format!("each of its {} rows has another word, as in names or free text", cells.len()),
        false => format!("{} distinct values look like free text or identifiers, not categories", categories.len()),
    };
    let note =
        format!("{what}; the {MOST_CATEGORIES} most frequent are categories, `--drop-columns` leaves the column out");
    (kept, Some(note))
}

/// True if numbers count the rows from 0 or 1.
fn counts_rows(values: &[f64], rows: usize) -> bool {
    let start = values.first().copied().unwrap_or(-1.0);
    let counts = values.iter().enumerate().all(|(at, value)| *value == start + at as f64);
    rows > 2 && values.len() == rows && (start == 0.0 || start == 1.0) && counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `pandas.Series(values).median()`, `.mean()` and `.mode()[0]`.
    #[test]
    fn replacements_are_those_of_pandas() {
        let values = vec![3.0, 1.0, 2.0, 10.0, 1.0, 7.0];
        let by = |policy| replacement(values.clone(), Some(policy));
        assert_eq!(by(MissingValues::Median), 2.5);
        assert_eq!(replacement(vec![3.0, 1.0, 2.0], None), 2.0);
        assert_eq!(replacement(vec![4.0], None), 4.0);
        assert_eq!(replacement(vec![4.0, 5.0], None), 4.5);
        assert_eq!((by(MissingValues::Mean), by(MissingValues::MostFrequent)), (4.0, 1.0));
    }

    #[test]
    fn many_words_keep_the_most_frequent() {
        let words: Vec<String> = (0..200).map(|at| format!("w{:03}", if at < 100 { at % 3 } else { at })).collect();
        let (kept, note) = categories_of(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((kept.len(), &kept[..4]), (64, &["w000", "w001", "w002", "w100"].map(String::from)[..]));
        assert!(note.unwrap().starts_with("103 distinct values look like free text"));
    }

    #[test]
    fn counters_of_rows() {
        assert!(counts_rows(&[1.0, 2.0, 3.0], 3) && counts_rows(&[0.0, 1.0, 2.0], 3));
        assert!(!counts_rows(&[2.0, 3.0, 4.0], 3) && !counts_rows(&[1.0, 2.0, 4.0], 3) && !counts_rows(&[1.0, 2.0], 2));
    }
}
