//! Pages packed by Zstandard, the default of Polars and Spark.
//!
//! The format's crate unpacks them with the C library behind its feature `zstd`, which a build of Panoply must not need. Here `ruzstd`,
//! written in Rust, unpacks them, and the crate gets pages that are not packed.

use std::io::Read;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::RowGroupReader;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use ruzstd::decoding::StreamingDecoder;

use super::pages::{PageHeader, PageKind, read_header};

/// True if the pages of a column are packed by Zstandard.
pub(super) fn is_zstd(column: &ColumnChunkMetaData) -> bool {
    matches!(column.compression(), Compression::ZSTD(_))
}

/// A row group whose columns may be packed by Zstandard.
pub(super) struct RowGroup<'a> {
    pub inner: &'a dyn RowGroupReader,
    pub bytes: &'a Bytes,
}

impl RowGroupReader for RowGroup<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.inner.metadata()
    }

    fn num_columns(&self) -> usize {
        self.inner.num_columns()
    }

    fn get_column_page_reader(&self, column: usize) -> Result<Box<dyn PageReader>> {
        let metadata = self.metadata().column(column);
        if !is_zstd(metadata) {
            return self.inner.get_column_page_reader(column);
        }
        let start = metadata.dictionary_page_offset().unwrap_or(metadata.data_page_offset());
        let (start, length) = (start.max(0) as usize, metadata.compressed_size().max(0) as usize);
        let outside = || ParquetError::General("a column is outside of the file".to_string());
        let end = start.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or_else(outside)?;
        Ok(Box::new(Pages { rest: self.bytes.slice(start..end) }))
    }

    fn get_column_bloom_filter(&self, column: usize) -> Option<&Sbbf> {
        self.inner.get_column_bloom_filter(column)
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_row_group(projection, self)
    }
}

/// The pages of a column.
struct Pages {
    /// From the next header on.
    rest: Bytes,
}

impl Pages {
    /// Reads the next page; `None` at the end.
    fn read_page(&mut self) -> Result<Option<Page>> {
        let damaged = || ParquetError::General("a page header cannot be read".to_string());
        while !self.rest.is_empty() {
            let (header, read) = read_header(&self.rest[..]).ok_or_else(damaged)?;
            let (start, length) = (read as usize, header.compressed as usize);
            let end = start.checked_add(length).filter(|end| *end <= self.rest.len()).ok_or_else(damaged)?;
            let packed = self.rest.split_to(end).split_off(start);
            if header.kind != PageKind::Index {
                return page(&header, &packed).map(Some);
            }
        }
        Ok(None)
    }
}

/// Unpacks a page.
fn page(header: &PageHeader, packed: &[u8]) -> Result<Page> {
    let damaged = || ParquetError::General("a page contradicts its header".to_string());
    let (encoding, number) =
        (header.encoding().ok_or_else(damaged)?, |field: usize| header.field(field).ok_or_else(damaged));
    let values = u32::try_from(header.values).map_err(|_| damaged())?;
    let unpacked = usize::try_from(header.unpacked).map_err(|_| damaged())?;
    Ok(match header.kind {
        PageKind::Data => Page::DataPage {
            buf: unpack(packed, unpacked)?.into(),
            num_values: values,
            encoding,
            def_level_encoding: header.field_encoding(3).ok_or_else(damaged)?,
            rep_level_encoding: header.field_encoding(4).ok_or_else(damaged)?,
            statistics: None,
        },
        PageKind::DataV2 => {
            let (definition, repetition) = (number(5)?, number(6)?);
            let levels = definition as usize + repetition as usize;
            let (levels, packed) = packed.split_at_checked(levels).ok_or_else(damaged)?;
            let rest = unpacked.checked_sub(levels.len()).ok_or_else(damaged)?;
            let data = if header.field(7) == Some(0) { packed.to_vec() } else { unpack(packed, rest)? };
            Page::DataPageV2 {
                buf: [levels, &data].concat().into(),
                num_values: values,
                encoding,
                num_nulls: number(2)?,
                num_rows: number(3)?,
                def_levels_byte_len: definition,
                rep_levels_byte_len: repetition,
                is_compressed: false,
                statistics: None,
            }
        }
        PageKind::Dictionary => Page::DictionaryPage {
            buf: unpack(packed, unpacked)?.into(),
            num_values: values,
            encoding,
            is_sorted: header.field(3) == Some(1),
        },
        PageKind::Index => return Err(damaged()),
    })
}

/// Unpacks exactly this number of bytes.
fn unpack(packed: &[u8], bytes: usize) -> Result<Vec<u8>> {
    let wrong = |what: String| ParquetError::General(format!("a page packed by Zstandard: {what}"));
    let mut unpacked = Vec::with_capacity(bytes);
    // A page of no values may have no frame.
    if !packed.is_empty() {
        let decoder = StreamingDecoder::new(packed).map_err(|error| wrong(error.to_string()))?;
        // One byte more tells a page that unpacks to more than its header says.
        decoder.take(bytes as u64 + 1).read_to_end(&mut unpacked)?;
    }
    match unpacked.len() {
        length if length == bytes => Ok(unpacked),
        length => Err(wrong(format!("{length} bytes or more, not {bytes}"))),
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.read_page()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(ParquetError::General("pages packed by Zstandard are read in order".to_string()))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.read_page().map(drop)
    }
}
