//! Batches of examples on the device.

use std::ops::Range;

use panoply_tensor::{Dim, Result, Tensor};

use super::Dataset;

/// A batch of examples, with valid lengths if they are sequences.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Inputs, `[batch, lengths]`.
    pub inputs: Tensor,
    /// Targets.
    pub targets: Tensor,
    /// Valid length of each sequence, `[batch]`, for [`crate::ForwardContext::with_seq_lengths`]; `None` if all time steps are valid.
    pub seq_lengths: Option<Tensor>,
}

impl Batch {
    /// Returns the number of examples.
    ///
    /// # Errors
    /// If the targets are a mistake.
    pub fn len(&self) -> Result<usize> {
        Ok(self.targets.shape()?.dims()[0])
    }

    /// Returns true if there are no examples.
    ///
    /// # Errors
    /// If the targets are a mistake.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Marks the batch axis as dynamic, so that a shorter last batch reuses the plan of full batches, at their cost.
    #[must_use]
    #[track_caller]
    pub fn with_dim(&self, dim: &Dim) -> Batch {
        self.map(|part| part.mark_dynamic(0, dim))
    }

    /// Returns all tensors of the batch.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.inputs, &self.targets].into_iter().chain(&self.seq_lengths)
    }

    /// Fails if a tensor of the batch is a mistake.
    pub(crate) fn check(&self) -> Result<()> {
        self.tensors().try_for_each(Tensor::check)
    }

    /// Applies a function to each tensor of the batch.
    pub(crate) fn map(&self, part: impl Fn(&Tensor) -> Tensor) -> Batch {
        let [inputs, targets] = [&self.inputs, &self.targets].map(&part);
        Batch { inputs, targets, seq_lengths: self.seq_lengths.as_ref().map(part) }
    }
}

/// Division of an epoch into batches by [`crate::Trainer::fit`]. A last batch of one example is merged into the previous one: batch norm
/// needs two values per channel, and no example is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    examples: usize,
    size: usize,
}

impl Cuts {
    /// Divides `examples` examples into batches of `size`, at least 1.
    pub fn new(examples: usize, size: usize) -> Cuts {
        Cuts { examples, size: size.max(1) }
    }

    /// Returns the number of batches in an epoch.
    pub fn count(self) -> usize {
        let Cuts { examples, size } = self;
        let merged = size > 1 && examples > size && examples % size == 1;
        examples.div_ceil(size) - usize::from(merged)
    }

    /// Returns the positions of a batch in the epoch's order; empty after the last batch.
    pub fn range(self, batch: usize) -> Range<usize> {
        let start = |batch: usize| match batch < self.count() {
            true => batch * self.size,
            false => self.examples,
        };
        start(batch)..start(batch.saturating_add(1))
    }
}

/// Iterator over the batches of one epoch.
#[derive(Debug)]
pub struct Batches<'a> {
    data: &'a Dataset,
    order: Vec<usize>,
    size: usize,
    next: usize,
}

impl<'a> Batches<'a> {
    /// Creates an iterator over the examples in this order, in batches of `size`.
    pub(super) fn new(data: &'a Dataset, order: Vec<usize>, size: usize) -> Batches<'a> {
        Batches { data, order, size: size.max(1), next: 0 }
    }

    /// Skips the first `step` batches.
    #[must_use]
    pub fn skip_batches(mut self, step: usize) -> Self {
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
        let batch = self.data.select(positions).full_batch();
        Some(batch.check().map(|()| batch))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.order.len() - self.next).div_ceil(self.size);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Batches<'_> {}
