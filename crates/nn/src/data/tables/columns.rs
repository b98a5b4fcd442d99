//! Encoding of the columns of a table as features: categories, offsets of numbers far from 0, and replacements of missing values.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::thread::available_parallelism;

use panoply_tensor::{Error, Result, large_vec, parallel_map};

use super::super::csv::CsvTable;
use super::super::dates::{ColumnDates, DateOrder};
use super::super::labels::{classes_among, label_key};
use super::super::offsets;
use super::super::read_progress::{FITTED, ReadProgress, SEPARATED};
use super::super::reader::{Imputation, MissingValues, Replacement};

/// Categories of a column, at most. Of more the most frequent are kept.
const MAX_CATEGORIES: usize = 64;

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
    let unsigned = cell.strip_prefix(['-', '+']).unwrap_or(cell);
    match unsigned.as_bytes().first() {
        // Most cells are numbers. Marks that begin with a digit begin with 1.
        Some(b'0' | b'2'..=b'9' | b'.') => false,
        Some(_) => MARKS.contains(&cell) || unsigned.eq_ignore_ascii_case("nan"),
        None => cell.is_empty(),
    }
}

/// True if a cell of a column of numbers has no number: missing values, and `None`.
pub(in crate::data) fn lacks_number(cell: &str) -> bool {
    is_missing(cell) || cell.eq_ignore_ascii_case("none") || cell == "-"
}

/// A column of features.
pub(super) struct Column<'a> {
    pub place: usize,
    pub name: &'a str,
    /// The positions of its categories by their keys, if it holds no numbers.
    pub categories: Option<HashMap<String, usize>>,
    /// The order of its dates, if it holds dates that are not numbers by themselves.
    dates: Option<DateOrder>,
    /// A value that is subtracted from its numbers, and one by which the differences are divided.
    offset: f64,
    scale: f64,
    imputation: Option<&'a Imputation>,
    /// Its numbers by row of the table, less the offset and divided by the scale, if they were parsed. A cell without a finite number
    /// is NaN.
    pub numbers: Option<Vec<f32>>,
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
        let indicator = self.imputation.is_some_and(|imputation| imputation.indicator);
        let parsed = self.numbers.as_ref().map(|numbers| numbers[row]);
        if let Some(number) = parsed.filter(|number| !number.is_nan() && !indicator) {
            features.push(number);
            return Ok(());
        }
        let is_missing = self.is_missing(table, row);
        let replaced = self.imputation.filter(|_| is_missing).map(|imputation| &imputation.value);
        match (&self.categories, replaced) {
            (None, Some(Replacement::Number(value))) => features.push(((value - self.offset) / self.scale) as f32),
            (None, _) => features.push(table.number(row, self.place, (self.dates, self.offset, self.scale), path)?),
            (Some(categories), replaced) => {
                let key = match replaced {
                    Some(Replacement::Category(category)) => label_key(category),
                    _ => label_key(table.cell(row, self.place)),
                };
                let position = categories.get(&key);
                features.extend((0..categories.len()).map(|at| f32::from(u8::from(Some(&at) == position))));
            }
        }
        if indicator {
            features.push(f32::from(u8::from(is_missing)));
        }
        Ok(())
    }

    /// Its features, if each row has one and it is the parsed number, or a cell that is to be read if that is NaN.
    pub fn plain_numbers(&self) -> Option<&[f32]> {
        if self.width() == 1 && self.categories.is_none() { self.numbers.as_deref() } else { None }
    }

    /// True if a row has no value.
    pub fn is_missing(&self, table: &CsvTable, row: usize) -> bool {
        match self.categories {
            Some(_) => table.is_missing(row, self.place),
            None => table.lacks_number(row, self.place),
        }
    }

    /// False if it is known that every row has a value.
    pub fn may_lack_values(&self) -> bool {
        self.numbers.as_ref().is_none_or(|numbers| numbers.iter().any(|number| number.is_nan()))
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
    pub date_orders: BTreeMap<String, DateOrder>,
    /// The numbers of each column that is left, as [`Column`] has them; `None` for categories.
    pub numbers: Vec<Option<Vec<f32>>>,
    /// Sentences about decisions that the data leave open.
    pub notes: Vec<String>,
}

/// Categories, offsets, scales, replacements of missing values, and orders of dates, by column.
pub(super) type EncodingMaps<'a> = (
    &'a BTreeMap<String, Vec<String>>,
    &'a BTreeMap<String, f64>,
    &'a BTreeMap<String, f64>,
    &'a BTreeMap<String, Imputation>,
    &'a BTreeMap<String, DateOrder>,
);

