//! Tables in Parquet files, as pandas, Polars, DuckDB and Spark write them: flat columns, packed by snappy, gzip, LZ4 or not.

mod pages;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use panoply_tensor::{Error, Result};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;

use super::ReadBudget;
use super::csv::{TextTable, row_bytes};

/// Reads a table. Rows are counted from 1; what is null is an empty cell, and bools are 0 and 1.
pub(super) fn read(path: &Path, budget: &ReadBudget) -> Result<TextTable> {
    // The format's crate panics where pages of a damaged file do not fit together.
    catch_unwind(AssertUnwindSafe(|| table(path, budget)))
        .unwrap_or_else(|_| Err(Error::corrupt(format!("{}: its pages do not fit together", path.display()))))
}

fn table(path: &Path, budget: &ReadBudget) -> Result<TextTable> {
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let wrong = |error: ParquetError| Error::corrupt(format!("{}: {error}", path.display())).caused_by(error);
    let pages = file.try_clone().map_err(failed)?;
    let reader = SerializedFileReader::new(file).map_err(wrong)?;
    let columns = reader.metadata().file_metadata().schema().get_fields();
    if let Some(nested) = columns.iter().find(|column| column.is_group()) {
        let message = format!("{}: {} holds lists or structures, not one value a row", path.display(), nested.name());
        return Err(Error::corrupt(message).note("leave the column out, or spread it over columns of its own"));
    }
    let names = columns.iter().map(|column| column.name().to_string()).collect();
    let mut rows = Vec::new();
    for group in 0..reader.num_row_groups() {
        let part = reader.get_row_group(group).map_err(wrong)?;
        if !lies_within(&*part, bytes) {
            return Err(Error::corrupt(format!("{}: row group {group} lies beyond its end", path.display())));
        }
        if let Some(codec) =
            part.metadata().columns().iter().map(|column| column.compression()).find(|codec| !is_known(codec))
        {
            let message = format!("{}: its columns are packed by {codec}, which is not read here", path.display());
            return Err(Error::mistake(message).note("write it with snappy, gzip, LZ4 or unpacked"));
        }
        let counted = count(&*part, &pages, group, (path, budget))?;
        append(&*part, &mut rows, (path, budget))?;
        budget.give_back(counted);
    }
    if rows.is_empty() {
        return Err(Error::corrupt(format!("{}: it has no rows", path.display())));
    }
    Ok(TextTable { names, named: true, doubtful: false, rows })
}

/// Whether what is packed so can be unpacked: all that needs no C library.
fn is_known(codec: &Compression) -> bool {
    matches!(
        codec,
        Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::LZ4
            | Compression::LZ4_RAW
    )
}

/// Whether all of a row group is in a file of so many bytes.
fn lies_within(part: &dyn RowGroupReader, bytes: u64) -> bool {
    part.metadata().columns().iter().all(|column| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = start.checked_add(column.compressed_size()).and_then(|end| u64::try_from(end).ok());
        start >= 0 && column.compressed_size() >= 0 && end.is_some_and(|end| end <= bytes)
    })
}

/// Counts what the rows of a group will take but for their text, and what reading them takes besides. Returns the latter, which is free
/// afterwards.
fn count(part: &dyn RowGroupReader, file: &File, group: usize, (path, budget): (&Path, &ReadBudget)) -> Result<u64> {
    let metadata = part.metadata();
    let wrong = |what: String| Error::corrupt(format!("{}: row group {group}: {what}", path.display()));
    let rows = u64::try_from(metadata.num_rows()).map_err(|_| wrong("its number of rows is negative".to_string()))?;
    budget.take(row_bytes(metadata.num_columns(), 0).saturating_mul(rows), path)?;
    let (mut memory, mut unpacked) = (0u64, 0u64);
    for column in metadata.columns() {
        let name = column.column_descr().name();
        if u64::try_from(column.num_values()) != Ok(rows) {
            return Err(wrong(format!("{name}: {} values in {rows} rows", column.num_values())));
        }
        let pages = pages::check(file, column, rows).map_err(|what| wrong(format!("{name}: {what}")))?;
        (memory, unpacked) = (memory.saturating_add(pages.memory), unpacked.saturating_add(pages.unpacked));
    }
    // All that is unpacked bounds the work as well, though not all of it is in memory at once.
    budget.take(unpacked, path)?;
    budget.give_back(unpacked);
    budget.take(memory, path)?;
    Ok(memory)
}

/// Adds the rows of a group, or says what is wrong with the one behind the last.
fn append(
    part: &dyn RowGroupReader,
    rows: &mut Vec<(usize, Vec<String>)>,
    (path, budget): (&Path, &ReadBudget),
) -> Result<()> {
    let wrong = |rows: &Vec<_>, what: String| Error::corrupt(format!("{}:{}: {what}", path.display(), rows.len() + 1));
    let all = RowIter::from_row_group(None, part).map_err(|error| wrong(rows, error.to_string()))?;
    for row in all {
        let row = row.map_err(|error| wrong(rows, error.to_string()))?;
        let mut cells = Vec::with_capacity(row.len());
        for (name, field) in row.into_columns() {
            let cell = cell(field).map_err(|what| wrong(rows, format!("{name}: {what}")))?;
            budget.take(cell.len() as u64, path)?;
            cells.push(cell);
        }
        rows.push((rows.len() + 1, cells));
    }
    Ok(())
}

/// A value as a table of text would have it.
fn cell(field: Field) -> Result<String, String> {
    Ok(match field {
        Field::Null => String::new(),
        Field::Bool(value) => u8::from(value).to_string(),
        // Without the `.0` that the crate's own display gives whole numbers.
        Field::Float16(value) => value.to_string(),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Str(text) => text,
        Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec()).map_err(|_| "bytes that are no text")?,
        other => other.to_string(),
    })
}
