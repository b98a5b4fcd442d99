//! Data sets: examples in host memory, batches on the device.

mod array_pair;
mod batch;
mod batch_feed;
mod budget;
pub mod csv;
pub mod digits;
pub mod idx;
pub mod images;
mod loader;
pub mod npy;
pub mod npz;
mod offsets;
#[cfg(feature = "parquet")]
mod parquet;
mod prefetch;
pub mod reader;
mod tables;
pub mod text;

use std::fs::File;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use panoply_tensor::{Error, Result, Rng, Tensor};

pub(crate) use batch::Cuts;
pub use batch::{Batch, Batches};
pub use batch_feed::TrainData;
pub(crate) use batch_feed::{BatchFeed, resident_bytes};
pub use budget::{BYTES_PER_BYTE, LEAST_LIMIT, ReadBudget};
pub use loader::{DataLoader, DataLoaderIter, ExampleMut};

/// What is to be learned of each example.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Classes below `classes`.
    Classes {
        /// One example after another.
        labels: Vec<i32>,
        /// How many classes there are.
        num_classes: usize,
        /// Labels of an example: one, or one for each time of a sequence.
        labels_per_example: usize,
    },
    /// Numbers.
    Regression {
        /// One example after another.
        values: Vec<f32>,
        /// Numbers of an example.
        num_outputs: usize,
    },
    /// Each a yes or a no of its own, which exclude nothing.
    MultiLabel {
        /// 1 for yes and 0 for no, one example after another.
        values: Vec<f32>,
        /// Answers of an example.
        num_labels: usize,
    },
}

/// Examples of equal width with what is to be learned of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// One row for each example, one after another.
    pub features: Vec<f32>,
    /// Numbers in a row.
    pub num_features: usize,
    /// What is to be learned of each.
    pub targets: Targets,
    /// Lengths of an example's axes; their product is the width.
    pub example_shape: Vec<usize>,
    /// How many times of each example count, if not all do: sequences of other lengths than the longest, which what stands behind
    /// their ends makes as long. The time is the first axis.
    pub seq_lengths: Option<Vec<i32>>,
}

impl Dataset {
    /// Examples with a class each, whose parts fit together.
    pub fn classification(features: Vec<f32>, width: usize, labels: Vec<i32>, classes: usize) -> Result<Dataset> {
        Dataset::sequence_labels(features, width, labels, classes, 1)
    }

    /// Examples with so many classes each: one for each time.
    pub fn sequence_labels(
        features: Vec<f32>,
        width: usize,
        labels: Vec<i32>,
        classes: usize,
        places: usize,
    ) -> Result<Dataset> {
        fits(features.len(), width, labels.len(), places)?;
        if let Some(at) = labels.iter().position(|label| !(0..classes as i32).contains(label)) {
            let message = format!("example {} has class {}, not one of 0 .. {classes}", at / places, labels[at]);
            return Err(Error::mistake(message));
        }
        let targets = Targets::Classes { labels, num_classes: classes, labels_per_example: places };
        Ok(Dataset { features, num_features: width, targets, example_shape: vec![width], seq_lengths: None })
    }

