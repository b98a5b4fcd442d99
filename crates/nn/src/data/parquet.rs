//! Tables in Parquet files, as pandas, Polars, DuckDB and Spark write them: flat columns, packed by snappy, gzip, LZ4, Brotli, Zstandard or not.

mod pages;
mod zstd;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use panoply_tensor::{Error, Result};
use parquet::basic::{Compression, LogicalType, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::ReadBudget;
use super::cells::Cells;
use super::csv::{CsvTable, row_bytes};
use super::read_progress::{ReadProgress, SEPARATED};

/// Number of rows after which progress is reported.
const AT_ONCE: usize = 1 << 12;

/// Reads a table. Rows are counted from 1. A null is an empty cell, bools are 0 and 1, timestamps of any unit and dates are seconds since
/// 1970.
pub(super) fn read(path: &Path, budget: &ReadBudget, progress: &ReadProgress) -> Result<CsvTable> {
    // The `parquet` crate panics on inconsistent pages of a damaged file.
    catch_unwind(AssertUnwindSafe(|| table(path, budget, progress)))
        .unwrap_or_else(|_| Err(Error::corrupt(format!("{}: its pages are inconsistent", path.display()))))
}

fn table(path: &Path, budget: &ReadBudget, progress: &ReadProgress) -> Result<CsvTable> {
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let wrong = |error: ParquetError| Error::corrupt(format!("{}: {error}", path.display())).with_source(error);
    let pages = file.try_clone().map_err(failed)?;
    let reader = SerializedFileReader::new(file).map_err(wrong)?;
    let columns = reader.metadata().file_metadata().schema().get_fields();
    if let Some(nested) = columns.iter().find(|column| column.is_group()) {
        let message = format!("{}: {} has nested values, which are not supported", path.display(), nested.name());
        return Err(Error::corrupt(message).note("remove the column, or flatten it to several columns"));
    }
    let names: Vec<String> = columns.iter().map(|column| column.name().to_string()).collect();
    let index = index_of(&reader);
    let nanos: Vec<bool> = columns.iter().map(|column| is_of_nanoseconds(column)).collect();
    let mut rows = Cells::new(names.len());
    let count_of_rows = reader.metadata().file_metadata().num_rows().max(1) as f64;
    let progress = |rows: usize| progress.report(SEPARATED * (rows as f64 / count_of_rows).min(1.0));
    for group in 0..reader.num_row_groups() {
        let part = reader.get_row_group(group).map_err(wrong)?;
        if !lies_within(&*part, bytes) {
            return Err(Error::corrupt(format!(
                "{}: row group {group} extends beyond the end of the file",
                path.display()
            )));
        }
        if let Some(codec) =
            part.metadata().columns().iter().map(|column| column.compression()).find(|codec| !is_known(codec))
        {
            let message =
                format!("{}: its columns are compressed with {codec}, which is not supported", path.display());
            return Err(
                Error::mistake(message).note("write it with snappy, gzip, LZ4, Brotli, Zstandard or uncompressed")
            );
        }
        let counted = count(&*part, &pages, group, (path, budget))?;
        let part = zstd::RowGroup { inner: &*part, file: &pages };
        append(&part, &nanos, &mut rows, (path, budget), &progress)?;
        budget.give_back(counted);
    }
    if rows.rows() == 0 {
        return Err(Error::corrupt(format!("{}: it has no rows", path.display())));
    }
    Ok(CsvTable::of(names, index, rows))
}

/// Returns the columns that the pandas metadata declare as an index of the rows.
fn index_of(reader: &SerializedFileReader<File>) -> Vec<String> {
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let entry =
        metadata.into_iter().flatten().find(|entry| entry.key == "pandas").and_then(|entry| entry.value.as_ref());
    let pandas = entry.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    // A range index is an object in the metadata and not a column.
    let columns = pandas.as_ref().and_then(|pandas| pandas["index_columns"].as_array());
    columns.into_iter().flatten().filter_map(|name| name.as_str()).map(str::to_string).collect()
}

/// True if pages packed so can be unpacked: every codec of the format but LZO.
fn is_known(codec: &Compression) -> bool {
    matches!(
        codec,
        Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::LZ4
            | Compression::LZ4_RAW
            | Compression::BROTLI(_)
            | Compression::ZSTD(_)
    )
}

/// Returns true if the whole row group is within a file of this size.
fn lies_within(part: &dyn RowGroupReader, bytes: u64) -> bool {
    part.metadata().columns().iter().all(|column| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = start.checked_add(column.compressed_size()).and_then(|end| u64::try_from(end).ok());
        start >= 0 && column.compressed_size() >= 0 && end.is_some_and(|end| end <= bytes)
    })
}

