//! Training steps whose batches are divided into shards.
//!
//! A process computes loss and gradients of each of its shards separately: products of another size could round differently. The values of
//! all shards are summed in a fixed tree ([`crate::shard_sum`]), and every process makes the same step with the sums. Micro-batches of
//! gradient accumulation are added up for each shard, so processes communicate once for each step, on CPUs while the last gradients are computed.

use std::ops::Range;
use std::sync::Mutex;

use panoply_tensor::{DType, Device, Error, Result, Tensor};

use crate::data::Batch;
use crate::layer::{ForwardContext, Layer};
use crate::module::Module;
use crate::optim::UpdateRule;
use crate::shard::Shard;
use crate::shard_sum::ShardLayout;
use crate::sharding::{BatchLoss, MicroBatch, PendingStep, Sharding};
use crate::step_total::{ShardValues, StepTotal};
use crate::trainer::{TrainConfig, Trainer};

/// Bytes of a message between processes whose device is a CPU.
const CPU_BUCKET: usize = 1 << 20;
/// Bytes of a message between processes whose device is a GPU.
const GPU_BUCKET: usize = 25 << 20;

impl TrainConfig {
    /// Returns the division of batches, or `None` if one process computes whole batches.
    ///
    /// # Errors
    /// If there are fewer shards than processes, or the communication fails.
    pub(crate) fn sharding(&self) -> Result<Option<Sharding>> {
        let ranks = self.group.as_ref().map_or(1, |group| group.ranks());
        TrainConfig::check_shards(self.shards, Some(self.batch_size), ranks)?;
        if self.group.is_none() && self.shards.is_none() {
            return Ok(None);
        }
        let shards = self.shards.unwrap_or(ranks);
        // Devices of processes can differ in kind; all must use the same messages.
        let mut bytes = [if is_cpu(&Device::current()?) { CPU_BUCKET } else { GPU_BUCKET } as f64];
        self.group.as_ref().map_or(Ok(()), |group| group.broadcast(&mut bytes))?;
        let bucket = bytes[0] as usize / size_of::<f32>();
        let layout = ShardLayout { shards, ranks };
        let (group, forks) = (self.group.clone(), self.shards.is_some());
        Ok(Some(Sharding { group, layout, forks, bucket, spare: Mutex::default() }))
    }

