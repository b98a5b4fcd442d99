//! Division of the batches of a run into shards, and the values of shards that are summed for a step.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use panoply_tensor::{DType, Error, Result, Rng, Tensor};

use crate::layer::StateUpdate;
use crate::process_group::ProcessGroup;
use crate::shard_sum::{PartialSums, ShardLayout};

/// A micro-batch of an optimizer step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MicroBatch {
    /// Weight of its examples in a mean.
    pub weight: f64,
    /// The weight as a fraction of that of the whole step.
    pub weight_fraction: f64,
    /// True if the step is made after it.
    pub last: bool,
}

/// Division of the batches of a run.
#[derive(Debug)]
pub(crate) struct Sharding {
    pub group: Option<Arc<dyn ProcessGroup>>,
    pub layout: ShardLayout,
    /// True if each shard has its own random numbers. Otherwise it takes its rows of those of the whole batch.
    pub forks: bool,
    /// Number of values in a message.
    pub bucket: usize,
    /// Vectors of earlier steps: new memory of the system would be cleared in every step.
    pub spare: Mutex<Vec<Vec<f32>>>,
}

/// Values of one shard, summed over the micro-batches of a step.
#[derive(Debug)]
pub(crate) struct ShardValues {
    /// Loss of each micro-batch, `[1]`, weighted by the shard's share of the micro-batch.
    pub losses: Vec<Tensor>,
    pub gradients: Vec<Tensor>,
    pub updates: Vec<StateUpdate>,
    /// Weight of the shard in the last micro-batch.
    pub weight: f64,
}

/// A step before its last micro-batch.
#[derive(Debug)]
pub(crate) struct PendingStep {
    pub shards: Vec<ShardValues>,
    pub micro_batches: Vec<MicroBatch>,
    /// State of the run before the step, which an error restores.
    pub rng: Rng,
    pub batches: usize,
}

/// Losses of a batch.
pub(crate) struct BatchLoss {
    /// Mean loss of the batch; of this process's rows if the step is not complete.
    pub loss: f64,
    /// Sum of the weighted losses of the batches whose step was made.
    pub weighted: f64,
}

impl Sharding {
    /// Returns the shards of this process.
    pub fn own(&self) -> Range<usize> {
        self.layout.shards_of(self.group.as_ref().map_or(0, |group| group.rank()))
    }

    /// Sums the values of all shards over all processes: losses of the micro-batches, gradients, and float buffers weighted by the shard.
    /// Sums are in f32.
    ///
    /// # Errors
    /// If a buffer that is not float was updated, or the communication fails.
    pub fn total(&self, shards: Vec<ShardValues>) -> Result<Vec<f32>> {
        let not_float = |update: &StateUpdate| !update.next.dtype().is_float();
        if self.layout.shards > 1
            && let Some(update) = shards.iter().flat_map(|shard| &shard.updates).find(|update| not_float(update))
        {
            let dtype = update.next.dtype();
            let message = format!("a buffer of {dtype} that a training pass changes cannot be averaged over shards");
            return Err(Error::mistake(message).note("train it in one process without shards"));
        }
        let mut sums = PartialSums::new(self.layout, self.group.as_ref().map_or(0, |group| group.rank()));
        for ShardValues { losses, gradients, updates, weight } in shards {
            let updated = updates.iter().map(|update| &update.next).filter(|next| next.dtype().is_float());
            let tensors: Vec<&Tensor> = losses.iter().chain(&gradients).chain(updated).collect();
            let lengths = tensors.iter().map(|tensor| Ok(tensor.shape()?.numel()));
            let lengths = lengths.collect::<Result<Vec<usize>>>()?;
            let mut values = self.take_spare();
            values.resize(lengths.iter().sum(), 0.0);
            let mut left = values.as_mut_slice();
            for (at, (tensor, length)) in tensors.into_iter().zip(lengths).enumerate() {
                let (own, rest) = left.split_at_mut(length);
                tensor.cast(DType::F32).copy_to_slice(own)?;
                if at >= losses.len() + gradients.len() {
                    own.iter_mut().for_each(|value| *value *= weight as f32);
                }
                left = rest;
            }
            sums.push(values).into_iter().for_each(|spare| self.keep(spare));
        }
        let total = sums.total(self.group.as_deref(), self.bucket, self.take_spare())?;
        sums.into_vectors().for_each(|spare| self.keep(spare));
        Ok(total)
    }

    /// Keeps a vector for the next step.
    pub fn keep(&self, values: Vec<f32>) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(values);
    }

    fn take_spare(&self) -> Vec<f32> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}