/// Reserves the memory of the rows of a group without their text, and the memory that reading them takes. Returns the latter, which is to
/// be released after reading.
fn count(part: &dyn RowGroupReader, file: &File, group: usize, (path, budget): (&Path, &ReadBudget)) -> Result<u64> {
    let metadata = part.metadata();
    let wrong = |what: String| Error::corrupt(format!("{}: row group {group}: {what}", path.display()));
    let rows = u64::try_from(metadata.num_rows()).map_err(|_| wrong("its number of rows is negative".to_string()))?;
    budget.take(row_bytes(metadata.num_columns()).saturating_mul(rows), path)?;
    let (mut memory, mut unpacked) = (0u64, 0u64);
    for column in metadata.columns() {
        let name = column.column_descr().name();
        if u64::try_from(column.num_values()) != Ok(rows) {
            return Err(wrong(format!("{name}: {} values in {rows} rows", column.num_values())));
        }
        let pages = pages::check(file, column, rows).map_err(|what| wrong(format!("{name}: {what}")))?;
        (memory, unpacked) = (memory.saturating_add(pages.memory), unpacked.saturating_add(pages.unpacked));
    }
    // The total decompressed size also bounds the work, although it is not in memory at once.
    budget.take(unpacked, path)?;
    budget.give_back(unpacked);
    budget.take(memory, path)?;
    Ok(memory)
}

/// Appends the rows of a group. An error names the row.
fn append(
    part: &dyn RowGroupReader,
    nanos: &[bool],
    rows: &mut Cells,
    (path, budget): (&Path, &ReadBudget),
    progress: &dyn Fn(usize),
) -> Result<()> {
    let wrong = |rows: &Cells, what: String| Error::corrupt(format!("{}:{}: {what}", path.display(), rows.rows() + 1));
    let all = RowIter::from_row_group(None, part).map_err(|error| wrong(rows, error.to_string()))?;
    for row in all {
        let row = row.map_err(|error| wrong(rows, error.to_string()))?;
        for ((name, field), nanos) in row.into_columns().into_iter().zip(nanos) {
            let cell = cell(field, *nanos).map_err(|what| wrong(rows, format!("{name}: {what}")))?;
            budget.take(cell.len() as u64, path)?;
            rows.push(cell.trim()).map_err(|what| wrong(rows, what))?;
        }
        rows.end_row(rows.rows() + 1);
        if rows.rows().is_multiple_of(AT_ONCE) {
            progress(rows.rows());
        }
    }
    Ok(())
}

/// Returns true for timestamps in nanoseconds, which the crate returns as plain integers.
fn is_of_nanoseconds(column: &Type) -> bool {
    let logical = column.get_basic_info().logical_type_ref();
    matches!(logical, Some(LogicalType::Timestamp(timestamp)) if timestamp.unit == TimeUnit::NANOS)
}

/// Converts a count of 10^−`digits` seconds to seconds.
fn seconds(count: i64, digits: usize) -> String {
    let unit = 10i64.pow(digits as u32);
    let (whole, part) = (count.div_euclid(unit), count.rem_euclid(unit));
    match (whole, part) {
        (whole, 0) => whole.to_string(),
        // For a negative number the fraction counts up from the floor, its digits count down.
        (..0, part) => format!("-{}.{:0digits$}", -(whole + 1), unit - part),
        (whole, part) => format!("{whole}.{part:0digits$}"),
    }
}

/// Formats a value as a text table would contain it.
fn cell(field: Field, nanos: bool) -> Result<String, String> {
    Ok(match field {
        Field::Long(count) if nanos => seconds(count, 9),
        Field::TimestampMillis(count) => seconds(count, 3),
        Field::TimestampMicros(count) => seconds(count, 6),
        Field::Date(days) => (i64::from(days) * 86_400).to_string(),
        Field::Null => String::new(),
        Field::Bool(value) => u8::from(value).to_string(),
        // Without the `.0` that the crate's own formatting appends to integers.
        Field::Float16(value) => value.to_string(),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Str(text) => text,
        Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec()).map_err(|_| "bytes that are not UTF-8")?,
        other => other.to_string(),
    })
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
        assert_eq!(cell(Field::Date(2), false), Ok("172800".to_string()));
    }
}
