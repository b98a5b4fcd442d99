//! Tables in Parquet files, as pandas, Polars, DuckDB and Spark write them: flat columns, packed by snappy, gzip, LZ4 or not.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use panoply_tensor::{Error, Result};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;

use super::csv::TextTable;

/// Reads a table. Rows are counted from 1; what is null is an empty cell, and bools are 0 and 1.
pub(super) fn read(path: &Path) -> Result<TextTable> {
    // The format's crate panics where pages of a damaged file do not fit together.
    catch_unwind(AssertUnwindSafe(|| table(path)))
        .unwrap_or_else(|_| Err(Error::corrupt(format!("{}: its pages do not fit together", path.display()))))
}

fn table(path: &Path) -> Result<TextTable> {
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let wrong = |error: ParquetError| Error::corrupt(format!("{}: {error}", path.display())).caused_by(error);
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
        append(&*part, &mut rows).map_err(|what| {
            let row = rows.len() + 1;
            Error::corrupt(format!("{}:{row}: {what}", path.display()))
        })?;
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

/// Adds the rows of a group, or says what is wrong with the one behind the last.
fn append(part: &dyn RowGroupReader, rows: &mut Vec<(usize, Vec<String>)>) -> Result<(), String> {
    for row in RowIter::from_row_group(None, part).map_err(|error| error.to_string())? {
        let row = row.map_err(|error| error.to_string())?;
        let cells =
            row.into_columns().into_iter().map(|(name, field)| cell(field).map_err(|what| format!("{name}: {what}")));
        let cells = cells.collect::<Result<Vec<String>, String>>()?;
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
