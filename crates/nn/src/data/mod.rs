//! Data sets: examples in host memory, batches on the device.

mod array_pair;
mod batch;
mod batch_feed;
mod builder;
mod cells;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only Parquet files have such columns"))]
mod columnar;
pub mod csv;
mod dates;
pub mod digits;
pub mod idx;
pub mod images;
mod imputation;
mod inference_data;
mod labels;
mod loader;
pub mod npy;
pub mod npz;
mod numbers;
mod offsets;
#[cfg(feature = "parquet")]
mod parquet;
mod prefetch;
mod read_progress;
pub mod reader;
mod split;
mod tables;
pub mod text;

use std::path::Path;

use flate2::read::MultiGzDecoder;
use panoply_tensor::{Error, Result, Rng, Tensor};

pub(crate) use batch::Cuts;
pub use batch::{Batch, Batches};
pub use batch_feed::TrainData;
pub(crate) use batch_feed::{BatchFeed, resident_bytes};
pub use builder::DatasetBuilder;
pub use dates::DateOrder;
pub use imputation::MissingRows;
pub use loader::{DataLoader, DataLoaderIter, ExampleMut};
pub use panoply_tensor::ReadBudget;
#[cfg(feature = "parquet")]
pub use parquet::{ParquetColumn, ParquetValues, to_parquet};
pub use read_progress::ReadProgress;
pub use tables::{TableRows, summary};

/// Targets of the examples.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Class labels below `num_classes`.
    Classes {
        /// Labels, one example after another.
        labels: Vec<i32>,
        /// Number of classes.
        num_classes: usize,
        /// Number of labels of an example: one, or one for each time step of a sequence.
        labels_per_example: usize,
    },
    /// Regression targets.
    Regression {
        /// Targets, one example after another.
        values: Vec<f32>,
        /// Number of targets of an example.
        num_outputs: usize,
    },
    /// Multi-label targets: independent yes/no labels.
    MultiLabel {
        /// 1 for yes and 0 for no, one example after another.
        values: Vec<f32>,
        /// Number of labels of an example.
        num_labels: usize,
    },
}

/// Examples of equal width with their targets, in host memory.
#[doc(alias = "TensorDataset")]
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Features, one example after another.
    pub features: Vec<f32>,
    /// Number of features of an example.
    pub num_features: usize,
    /// Targets of the examples.
    pub targets: Targets,
    /// Shape of an example; the product of its lengths is `num_features`.
    pub example_shape: Vec<usize>,
    /// Valid length of each sequence; `None` if all time steps are valid. Shorter sequences are padded to the longest along the time axis,
    /// which is the first axis of an example.
    pub seq_lengths: Option<Vec<i32>>,
    /// Line of each example in its file, or its position in the data set that it was selected from; `None` for positions in this one.
    pub row_numbers: Option<Vec<usize>>,
}

