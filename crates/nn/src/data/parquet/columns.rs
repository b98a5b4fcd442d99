//! Values of a column of a Parquet file.

use std::path::Path;

use panoply_tensor::{Error, Result, large_vec};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::RowGroupReader;
use parquet::record::Field;
use parquet::schema::types::ColumnDescPtr;

use super::super::ReadBudget;
use super::super::columnar::{Column, Texts, Values};

/// Rows that are decoded at a time: their values and levels stay in the cache of a core.
const AT_ONCE: usize = 1 << 14;

/// The type of a column's values.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Integers,
    Floats,
    Singles,
    /// Of 10^−`digits` seconds.
    Times {
        digits: usize,
    },
    /// All others.
    Texts,
}

/// Reads a column of all row groups.
pub(super) struct ColumnBuilder {
    description: ColumnDescPtr,
    kind: Kind,
}

/// A function of the values that were decoded, and of the definition level of each row: 0 for one without a value. No levels are given if
/// every row has a value.
trait Accept<T>: FnMut(&[T], Option<&[i16]>) -> Result<(), String> {}

impl<T, F: FnMut(&[T], Option<&[i16]>) -> Result<(), String>> Accept<T> for F {}

impl ColumnBuilder {
    pub fn new(description: ColumnDescPtr) -> ColumnBuilder {
        let digits = match (description.logical_type_ref(), description.converted_type()) {
            (Some(LogicalType::Timestamp(timestamp)), _) => match timestamp.unit {
                TimeUnit::MILLIS => Some(3),
                TimeUnit::MICROS => Some(6),
                TimeUnit::NANOS => Some(9),
            },
            (_, ConvertedType::TIMESTAMP_MILLIS) => Some(3),
            (_, ConvertedType::TIMESTAMP_MICROS) => Some(6),
            _ => None,
        };
        let kind = match (description.physical_type(), description.converted_type()) {
            (Type::INT64, _) if digits.is_some() => Kind::Times { digits: digits.unwrap_or(0) },
            (Type::INT64, ConvertedType::INT_64 | ConvertedType::NONE) | (Type::BOOLEAN, _) => Kind::Integers,
            (
                Type::INT32,
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32,
            ) => Kind::Integers,
            (Type::INT32, ConvertedType::DATE) => Kind::Times { digits: 0 },
            (Type::FLOAT, _) => Kind::Singles,
            (Type::DOUBLE, _) => Kind::Floats,
            _ => Kind::Texts,
        };
        ColumnBuilder { description, kind }
    }

    /// Memory of a row, without its text, in bytes.
    pub fn bytes_of_row(&self) -> usize {
        match self.kind {
            Kind::Integers | Kind::Floats | Kind::Times { .. } => size_of::<f64>() + size_of::<bool>(),
            Kind::Singles => size_of::<f32>() + size_of::<bool>(),
            Kind::Texts => size_of::<usize>(),
        }
    }

