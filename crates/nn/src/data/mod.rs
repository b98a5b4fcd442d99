//! Data sets: examples in host memory, batches on the device.

pub mod csv;
pub mod digits;
pub mod idx;
pub mod images;
pub mod npy;
pub mod source;

use std::path::Path;

use panoply_tensor::{Error, Result, Rng, Tensor};

/// Examples of equal width with a class each.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// One row for each example, one after another.
    pub features: Vec<f32>,
    /// Numbers in a row.
    pub width: usize,
    /// The class of each example, below `classes`.
    pub labels: Vec<i32>,
    /// How many classes there are.
    pub classes: usize,
    /// Lengths of an example's axes; their product is the width.
    pub lengths: Vec<usize>,
}

/// Inputs `[batch, lengths]` and classes `[batch]`.
pub type Batch = (Tensor, Tensor);

impl Dataset {
    /// Examples whose parts fit together.
    pub fn new(features: Vec<f32>, width: usize, labels: Vec<i32>, classes: usize) -> Result<Dataset> {
        if width == 0 || features.len() != labels.len() * width {
            let message = format!("{} numbers are not {} rows of {width}", features.len(), labels.len());
            return Err(Error::mistake(message));
        }
        if let Some(row) = labels.iter().position(|label| !(0..classes as i32).contains(label)) {
            let message = format!("example {row} has class {}, not one of 0 .. {classes}", labels[row]);
            return Err(Error::mistake(message));
        }
        Ok(Dataset { features, width, labels, classes, lengths: vec![width] })
    }

    /// The same examples with other axes.
    pub fn shaped(mut self, lengths: &[usize]) -> Result<Dataset> {
        if lengths.iter().try_fold(1usize, |size, length| size.checked_mul(*length)) != Some(self.width) {
            return Err(Error::mistake(format!("examples of {:?} do not fit into {lengths:?}", self.lengths)));
        }
        self.lengths = lengths.to_vec();
        Ok(self)
    }

    /// How many examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The examples at these positions.
    pub fn select(&self, positions: &[usize]) -> Dataset {
        let row = |position: &usize| &self.features[position * self.width..(position + 1) * self.width];
        Dataset {
            features: positions.iter().flat_map(row).copied().collect(),
            width: self.width,
            labels: positions.iter().map(|position| self.labels[*position]).collect(),
            classes: self.classes,
            lengths: self.lengths.clone(),
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
        hasher.update(bytemuck::cast_slice(&self.labels));
        hasher.digest128()
    }

    /// Two parts, the second with this share of every class, chosen at random.
    pub fn split(&self, share: f64, rng: &mut Rng) -> Result<(Dataset, Dataset)> {
        if !(0.0..1.0).contains(&share) {
            return Err(Error::mistake(format!("a share of {share} cannot be held out; choose one in 0 .. 1")));
        }
        let order = rng.permutation(self.len());
        let (mut kept, mut held) = (Vec::new(), Vec::new());
        for class in 0..self.classes as i32 {
            let members: Vec<usize> = order.iter().copied().filter(|i| self.labels[*i] == class).collect();
            let out = (members.len() as f64 * share).round() as usize;
            held.extend(&members[..out]);
            kept.extend(&members[out..]);
        }
        kept.sort_unstable();
        held.sort_unstable();
        Ok((self.select(&kept), self.select(&held)))
    }

    /// All examples once, in random order, `size` at a time; the last batch may be shorter.
    pub fn batches(&self, size: usize, rng: &mut Rng) -> Batches<'_> {
        let order = rng.fork().permutation(self.len());
        Batches { data: self, order, size: size.max(1), next: 0 }
    }

    /// All examples as one batch, in order.
    pub fn whole(&self) -> Batch {
        let shape = [&[self.len()], &self.lengths[..]].concat();
        (Tensor::from_slice(&self.features, shape), Tensor::from_slice(&self.labels, [self.len()]))
    }
}

/// Batches of one epoch.
#[derive(Debug)]
pub struct Batches<'a> {
    data: &'a Dataset,
    order: Vec<usize>,
    size: usize,
    next: usize,
}

impl Batches<'_> {
    /// Without the first `step` batches.
    #[must_use]
    pub fn from(mut self, step: usize) -> Self {
        self.next = step.saturating_mul(self.size).min(self.order.len());
        self
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let end = (self.next + self.size).min(self.order.len());
        let positions = &self.order[self.next..end];
        if positions.is_empty() {
            return None;
        }
        self.next = end;
        let (inputs, labels) = self.data.select(positions).whole();
        Some(inputs.check().and_then(|()| labels.check()).map(|()| (inputs, labels)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.order.len() - self.next).div_ceil(self.size);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Batches<'_> {}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(format!("cannot read {}", path.display()), error))
}
