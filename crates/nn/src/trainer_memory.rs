//! Whether a training step fits into the device's memory, before the first is made, and which batch would.

use panoply_tensor::{Device, Error, ErrorKind, MemoryPlan, Result, Tensor};

use crate::data::{Dataset, resident_bytes};
use crate::layer::Layer;
use crate::module::Module;
use crate::optim::UpdateRule;
use crate::trainer::{TrainConfig, Trainer};

/// The largest batch that is suggested: beyond it steps are rarely faster, and models rarely better.
const LARGEST: usize = 1024;

/// Share of the free memory that a suggestion leaves alone: pools round up, and others use the device too.
const SPARE: u64 = 8;

impl<M: Module + Layer + Clone, R: UpdateRule> Trainer<M, R> {
    /// What a step of so many examples takes of the device's memory. Nothing runs.
    pub fn memory_plan(&self, training: &TrainConfig, train: &Dataset, batch: usize) -> Result<MemoryPlan> {
        let examples: Vec<usize> = (0..batch.clamp(1, train.len().max(1))).map(|i| i % train.len().max(1)).collect();
        let all = train.select(&examples).examples();
        // A step picks its examples from all of them.
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

    /// The largest power of two whose step fits into the memory that is free now, at most 1024 and the examples there are;
    /// none if not even one example does.
    pub fn suggest_batch_size(
        &self,
        training: &TrainConfig,
        (train, held): (&Dataset, &Dataset),
    ) -> Result<Option<usize>> {
        let Some(free) = free(&Device::current()?) else {
            return Ok(Some(LARGEST.min(train.len().next_power_of_two())));
        };
        // As training will keep them on the device: what is learned from, as much of it as is held out, what is held out.
        let seen = train.select(&(0..train.len().min(held.len())).collect::<Vec<usize>>());
        let left = [train, &seen, held].into_iter().fold(free, |free, data| free - resident_bytes(data, free));
        self.largest(training, train, left)
    }

    /// The largest batch whose step leaves some of this room.
    fn largest(&self, training: &TrainConfig, train: &Dataset, free: u64) -> Result<Option<usize>> {
        let room = free - free / SPARE;
        let mut batch = LARGEST.min(train.len().next_power_of_two());
        loop {
            let needs = self.needs(training, train, batch)?;
            if needs <= room {
                return Ok(Some(batch));
            }
            if batch == 1 {
                return Ok(None);
            }
            // What a step takes grows about in line with its examples, so the next guess is rarely far off.
            let guess = (u128::from(room) * batch as u128 / u128::from(needs)).clamp(1, batch as u128 / 2) as usize;
            batch = (guess + 1).next_power_of_two() / 2;
        }
    }

    /// Bytes that a step allocates, beside gradients that wait for it and the average; more than there can be if not even its examples
    /// have room.
    fn needs(&self, training: &TrainConfig, train: &Dataset, batch: usize) -> Result<u64> {
        let kept = u64::from(training.accumulate_grad_batches > 1) + u64::from(training.ema_decay.is_some());
        match self.memory_plan(training, train, batch) {
            Ok(plan) => Ok(plan.allocated_bytes() + kept * param_bytes(&self.model)?),
            Err(error) if error.is_out_of_memory() => Ok(u64::MAX),
            Err(error) => Err(error),
        }
    }

    /// An error that names a batch that fits, if a step does not. The examples are where they will be.
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

/// Bytes of a model's parameters.
fn param_bytes(model: &dyn Module) -> Result<u64> {
    let params = model.named_parameters();
    let bytes = params.iter().map(|(_, param)| {
        let tensor = param.tensor();
        Ok((tensor.shape()?.dims().iter().product::<usize>() * tensor.dtype().bytes()) as u64)
    });
    bytes.sum()
}

/// Bytes that a step may take: what the pool's cap leaves, or what the driver says is free beside what the pool keeps.
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

/// `1.5 MiB`.
fn human(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4) as usize;
    match power {
        0 => format!("{bytes} bytes"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power]),
    }
}
