//! Data sets: examples in host memory, batches on the device.

mod ahead;
mod arrays;
mod batch;
mod budget;
pub mod csv;
pub mod digits;
mod feed;
pub mod idx;
pub mod images;
mod loader;
pub mod npy;
pub mod npz;
mod offsets;
#[cfg(feature = "parquet")]
mod parquet;
pub mod source;
mod tables;
pub mod text;

use std::fs::File;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use panoply_tensor::{Error, Result, Rng, Tensor};

pub(crate) use batch::Cuts;
pub use batch::{Batch, Batches, Examples};
pub use budget::{BYTES_PER_BYTE, LEAST_LIMIT, ReadBudget};
pub use feed::Supply;
pub(crate) use feed::{Feed, resident_bytes};
pub use loader::{Loader, Loading, Record};

/// What is to be learned of each example.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Classes below `classes`.
    Classes {
        /// One example after another.
        labels: Vec<i32>,
        /// How many classes there are.
        classes: usize,
        /// Labels of an example: one, or one for each time of a sequence.
        places: usize,
    },
    /// Numbers.
    Numbers {
        /// One example after another.
        values: Vec<f32>,
        /// Numbers of an example.
        width: usize,
    },
    /// Each a yes or a no of its own, which exclude nothing.
    Answers {
        /// 1 for yes and 0 for no, one example after another.
        values: Vec<f32>,
        /// Answers of an example.
        width: usize,
    },
}

/// Examples of equal width with what is to be learned of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// One row for each example, one after another.
    pub features: Vec<f32>,
    /// Numbers in a row.
    pub width: usize,
    /// What is to be learned of each.
    pub targets: Targets,
    /// Lengths of an example's axes; their product is the width.
    pub lengths: Vec<usize>,
    /// How many times of each example count, if not all do: sequences of other lengths than the longest, which what stands behind
    /// their ends makes as long. The time is the first axis.
    pub times: Option<Vec<i32>>,
}

impl Dataset {
    /// Examples with a class each, whose parts fit together.
    pub fn new(features: Vec<f32>, width: usize, labels: Vec<i32>, classes: usize) -> Result<Dataset> {
        Dataset::sequences(features, width, labels, classes, 1)
    }

    /// Examples with so many classes each: one for each time.
    pub fn sequences(
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
        let targets = Targets::Classes { labels, classes, places };
        Ok(Dataset { features, width, targets, lengths: vec![width], times: None })
    }

