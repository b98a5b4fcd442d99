//! Memory check before the first training step, and suggestion of a batch size that fits.

use panoply_tensor::{Device, Error, ErrorKind, MemoryPlan, Result, Tensor};

use crate::data::{Dataset, resident_bytes};
use crate::layer::Layer;
use crate::module::Module;
use crate::optim::UpdateRule;
use crate::trainer::{TrainConfig, Trainer};

/// Largest batch size that is suggested: larger ones rarely train faster or better.
const MAX_BATCH: usize = 1024;

/// Reciprocal of the fraction of free memory that a suggestion leaves unused: pools round up, and other processes use the device.
const SPARE: u64 = 8;

impl<M: Module + Layer + Clone, R: UpdateRule> Trainer<M, R> {
    /// Plans a step with this batch size without running it.
    ///
    /// # Errors
    /// If the examples do not fit the model, or planning fails.
    pub fn memory_plan(&self, training: &TrainConfig, train: &Dataset, batch_size: usize) -> Result<MemoryPlan> {
        let examples: Vec<usize> =
            (0..batch_size.clamp(1, train.len().max(1))).map(|i| i % train.len().max(1)).collect();
        let all = train.select(&examples).full_batch();
        // A step gathers its examples from the whole data set.
        let places = Tensor::from_slice(&(0..examples.len() as i32).collect::<Vec<i32>>(), [examples.len()]);
        let batch = all.map(|part| part.index_select(0, &places));
        let mut rng = self.rng.clone();
        let mut pass = training.pass(&batch, &mut rng);
        let loss = training
            .loss
            .for_targets(&train.targets)?
            .compute(&self.model.forward(&batch.inputs, &mut pass), &batch.targets);
        self.optimizer.memory_plan(&self.model, &loss, &pass)
    }

    /// Returns the largest power of two whose step fits into the free memory, at most 1024 and at most the number of training examples
    /// rounded up to a power of two. `None` if not even one example fits.
    ///
    /// # Errors
    /// As for [`Trainer::memory_plan`].
    pub fn suggest_batch_size(
        &self,
        training: &TrainConfig,
        train: &Dataset,
        validation: &Dataset,
    ) -> Result<Option<usize>> {
        let Some(free) = free(&Device::current()?) else {
            return Ok(Some(MAX_BATCH.min(train.len().next_power_of_two())));
        };
        // Data that training keeps on the device: the training set, the sample of it that is scored, and the validation set.
        let seen = train.select(&(0..train.len().min(validation.len())).collect::<Vec<usize>>());
        let left = [train, &seen, validation].into_iter().fold(free, |free, data| free - resident_bytes(data, free));
        self.largest(training, train, left)
    }

    /// Returns the largest batch size whose step fits into `free` with a reserve.
    fn largest(&self, training: &TrainConfig, train: &Dataset, free: u64) -> Result<Option<usize>> {
        let room = free - free / SPARE;
        let mut batch = MAX_BATCH.min(train.len().next_power_of_two());
        loop {
            let needs = self.needs(training, train, batch)?;
            if needs <= room {
                return Ok(Some(batch));
            }
            if batch == 1 {
                return Ok(None);
            }
            // Memory grows about linearly with the batch size, so the next guess is rarely far off.
            let guess = (u128::from(room) * batch as u128 / u128::from(needs)).clamp(1, batch as u128 / 2) as usize;
            batch = (guess + 1).next_power_of_two() / 2;
        }
    }

    /// Returns the bytes that a step allocates, with accumulated gradients or those of shards, the sums over shards and the moving average;
    /// `u64::MAX` if not even its examples fit.
    fn needs(&self, training: &TrainConfig, train: &Dataset, batch: usize) -> Result<u64> {
        let gradients = usize::from(training.accumulate_grad_batches > 1).max(training.own_shards());
        let kept = gradients as u64 + u64::from(training.ema_decay.is_some());
        let sums = training.sum_bytes(&Device::current()?, self.model.num_parameters());
        let kept = kept.saturating_mul(param_bytes(&self.model)?).saturating_add(sums);
        match self.memory_plan(training, train, training.rows_together(batch)) {
            Ok(plan) => Ok(plan.allocated_bytes().saturating_add(kept)),
            Err(error) if error.is_out_of_memory() => Ok(u64::MAX),
            Err(error) => Err(error),
        }
    }

    /// Fails with a batch size that fits if a step does not fit into device memory. Expects the data set to be on the device already.
    pub(crate) fn fits(&self, training: &TrainConfig, train: &Dataset) -> Result<()> {
        let device = Device::current()?;
        let Some(free) = free(&device) else { return Ok(()) };
        let needs = self.needs(training, train, training.batch_size)?;
        if needs <= free {
            return Ok(());
        }
        let help = match self.largest(training, train, free)? {
            Some(batch) => format!("a batch of {batch} fits"),
            None => "not even one example fits; use a smaller network".to_string(),
        };
        let message = format!(
            "out of memory on {device}: a step of {} examples needs {}, {} are free; nothing was changed; {help}",
            training.batch_size.min(train.len()),
            if needs == u64::MAX { "more".to_string() } else { human(needs) },
            human(free)
        );
        Err(Error::new(ErrorKind::OutOfMemory, message))
    }
}

/// Returns the bytes of a model's parameters.
fn param_bytes(model: &dyn Module) -> Result<u64> {
    let params = model.named_parameters();
    let bytes = params.iter().map(|(_, param)| {
        let tensor = param.tensor();
        Ok((tensor.shape()?.dims().iter().product::<usize>() * tensor.dtype().bytes()) as u64)
    });
    bytes.sum()
}

/// Returns the bytes that a step can use: the rest of the pool's limit, or the driver's free memory plus the unused memory of the pool.
/// `None` if neither is known.
pub(crate) fn free(device: &Device) -> Option<u64> {
    let stats = device.memory_stats();
    let kept = stats.reserved - stats.allocated.min(stats.reserved);
    let driver = device.memory().free.map(|free| free + kept);
    let cap = stats.limit.map(|cap| cap.saturating_sub(stats.allocated));
    match (driver, cap) {
        (Some(driver), Some(cap)) => Some(driver.min(cap)),
        (driver, cap) => driver.or(cap),
    }
}

/// Formats a size such as `1.5 MiB`.
fn human(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4) as usize;
    match power {
        0 => format!("{bytes} bytes"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power]),
    }
}