    /// Reads the column at this place of each row group, `rows` values together.
    ///
    /// # Errors
    /// If its pages are damaged or have other counts, or its texts are not UTF-8 or exceed the budget.
    pub fn read<G: RowGroupReader>(
        &self,
        at: usize,
        groups: impl Iterator<Item = G>,
        (rows, path, budget): (usize, &Path, &ReadBudget),
    ) -> Result<Column> {
        let name = self.description.name();
        let mut nulls = Vec::new();
        let mut values = match self.kind {
            Kind::Integers => Values::Integers(large_vec(rows)),
            Kind::Floats => Values::Floats(large_vec(rows)),
            Kind::Singles => Values::Singles(large_vec(rows)),
            Kind::Times { digits } => Values::Times { counts: large_vec(rows), digits },
            Kind::Texts => Values::Texts(Texts::with_capacity(rows)),
        };
        for group in groups {
            let before = values.len();
            let count = group.metadata().num_rows().unsigned_abs() as usize;
            let failed = |row: usize, what: String| Error::corrupt(format!("{}:{row}: {name}: {what}", path.display()));
            let wrong = |error: ParquetError| failed(before + 1, error.to_string()).with_source(error);
            let reader = group.get_column_reader(at).map_err(wrong)?;
            let read = match (&mut values, reader) {
                (Values::Integers(to), ColumnReader::BoolColumnReader(reader)) => {
                    decode(reader, count, scatter(to, &mut nulls, 0, |value: &bool| i64::from(*value)))
                }
                (Values::Integers(to) | Values::Times { counts: to, .. }, ColumnReader::Int32ColumnReader(reader)) => {
                    let converted = self.description.converted_type();
                    decode(reader, count, scatter(to, &mut nulls, 0, move |value: &i32| integer(*value, converted)))
                }
                (Values::Integers(to) | Values::Times { counts: to, .. }, ColumnReader::Int64ColumnReader(reader)) => {
                    decode(reader, count, scatter(to, &mut nulls, 0, |value: &i64| *value))
                }
                (Values::Singles(to), ColumnReader::FloatColumnReader(reader)) => {
                    decode(reader, count, scatter(to, &mut nulls, f32::NAN, |value: &f32| *value))
                }
                (Values::Floats(to), ColumnReader::DoubleColumnReader(reader)) => {
                    decode(reader, count, scatter(to, &mut nulls, f64::NAN, |value: &f64| *value))
                }
                (Values::Texts(to), reader) => self.texts(reader, count, to, (path, budget)),
                (_, _) => Err("its values have another type than its schema".to_string()),
            };
            read.map_err(|what| match budget.is_exceeded() {
                true => budget.exceeded(path),
                false => failed(values.len() + 1, what),
            })?;
            if values.len() - before != count {
                return Err(failed(values.len(), format!("{} values in {count} rows", values.len() - before)));
            }
        }
        Ok(Column::new(values, nulls))
    }

    /// Appends the values of a row group as texts.
    fn texts(
        &self,
        reader: ColumnReader,
        count: usize,
        to: &mut Texts,
        (path, budget): (&Path, &ReadBudget),
    ) -> Result<(), String> {
        let description = &self.description;
        let mut push = |text: &str| {
            let text = text.trim();
            budget.take(text.len() as u64, path).map_err(|error| error.to_string())?;
            to.push(text);
            Ok(())
        };
        match reader {
            ColumnReader::Int32ColumnReader(reader) => decode(
                reader,
                count,
                each(|value| push(&text(value.map(|value| Field::convert_int32(description, *value)))?)),
            ),
            ColumnReader::Int64ColumnReader(reader) => decode(
                reader,
                count,
                each(|value| push(&text(value.map(|value| Field::convert_int64(description, *value)))?)),
            ),
            ColumnReader::Int96ColumnReader(reader) => decode(
                reader,
                count,
                each(|value| push(&text(value.map(|value| Field::convert_int96(description, *value)))?)),
            ),
            ColumnReader::ByteArrayColumnReader(reader) => decode(
                reader,
                count,
                each(|value: Option<&parquet::data_type::ByteArray>| match (value, description.converted_type()) {
                    (None, _) => push(""),
                    (
                        Some(value),
                        ConvertedType::UTF8
                        | ConvertedType::ENUM
                        | ConvertedType::JSON
                        | ConvertedType::BSON
                        | ConvertedType::NONE,
                    ) => push(std::str::from_utf8(value.data()).map_err(|_| "bytes that are not UTF-8")?),
                    (Some(value), _) => {
                        let field = Field::convert_byte_array(description, value.clone());
                        push(&text(Some(field.map_err(|error| error.to_string())?))?)
                    }
                }),
            ),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => decode(
                reader,
                count,
                each(|value: Option<&parquet::data_type::FixedLenByteArray>| {
                    let field = value.map(|value| Field::convert_byte_array(description, (**value).clone()));
                    push(&text(field.transpose().map_err(|error| error.to_string())?)?)
                }),
            ),
            ColumnReader::BoolColumnReader(_)
            | ColumnReader::FloatColumnReader(_)
            | ColumnReader::DoubleColumnReader(_) => Err("its values have another type than its schema".to_string()),
        }
    }
}

