//! Page headers of a column in a Parquet file, checked before the `parquet` crate allocates memory for them.
//!
//! The crate allocates the uncompressed size of a page and the length of a dictionary as the headers claim, regardless of the file's
//! content. Therefore all page headers are read here first. Sizes must be within the column, counts must match the rows, and the memory of
//! the dictionary and the largest page is counted.
//!
//! Source: apache/parquet-format, `PageHeader` in the compact protocol of Thrift.

use std::io::Read;

use parquet::basic::{Encoding, Type};
use parquet::file::metadata::ColumnChunkMetaData;

/// Memory of a dictionary value in the `parquet` crate, in bytes.
const DICTIONARY_VALUE: u64 = 32;

/// Maximum nesting of structures in a header.
const DEEPEST: usize = 8;

/// Memory that a column takes while it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Bytes of the dictionary and of the largest page, compressed and decompressed.
    pub memory: u64,
    /// Decompressed bytes of all pages.
    pub unpacked: u64,
}

/// Checks the page headers of a column against the rest of the file; an error describes the contradiction.
pub(super) fn check(file: &[u8], column: &ColumnChunkMetaData, rows: u64) -> Result<Pages, String> {
    if let Some(encoding) = column.encodings().find(|encoding| !is_read(*encoding)) {
        return Err(format!("its encoding {encoding} is not supported; write it plain or with a dictionary"));
    }
    if column.column_type() == Type::BYTE_ARRAY && column.column_descr().type_precision() > 76 {
        return Err(format!("decimals of {} digits are not supported", column.column_descr().type_precision()));
    }
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let (start, bytes) = (start.max(0) as usize, column.compressed_size().max(0) as usize);
    let end = start.saturating_add(bytes);
    let mut rest = file.get(start..end).ok_or("it is outside of the file")?;
    let (mut values, mut largest, mut found) = (0u64, 0, Pages::default());
    while !rest.is_empty() {
        let (page, read) = read_header(rest).ok_or("a page header cannot be read")?;
        let next = read.checked_add(page.compressed).and_then(|next| usize::try_from(next).ok());
        rest = next.and_then(|next| rest.get(next..)).ok_or("a page extends beyond the end of its column")?;
        found.unpacked = found.unpacked.saturating_add(page.unpacked);
        match page.kind {
            PageKind::Dictionary if page.values > page.unpacked => {
                return Err(format!("a dictionary of {} values in {} bytes", page.values, page.unpacked));
            }
            PageKind::Dictionary => found.memory += page.compressed + page.unpacked + page.values * DICTIONARY_VALUE,
            PageKind::Data | PageKind::DataV2 => {
                values = values.saturating_add(page.values);
                largest = largest.max(page.compressed + page.unpacked);
            }
            PageKind::Index => {}
        }
    }
    if values != rows {
        return Err(format!("its pages have {values} values, expected {rows}"));
    }
    found.memory += largest;
    Ok(found)
}

/// True if values in this encoding are decoded without memory for counts that only their page names: those that pandas, Polars, DuckDB
/// and Spark write by default.
fn is_read(encoding: Encoding) -> bool {
    #[allow(deprecated, reason = "old writers declare it for levels")]
    let levels = Encoding::BIT_PACKED;
    let plain = [Encoding::PLAIN, Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY, Encoding::RLE, levels];
    plain.contains(&encoding) || [Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT].contains(&encoding)
}

/// The contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Data,
    /// Values behind levels that are never packed.
    DataV2,
    Index,
    Dictionary,
}

/// The header of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageHeader {
    pub kind: PageKind,
    /// Bytes of the page in memory.
    pub unpacked: u64,
    /// Bytes of the page in the file, behind its header.
    pub compressed: u64,
    pub values: u64,
    /// The number of the values' encoding in the format.
    encoding: i64,
    /// Numbers of the header's own structure by their field, bools as 0 and 1.
    fields: Fields,
}

/// Integers and bools of a structure, by field number.
type Fields = [Option<i64>; 9];

impl PageHeader {
    /// The encoding of the values; `None` if it is not read here.
    pub fn encoding(&self) -> Option<Encoding> {
        encoding(self.encoding)
    }

    /// The number or bool in a field of the header's own structure.
    pub fn field(&self, number: usize) -> Option<u32> {
        self.fields[number].and_then(|value| u32::try_from(value).ok())
    }

    /// The encoding that a field of the header's own structure names.
    pub fn field_encoding(&self, number: usize) -> Option<Encoding> {
        self.fields[number].and_then(encoding)
    }
}