    /// Examples with so many numbers each to be learned.
    pub fn regression(features: Vec<f32>, width: usize, values: Vec<f32>, each: usize) -> Result<Dataset> {
        fits(features.len(), width, values.len(), each)?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let message = format!("example {} has the target {}, which is no finite number", at / each, values[at]);
            return Err(Error::mistake(message));
        }
        let targets = Targets::Regression { values, num_outputs: each };
        Ok(Dataset { features, num_features: width, targets, example_shape: vec![width], seq_lengths: None })
    }

    /// Examples with so many answers each to be learned, 1 for yes and 0 for no.
    pub fn multilabel(features: Vec<f32>, width: usize, values: Vec<f32>, each: usize) -> Result<Dataset> {
        fits(features.len(), width, values.len(), each)?;
        if let Some(at) = values.iter().position(|value| ![0.0, 1.0].contains(value)) {
            let message = format!("example {} has the answer {}, which is neither 0 nor 1", at / each, values[at]);
            return Err(Error::mistake(message));
        }
        let targets = Targets::MultiLabel { values, num_labels: each };
        Ok(Dataset { features, num_features: width, targets, example_shape: vec![width], seq_lengths: None })
    }

    /// The same examples with other axes.
    pub fn with_shape(mut self, lengths: &[usize]) -> Result<Dataset> {
        if lengths.iter().try_fold(1usize, |size, length| size.checked_mul(*length)) != Some(self.num_features) {
            return Err(Error::mistake(format!("examples of {:?} do not fit into {lengths:?}", self.example_shape)));
        }
        self.example_shape = lengths.to_vec();
        Ok(self)
    }

    /// The same sequences `[time, …]`, of each of which only so many times count.
    pub fn with_seq_lengths(mut self, times: Vec<i32>) -> Result<Dataset> {
        let (count, time) = (self.len(), self.example_shape[0]);
        if times.len() != count {
            return Err(Error::mistake(format!("{} lengths are not one for each of {count} sequences", times.len())));
        }
        if let Some(at) = times.iter().position(|length| !(1..=time as i64).contains(&i64::from(*length))) {
            return Err(Error::mistake(format!("sequence {at} has {} times, not 1 ..= {time}", times[at])));
        }
        if let Targets::Classes { labels_per_example: 2.., .. } = self.targets {
            let message = "sequences with a class at each time all have the same length here";
            return Err(Error::mistake(message).note("cut them into windows of equal length"));
        }
        self.seq_lengths = Some(times);
        Ok(self)
    }

    /// How many examples.
    pub fn len(&self) -> usize {
        self.features.len() / self.num_features
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// The classes of the examples, one after another; none if something else is to be learned.
    pub fn labels(&self) -> &[i32] {
        match &self.targets {
            Targets::Classes { labels, .. } => labels,
            Targets::Regression { .. } | Targets::MultiLabel { .. } => &[],
        }
    }

    /// How many classes there are; 0 if something else is to be learned.
    pub fn num_classes(&self) -> usize {
        match &self.targets {
            Targets::Classes { num_classes: classes, .. } => *classes,
            Targets::Regression { .. } | Targets::MultiLabel { .. } => 0,
        }
    }

    /// The examples at these positions.
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
        }
    }

    /// The examples in order, so many at a time; the last part may be smaller.
    pub fn chunks(&self, size: usize) -> impl Iterator<Item = Dataset> + '_ {
        let size = size.max(1);
        (0..self.len()).step_by(size).map(move |start| {
            let positions: Vec<usize> = (start..(start + size).min(self.len())).collect();
            self.select(&positions)
        })
    }

    /// A number that differs if the examples do.
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

    /// Two parts, the second with this share of the examples: of every class, chosen at random; of sequences the last ones,
    /// since neighbors tell of each other.
    pub fn train_test_split(&self, share: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
        if !(0.0..1.0).contains(&share) {
            return Err(Error::mistake(format!("a share of {share} cannot be held out; choose one in 0 .. 1")));
        }
        let out = |count: usize| (count as f64 * share).round() as usize;
        let order = rng.permutation(self.len());
        let (mut kept, mut held) = (Vec::new(), Vec::new());
        let mut divide = |members: &[usize]| {
            // The only example of a class is learned from.
            let (first, rest) = members.split_at(out(members.len()).min(members.len().saturating_sub(1)));
            held.extend(first);
            kept.extend(rest);
        };
        match &self.targets {
            Targets::Classes { labels, num_classes: classes, labels_per_example: 1 } => {
                (0..*classes as i32).for_each(|class| {
                    divide(&order.iter().copied().filter(|i| labels[*i] == class).collect::<Vec<usize>>());
                })
            }
            Targets::Classes { .. } => divide(&(0..self.len()).rev().collect::<Vec<usize>>()),
            Targets::Regression { .. } | Targets::MultiLabel { .. } => divide(&order),
        }
        kept.sort_unstable();
        held.sort_unstable();
        Ok((self.select(&kept), self.select(&held)))
    }

    /// All examples once, in random order, `size` at a time; the last batch may be shorter.
    pub fn batches(&self, size: usize, rng: &mut Rng) -> Batches<'_> {
        Batches::new(self, self.order(rng), size)
    }

    /// The order in which [`Dataset::batches`] takes the examples.
    pub(crate) fn order(&self, rng: &mut Rng) -> Vec<usize> {
        rng.fork().permutation(self.len())
    }

    /// All examples as one batch, in order.
    pub fn full_batch(&self) -> (Tensor, Tensor) {
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
        (Tensor::from_slice(&self.features, shape), targets)
    }

    /// How many times of each example count, `[batch]`, if not all do: for [`crate::ForwardContext::with_seq_lengths`].
    pub fn seq_lengths(&self) -> Option<Tensor> {
        self.seq_lengths.as_ref().map(|times| Tensor::from_slice(times, [times.len()]))
    }

    /// [`Dataset::full_batch`] and [`Dataset::seq_lengths`].
    pub(crate) fn examples(&self) -> Batch {
        let (inputs, targets) = self.full_batch();
        Batch { inputs, targets, seq_lengths: self.seq_lengths() }
    }
}

fn rows<T: Copy>(values: &[T], width: usize, positions: &[usize]) -> Vec<T> {
    positions.iter().flat_map(|position| &values[position * width..(position + 1) * width]).copied().collect()
}

fn fits(features: usize, width: usize, targets: usize, each: usize) -> Result<()> {
    if width == 0 || each == 0 || !targets.is_multiple_of(each) || features != targets / each * width {
        let rows = targets.checked_div(each).unwrap_or(0);
        return Err(Error::mistake(format!("{features} numbers are not {rows} rows of {width}")));
    }
    Ok(())
}

/// U+FEFF in UTF-8, which some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text of a file, without the byte order mark that it may begin with.
fn read_text(path: &Path, budget: &ReadBudget) -> Result<String> {
    let mut bytes = read(path, budget)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Error::corrupt(format!("{} is UTF-16", path.display())).note("save it as UTF-8"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("{}:{line}: byte {:#04x} is no UTF-8", path.display(), error.as_bytes()[good]);
        Error::corrupt(message).note("save it as UTF-8, if it is text").with_source(error)
    })
}

/// The bytes of a file; what gzip has packed is unpacked.
fn read(path: &Path, budget: &ReadBudget) -> Result<Vec<u8>> {
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    let packed = budget.read_to_end(File::open(path).map_err(failed)?, path, failed)?;
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Ok(packed);
    }
    let bytes = budget.read_to_end(MultiGzDecoder::new(&packed[..]), path, |error| {
        let message = format!("{}: what gzip packed ends early or was changed ({error})", path.display());
        Error::corrupt(message).note("take another copy of it").with_source(error)
    })?;
    budget.give_back(packed.len() as u64);
    Ok(bytes)
}