    /// Checks a number of shards for this batch size and number of processes, before a run is configured. `batch_size` is `None` if it is
    /// chosen later.
    ///
    /// # Errors
    /// If there are fewer shards than processes, or more than examples in a batch.
    pub fn check_shards(shards: Option<usize>, batch_size: Option<usize>, ranks: usize) -> Result<()> {
        match (shards, batch_size) {
            (Some(shards), _) if shards < ranks.max(1) => {
                let message = format!("shards = {shards} is less than the number of ranks or devices, {ranks}");
                Err(Error::mistake(message).note("each of them computes at least one shard of every batch"))
            }
            (Some(shards), Some(batch_size)) if shards > batch_size.max(ranks) => {
                let message = format!("shards = {shards} is more than the number of examples in a batch, {batch_size}");
                Err(Error::mistake(message).note("use fewer shards or a larger batch size"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of examples of a batch that are computed together at most.
    pub(crate) fn rows_together(&self, batch: usize) -> usize {
        batch.div_ceil(Shard::filled(self.num_shards(), batch))
    }

    /// Returns the number of shards of a batch.
    fn num_shards(&self) -> usize {
        self.shards.unwrap_or_else(|| self.group.as_ref().map_or(1, |group| group.ranks())).max(1)
    }

    /// Returns the number of shards whose gradients this process keeps in memory at once.
    pub(crate) fn own_shards(&self) -> usize {
        match (&self.group, self.shards) {
            (None, None) => 0,
            (group, _) => self.num_shards().div_ceil(group.as_ref().map_or(1, |group| group.ranks()).max(1)),
        }
    }

    /// Returns the bytes of a CPU's memory in which this process sums `values` values of its shards and those of other processes. Other
    /// devices have memory of their own, which the sums do not use.
    pub(crate) fn sum_bytes(&self, device: &Device, values: usize) -> u64 {
        if !is_cpu(device) || self.own_shards() == 0 {
            return 0;
        }
        let (rank, ranks) = self.group.as_ref().map_or((0, 1), |group| (group.rank(), group.ranks()));
        let layout = ShardLayout { shards: self.num_shards().max(ranks), ranks };
        (layout.values_held(rank, values, CPU_BUCKET / size_of::<f32>()) * size_of::<f32>()) as u64
    }
}

/// Returns the mean loss of the last micro-batch in these shards.
fn mean_loss(shards: &[ShardValues]) -> Result<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for shard in shards {
        sum += f64::from(shard.losses.last().expect("a micro-batch was added").to_vec::<f32>()?[0]);
        weights += shard.weight;
    }
    Ok(if weights > 0.0 { sum / weights } else { sum })
}

fn is_cpu(device: &Device) -> bool {
    device.device_string().starts_with("cpu")
}

impl<M: Module + Layer + Clone, R: UpdateRule> Trainer<M, R> {
    /// Adds a micro-batch to the pending step, and makes the step after the last one. `mass` returns the weight of a range of rows of the
    /// batch. `stops` is true if this process was asked to stop. Returns `None` if one of several processes was asked before the step, which
    /// is then not made. In that case and on error the run is as it was before the step.
    pub(crate) fn sharded_step(
        &mut self,
        (training, sharding): (&TrainConfig, &Sharding),
        pending: &mut Option<PendingStep>,
        batch: &Batch,
        micro_batch: MicroBatch,
        mass: impl Fn(Range<usize>) -> f64,
        stops: bool,
    ) -> Result<Option<BatchLoss>> {
        let start = PendingStep {
            shards: Vec::new(),
            micro_batches: Vec::new(),
            stops,
            rng: self.rng.clone(),
            batches: self.state.step,
        };
        let mut step = pending.take().unwrap_or(start);
        step.micro_batches.push(micro_batch);
        let (rng, batches, before) = (step.rng.clone(), step.batches, self.rng.clone());
        let done =
            self.add_micro_batch((training, sharding), &mut step, batch, mass).and_then(|()| match micro_batch.last {
                true => self.apply_shards(sharding, step),
                false => {
                    let loss = mean_loss(&step.shards)?;
                    *pending = Some(step);
                    Ok(Some(BatchLoss { loss, weighted: 0.0 }))
                }
            });
        if let Ok(None) = done {
            (self.rng, self.state.step) = (rng, batches);
            return Ok(None);
        }
        done.map_err(|error| {
            let found = self.locate_nonfinite(training, &self.own_rows(sharding, batch), before);
            (self.rng, self.state.step) = (rng, batches);
            match found {
                Some(found) => error.note(format!("the first non-finite values are {found}")),
                None => error,
            }
        })
    }

    /// Returns the rows of a batch that this process computes.
    fn own_rows(&self, sharding: &Sharding, batch: &Batch) -> Batch {
        let count = batch.len().unwrap_or(0);
        let shards = sharding.own().map(|number| Shard::rows(number, sharding.layout.shards, count));
        let own = shards.filter(|rows| !rows.is_empty()).reduce(|first, last| first.start..last.end);
        own.map_or_else(|| batch.clone(), |own| batch.map(|tensor| tensor.narrow(0, own.start, own.len())))
    }

    /// Adds the values of a micro-batch to those of each shard. Those of the last shard of a step are not evaluated.
    fn add_micro_batch(
        &mut self,
        (training, sharding): (&TrainConfig, &Sharding),
        step: &mut PendingStep,
        batch: &Batch,
        mass: impl Fn(Range<usize>) -> f64,
    ) -> Result<()> {
        let before = self.rng.clone();
        // One fork for each batch, however many numbers a shard draws.
        let random = sharding.forks.then(|| self.rng.fork());
        let micro_batch = *step.micro_batches.last().expect("it was added");
        let (rows, count) = (batch.len()?, sharding.own().len());
        for (at, number) in sharding.own().enumerate() {
            let shard = Shard::new(number, sharding.layout.shards, rows, &mass);
            let own = batch.map(|tensor| shard.of(tensor));
            let mut rng = match &random {
                Some(random) => {
                    let mut random = random.clone();
                    random.forks = number as u64;
                    random.fork()
                }
                None => before.clone(),
            };
            let mut earlier = (step.shards.len() > at).then(|| {
                let none = ShardValues { losses: Vec::new(), gradients: Vec::new(), updates: Vec::new(), weight: 0.0 };
                std::mem::replace(&mut step.shards[at], none)
            });
            let updates = earlier.as_mut().map(|values| std::mem::take(&mut values.updates)).unwrap_or_default();
            let pass = training.pass(&own, &mut rng).with_updates(updates);
            let mut pass = if sharding.forks { pass } else { pass.sharded(Some(shard.clone())) };
            let loss = training.loss.compute(&self.model.forward(&own.inputs, &mut pass), &own.targets);
            let mut values = self.shard_values(&loss, pass, &shard, (micro_batch.weight_fraction, earlier))?;
            if !micro_batch.last || at + 1 < count {
                values.evaluate()?;
            }
            match step.shards.get_mut(at) {
                Some(slot) => *slot = values,
                None => step.shards.push(values),
            }
            if random.is_none() {
                self.rng = rng;
            }
        }
        Ok(())
    }

    /// Returns loss, gradients and updated buffers of a shard, added to those of its `earlier` micro-batches, without evaluating them.
    /// `fraction` is the weight of the micro-batch in the step.
    fn shard_values(
        &self,
        loss: &Tensor,
        pass: ForwardContext<'_>,
        shard: &Shard,
        (fraction, earlier): (f64, Option<ShardValues>),
    ) -> Result<ShardValues> {
        let mut gradients =
            self.optimizer.loss_gradients(&self.model, &(loss * (shard.weight * fraction)), &pass, &[])?;
        let mut losses = Vec::new();
        if let Some(earlier) = earlier {
            gradients.iter_mut().zip(&earlier.gradients).for_each(|(gradient, sum)| *gradient = &*gradient + sum);
            losses = earlier.losses;
        }
        losses.push((loss.cast(DType::F32).sum(..) * shard.weight).unsqueeze(0));
        Ok(ShardValues { losses, gradients, updates: pass.into_updates(), weight: shard.weight })
    }

    /// Makes the step with the sums over all shards, unless a process was asked to stop before it.
    fn apply_shards(&mut self, sharding: &Sharding, step: PendingStep) -> Result<Option<BatchLoss>> {
        let PendingStep { shards, micro_batches, stops, .. } = step;
        let StepTotal { gradients, losses, updates, stops, memory } = sharding.total(shards, stops)?;
        if stops {
            return Ok(None);
        }
        let losses = || losses.iter().map(|loss| f64::from(*loss)).zip(&micro_batches);
        let whole = losses().map(|(loss, part)| loss * part.weight_fraction).sum::<f64>();
        let loss = Tensor::from_slice_on(&Device::current()?, &[whole as f32], [1]);
        let mut rng = self.rng.clone();
        let pass = ForwardContext::train(&mut rng).with_updates(updates);
        self.optimizer.step_with_gradients(&mut self.model, loss, gradients, pass)?;
        let weighted = losses().map(|(loss, part)| loss * part.weight).sum();
        let (loss, _) = losses().next_back().expect("there is at least one micro-batch");
        sharding.reuse(memory);
        Ok(Some(BatchLoss { loss, weighted }))
    }
}