/// Decodes `count` rows of a row group, some at a time.
fn decode<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    count: usize,
    mut accept: impl Accept<T::T>,
) -> Result<(), String> {
    let (mut values, mut levels) = (Vec::with_capacity(AT_ONCE.min(count)), Vec::with_capacity(AT_ONCE.min(count)));
    let mut left = count;
    while left > 0 {
        values.clear();
        levels.clear();
        let most = left.min(AT_ONCE);
        let (rows, found, _) =
            reader.read_records(most, Some(&mut levels), None, &mut values).map_err(|error| error.to_string())?;
        if rows == 0 || rows > most || found > rows || found != values.len() {
            return Err("its pages have fewer values than rows".to_string());
        }
        // A column without missing values has no levels.
        accept(&values, (found < rows).then_some(&levels))?;
        left -= rows;
    }
    Ok(())
}

/// Appends values to a column, and `missing` where a row has none.
fn scatter<'a, T, U: Copy>(
    to: &'a mut Vec<U>,
    nulls: &'a mut Vec<bool>,
    missing: U,
    convert: impl Fn(&T) -> U + 'a,
) -> impl Accept<T> + 'a {
    move |values, levels| {
        let Some(levels) = levels else {
            to.extend(values.iter().map(&convert));
            return Ok(());
        };
        // Rows before the first missing value have one.
        nulls.resize(to.len(), false);
        let mut values = values.iter();
        for level in levels {
            let value = if *level > 0 { Some(values.next().ok_or("its levels contradict its values")?) } else { None };
            nulls.push(value.is_none());
            to.push(value.map_or(missing, &convert));
        }
        Ok(())
    }
}

/// Calls a function with the value of each row, or with `None`.
fn each<T>(mut row: impl FnMut(Option<&T>) -> Result<(), String>) -> impl Accept<T> {
    move |values: &[T], levels: Option<&[i16]>| {
        let Some(levels) = levels else { return values.iter().try_for_each(|value| row(Some(value))) };
        let mut values = values.iter();
        levels.iter().try_for_each(|level| match level {
            0 => row(None),
            _ => row(Some(values.next().ok_or("its levels contradict its values")?)),
        })
    }
}

/// The integer that a column of 32 bits stores; for a date the seconds since 1970.
fn integer(value: i32, converted: ConvertedType) -> i64 {
    match converted {
        ConvertedType::INT_8 => i64::from(value as i8),
        ConvertedType::INT_16 => i64::from(value as i16),
        ConvertedType::UINT_8 => i64::from(value as u8),
        ConvertedType::UINT_16 => i64::from(value as u16),
        ConvertedType::UINT_32 => i64::from(value as u32),
        ConvertedType::DATE => i64::from(value) * 86_400,
        _ => i64::from(value),
    }
}

/// The text of a value as a table of text would contain it; empty without a value.
fn text(field: Option<Field>) -> Result<String, String> {
    Ok(match field {
        None | Some(Field::Null) => String::new(),
        // Timestamps of 96 bits.
        Some(Field::TimestampMillis(count)) => super::super::columnar::seconds(count, 3),
        // Without the `.0` that the crate's own formatting appends to integers.
        Some(Field::Float16(value)) => value.to_string(),
        Some(Field::Bytes(bytes)) => {
            String::from_utf8(bytes.data().to_vec()).map_err(|_| "bytes that are not UTF-8")?
        }
        Some(other) => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_range_of_their_type() {
        assert_eq!(integer(-1, ConvertedType::UINT_32), i64::from(u32::MAX));
        assert_eq!(integer(-1, ConvertedType::UINT_8), 255);
        assert_eq!((integer(2, ConvertedType::DATE), integer(-5, ConvertedType::INT_8)), (172_800, -5));
    }
}