impl Dataset {
    /// Reshapes the examples.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn with_shape(mut self, lengths: &[usize]) -> Result<Dataset> {
        if lengths.iter().try_fold(1usize, |size, length| size.checked_mul(*length)) != Some(self.num_features) {
            return Err(Error::mistake(format!(
                "examples of shape {:?} cannot be reshaped to {lengths:?}",
                self.example_shape
            )));
        }
        self.example_shape = lengths.to_vec();
        Ok(self)
    }

    /// Sets the valid lengths of sequences `[time, …]`.
    ///
    /// # Errors
    /// If examples have no axes, there is not one length in 1 ..= time for each, or the targets are labels for each time step.
    pub fn with_seq_lengths(mut self, seq_lengths: Vec<i32>) -> Result<Dataset> {
        let count = self.len();
        let Some(&time) = self.example_shape.first() else {
            return Err(Error::mistake("examples of a single number are not sequences"));
        };
        if seq_lengths.len() != count {
            return Err(Error::mistake(format!("{} lengths for {count} sequences", seq_lengths.len())));
        }
        if let Some(at) = seq_lengths.iter().position(|length| !(1..=time as i64).contains(&i64::from(*length))) {
            return Err(Error::mistake(format!(
                "sequence {at} has the length {}, which is not in 1 ..= {time}",
                seq_lengths[at]
            )));
        }
        if let Targets::Classes { labels_per_example: 2.., .. } = self.targets {
            let message = "sequences with a label for each time step must have the same length";
            return Err(Error::mistake(message).note("cut them into windows of equal length"));
        }
        self.seq_lengths = Some(seq_lengths);
        Ok(self)
    }

    /// Returns the number of examples.
    pub fn len(&self) -> usize {
        self.features.len() / self.num_features
    }

    /// Returns the line of an example in its file, or its position in the whole data set if it was not read from a table.
    ///
    /// # Panics
    /// If `example` is out of range.
    pub fn row_number(&self, example: usize) -> usize {
        self.row_numbers.as_ref().map_or(example, |numbers| numbers[example])
    }

    /// Returns true if there are no examples.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// Returns the class labels, one example after another; empty for other targets.
    pub fn labels(&self) -> &[i32] {
        match &self.targets {
            Targets::Classes { labels, .. } => labels,
            Targets::Regression { .. } | Targets::MultiLabel { .. } => &[],
        }
    }

    /// Returns the number of classes; 0 for other targets.
    pub fn num_classes(&self) -> usize {
        match &self.targets {
            Targets::Classes { num_classes: classes, .. } => *classes,
            Targets::Regression { .. } | Targets::MultiLabel { .. } => 0,
        }
    }

    /// Returns the examples at these positions.
    ///
    /// # Panics
    /// If a position is out of range.
    #[doc(alias = "Subset")]
    pub fn select(&self, positions: &[usize]) -> Dataset {
        Dataset {
            features: rows(&self.features, self.num_features, positions),
            num_features: self.num_features,
            targets: match &self.targets {
                Targets::Classes { labels, num_classes: classes, labels_per_example: places } => Targets::Classes {
                    labels: rows(labels, *places, positions),
                    num_classes: *classes,
                    labels_per_example: *places,
                },
                Targets::Regression { values, num_outputs: width } => {
                    Targets::Regression { values: rows(values, *width, positions), num_outputs: *width }
                }
                Targets::MultiLabel { values, num_labels: width } => {
                    Targets::MultiLabel { values: rows(values, *width, positions), num_labels: *width }
                }
            },
            example_shape: self.example_shape.clone(),
            seq_lengths: self.seq_lengths.as_ref().map(|times| rows(times, 1, positions)),
            row_numbers: self.row_numbers.as_ref().map(|numbers| rows(numbers, 1, positions)),
        }
    }

    /// Returns the examples at these positions, each with its row number.
    fn select_numbered(&self, positions: &[usize]) -> Dataset {
        let mut part = self.select(positions);
        part.row_numbers.get_or_insert_with(|| positions.to_vec());
        part
    }

    /// Returns the examples in order, in data sets of `size`; the last one can be smaller.
    pub fn chunks(&self, size: usize) -> impl Iterator<Item = Dataset> + '_ {
        let size = size.max(1);
        (0..self.len()).step_by(size).map(move |start| {
            let positions: Vec<usize> = (start..(start + size).min(self.len())).collect();
            self.select(&positions)
        })
    }

    /// Returns a hash of the examples and targets.
    pub fn fingerprint(&self) -> u128 {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        let lengths: Vec<u64> = self.example_shape.iter().map(|length| *length as u64).collect();
        hasher.update(bytemuck::cast_slice(&lengths));
        hasher.update(bytemuck::cast_slice(&self.features));
        match &self.targets {
            Targets::Classes { labels, .. } => hasher.update(bytemuck::cast_slice(labels)),
            Targets::Regression { values, .. } | Targets::MultiLabel { values, .. } => {
                hasher.update(bytemuck::cast_slice(values));
            }
        }
        self.seq_lengths.iter().for_each(|times| hasher.update(bytemuck::cast_slice(times)));
        hasher.digest128()
    }

    /// Returns all examples once, in random order, in batches of `batch_size`; the last batch can be smaller.
    pub fn batches(&self, batch_size: usize, rng: &mut Rng) -> Batches<'_> {
        Batches::new(self, self.order(rng), batch_size)
    }

    /// Returns the order in which [`Dataset::batches`] takes the examples.
    pub(crate) fn order(&self, rng: &mut Rng) -> Vec<usize> {
        rng.fork().permutation(self.len())
    }

    /// Returns all examples as one batch, in order.
    pub fn full_batch(&self) -> Batch {
        let shape = [&[self.len()], &self.example_shape[..]].concat();
        let targets = match &self.targets {
            Targets::Classes { labels, labels_per_example: 1, .. } => Tensor::from_slice(labels, [self.len()]),
            Targets::Classes { labels, labels_per_example: places, .. } => {
                Tensor::from_slice(labels, [self.len(), *places])
            }
            Targets::Regression { values, num_outputs: width } | Targets::MultiLabel { values, num_labels: width } => {
                Tensor::from_slice(values, [self.len(), *width])
            }
        };
        let seq_lengths = self.seq_lengths.as_ref().map(|times| Tensor::from_slice(times, [times.len()]));
        Batch { inputs: Tensor::from_slice(&self.features, shape), targets, seq_lengths }
    }
}

