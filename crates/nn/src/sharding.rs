//! Division of the batches of a run into shards, and the values of shards that are summed for a step.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use panoply_tensor::{AlignedBuffer, Device, Error, HostBytes, Result, Rng, Tensor, eval_in_parts};

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
    /// Vectors of earlier steps by part: new memory of the system would be cleared in every step.
    pub spare: Mutex<Vec<Vec<AlignedBuffer>>>,
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
    /// The values of the last shard can be unevaluated. Several processes then sum the gradients that a CPU computes first while it computes
    /// the others.
    ///
    /// # Errors
    /// If a buffer that is not float was updated, a value cannot be computed, or the communication fails.
    pub fn total(&self, mut shards: Vec<ShardValues>, stops: bool) -> Result<StepTotal> {
        let not_float = |update: &StateUpdate| !update.next.dtype().is_float();
        if self.layout.shards > 1
            && let Some(update) = shards.iter().flat_map(|shard| &shard.updates).find(|update| not_float(update))
        {
            let dtype = update.next.dtype();
            let message = format!("a buffer of {dtype} that a training pass changes cannot be averaged over shards");
            return Err(Error::mistake(message).note("train it in one process without shards"));
        }
        let last = shards.pop().expect("every process has a shard");
        let places = StepPlaces::of(&last, if self.sums_stops() { self.bucket } else { usize::MAX })?;
        let rank = self.group.as_ref().map_or(0, |group| group.rank());
        let mut first_bucket = 0;
        let parts = (0..places.parts()).map(|part| {
            let sums = PartialSums::new(self.layout, rank, first_bucket);
            first_bucket += places.len(part).div_ceil(self.bucket.max(1));
            sums
        });
        let mut parts: Vec<PartialSums> = parts.collect();
        let add = |part: usize, sums: &mut PartialSums, shard: &ShardValues| {
            let mut values = self.take_spare(part);
            places.copy(part, shard, stops, &mut values)?;
            sums.push(values).into_iter().for_each(|spare| self.keep(part, spare));
            Ok(())
        };
        for shard in shards {
            parts.iter_mut().enumerate().try_for_each(|(part, sums)| add(part, sums, &shard))?;
        }
        let tensors: Vec<Vec<&Tensor>> = (0..places.parts()).map(|part| places.tensors(part, &last)).collect();
        let tensors: Vec<&[&Tensor]> = tensors.iter().map(Vec::as_slice).collect();
        let mut waiting = parts.into_iter();
        let mut complete = |part: usize| {
            let mut sums = waiting.next().expect("each part is complete once");
            add(part, &mut sums, &last)?;
            Ok(sums)
        };
        let totals = match tensors.len() {
            1 => {
                eval_in_parts(&tensors, |_| Ok(()))?;
                vec![self.total_of(0, complete(0)?)?]
            }
            _ => std::thread::scope(|threads| {
                let (ready, received) = mpsc::channel();
                let sum = move || {
                    let totals = received.into_iter().enumerate().map(|(part, sums)| self.total_of(part, sums));
                    totals.collect::<Result<Vec<AlignedBuffer>>>()
                };
                let exchange = std::thread::Builder::new().spawn_scoped(threads, sum);
                let exchange = exchange
                    .map_err(|error| Error::io("cannot start a thread for the exchange of gradients", error))?;
                let evaluated = eval_in_parts(&tensors, |part| {
                    // The other thread ends early only with an error, which is reported below.
                    let _ = ready.send(complete(part)?);
                    Ok(())
                });
                drop(ready);
                let totals = exchange.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                evaluated.and(totals)
            })?,
        };
        places.into_total(&Device::current()?, totals)
    }

    /// Sums the values of a part over all processes.
    fn total_of(&self, part: usize, mut sums: PartialSums) -> Result<AlignedBuffer> {
        let total = sums.total(self.group.as_deref(), self.bucket, || self.take_spare(part))?;
        sums.into_vectors().for_each(|spare| self.keep(part, spare));
        Ok(total)
    }

    /// Keeps the memory of a step's sums for the next step, unless a tensor still uses it: optimizer state can be a gradient.
    pub fn reuse(&self, memory: Vec<Arc<HostBytes>>) {
        for (part, memory) in memory.into_iter().enumerate() {
            let spare = Arc::into_inner(memory).and_then(HostBytes::into_aligned_buffer);
            spare.into_iter().for_each(|spare| self.keep(part, spare));
        }
    }

    fn keep(&self, part: usize, values: AlignedBuffer) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = spare.len().max(part + 1);
        spare.resize_with(parts, Vec::new);
        spare[part].push(values);
    }

    fn take_spare(&self, part: usize) -> AlignedBuffer {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.get_mut(part).and_then(Vec::pop).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// Rank 0 of two. The other rank adds 1 to each value.
    #[derive(Debug)]
    struct Pair {
        /// The gradient that is computed last.
        last: Tensor,
        /// True if it was not computed when the first message was exchanged.
        overlaps: OnceLock<bool>,
        /// Values of buckets that the other rank adds up.
        sent: Mutex<Vec<Vec<f32>>>,
    }

    impl ProcessGroup for Pair {
        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            2
        }

        fn all_reduce(&self, _: &mut [f32]) -> Result<()> {
            unreachable!("the sum uses messages")
        }

        fn broadcast(&self, _: &mut [f64]) -> Result<()> {
            unreachable!("the sum uses messages")
        }

        fn exchange(&self, sends: &[(usize, &[f32])], receives: &mut [(usize, &mut [f32])]) -> Result<()> {
            self.overlaps.get_or_init(|| !self.last.is_evaluated());
            let mut sent = self.sent.lock().unwrap();
            if sent.is_empty() {
                // Each rank sends its values of the buckets that the other one adds up.
                receives.iter_mut().for_each(|(_, values)| values.fill(1.0));
                sent.extend(sends.iter().map(|(_, values)| values.to_vec()));
            } else {
                // Each rank sends the sums of its buckets.
                for ((_, values), own) in receives.iter_mut().zip(sent.drain(..)) {
                    values.iter_mut().zip(own).for_each(|(value, own)| *value = own + 1.0);
                }
            }
            Ok(())
        }
    }

    /// Gradients of the last layers are exchanged while those of the first layers are computed. A busy machine can delay the thread that
    /// exchanges them, but not in every turn.
    #[test]
    fn sums_begin_before_all_gradients_are_computed() {
        const SIDE: usize = 512;
        const PRODUCTS: usize = 10;
        // More than a part in 32 of all values.
        const QUICK: usize = 9000;
        Device::get("cpu").unwrap().scope(|| {
            let one_turn = |turn: usize| {
                // Products with a permutation, which keep the values, take some time.
                let numbers: Vec<f32> = (0..SIDE * SIDE).map(|at| ((at * 7 + turn) % 113) as f32).collect();
                let shifted: Vec<f32> =
                    (0..SIDE * SIDE).map(|at| f32::from(u8::from(at % SIDE == (at / SIDE + 1) % SIDE))).collect();
                let permutation = Tensor::from_slice(&shifted, [SIDE, SIDE]);
                let mut slow = Tensor::from_slice(&numbers, [SIDE, SIDE]);
                (0..PRODUCTS).for_each(|_| slow = slow.matmul(&permutation));
                let quick = Tensor::from_slice(&[turn as f32; QUICK], [QUICK]) * 2.0;
                let group = Arc::new(Pair { last: slow.clone(), overlaps: OnceLock::new(), sent: Mutex::default() });
                let sharding = Sharding {
                    group: Some(group.clone()),
                    layout: ShardLayout { shards: 2, ranks: 2 },
                    forks: true,
                    bucket: 4096,
                    spare: Mutex::default(),
                };
                let loss = Tensor::from_slice(&[4f32], [1]);
                let shard =
                    ShardValues { losses: vec![loss], gradients: vec![slow, quick], updates: Vec::new(), weight: 0.5 };
                let total = sharding.total(vec![shard], false).unwrap();
                let first: Vec<f32> = (0..SIDE * SIDE)
                    .map(|at| numbers[at / SIDE * SIDE + (at % SIDE + SIDE - PRODUCTS) % SIDE] + 1.0)
                    .collect();
                assert_eq!(total.gradients[0].to_vec::<f32>().unwrap(), first, "turn {turn}");
                assert_eq!(
                    total.gradients[1].to_vec::<f32>().unwrap(),
                    [2.0 * turn as f32 + 1.0; QUICK],
                    "turn {turn}"
                );
                assert_eq!((total.losses, total.stops), (vec![5.0], true), "turn {turn}");
                group.overlaps.get() == Some(&true)
            };
            assert!((0..20).any(one_turn), "all gradients were computed before the first message");
        });
    }

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
                assert_eq!(sharding.spare.lock().unwrap()[0].len(), 1);
                match step {
                    // A tensor that is kept, as a first velocity is, keeps the memory.
                    1 => {
                        let kept = gradients[1].clone();
                        drop(gradients);
                        sharding.reuse(memory);
                        assert_eq!(sharding.spare.lock().unwrap()[0].len(), 1);
                        assert_eq!(kept.to_vec::<f32>().unwrap()[..2], [2.0, 4.0]);
                    }
                    _ => {
                        drop(gradients);
                        sharding.reuse(memory);
                        assert_eq!(sharding.spare.lock().unwrap()[0].len(), 2);
                    }
                }
            }
        });
    }
}
