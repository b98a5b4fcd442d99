//! Some examples on the device, and all of them some at a time.

use std::ops::Range;

use panoply_tensor::{Dim, Error, Result, Tensor};

use super::Dataset;

/// A [`Batch`] of examples that may end before the last time.
#[derive(Clone, Debug)]
pub struct Batch {
    /// `[batch, lengths]`.
    pub inputs: Tensor,
    /// What is to be learned of each.
    pub targets: Tensor,
    /// How many times of each sequence count, `[batch]`, if not all do: for [`crate::ForwardContext::with_seq_lengths`].
    pub seq_lengths: Option<Tensor>,
}

impl Batch {
    /// How many examples.
    pub fn len(&self) -> Result<usize> {
        Ok(self.targets.shape()?.dims()[0])
    }

    /// Whether it has no examples.
    ///
    /// # Errors
    /// If the targets are a mistake.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The same as a batch of this length, which a plan does not know: a short last one runs the plan of the others, for what they cost.
    #[must_use]
    #[track_caller]
    pub fn with_dim(&self, dim: &Dim) -> Batch {
        self.map(|part| part.mark_dynamic(0, dim))
    }

    /// All that it consists of.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.inputs, &self.targets].into_iter().chain(&self.seq_lengths)
    }

    /// Whether all of it was made.
    pub(crate) fn check(&self) -> Result<()> {
        self.tensors().try_for_each(Tensor::check)
    }

    /// What becomes of it if this becomes of each part.
    pub(crate) fn map(&self, part: impl Fn(&Tensor) -> Tensor) -> Batch {
        let [inputs, targets] = [&self.inputs, &self.targets].map(&part);
        Batch { inputs, targets, seq_lengths: self.seq_lengths.as_ref().map(part) }
    }
}

/// How [`crate::Trainer::fit`] cuts an epoch into batches. A last batch of one example is merged into the one before it: batch norm
/// needs two values per channel, and no example is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    examples: usize,
    size: usize,
}

impl Cuts {
    /// Cuts so many examples into batches of `size`, at least 1.
    pub fn new(examples: usize, size: usize) -> Cuts {
        Cuts { examples, size: size.max(1) }
    }

    /// Batches of an epoch.
    pub fn count(self) -> usize {
        let Cuts { examples, size } = self;
        let merged = size > 1 && examples > size && examples % size == 1;
        examples.div_ceil(size) - usize::from(merged)
    }

    /// Positions of a batch in the epoch's order; empty behind the last batch.
    pub fn range(self, batch: usize) -> Range<usize> {
        let start = |batch: usize| match batch < self.count() {
            true => batch * self.size,
            false => self.examples,
        };
        start(batch)..start(batch.saturating_add(1))
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

impl<'a> Batches<'a> {
    /// The examples in this order, so many at a time.
    pub(super) fn new(data: &'a Dataset, order: Vec<usize>, size: usize) -> Batches<'a> {
        Batches { data, order, size: size.max(1), next: 0 }
    }

    /// Without the first `step` batches.
    #[must_use]
    pub fn skip_batches(mut self, step: usize) -> Self {
        self.next = step.saturating_mul(self.size).min(self.order.len());
        self
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<(Tensor, Tensor)>;

    fn next(&mut self) -> Option<Result<(Tensor, Tensor)>> {
        let end = (self.next + self.size).min(self.order.len());
        let positions = &self.order[self.next..end];
        if positions.is_empty() {
            return None;
        }
        self.next = end;
        if self.data.seq_lengths.is_some() {
            let message = "sequences that end before the last time are no batches of inputs and targets alone";
            return Some(Err(Error::mistake(message).note("take a `Loader`, whose batches say where they end")));
        }
        let batch = self.data.select(positions).examples();
        Some(batch.check().map(|()| (batch.inputs, batch.targets)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.order.len() - self.next).div_ceil(self.size);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Batches<'_> {}
