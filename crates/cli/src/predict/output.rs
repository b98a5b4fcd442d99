//! `predict --output FILE`: the predicted rows with all columns of their table, as CSV, JSON or Parquet.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use panoply::nn::checkpoint::WholeFile;
use panoply::nn::data::reader::InferenceData;
use panoply::nn::data::{TableRows, Targets};
use panoply::{Error, Result};
use serde_json::json;

use crate::csv_cell;
use crate::protect;
use crate::train::data_schema::DataSchema;
use crate::train::metrics::argmax;

/// Format of an output file.
#[derive(Clone, Copy, Debug)]
enum FileFormat {
    Csv,
    Json,
    Parquet,
}

/// The file of `--output`.
#[derive(Clone, Copy, Debug)]
pub struct OutputFile<'a> {
    path: &'a Path,
    format: FileFormat,
}

impl<'a> OutputFile<'a> {
    /// Returns the file at a path, whose extension selects the format.
    ///
    /// # Errors
    /// Another extension, and a path that cannot be written to or refers to the model, the data, a file of a run or a device.
    pub fn new(path: &'a Path, model: &Path, data: &[&Path]) -> Result<OutputFile<'a>> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let format = match extension.as_deref() {
            Some("csv") => FileFormat::Csv,
            Some("json") => FileFormat::Json,
            Some("parquet") if cfg!(feature = "parquet") => FileFormat::Parquet,
            Some("parquet") => return Err(no_parquet(path)),
            _ => {
                let message = format!("--output {}: the extension must be .csv, .json or .parquet", path.display());
                return Err(Error::mistake(message));
            }
        };
        protect::check_predictions(path, model, data)?;
        // Fails before the work if the file cannot be created.
        drop(WholeFile::create(path)?);
        Ok(OutputFile { path, format })
    }

    /// Writes a row for each example, or for each row of a sequence, with the columns of its table and the predictions. Returns the number
    /// of rows.
    pub fn write(&self, examples: &InferenceData, schema: &DataSchema, outputs: &[f32]) -> Result<usize> {
        let frame = Frame::new(examples, added_columns(examples, schema, outputs));
        match self.format {
            FileFormat::Csv => frame.write_csv(self.path)?,
            FileFormat::Json => frame.write_json(self.path)?,
            FileFormat::Parquet => frame.write_parquet(self.path)?,
        }
        Ok(frame.rows)
    }
}

/// The values of a column.
enum Values<'a> {
    /// An integer for each row of the file.
    Integers(Vec<usize>),
    /// Column of the table at this position.
    Input(usize),
    /// A number for each example.
    Numbers(Vec<f64>),
    /// A text for each example.
    Texts(Vec<&'a str>),
}

/// A column of the file.
struct Column<'a> {
    name: String,
    values: Values<'a>,
}

/// A value of a row.
enum Cell<'a> {
    Integer(usize),
    Number(f64),
    Text(Cow<'a, str>),
}

/// Returns the columns that the predictions add.
fn added_columns<'a>(examples: &InferenceData, schema: &'a DataSchema, outputs: &[f32]) -> Vec<Column<'a>> {
    let by_label = |width: usize, offsets: &[f64]| {
        let column = |(at, label): (usize, String)| {
            let offset = offsets.get(at).copied().unwrap_or(0.0);
            let values = outputs.iter().skip(at).step_by(width).map(|value| with_offset(*value, offset)).collect();
            Column { name: format!("{label} predicted"), values: Values::Numbers(values) }
        };
        schema.labels(width).into_iter().enumerate().map(column).collect()
    };
    match &examples.dataset.targets {
        Targets::Classes { .. } => {
            let rows = || outputs.chunks_exact(schema.class_names.len());
            let predicted = rows().map(|row| schema.class_names[argmax(row)].as_str()).collect();
            let probability = rows().map(|row| with_offset(row[argmax(row)], 0.0)).collect();
            vec![
                Column { name: "predicted".to_string(), values: Values::Texts(predicted) },
                Column { name: "probability".to_string(), values: Values::Numbers(probability) },
            ]
        }
        Targets::Regression { num_outputs: width, .. } => by_label(*width, &examples.offsets),
        Targets::MultiLabel { num_labels: width, .. } => by_label(*width, &[]),
    }
}

/// Returns the sum of a prediction and an offset in f64. Without an offset it has the digits of the f32.
fn with_offset(value: f32, offset: f64) -> f64 {
    match offset {
        0.0 => value.to_string().parse().unwrap_or(f64::from(value)),
        offset => f64::from(value) + offset,
    }
}

/// Returns a name that no other column has: `name`, or `name_1` and so on.
fn unique_name(name: String, used: &mut HashSet<String>) -> String {
    let mut unique = name.clone();
    let mut count = 0usize;
    while !used.insert(unique.clone()) {
        count += 1;
        unique = format!("{name}_{count}");
    }
    unique
}

