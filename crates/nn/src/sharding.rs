//! Division of the batches of a run into shards, and the values of shards that are summed for a step.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use panoply_tensor::{AlignedBuffer, Device, Error, HostBytes, Result, Rng};

use crate::layer::StateUpdate;
use crate::process_group::ProcessGroup;
use crate::shard_sum::{PartialSums, ShardLayout};
use crate::step_total::{ShardValues, StepPlaces, StepTotal};

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
    pub spare: Mutex<Vec<AlignedBuffer>>,
}

/// A step before its last micro-batch.
#[derive(Debug)]
pub(crate) struct PendingStep {
    pub shards: Vec<ShardValues>,
    pub micro_batches: Vec<MicroBatch>,
    /// True if this process was asked to stop before the step.
    pub stops: bool,
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

    /// Returns true if the processes learn from the sums of a step whether one of them was asked to stop before it.
    pub fn sums_stops(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.ranks() > 1)
    }

    /// Sums the values of all shards over all processes: gradients, losses of the micro-batches, and float buffers weighted by the shard.
    /// Sums are in f32. `stops` is true if this process was asked to stop before the step.
    ///
    /// # Errors
    /// If a buffer that is not float was updated, or the communication fails.
    pub fn total(&self, shards: Vec<ShardValues>, stops: bool) -> Result<StepTotal> {
        let not_float = |update: &StateUpdate| !update.next.dtype().is_float();
        if self.layout.shards > 1
            && let Some(update) = shards.iter().flat_map(|shard| &shard.updates).find(|update| not_float(update))
        {
            let dtype = update.next.dtype();
            let message = format!("a buffer of {dtype} that a training pass changes cannot be averaged over shards");
            return Err(Error::mistake(message).note("train it in one process without shards"));
        }
        let places = StepPlaces::of(shards.last().expect("every process has a shard"))?;
        let mut sums = PartialSums::new(self.layout, self.group.as_ref().map_or(0, |group| group.rank()));
        for shard in shards {
            let mut values = self.take_spare();
            places.copy(&shard, stops, &mut values)?;
            sums.push(values).into_iter().for_each(|spare| self.keep(spare));
        }
        let total = sums.total(self.group.as_deref(), self.bucket, || self.take_spare())?;
        sums.into_vectors().for_each(|spare| self.keep(spare));
        places.into_total(&Device::current()?, total)
    }

    /// Keeps the memory of a step's sums for the next step, unless a tensor still uses it: optimizer state can be a gradient.
    pub fn reuse(&self, memory: Arc<HostBytes>) {
        Arc::into_inner(memory).and_then(HostBytes::into_aligned_buffer).into_iter().for_each(|spare| self.keep(spare));
    }

    fn keep(&self, values: AlignedBuffer) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(values);
    }

    fn take_spare(&self) -> AlignedBuffer {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use panoply_tensor::Tensor;

    use super::*;

    /// The sums of gradients are tensors over the memory that processes exchange, which the next step uses again.
    #[test]
    fn gradients_use_the_memory_of_the_sums() {
        Device::get("cpu").unwrap().scope(|| {
            let sharding = Sharding {
                group: None,
                layout: ShardLayout { shards: 2, ranks: 1 },
                forks: true,
                bucket: 1,
                spare: Mutex::default(),
            };
            // Numbers of values that are not multiples of 16, so that places have gaps.
            let numbers = |count: usize, first: f32| (0..count).map(|at| first + at as f32).collect::<Vec<f32>>();
            let tensor = |count: usize, first: f32| Tensor::from_slice(&numbers(count, first), [count]);
            let shard = |first: f32| ShardValues {
                losses: vec![tensor(1, first), tensor(1, 2.0 * first)],
                gradients: vec![tensor(3, first), tensor(40, first), tensor(5, first)],
                updates: Vec::new(),
                weight: 0.5,
            };
            for step in 0..3 {
                let total = sharding.total(vec![shard(1.0), shard(step as f32)], step == 2).unwrap();
                let first = (1 + step) as f32;
                assert_eq!((total.losses, total.stops), (vec![first, 2.0 * first], step == 2));
                for (gradient, count) in total.gradients.iter().zip([3, 40, 5]) {
                    let want: Vec<f32> = (0..count).map(|at| first + 2.0 * at as f32).collect();
                    assert_eq!(gradient.to_vec::<f32>().unwrap(), want, "step {step}");
                    assert!(gradient.storage().unwrap().is_read_only(), "{count} values were copied");
                }
                let StepTotal { gradients, memory, .. } = total;
                // One vector was added to the other.
                assert_eq!(sharding.spare.lock().unwrap().len(), 1);
                match step {
                    // A tensor that is kept, as a first velocity is, keeps the memory.
                    1 => {
                        let kept = gradients[1].clone();
                        drop(gradients);
                        sharding.reuse(memory);
                        assert_eq!(sharding.spare.lock().unwrap().len(), 1);
                        assert_eq!(kept.to_vec::<f32>().unwrap()[..2], [2.0, 4.0]);
                    }
                    _ => {
                        drop(gradients);
                        sharding.reuse(memory);
                        assert_eq!(sharding.spare.lock().unwrap().len(), 2);
                    }
                }
            }
        });
    }
}