/// The columns with their encodings.
pub(super) fn columns_of<'a>(
    table: &'a CsvTable,
    places: &[usize],
    (categories, offsets, scales, imputation, date_orders): EncodingMaps<'a>,
) -> Vec<Column<'a>> {
    let column = |place: &usize| {
        let name = &table.names[*place];
        let keys = |words: &Vec<String>| words.iter().enumerate().map(|(at, word)| (label_key(word), at)).collect();
        let offset = offsets.get(name).copied().unwrap_or(0.0);
        let scale = scales.get(name).copied().unwrap_or(1.0);
        Column {
            place: *place,
            categories: categories.get(name).map(keys),
            dates: date_orders.get(name).copied(),
            name,
            offset,
            scale,
            imputation: imputation.get(name),
            numbers: None,
        }
    };
    places.iter().map(column).collect()
}

/// The encoding of a column that was learned from its cells.
struct FittedColumn {
    /// `None` if no row has a value.
    encoding: Option<ColumnEncoding>,
    notes: Vec<String>,
}

struct ColumnEncoding {
    categories: Option<Vec<String>>,
    offset: Option<f64>,
    scale: Option<f64>,
    imputation: Imputation,
    dates: Option<DateOrder>,
    numbers: Option<Vec<f32>>,
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
    progress: &ReadProgress,
) -> Result<Encodings> {
    let mut found = Encodings::default();
    let threads = available_parallelism().map_or(1, usize::from);
    let blocks: Vec<&[usize]> = columns.chunks(columns.len().div_ceil(threads).clamp(1, MAX_AT_ONCE)).collect();
    let step = progress.steps(blocks.len(), (SEPARATED, FITTED));
    let fit = |block: &&[usize]| {
        let columns = block.iter().zip(parse_columns(table, block, rows));
        let fit = |(column, parsed): (&usize, ParsedColumn)| {
            fit_column((table, *column), parsed, categorical.contains(column), (rows, policy, path))
        };
        let fitted = columns.map(fit).collect::<Result<Vec<FittedColumn>>>()?;
        step();
        Ok(fitted)
    };
    let fitted = parallel_map(&blocks, fit)?.into_iter().flatten();
    let mut with_values = Vec::new();
    for (column, FittedColumn { encoding, notes }) in columns.iter().copied().zip(fitted) {
        found.notes.extend(notes);
        let Some(encoding) = encoding else { continue };
        let name = &table.names[column];
        found.categories.extend(encoding.categories.map(|categories| (name.clone(), categories)));
        found.offsets.extend(encoding.offset.map(|offset| (name.clone(), offset)));
        found.scales.extend(encoding.scale.map(|scale| (name.clone(), scale)));
        found.date_orders.extend(encoding.dates.map(|order| (name.clone(), order)));
        if !matches!(policy, Some(MissingValues::Error)) {
            found.imputation.insert(name.clone(), encoding.imputation);
        }
        found.numbers.push(encoding.numbers);
        with_values.push(column);
    }
    *columns = with_values;
    match columns.is_empty() {
        true => Err(Error::corrupt(format!("{}: no column of features has a value", path.display()))),
        false => Ok(found),
    }
}

/// Columns that a thread parses at a time, at most: their cells in a row are neighbors in memory. Fewer would read the whole text more often,
/// more would keep more columns in f64.
const MAX_AT_ONCE: usize = 16;

/// The cells of a column as numbers.
struct ParsedColumn {
    /// A cell without a number is NaN.
    numbers: Vec<f64>,
    /// Cells that are neither numbers nor missing.
    words: usize,
    without_number: usize,
}

fn parse_columns(table: &CsvTable, columns: &[usize], rows: &[usize]) -> Vec<ParsedColumn> {
    let empty = || ParsedColumn { numbers: large_vec(rows.len()), words: 0, without_number: 0 };
    let mut parsed: Vec<ParsedColumn> = columns.iter().map(|_| empty()).collect();
    let parse = |row: usize, column: usize, parsed: &mut ParsedColumn| {
        let number = table.finite_number(row, column);
        if number.is_none() {
            parsed.without_number += 1;
            parsed.words += usize::from(!table.lacks_number(row, column));
        }
        parsed.numbers.push(number.unwrap_or(f64::NAN));
    };
    if table.is_columnar() {
        for (column, parsed) in columns.iter().zip(&mut parsed) {
            rows.iter().for_each(|row| parse(*row, *column, parsed));
        }
        return parsed;
    }
    for row in rows {
        columns.iter().zip(&mut parsed).for_each(|(column, parsed)| parse(*row, *column, parsed));
    }
    parsed
}