    /// Examples with so many numbers each to be learned.
    pub fn numbers(features: Vec<f32>, width: usize, values: Vec<f32>, each: usize) -> Result<Dataset> {
        fits(features.len(), width, values.len(), each)?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let message = format!("example {} has the target {}, which is no finite number", at / each, values[at]);
            return Err(Error::mistake(message));
        }
        let targets = Targets::Numbers { values, width: each };
        Ok(Dataset { features, width, targets, lengths: vec![width], times: None })
    }

    /// Examples with so many answers each to be learned, 1 for yes and 0 for no.
    pub fn answers(features: Vec<f32>, width: usize, values: Vec<f32>, each: usize) -> Result<Dataset> {
        fits(features.len(), width, values.len(), each)?;
        if let Some(at) = values.iter().position(|value| ![0.0, 1.0].contains(value)) {
            let message = format!("example {} has the answer {}, which is neither 0 nor 1", at / each, values[at]);
            return Err(Error::mistake(message));
        }
        let targets = Targets::Answers { values, width: each };
        Ok(Dataset { features, width, targets, lengths: vec![width], times: None })
    }

    /// The same examples with other axes.
    pub fn shaped(mut self, lengths: &[usize]) -> Result<Dataset> {
        if lengths.iter().try_fold(1usize, |size, length| size.checked_mul(*length)) != Some(self.width) {
            return Err(Error::mistake(format!("examples of {:?} do not fit into {lengths:?}", self.lengths)));
        }
        self.lengths = lengths.to_vec();
        Ok(self)
    }

    /// The same sequences `[time, …]`, of each of which only so many times count.
    pub fn ending(mut self, times: Vec<i32>) -> Result<Dataset> {
        let (count, time) = (self.len(), self.lengths[0]);
        if times.len() != count {
            return Err(Error::mistake(format!("{} lengths are not one for each of {count} sequences", times.len())));
        }
        if let Some(at) = times.iter().position(|length| !(1..=time as i64).contains(&i64::from(*length))) {
            return Err(Error::mistake(format!("sequence {at} has {} times, not 1 ..= {time}", times[at])));
        }
        if let Targets::Classes { places: 2.., .. } = self.targets {
            let message = "sequences with a class at each time all have the same length here";
            return Err(Error::mistake(message).note("cut them into windows of equal length"));
        }
        self.times = Some(times);
        Ok(self)
    }

    /// How many examples.
    pub fn len(&self) -> usize {
        self.features.len() / self.width
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// The classes of the examples, one after another; none if something else is to be learned.
    pub fn labels(&self) -> &[i32] {
        match &self.targets {
            Targets::Classes { labels, .. } => labels,
            Targets::Numbers { .. } | Targets::Answers { .. } => &[],
        }
    }

    /// How many classes there are; 0 if something else is to be learned.
    pub fn classes(&self) -> usize {
        match &self.targets {
            Targets::Classes { classes, .. } => *classes,
            Targets::Numbers { .. } | Targets::Answers { .. } => 0,
        }
    }

    /// The examples at these positions.
    pub fn select(&self, positions: &[usize]) -> Dataset {
        Dataset {
            features: rows(&self.features, self.width, positions),
            width: self.width,
            targets: match &self.targets {
                Targets::Classes { labels, classes, places } => {
                    Targets::Classes { labels: rows(labels, *places, positions), classes: *classes, places: *places }
                }
                Targets::Numbers { values, width } => {
                    Targets::Numbers { values: rows(values, *width, positions), width: *width }
                }
                Targets::Answers { values, width } => {
                    Targets::Answers { values: rows(values, *width, positions), width: *width }
                }
            },
            lengths: self.lengths.clone(),
            times: self.times.as_ref().map(|times| rows(times, 1, positions)),
        }
    }

    /// The examples in order, so many at a time; the last part may be smaller.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Dataset> + '_ {
        let size = size.max(1);
        (0..self.len()).step_by(size).map(move |start| {
            let positions: Vec<usize> = (start..(start + size).min(self.len())).collect();
            self.select(&positions)
        })
    }

    /// A number that differs if the examples do.
    pub fn digest(&self) -> u128 {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        let lengths: Vec<u64> = self.lengths.iter().map(|length| *length as u64).collect();
        hasher.update(bytemuck::cast_slice(&lengths));
        hasher.update(bytemuck::cast_slice(&self.features));
        match &self.targets {
            Targets::Classes { labels, .. } => hasher.update(bytemuck::cast_slice(labels)),
            Targets::Numbers { values, .. } | Targets::Answers { values, .. } => {
                hasher.update(bytemuck::cast_slice(values));
            }
        }
        self.times.iter().for_each(|times| hasher.update(bytemuck::cast_slice(times)));
        hasher.digest128()
    }

    /// Two parts, the second with this share of the examples: of every class, chosen at random; of sequences the last ones,
    /// since neighbours tell of each other.
    pub fn split(&self, share: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
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
            Targets::Classes { labels, classes, places: 1 } => (0..*classes as i32).for_each(|class| {
                divide(&order.iter().copied().filter(|i| labels[*i] == class).collect::<Vec<usize>>());
            }),
            Targets::Classes { .. } => divide(&(0..self.len()).rev().collect::<Vec<usize>>()),
            Targets::Numbers { .. } | Targets::Answers { .. } => divide(&order),
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
    pub fn whole(&self) -> Batch {
        let shape = [&[self.len()], &self.lengths[..]].concat();
        let targets = match &self.targets {
            Targets::Classes { labels, places: 1, .. } => Tensor::from_slice(labels, [self.len()]),
            Targets::Classes { labels, places, .. } => Tensor::from_slice(labels, [self.len(), *places]),
            Targets::Numbers { values, width } | Targets::Answers { values, width } => {
                Tensor::from_slice(values, [self.len(), *width])
            }
        };
        (Tensor::from_slice(&self.features, shape), targets)
    }

    /// How many times of each example count, `[batch]`, if not all do: for [`crate::Pass::over`].
    pub fn ends(&self) -> Option<Tensor> {
        self.times.as_ref().map(|times| Tensor::from_slice(times, [times.len()]))
    }

    /// [`Dataset::whole`] and [`Dataset::ends`].
    pub(crate) fn examples(&self) -> Examples {
        let (inputs, targets) = self.whole();
        Examples { inputs, targets, times: self.ends() }
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
        Error::corrupt(message).note("save it as UTF-8, if it is text").caused_by(error)
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
        Error::corrupt(message).note("take another copy of it").caused_by(error)
    })?;
    budget.give_back(packed.len() as u64);
    Ok(bytes)
}