/// Digits of a decimal fraction that an f64 keeps.
const DIGITS: usize = 17;

/// The number that a text stands for. Texts whose digits a number does not keep, such as 007 or those of many digits, are not numbers; zeros at
/// the end of a fraction are not kept.
fn exact_number(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && !text.starts_with('+'))?;
    let is_integer = text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit());
    let digits = text.bytes().take_while(|byte| !b"eE".contains(byte)).filter(u8::is_ascii_digit).count();
    (if is_integer { number.to_string() == text } else { digits <= DIGITS }).then_some(number)
}

/// Formats a number with the fewest digits that identify it.
fn shortest(number: f64) -> String {
    let plain = number == 0.0 || (1e-5..1e16).contains(&number.abs());
    if plain { number.to_string() } else { format!("{number:e}") }
}

/// The rows and columns of the file.
struct Frame<'a> {
    table: Option<&'a TableRows>,
    rows: usize,
    columns: Vec<Column<'a>>,
}

impl<'a> Frame<'a> {
    /// Creates a frame of the row numbers, the columns of the table and the added columns. Added columns are renamed if the table has
    /// columns with their names.
    fn new(examples: &'a InferenceData, added: Vec<Column<'a>>) -> Frame<'a> {
        let table = examples.table.as_ref();
        let rows = table.map_or(examples.names.len(), TableRows::len);
        let names = table.map_or(&[][..], TableRows::column_names);
        let mut used: HashSet<String> = names.iter().cloned().collect();
        // The second of two columns with a name is renamed as well: keys of JSON and names of Parquet columns are unique.
        let mut kept: HashSet<&String> = HashSet::new();
        let input = names.iter().enumerate().map(|(at, name)| {
            let name = if kept.insert(name) { name.clone() } else { unique_name(name.clone(), &mut used) };
            Column { name, values: Values::Input(at) }
        });
        let input: Vec<Column<'a>> = input.collect();
        let numbers: Option<Vec<usize>> = match table {
            Some(table) => Some((0..rows).map(|row| table.line(row)).collect()),
            None => examples.names.iter().map(|name| name.parse::<usize>().ok()).collect(),
        };
        let numbers = match numbers {
            Some(numbers) => Values::Integers(numbers),
            None => Values::Texts(examples.names.iter().map(String::as_str).collect()),
        };
        let row = Column { name: unique_name("row".to_string(), &mut used), values: numbers };
        let added: Vec<Column<'a>> = added
            .into_iter()
            .map(|column| Column { name: unique_name(column.name, &mut used), values: column.values })
            .collect();
        Frame { table, rows, columns: std::iter::once(row).chain(input).chain(added).collect() }
    }

    /// Returns the example of a row.
    fn example(&self, row: usize) -> usize {
        self.table.map_or(row, |table| table.example(row))
    }

    /// Returns a value; the text of the file in a column of the table.
    fn cell(&self, row: usize, column: &'a Column<'a>) -> Cell<'a> {
        match &column.values {
            Values::Integers(values) => Cell::Integer(values[row]),
            Values::Input(at) => Cell::Text(self.table.map_or("".into(), |table| table.text(row, *at))),
            Values::Numbers(values) => Cell::Number(values[self.example(row)]),
            Values::Texts(values) => Cell::Text(values[self.example(row)].into()),
        }
    }

    /// Returns true for a column of numbers: in a column of the table each cell is a number or has no value, and one has a number.
    fn is_numeric(&self, column: &Column<'_>) -> bool {
        match (&column.values, self.table) {
            (Values::Integers(_) | Values::Numbers(_), _) => true,
            (Values::Texts(_), _) | (Values::Input(_), None) => false,
            (Values::Input(at), Some(table)) if table.stores_times(*at) => false,
            (Values::Input(at), Some(table)) => {
                let is_missing = |row: &usize| table.is_missing(*row, *at);
                let mut values = (0..self.rows).filter(|row| !is_missing(row)).peekable();
                values.peek().is_some() && values.all(|row| exact_number(&table.text(row, *at)).is_some())
            }
        }
    }

    /// Writes comma-separated values. Cells of the table are written as they are read.
    fn write_csv(&'a self, path: &Path) -> Result<()> {
        let mut file = WholeFile::create(path)?;
        let names: Vec<Cow<'_, str>> = self.columns.iter().map(|column| csv_cell::quoted(&column.name)).collect();
        file.write((names.join(",") + "\n").as_bytes())?;
        let mut line = String::new();
        for row in 0..self.rows {
            line.clear();
            for (at, column) in self.columns.iter().enumerate() {
                if at > 0 {
                    line.push(',');
                }
                match self.cell(row, column) {
                    Cell::Integer(number) => line.push_str(&number.to_string()),
                    Cell::Number(number) => line.push_str(&shortest(number)),
                    Cell::Text(text) => line.push_str(&csv_cell::quoted(&text)),
                }
            }
            line.push('\n');
            file.write(line.as_bytes())?;
        }
        file.commit()
    }

    /// Writes an array with an object for each row. Cells without a value are null.
    fn write_json(&'a self, path: &Path) -> Result<()> {
        let mut file = WholeFile::create(path)?;
        let columns: Vec<(String, bool, &Column<'a>)> = self
            .columns
            .iter()
            .map(|column| (json!(column.name).to_string(), self.is_numeric(column), column))
            .collect();
        let mut text = String::new();
        for row in 0..self.rows {
            text.clear();
            text.push_str(if row == 0 { "[\n{" } else { ",\n{" });
            for (at, (name, is_numeric, column)) in columns.iter().enumerate() {
                let value = match self.cell(row, column) {
                    Cell::Integer(number) => number.to_string(),
                    Cell::Number(number) => json_number(Some(number)),
                    Cell::Text(text) if *is_numeric => json_number(exact_number(&text)),
                    Cell::Text(text) if text.is_empty() => "null".to_string(),
                    Cell::Text(text) => json!(text).to_string(),
                };
                let separator = if at > 0 { "," } else { "" };
                text.push_str(&format!("{separator}{name}:{value}"));
            }
            text.push('}');
            file.write(text.as_bytes())?;
        }
        file.write(b"\n]\n")?;
        file.commit()
    }

    /// Writes columns with types: numbers as INT64 or DOUBLE, all others as text. Cells without a value are null.
    #[cfg(feature = "parquet")]
    fn write_parquet(&'a self, path: &Path) -> Result<()> {
        use panoply::nn::data::{ParquetColumn, ParquetValues, to_parquet};
        let values = |column: &'a Column<'a>| {
            if let Values::Integers(values) = &column.values {
                return ParquetValues::Integers(values.iter().map(|number| *number as i64).collect());
            }
            let cells = (0..self.rows).map(|row| self.cell(row, column));
            match self.is_numeric(column) {
                true => ParquetValues::Numbers(
                    cells
                        .map(|cell| match cell {
                            Cell::Integer(number) => Some(number as f64),
                            Cell::Number(number) => Some(number),
                            Cell::Text(text) => exact_number(&text),
                        })
                        .collect(),
                ),
                false => ParquetValues::Texts(
                    cells
                        .map(|cell| match cell {
                            Cell::Integer(number) => Some(number.to_string()),
                            Cell::Number(number) => Some(shortest(number)),
                            Cell::Text(text) => Some(text.into_owned()).filter(|text| !text.is_empty()),
                        })
                        .collect(),
                ),
            }
        };
        let column = |column: &'a Column<'a>| ParquetColumn { name: column.name.clone(), values: values(column) };
        let columns: Vec<ParquetColumn> = self.columns.iter().map(column).collect();
        panoply::nn::checkpoint::write_atomic(path, &to_parquet(&columns)?)
    }

    #[cfg(not(feature = "parquet"))]
    fn write_parquet(&self, path: &Path) -> Result<()> {
        Err(no_parquet(path))
    }
}

