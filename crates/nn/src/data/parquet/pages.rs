//! Page headers of a column in a Parquet file, checked before the `parquet` crate allocates memory for them.
//!
//! The crate allocates the uncompressed size of a page and the length of a dictionary as the headers claim, regardless of the file's
//! content. Therefore all page headers are read here first. Sizes must be within the column, counts must match the rows, and the memory of
//! the dictionary and the largest page is counted.
//!
//! Source: apache/parquet-format, `PageHeader` in the compact protocol of Thrift.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use parquet::basic::{Encoding, Type};
use parquet::file::metadata::ColumnChunkMetaData;

/// Memory of a dictionary value in the `parquet` crate, in bytes.
const DICTIONARY_VALUE: u64 = 32;

/// Maximum nesting of structures in a header.
const DEEPEST: usize = 8;

/// Memory that reading a column takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Bytes of the dictionary and of the largest page, compressed and decompressed.
    pub memory: u64,
    /// Decompressed bytes of all pages.
    pub unpacked: u64,
}

/// Checks the page headers of a column against the rest of the file; an error describes the contradiction.
pub(super) fn check(file: &File, column: &ColumnChunkMetaData, rows: u64) -> Result<Pages, String> {
    if let Some(encoding) = column.encodings().find(|encoding| !is_read(*encoding)) {
        return Err(format!("its encoding {encoding} is not supported; write it plain or with a dictionary"));
    }
    if column.column_type() == Type::BYTE_ARRAY && column.column_descr().type_precision() > 76 {
        return Err(format!("decimals of {} digits are not supported", column.column_descr().type_precision()));
    }
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let (start, bytes) = (start.max(0) as u64, column.compressed_size().max(0) as u64);
    let (mut at, mut values, mut largest, mut found) = (0, 0u64, 0, Pages::default());
    while at < bytes {
        let mut file = file;
        file.seek(SeekFrom::Start(start + at)).map_err(|error| error.to_string())?;
        let mut header = Compact { reader: BufReader::new(file.take(bytes - at)), read: 0 };
        let page = header.page().ok_or("a page header cannot be read")?;
        at += header.read + page.compressed;
        if at > bytes || page.compressed > bytes {
            return Err("a page extends beyond the end of its column".to_string());
        }
        found.unpacked = found.unpacked.saturating_add(page.unpacked);
        match page.kind {
            Kind::Dictionary if page.values > page.unpacked => {
                return Err(format!("a dictionary of {} values in {} bytes", page.values, page.unpacked));
            }
            Kind::Dictionary => found.memory += page.compressed + page.unpacked + page.values * DICTIONARY_VALUE,
            Kind::Data => {
                values = values.saturating_add(page.values);
                largest = largest.max(page.compressed + page.unpacked);
            }
            Kind::Index => {}
        }
    }
    if values != rows {
        return Err(format!("its pages have {values} values, expected {rows}"));
    }
    found.memory += largest;
    Ok(found)
}

/// Returns true for encodings that are decoded without allocating memory for counts that only a page claims. They include the defaults of
/// pandas, Polars, DuckDB and Spark.
fn is_read(encoding: Encoding) -> bool {
    #[allow(deprecated, reason = "old writers declare it for levels")]
    let levels = Encoding::BIT_PACKED;
    let plain = [Encoding::PLAIN, Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY, Encoding::RLE, levels];
    plain.contains(&encoding) || [Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT].contains(&encoding)
}

/// Type of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Index,
    Dictionary,
}

/// A parsed page header.
#[derive(Clone, Copy, Debug)]
struct Page {
    kind: Kind,
    unpacked: u64,
    compressed: u64,
    values: u64,
}

/// Reader of Thrift's compact protocol that counts the consumed bytes.
struct Compact<R> {
    reader: R,
    read: u64,
}

impl<R: Read> Compact<R> {
    /// Parses a page header. Returns `None` if it is truncated, invalid, or has fields of unexpected types, which the `parquet` crate might
    /// interpret differently.
    fn page(&mut self) -> Option<Page> {
        let (mut numbers, mut counts, mut field) = ([None; 5], [None; 9], 0);
        while let Some(wire) = self.field(&mut field)? {
            match (field, wire) {
                (1..=4, 5) => numbers[field as usize] = Some(self.zigzag()?),
                // Headers of a data page, an index page, a dictionary page and a data page of version 2.
                (5..=8, 12) => counts[field as usize] = Some(self.counts(field)?),
                (1..=8, _) => return None,
                _ => self.skip(wire, 0)?,
            }
        }
        let (kind, counts) = match numbers[1]? {
            0 => (Kind::Data, counts[5]?),
            1 => (Kind::Index, (0, 0)),
            2 => (Kind::Dictionary, counts[7]?),
            3 => (Kind::Data, counts[8]?),
            _ => return None,
        };
        // The page's own encoding, which the column's metadata need not list.
        if !matches!(counts.1, 0 | 2..=5 | 8 | 9) {
            return None;
        }
        // Non-negative 32-bit numbers.
        let size = |number: i64| u64::try_from(number).ok().filter(|size| *size <= i32::MAX as u64);
        Some(Page { kind, unpacked: size(numbers[2]?)?, compressed: size(numbers[3]?)?, values: size(counts.0)? })
    }

    /// Returns the number of values and the encoding from the page type's header structure.
    fn counts(&mut self, header: i64) -> Option<(i64, i64)> {
        let (mut values, mut encoding, mut field) = (None, None, 0);
        while let Some(wire) = self.field(&mut field)? {
            match (header, field, wire) {
                (5 | 7 | 8, 1, 5) => values = Some(self.zigzag()?),
                (5 | 7, 2, 5) | (8, 4, 5) => encoding = Some(self.zigzag()?),
                // Other integers, a flag, and statistics.
                (5, 3 | 4, 5) | (8, 2 | 3 | 5 | 6, 5) | (7, 3, 1 | 2) | (8, 7, 1 | 2) | (5, 5, 12) | (8, 8, 12) => {
                    self.skip(wire, 0)?;
                }
                (5, 1..=5, _) | (7, 1..=3, _) | (8, 1..=8, _) => return None,
                _ => self.skip(wire, 0)?,
            }
        }
        if header == 6 { Some((0, 0)) } else { Some((values?, encoding?)) }
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