/// The encoding of a number in the format; `None` if it is not read here.
fn encoding(number: i64) -> Option<Encoding> {
    #[allow(deprecated, reason = "files of old writers use it for levels")]
    let bit_packed = Encoding::BIT_PACKED;
    Some(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        4 => bit_packed,
        5 => Encoding::DELTA_BINARY_PACKED,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return None,
    })
}

/// Reads the header of the page at the current position and counts its bytes; `None` if it is damaged.
pub(super) fn read_header(reader: impl Read) -> Option<(PageHeader, u64)> {
    let mut compact = Compact { reader, read: 0 };
    compact.page().map(|page| (page, compact.read))
}

/// Reader of Thrift's compact protocol that counts the consumed bytes.
struct Compact<R> {
    reader: R,
    read: u64,
}

impl<R: Read> Compact<R> {
    /// Reads the header of a page; `None` if it is cut short, not a header, or has fields of other types than the format: the format's
    /// crate could read those as something else.
    fn page(&mut self) -> Option<PageHeader> {
        let (mut numbers, mut own, mut field) = ([None; 5], [None; 9], 0);
        while let Some(wire) = self.field(&mut field)? {
            match (field, wire) {
                (1..=4, 5) => numbers[field as usize] = Some(self.zigzag()?),
                // Headers of a data page, an index, a dictionary and a data page of version 2.
                (5..=8, 12) => own[field as usize] = Some(self.fields(field)?),
                (1..=8, _) => return None,
                _ => self.skip(wire, 0)?,
            }
        }
        let (kind, fields) = match numbers[1]? {
            0 => (PageKind::Data, own[5]?),
            1 => (PageKind::Index, [Some(0); 9]),
            2 => (PageKind::Dictionary, own[7]?),
            3 => (PageKind::DataV2, own[8]?),
            _ => return None,
        };
        let encoding_of_values = if kind == PageKind::DataV2 { fields[4]? } else { fields[2]? };
        // The page's own encoding, which its column may not have listed.
        encoding(encoding_of_values)?;
        // Numbers of 32 bits that are not below 0.
        let size = |number: i64| u64::try_from(number).ok().filter(|size| *size <= i32::MAX as u64);
        Some(PageHeader {
            kind,
            unpacked: size(numbers[2]?)?,
            compressed: size(numbers[3]?)?,
            values: size(fields[1]?)?,
            encoding: encoding_of_values,
            fields,
        })
    }

    /// Reads the integers and bools of the structure in this field.
    fn fields(&mut self, header: i64) -> Option<Fields> {
        let (mut fields, mut field) = ([None; 9], 0);
        while let Some(wire) = self.field(&mut field)? {
            match (header, field, wire) {
                (5, 1..=4, 5) | (7, 1..=2, 5) | (8, 1..=6, 5) => fields[field as usize] = Some(self.zigzag()?),
                // The value of a bool is its wire type.
                (7, 3, 1 | 2) | (8, 7, 1 | 2) => fields[field as usize] = Some(i64::from(wire == 1)),
                // Statistics.
                (5, 5, 12) | (8, 8, 12) => self.skip(wire, 0)?,
                (5, 1..=5, _) | (7, 1..=3, _) | (8, 1..=8, _) => return None,
                _ => self.skip(wire, 0)?,
            }
        }
        Some(fields)
    }

    /// Returns the wire type of the next field of a structure and updates `number`; an inner `None` is the end of the structure.
    fn field(&mut self, number: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        let (delta, wire) = (i64::from(byte >> 4), byte & 15);
        if wire == 0 {
            return Some(None);
        }
        *number = if delta == 0 { self.zigzag()? } else { number.checked_add(delta)? };
        Some(Some(wire))
    }

    fn skip(&mut self, wire: u8, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match wire {
            1 | 2 => Some(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip_bytes(8),
            8 => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                // Each element takes at least one byte, so a count beyond the file's content fails here.
                (0..count).try_for_each(|_| match head & 15 {
                    1 | 2 => self.byte().map(|_| ()),
                    wire => self.skip(wire, depth + 1),
                })
            }
            12 => {
                let mut number = 0;
                while let Some(wire) = self.field(&mut number)? {
                    self.skip(wire, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte).ok()?;
        self.read += 1;
        Some(byte[0])
    }

    fn skip_bytes(&mut self, count: u64) -> Option<()> {
        let skipped = std::io::copy(&mut self.reader.by_ref().take(count), &mut std::io::sink()).ok()?;
        self.read += skipped;
        (skipped == count).then_some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