/// Returns the error for a Parquet file in a build that cannot write it.
fn no_parquet(path: &Path) -> Error {
    let message = format!("--output {}: this build does not support Parquet", path.display());
    Error::mistake(message).note("build with `--features parquet`, or write .csv or .json")
}

/// Formats a number as JSON; null for one that is not finite.
fn json_number(number: Option<f64>) -> String {
    number.filter(|number| number.is_finite()).map_or_else(|| "null".to_string(), shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_numbers_do_not_keep_stay_texts() {
        let numbers = [("1.50", 1.5), ("-3", -3.0), ("0", 0.0), ("1e3", 1000.0), (".5", 0.5)];
        numbers.iter().for_each(|(text, number)| assert_eq!(exact_number(text), Some(*number), "{text}"));
        for text in ["007", "9007199254740993", "0.12345678901234567890", "+41", "inf", "NaN", "", "12 km"] {
            assert_eq!(exact_number(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_have_the_fewest_digits() {
        let numbers = [(0.1f32, "0.1"), (1e-30, "1e-30"), (3.0, "3"), (0.0, "0"), (-2.5e20, "-2.5e20")];
        numbers.iter().for_each(|(number, text)| assert_eq!(shortest(with_offset(*number, 0.0)), *text));
        assert_eq!(with_offset(0.5, 1e9), 1_000_000_000.5);
    }

    #[test]
    fn names_are_unique() {
        let mut used: HashSet<String> = ["predicted", "predicted_1"].map(str::to_string).into();
        assert_eq!(unique_name("predicted".to_string(), &mut used), "predicted_2");
        assert_eq!(unique_name("row".to_string(), &mut used), "row");
    }
}
