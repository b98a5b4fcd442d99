//! Checkpoint of a training run in one file, from which it resumes bit for bit.
//!
//! The file holds the parameters (`model.NAME`, `best.NAME` of the best epoch, `ema.NAME` of the moving average), the optimizer state
//! (`optimizer.NAME.INDEX`) and accumulated gradients (`accumulated_grad.NAME`). Its metadata hold the number of steps, the overflow flag,
//! the loss scale, both random generators and the progress.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Arrays};
use crate::layer::Layer;
use crate::module::Module;
use crate::optim::{AveragedModel, GradScaler, Optimizer, UpdateRule};
use crate::trainer::{TrainState, Trainer};

/// State that is not an array.
#[derive(Serialize, Deserialize)]
struct TrainStateMetadata {
    step: u64,
    rng: [u64; 3],
    epoch_rng: [u64; 3],
    progress: TrainState,
    grad_scaler: Option<GradScaler>,
    overflowed: bool,
}

/// Prefixes of array names.
const PARTS: [&str; 5] = ["model", "best", "ema", "optimizer", "accumulated_grad"];

/// Key of the metadata entry that holds [`TrainStateMetadata`].
const KEY: &str = "train_state";

impl<M: Module + Layer + Clone, R: UpdateRule> Trainer<M, R> {
    /// Writes the complete state of the run, atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save_checkpoint(&self, path: &Path) -> Result<()> {
        let mut arrays: Vec<(String, Tensor)> = Vec::new();
        let mut of = |prefix: &str, model: &M| {
            arrays.extend(
                model.named_parameters().into_iter().map(|(name, p)| (format!("{prefix}.{name}"), p.tensor().clone())),
            );
        };
        of("model", &self.model);
        self.best.iter().for_each(|best| of("best", best));
        self.averaged_model.iter().for_each(|average| of("ema", &average.model));
        arrays.extend(
            self.optimizer.accumulated_grads.iter().map(|(name, x)| (format!("accumulated_grad.{name}"), x.clone())),
        );
        for (name, state) in &self.optimizer.state {
            arrays.extend(state.iter().enumerate().map(|(i, x)| (format!("optimizer.{name}.{i}"), x.clone())));
        }
        let words = |rng: &Rng| [rng.seed, rng.counter, rng.forks];
        let Optimizer { steps: step, grad_scaler, overflowed, .. } = self.optimizer;
        let (rng, epoch_rng, progress) = (words(&self.rng), words(&self.epoch_rng), self.state.clone());
        let numbers = TrainStateMetadata { step, rng, epoch_rng, progress, grad_scaler, overflowed };
        let text = serde_json::to_string(&numbers)
            .map_err(|error| Error::mistake(format!("{}: {error}", path.display())).with_source(error))?;
        checkpoint::save_tensors(path, &arrays, HashMap::from([(KEY.to_string(), text)]))
    }

    /// Restores the state of a saved run. The model must have the same architecture. On error nothing has changed.
    ///
    /// # Errors
    /// If the file cannot be read, is not a training checkpoint, or does not fit the model.
    pub fn load_checkpoint(&mut self, path: &Path) -> Result<()> {
        let file = Arrays::read(path)?;
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
        let text = file.metadata.get(KEY).ok_or_else(|| {
            wrong("it has no training state; a file with only parameters cannot be resumed".to_string())
        })?;
        let numbers: TrainStateMetadata =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()).with_source(error))?;
        let (named, epochs) = (numbers.progress.best_epoch, numbers.progress.history.len());
        if let Some(named) = named.filter(|named| !(1..=epochs).contains(named)) {
            return Err(wrong(format!("best_epoch is {named}, but the history has {epochs} epochs")));
        }
        let mut parts = BTreeMap::<&str, BTreeMap<String, Tensor>>::new();
        for (name, tensor) in file.tensors {
            let of = |part: &&'static str| Some((*part, name.strip_prefix(*part)?.strip_prefix('.')?.to_string()));
            let Some((part, name)) = PARTS.iter().find_map(of) else {
                return Err(wrong(format!("unexpected array {name}")));
            };
            parts.entry(part).or_default().insert(name, tensor);
        }
        let mut state = BTreeMap::<String, Vec<Tensor>>::new();
        for (place, tensor) in parts.remove("optimizer").unwrap_or_default() {
            let Some((name, index)) = place.rsplit_once('.') else {
                return Err(wrong(format!("unexpected array optimizer.{place}")));
            };
            // Names are sorted, and a rule has fewer than ten state arrays.
            let kept = state.entry(name.to_string()).or_default();
            if index != kept.len().to_string() {
                return Err(wrong(format!("optimizer.{name}.{} is missing", kept.len())));
            }
            kept.push(tensor);
        }
        let model = |arrays: BTreeMap<String, Tensor>| {
            let mut model = self.model.clone();
            checkpoint::assign(&mut model, &arrays, path, "resume with the model that was saved").map(|()| model)
        };
        let own = model(parts.remove("model").unwrap_or_default())?;
        let [best, average] = ["best", "ema"].map(|part| parts.remove(part).map(model).transpose());
        let (best, average) = (best?, average?.map(|model| AveragedModel { model, decay: 0.0 }));
        let rng = |[seed, counter, forks]: [u64; 3]| {
            let mut rng = Rng::seed_from_u64(seed);
            (rng.counter, rng.forks) = (counter, forks);
            rng
        };
        (self.model, self.best, self.averaged_model) = (own, best, average);
        (self.rng, self.epoch_rng) = (rng(numbers.rng), rng(numbers.epoch_rng));
        (self.optimizer.steps, self.optimizer.state) = (numbers.step, state);
        (self.optimizer.grad_scaler, self.optimizer.overflowed) = (numbers.grad_scaler, numbers.overflowed);
        self.optimizer.accumulated_grads = parts.remove("accumulated_grad").unwrap_or_default();
        self.state = numbers.progress;
        Ok(())
    }
}
