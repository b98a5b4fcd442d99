//! Writing of tables with typed columns.

use std::sync::Arc;

use panoply_tensor::{Error, Result};
use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 20;

/// A column of a table to write.
#[derive(Clone, Debug, PartialEq)]
pub struct ParquetColumn {
    /// Name, different from those of the other columns.
    pub name: String,
    /// The values of all rows.
    pub values: ParquetValues,
}

/// The values of a column, by their type in the file.
#[derive(Clone, Debug, PartialEq)]
pub enum ParquetValues {
    /// INT64, a value in each row.
    Integers(Vec<i64>),
    /// DOUBLE, `None` in a row without a value.
    Numbers(Vec<Option<f64>>),
    /// BYTE_ARRAY of UTF-8 text, `None` in a row without a value.
    Texts(Vec<Option<String>>),
}

impl ParquetValues {
    fn len(&self) -> usize {
        match self {
            ParquetValues::Integers(values) => values.len(),
            ParquetValues::Numbers(values) => values.len(),
            ParquetValues::Texts(values) => values.len(),
        }
    }
}

/// Returns the bytes of a Parquet file with these columns, compressed by snappy.
///
/// # Errors
/// No columns, and columns of different lengths.
pub fn to_parquet(columns: &[ParquetColumn]) -> Result<Vec<u8>> {
    let rows = columns.first().map_or(0, |column| column.values.len());
    if columns.is_empty() || columns.iter().any(|column| column.values.len() != rows) {
        return Err(Error::mistake("a Parquet file needs columns of equal length"));
    }
    let failed = |error: ParquetError| Error::mistake(format!("cannot encode Parquet: {error}")).with_source(error);
    write(columns, rows).map_err(failed)
}

fn write(columns: &[ParquetColumn], rows: usize) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    for start in (0..rows).step_by(GROUP_ROWS) {
        let end = (start + GROUP_ROWS).min(rows);
        let mut group = writer.next_row_group()?;
        for column in columns {
            let Some(mut to) = group.next_column()? else { break };
            write_values(&mut to, &column.values, start..end)?;
            to.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

/// Returns the description of a column.
fn field(column: &ParquetColumn) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical, repetition) = match &column.values {
        ParquetValues::Integers(_) => (PhysicalType::INT64, None, Repetition::REQUIRED),
        ParquetValues::Numbers(_) => (PhysicalType::DOUBLE, None, Repetition::OPTIONAL),
        ParquetValues::Texts(_) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL),
    };
    let field = Type::primitive_type_builder(&column.name, physical);
    field.with_repetition(repetition).with_logical_type(logical).build().map(Arc::new)
}

fn write_values(
    to: &mut SerializedColumnWriter<'_>,
    values: &ParquetValues,
    rows: std::ops::Range<usize>,
) -> Result<(), ParquetError> {
    // The definition level is 1 for a row with a value.
    let written = match values {
        ParquetValues::Integers(values) => to.typed::<Int64Type>().write_batch(&values[rows], None, None),
        ParquetValues::Numbers(values) => {
            let values = &values[rows];
            let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let present: Vec<f64> = values.iter().flatten().copied().collect();
            to.typed::<DoubleType>().write_batch(&present, Some(&levels), None)
        }
        ParquetValues::Texts(values) => {
            let values = &values[rows];
            let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let present: Vec<ByteArray> = values.iter().flatten().map(|text| text.as_str().into()).collect();
            to.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)
        }
    };
    written.map(|_| ())
}
