//! Tables in Parquet files, as pandas, Polars, DuckDB and Spark write them: flat columns, packed by snappy, gzip, LZ4, Brotli, Zstandard or not.
//! [`to_parquet`] writes such tables.

mod columns;
mod pages;
mod write;
mod zstd;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use panoply_tensor::{Error, Result, parallel_map};
use parquet::basic::{Compression, Repetition};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::Type;

use super::ReadBudget;
use super::columnar::Columns;
use super::csv::CsvTable;
use super::read_progress::{ReadProgress, SEPARATED};
use columns::ColumnBuilder;
pub use write::{ParquetColumn, ParquetValues, to_parquet};

/// Reads a table. Rows are counted from 1. Bools are 0 and 1, timestamps of any unit and dates are seconds since 1970.
pub(super) fn read(path: &Path, budget: &ReadBudget, progress: &ReadProgress) -> Result<CsvTable> {
    // The `parquet` crate panics on inconsistent pages of a damaged file.
    catch_unwind(AssertUnwindSafe(|| table(path, budget, progress)))
        .unwrap_or_else(|_| Err(Error::corrupt(format!("{}: its pages are inconsistent", path.display()))))
}

fn table(path: &Path, budget: &ReadBudget, progress: &ReadProgress) -> Result<CsvTable> {
    let bytes = Bytes::from(budget.read_file(path)?);
    let wrong = |error: ParquetError| Error::corrupt(format!("{}: {error}", path.display())).with_source(error);
    let reader = SerializedFileReader::new(bytes.clone()).map_err(wrong)?;
    let columns = reader.metadata().file_metadata().schema().get_fields();
    if let Some(nested) = columns.iter().find(|column| is_nested(column)) {
        let message = format!("{}: {} has nested values, which are not supported", path.display(), nested.name());
        return Err(Error::corrupt(message).note("remove the column, or flatten it to several columns"));
    }
    let names: Vec<String> = columns.iter().map(|column| column.name().to_string()).collect();
    let index = index_of(&reader);
    let (mut groups, mut rows, mut memory) = (Vec::with_capacity(reader.num_row_groups()), 0u64, 0);
    for group in 0..reader.num_row_groups() {
        let part = reader.get_row_group(group).map_err(wrong)?;
        let counted = check(&*part, &bytes, (group, path, budget))?;
        memory = counted.max(memory);
        rows = rows.saturating_add(part.metadata().num_rows().unsigned_abs());
        groups.push(part);
    }
    let rows = match usize::try_from(rows) {
        Ok(rows @ 1..) if !names.is_empty() => rows,
        _ => return Err(Error::corrupt(format!("{}: it has no rows", path.display()))),
    };
    // What reading takes, in the largest of the groups: several columns are read at the same time.
    budget.take(memory, path)?;
    let builders =
        (0..names.len()).map(|at| ColumnBuilder::new(reader.metadata().file_metadata().schema_descr().column(at)));
    let places: Vec<(usize, ColumnBuilder)> = builders.enumerate().collect();
    for (_, builder) in &places {
        budget.take_values(rows, builder.bytes_of_row(), path)?;
    }
    let step = progress.steps(names.len(), (0.0, SEPARATED));
    let read = |(at, builder): &(usize, ColumnBuilder)| {
        let groups = groups.iter().map(|group| zstd::RowGroup { inner: &**group, bytes: &bytes });
        let column = builder.read(*at, groups, (rows, path, budget))?;
        step();
        Ok(column)
    };
    let columns = parallel_map(&places, read)?;
    budget.give_back(memory);
    budget.give_back(bytes.len() as u64);
    Ok(CsvTable::of(names, index, Columns { rows, columns }))
}

/// True for a column that does not have one value or none in each row.
fn is_nested(column: &Type) -> bool {
    let info = column.get_basic_info();
    column.is_group() || (info.has_repetition() && info.repetition() == Repetition::REPEATED)
}

/// Returns the columns that the pandas metadata declare as an index of the rows.
fn index_of(reader: &SerializedFileReader<Bytes>) -> Vec<String> {
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

/// Checks a row group before anything is allocated for it. Returns the memory that reading its columns takes, without their values.
fn check(part: &dyn RowGroupReader, bytes: &Bytes, (group, path, budget): (usize, &Path, &ReadBudget)) -> Result<u64> {
    let wrong = |what: String| Error::corrupt(format!("{}: row group {group}: {what}", path.display()));
    let metadata = part.metadata();
    if !lies_within(part, bytes.len() as u64) {
        let message = format!("{}: row group {group} extends beyond the end of the file", path.display());
        return Err(Error::corrupt(message));
    }
    if let Some(codec) = metadata.columns().iter().map(|column| column.compression()).find(|codec| !is_known(codec)) {
        let message = format!("{}: its columns are compressed with {codec}, which is not supported", path.display());
        return Err(Error::mistake(message).note("write it with snappy, gzip, LZ4, Brotli, Zstandard or uncompressed"));
    }
    let rows = u64::try_from(metadata.num_rows()).map_err(|_| wrong("its number of rows is negative".to_string()))?;
    let (mut memory, mut unpacked) = (0u64, 0u64);
    for column in metadata.columns() {
        let name = column.column_descr().name();
        if u64::try_from(column.num_values()) != Ok(rows) {
            return Err(wrong(format!("{name}: {} values in {rows} rows", column.num_values())));
        }
        let pages = pages::check(bytes, column, rows).map_err(|what| wrong(format!("{name}: {what}")))?;
        (memory, unpacked) = (memory.saturating_add(pages.memory), unpacked.saturating_add(pages.unpacked));
    }
    // The total decompressed size also bounds the work, although it is not in memory at once.
    budget.take(unpacked, path)?;
    budget.give_back(unpacked);
    Ok(memory)
}