fn rows<T: Copy>(values: &[T], width: usize, positions: &[usize]) -> Vec<T> {
    positions.iter().flat_map(|position| &values[position * width..(position + 1) * width]).copied().collect()
}

/// The text of a file, decoded from `encoding`, or from UTF-8 or UTF-16 if `None`; without a byte order mark.
///
/// # Errors
/// A file that cannot be read, and bytes that are not text in the encoding.
fn read_text(path: &Path, encoding: Option<TextEncoding>, budget: &ReadBudget) -> Result<String> {
    let bytes = read(path, budget)?;
    let known = encoding.map(|TextEncoding(encoding)| encoding).or_else(|| utf16(&bytes));
    match known {
        Some(encoding) if encoding != encoding_rs::UTF_8 => {
            // At most three bytes of UTF-8 for each byte.
            budget.take(bytes.len() as u64 * 3, path)?;
            let (text, used, is_damaged) = encoding.decode(&bytes);
            let text = text.into_owned();
            budget.give_back((bytes.len() as u64 * 3).saturating_sub(text.len() as u64) + bytes.len() as u64);
            match is_damaged {
                true => Err(Error::corrupt(format!("{}: it is not text in {}", path.display(), used.name()))
                    .note("`--encoding NAME` names another encoding")),
                false => Ok(text),
            }
        }
        _ => utf8(bytes, path),
    }
}

/// U+FEFF in UTF-8, which some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn utf8(mut bytes: Vec<u8>, path: &Path) -> Result<String> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("{}:{line}: byte {:#04x} is not UTF-8", path.display(), error.as_bytes()[good]);
        let note = "if it is text in another encoding, name it, such as `--encoding latin1`";
        Error::corrupt(message).note(note).with_source(error)
    })
}

/// Bytes that are examined for UTF-16 without a byte order mark.
const EXAMINED: usize = 4096;

/// UTF-16 in one of its byte orders if the bytes begin with its mark, or if every second byte of most of their beginning is 0.
fn utf16(bytes: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    if bytes.starts_with(&[0xff, 0xfe]) {
        return Some(encoding_rs::UTF_16LE);
    }
    if bytes.starts_with(&[0xfe, 0xff]) {
        return Some(encoding_rs::UTF_16BE);
    }
    let units = bytes[..bytes.len().min(EXAMINED)].chunks_exact(2);
    let (count, zeros) = (units.len(), |at: usize| units.clone().filter(|unit| unit[at] == 0).count());
    // Text of mostly ASCII: UTF-8 has no zeros at all.
    let most = |found: usize| count > 1 && found * 10 > count * 9;
    match (most(zeros(0)), most(zeros(1))) {
        (true, false) => Some(encoding_rs::UTF_16BE),
        (false, true) => Some(encoding_rs::UTF_16LE),
        _ => None,
    }
}

/// The encoding of a text, by a name of the WHATWG Encoding Standard, such as `latin1`, `windows-1252`, `shift_jis` or `utf-16le`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextEncoding(&'static encoding_rs::Encoding);

impl TextEncoding {
    /// The encoding with this name or one of its aliases; `None` if there is none.
    pub fn from_name(name: &str) -> Option<TextEncoding> {
        encoding_rs::Encoding::for_label_no_replacement(name.as_bytes()).map(TextEncoding)
    }

    /// The standard name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

impl serde::Serialize for TextEncoding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for TextEncoding {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<TextEncoding, D::Error> {
        let name = String::deserialize(deserializer)?;
        TextEncoding::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown encoding `{name}`")))
    }
}

/// The bytes of a file; what gzip has packed is unpacked.
fn read(path: &Path, budget: &ReadBudget) -> Result<Vec<u8>> {
    let packed = budget.read_file(path)?;
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Ok(packed);
    }
    let bytes = budget.read_to_end(MultiGzDecoder::new(&packed[..]), path, |error| {
        let message = format!("{}: its gzip data are truncated or modified ({error})", path.display());
        Error::corrupt(message).note("use another copy").with_source(error)
    })?;
    budget.give_back(packed.len() as u64);
    Ok(bytes)
}