impl ParsedColumn {
    /// Reads the cells as dates if none is a number, and returns their order; they stay words if they are ambiguous or not dates.
    fn read_dates(&mut self, table: &CsvTable, column: usize, rows: &[usize]) -> Option<ColumnDates> {
        if self.words == 0 || self.without_number < rows.len() {
            return None;
        }
        let present = rows.iter().filter(|row| !table.lacks_number(**row, column));
        let found = ColumnDates::of(present.map(|row| table.cell(*row, column)))?;
        if let ColumnDates::Order(order) = found {
            let numbers = rows.iter().map(|row| order.seconds(table.cell(*row, column)).unwrap_or(f64::NAN));
            self.numbers.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
            (self.without_number, self.words) = (self.without_number - self.words, 0);
        }
        Some(found)
    }
}

/// Learns the encoding of a column from its parsed cells.
fn fit_column(
    (table, column): (&CsvTable, usize),
    mut parsed: ParsedColumn,
    is_categorical: bool,
    (rows, policy, path): (&[usize], Option<MissingValues>, &Path),
) -> Result<FittedColumn> {
    let name = &table.names[column];
    let dates = if is_categorical { None } else { parsed.read_dates(table, column, rows) };
    let ParsedColumn { numbers, words, without_number } = parsed;
    let mut notes = Vec::new();
    let mut note = |what: &str| notes.push(format!("{}: {name}: {what}", path.display()));
    let cells = || rows.iter().map(|row| table.cell(*row, column));
    let is_categorical = is_categorical || words > rows.len() - without_number;
    let lacks = if is_categorical { is_missing } else { lacks_number };
    let missing = match is_categorical {
        true => cells().filter(|cell| lacks(cell)).count(),
        false => without_number - words,
    };
    if missing == rows.len() {
        note("no row has a value; the column is left out");
        return Ok(FittedColumn { encoding: None, notes });
    }
    if policy == Some(MissingValues::Error) && missing > 0 {
        let row = rows.iter().copied().find(|row| lacks(table.cell(*row, column))).unwrap_or(0);
        let message = format!("{}:{}: {name}: the value is missing", path.display(), table.line(row));
        return Err(Error::corrupt(message).note("`--missing median` replaces missing values"));
    }
    let indicator = missing as f64 > MARKED * rows.len() as f64;
    let mut encoding = ColumnEncoding {
        categories: None,
        offset: None,
        scale: None,
        imputation: Imputation { value: Replacement::Number(0.0), indicator },
        dates: match dates {
            Some(ColumnDates::Order(order)) => Some(order),
            Some(ColumnDates::Ambiguous) | None => None,
        },
        numbers: None,
    };
    encoding.imputation.value = match is_categorical {
        true => {
            drop(numbers);
            let mut counts: HashMap<&str, usize> = HashMap::new();
            cells().filter(|cell| !lacks(cell)).for_each(|cell| *counts.entry(cell).or_default() += 1);
            let (categories, what, most) = categories_of(&counts);
            what.iter().for_each(|what| note(what));
            encoding.categories = Some(categories);
            Replacement::Category(most)
        }
        false => {
            let numbers_only = || numbers.iter().copied().filter(|number| !number.is_nan()).collect();
            let values: Cow<'_, [f64]> =
                if without_number > 0 { Cow::Owned(numbers_only()) } else { (&numbers).into() };
            let (offset, what) = offset_of(&values);
            what.iter().for_each(|what| note(what));
            encoding.offset = offset;
            encoding.scale = offsets::scale(&values).filter(|_| offset.is_none());
            if counts_rows(&values, rows.len()) {
                note(&format!("it counts the rows; `--drop-columns {name:?}` leaves it out"));
            }
            let (offset, scale) = (offset.unwrap_or(0.0), encoding.scale.unwrap_or(1.0));
            let encoded = numbers.iter().map(|number| {
                let number = ((number - offset) / scale) as f32;
                if number.is_finite() { number } else { f32::NAN }
            });
            let mut by_row = large_vec(table.rows());
            match rows.len() == table.rows() {
                true => by_row.extend(encoded),
                false => {
                    by_row.resize(table.rows(), f32::NAN);
                    rows.iter().zip(encoded).for_each(|(row, number)| by_row[*row] = number);
                }
            }
            encoding.numbers = Some(by_row);
            Replacement::Number(replacement(&values, policy))
        }
    };
    if missing > 0 && policy != Some(MissingValues::Drop) {
        let shown = match (&encoding.imputation.value, policy) {
            (Replacement::Category(_), _) | (_, Some(MissingValues::MostFrequent)) => "the most frequent value",
            (_, Some(MissingValues::Mean)) => "the mean",
            (_, Some(MissingValues::Median | MissingValues::Error | MissingValues::Drop) | None) => "the median",
        };
        let marked = if indicator { "; a feature marks them" } else { "" };
        note(&format!("{missing} of {} values are missing and become {shown}{marked}", rows.len()));
    }
    if let (Some(ColumnDates::Ambiguous), Some(categories)) = (dates, &encoding.categories) {
        let what = "different dates fit several orders and are categories; write them as YYYY-MM-DD";
        notes.push(format!("{}: column {name}: {} {what}", path.display(), categories.len()));
    }
    Ok(FittedColumn { encoding: Some(encoding), notes })
}

