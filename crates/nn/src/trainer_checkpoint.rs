//! A training under way in one file, so that it goes on bit for bit as if it had never stopped.
//!
//! Beside the parameters (`model.NAME`, `best.NAME` of the best epoch, `ema.NAME` if an average is kept) the file holds what the
//! optimizer remembers (`optimizer.NAME.INDEX`) and gradients that wait for its next step (`accumulated_grad.NAME`), and as metadata the steps
//! made, whether the next is spoilt, both random generators and the progress.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Arrays};
use crate::layer::Layer;
use crate::module::Module;
use crate::optim::{AveragedModel, GradScaler, Optimizer, UpdateRule};
use crate::trainer::{TrainState, Trainer};

/// What is not an array.
#[derive(Serialize, Deserialize)]
struct TrainStateMetadata {
    step: u64,
    rng: [u64; 3],
    epoch_rng: [u64; 3],
    progress: TrainState,
    grad_scaler: Option<GradScaler>,
    overflowed: bool,
}

/// What the names of arrays begin with.
const PARTS: [&str; 5] = ["model", "best", "ema", "optimizer", "accumulated_grad"];

/// The metadata entry that holds [`TrainStateMetadata`].
const KEY: &str = "train_state";

impl<M: Module + Layer + Clone, R: UpdateRule> Trainer<M, R> {
    /// Writes everything that decides how the run goes on. The file appears whole or not at all.
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

    /// Goes back to where a saved run stood. The model must be of the same make; on error nothing has changed.
    pub fn load_checkpoint(&mut self, path: &Path) -> Result<()> {
        let file = Arrays::read(path)?;
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
        let text = file.metadata.get(KEY).ok_or_else(|| {
            wrong("it holds no training under way; a file of parameters alone cannot be resumed".to_string())
        })?;
        let numbers: TrainStateMetadata =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()).with_source(error))?;
        let (named, epochs) = (numbers.progress.best_epoch, numbers.progress.history.len());
        if named > epochs {
            return Err(wrong(format!("it calls epoch {named} the best of {epochs}")));
        }
        let mut parts = BTreeMap::<&str, BTreeMap<String, Tensor>>::new();
        for (name, tensor) in file.tensors {
            let of = |part: &&'static str| Some((*part, name.strip_prefix(*part)?.strip_prefix('.')?.to_string()));
            let Some((part, name)) = PARTS.iter().find_map(of) else {
                return Err(wrong(format!("{name} is no part of a training")));
            };
            parts.entry(part).or_default().insert(name, tensor);
        }
        let mut state = BTreeMap::<String, Vec<Tensor>>::new();
        for (place, tensor) in parts.remove("optimizer").unwrap_or_default() {
            let Some((name, index)) = place.rsplit_once('.') else {
                return Err(wrong(format!("optimizer.{place} is no part of a training")));
            };
            // Names come in order, and a rule remembers fewer than ten arrays.
            let kept = state.entry(name.to_string()).or_default();
            if index != kept.len().to_string() {
                return Err(wrong(format!("optimizer.{name}.{} is missing", kept.len())));
            }
            kept.push(tensor);
        }
        let model = |arrays: BTreeMap<String, Tensor>| {
            let mut model = self.model.clone();
            checkpoint::assign_parameters(&mut model, &arrays, path).map(|()| model)
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
