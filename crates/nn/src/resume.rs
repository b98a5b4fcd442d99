//! A training under way in one file, so that it goes on bit for bit as if it had never stopped.
//!
//! Beside the parameters (`model.NAME`, and `best.NAME` of the best epoch) the file holds what the optimiser remembers
//! (`optimiser.NAME.INDEX`), and as metadata the steps made, both random generators and the progress.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Arrays};
use crate::fit::{Progress, Run};
use crate::layer::Layer;
use crate::module::Module;
use crate::optimiser::{LossScale, Rule};

/// What is not an array.
#[derive(Serialize, Deserialize)]
struct Numbers {
    steps: u64,
    rng: [u64; 3],
    order: [u64; 3],
    progress: Progress,
    #[serde(default)]
    scale: Option<LossScale>,
}

/// The metadata entry that holds [`Numbers`].
const KEY: &str = "training";

impl<M: Module + Layer + Clone, R: Rule> Run<M, R> {
    /// Writes everything that decides how the run goes on. The file appears whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut arrays: Vec<(String, Tensor)> = Vec::new();
        let mut of = |prefix: &str, model: &M| {
            arrays.extend(
                model.named_params().into_iter().map(|(name, p)| (format!("{prefix}.{name}"), p.tensor().clone())),
            );
        };
        of("model", &self.model);
        self.best.iter().for_each(|best| of("best", best));
        for (name, state) in &self.optimiser.state {
            arrays.extend(state.iter().enumerate().map(|(i, x)| (format!("optimiser.{name}.{i}"), x.clone())));
        }
        let words = |rng: &Rng| [rng.seed, rng.counter, rng.forks];
        let (steps, progress) = (self.optimiser.steps, self.progress.clone());
        let numbers =
            Numbers { steps, rng: words(&self.rng), order: words(&self.order), progress, scale: self.optimiser.scale };
        let text = serde_json::to_string(&numbers)
            .map_err(|error| Error::mistake(format!("{}: {error}", path.display())).caused_by(error))?;
        checkpoint::write_arrays(path, &arrays, HashMap::from([(KEY.to_string(), text)]))
    }

    /// Goes back to where a saved run stood. The model must be of the same make; on error nothing has changed.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        let file = Arrays::read(path)?;
        let wrong = |what: String| Error::corrupt(format!("{}: {what}", path.display()));
        let text = file.metadata.get(KEY).ok_or_else(|| {
            wrong("it holds no training under way; a file of parameters alone cannot be resumed".to_string())
        })?;
        let numbers: Numbers = serde_json::from_str(text).map_err(|error| wrong(error.to_string()).caused_by(error))?;
        let (named, epochs) = (numbers.progress.best, numbers.progress.history.len());
        if named > epochs {
            return Err(wrong(format!("it calls epoch {named} the best of {epochs}")));
        }
        let (mut own, mut best, mut state) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::<String, Vec<Tensor>>::new());
        for (name, tensor) in file.arrays {
            if let Some(name) = name.strip_prefix("model.") {
                own.insert(name.to_string(), tensor);
            } else if let Some(name) = name.strip_prefix("best.") {
                best.insert(name.to_string(), tensor);
            } else if let Some((name, index)) = name.strip_prefix("optimiser.").and_then(|name| name.rsplit_once('.')) {
                // Names come in order, and a rule remembers fewer than ten arrays.
                let kept = state.entry(name.to_string()).or_default();
                if index != kept.len().to_string() {
                    return Err(wrong(format!("optimiser.{name}.{} is missing", kept.len())));
                }
                kept.push(tensor);
            } else {
                return Err(wrong(format!("{name} is no part of a training")));
            }
        }
        let mut model = self.model.clone();
        checkpoint::put(&mut model, &own, path)?;
        let best = match best.is_empty() {
            true => None,
            false => {
                let mut model = model.clone();
                checkpoint::put(&mut model, &best, path)?;
                Some(model)
            }
        };
        let rng = |[seed, counter, forks]: [u64; 3]| {
            let mut rng = Rng::seed(seed);
            (rng.counter, rng.forks) = (counter, forks);
            rng
        };
        (self.model, self.best) = (model, best);
        (self.rng, self.order) = (rng(numbers.rng), rng(numbers.order));
        (self.optimiser.steps, self.optimiser.state) = (numbers.steps, state);
        self.optimiser.scale = numbers.scale;
        self.optimiser.waiting.clear();
        self.progress = numbers.progress;
        Ok(())
    }
}