/// The offset of targets or features, if they need one, and a sentence about what f32 does not represent.
pub(super) fn offset_of(values: &[f64]) -> (Option<f64>, Option<String>) {
    let sample: Vec<f64> = values.iter().step_by(values.len().div_ceil(SAMPLED).max(1)).copied().collect();
    let offset = offsets::offset(&sample);
    (offset, offsets::loss(&sample, offset.unwrap_or(0.0)))
}

/// The number that replaces missing ones: the median unless the policy is another; of an even count the mean of the middle two.
pub(in crate::data) fn replacement(values: &[f64], policy: Option<MissingValues>) -> f64 {
    match policy {
        Some(MissingValues::Mean) => values.iter().sum::<f64>() / values.len().max(1) as f64,
        Some(MissingValues::MostFrequent) => {
            let most = most_frequent(values.iter().map(|value| (value + 0.0).to_bits()));
            most.map_or(0.0, f64::from_bits)
        }
        Some(MissingValues::Median | MissingValues::Error | MissingValues::Drop) | None => median(values),
    }
}

/// Samples from which the bounds of a median are taken.
const MEDIAN_SAMPLES: usize = 1 << 12;

/// Samples between the middle one and either bound: four standard deviations of the rank of the median among the samples.
const MEDIAN_MARGIN: usize = 128;

/// The median of numbers, 0 of none.
///
/// Bounds from a sample leave a sixteenth of the numbers to select from.
///
/// Source: R. W. Floyd and R. L. Rivest, "Expected time bounds for selection", 1975.
fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    let among = |candidates: &mut [f64], skipped: usize| {
        let (below, upper, _) = candidates.select_nth_unstable_by(middle - skipped, f64::total_cmp);
        let lower = below.iter().copied().max_by(f64::total_cmp);
        lower.filter(|_| values.len().is_multiple_of(2)).map_or(*upper, |lower| f64::midpoint(lower, *upper))
    };
    if values.len() > 4 * MEDIAN_SAMPLES {
        let mut samples: Vec<f64> = values.iter().step_by(values.len() / MEDIAN_SAMPLES).copied().collect();
        samples.sort_unstable_by(f64::total_cmp);
        let (low, high) = (samples[samples.len() / 2 - MEDIAN_MARGIN], samples[samples.len() / 2 + MEDIAN_MARGIN]);
        let below: usize = values.iter().map(|value| usize::from(*value < low)).sum();
        let inside = |value: f64| value >= low && value <= high;
        let count = values.iter().map(|value| usize::from(inside(*value))).sum();
        // Both numbers in the middle are inside.
        if below < middle && middle < below + count {
            let mut candidates = vec![0.0; count + 1];
            let mut next = 0;
            for value in values {
                // Written without a branch, which would be hard to predict.
                candidates[next] = *value;
                next += usize::from(inside(*value));
            }
            return among(&mut candidates[..count], below);
        }
    }
    if values.is_empty() { 0.0 } else { among(&mut values.to_vec(), 0) }
}

/// The value that comes most often, the smallest of several.
pub(in crate::data) fn most_frequent<T: Ord + std::hash::Hash + Clone>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by(|(a, n), (b, m)| n.cmp(m).then_with(|| b.cmp(a))).map(|(value, _)| value)
}

/// Returns the categories of a column in their order, a sentence if only the most frequent are kept, and the key of the most frequent. `cells`
/// counts how often each cell occurs.
fn categories_of(cells: &HashMap<&str, usize>) -> (Vec<String>, Option<String>, String) {
    let categories = classes_among(&cells.keys().copied().collect::<Vec<&str>>());
    let mut counts: HashMap<String, usize> = HashMap::new();
    cells.iter().for_each(|(cell, count)| *counts.entry(label_key(cell)).or_default() += count);
    let most = counts.iter().max_by(|(a, n), (b, m)| n.cmp(m).then_with(|| b.cmp(a))).map(|(key, _)| key.clone());
    let most = most.unwrap_or_default();
    if categories.len() <= MAX_CATEGORIES {
        return (categories, None, most);
    }
    let mut order: Vec<&String> = categories.iter().collect();
    // Stable: of equally frequent ones the first stay.
    order.sort_by_key(|category| std::cmp::Reverse(counts[&label_key(category)]));
    order.truncate(MAX_CATEGORIES);
    let kept: Vec<String> = categories.iter().filter(|category| order.contains(category)).cloned().collect();
    let rows = cells.values().sum::<usize>();
    let what = match categories.len() == rows {
        true => format!("each of its {rows} rows has another word, as in names or free text"),
        false => format!("{} distinct values look like free text or identifiers, not categories", categories.len()),
    };
    let note =
        format!("{what}; the {MAX_CATEGORIES} most frequent are categories, `--drop-columns` leaves the column out");
    (kept, Some(note), most)
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
        let by = |policy| replacement(&values, Some(policy));
        assert_eq!(by(MissingValues::Median), 2.5);
        assert_eq!(replacement(&[3.0, 1.0, 2.0], None), 2.0);
        assert_eq!(replacement(&[4.0], None), 4.0);
        assert_eq!(replacement(&[4.0, 5.0], None), 4.5);
        assert_eq!((by(MissingValues::Mean), by(MissingValues::MostFrequent)), (4.0, 1.0));
    }

    /// Of many numbers, as of their sorted list: with ties, in order, and where the sample has other numbers than the rest.
    #[test]
    fn medians_of_many_numbers() {
        let mut state = 1u64;
        let mut draw = || {
            // Constants of Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64
        };
        let count = 5 * MEDIAN_SAMPLES;
        let random: Vec<f64> = (0..count).map(|_| draw() - 1e9).collect();
        let ties: Vec<f64> = random.iter().map(|value| (value * 3e-9).round()).collect();
        let ordered: Vec<f64> = (0..count).map(|at| at as f64).collect();
        let misled: Vec<f64> = (0..count).map(|at| if at % 5 == 0 { 1e9 } else { -draw() }).collect();
        let zeros: Vec<f64> = (0..count).map(|at| if at % 3 == 0 { -0.0 } else { 0.0 }).collect();
        for values in [random, ties, ordered, misled, zeros] {
            for length in [count, count - 1] {
                let found = median(&values[..length]);
                let mut sorted = values[..length].to_vec();
                sorted.sort_by(f64::total_cmp);
                let wanted = match length % 2 {
                    0 => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
                    _ => sorted[length / 2],
                };
                assert_eq!(found.to_bits(), wanted.to_bits(), "{found} {wanted}");
            }
        }
    }

    #[test]
    fn many_words_keep_the_most_frequent() {
        let words: Vec<String> = (0..200).map(|at| format!("w{:03}", if at < 100 { at % 3 } else { at })).collect();
        let mut counts = HashMap::new();
        words.iter().for_each(|word| *counts.entry(word.as_str()).or_default() += 1);
        let (kept, note, most) = categories_of(&counts);
        assert_eq!(most, "w000");
        assert_eq!((kept.len(), &kept[..4]), (64, &["w000", "w001", "w002", "w100"].map(String::from)[..]));
        assert!(note.unwrap().starts_with("103 distinct values look like free text"));
    }

    #[test]
    fn counters_of_rows() {
        assert!(counts_rows(&[1.0, 2.0, 3.0], 3) && counts_rows(&[0.0, 1.0, 2.0], 3));
        assert!(!counts_rows(&[2.0, 3.0, 4.0], 3) && !counts_rows(&[1.0, 2.0, 4.0], 3) && !counts_rows(&[1.0, 2.0], 2));
    }
}
