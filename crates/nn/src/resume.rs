//! A training under way in one file, so that it goes on bit for bit as if it had never stopped.
//!
//! Beside the parameters (`model.NAME`, `best.NAME` of the best epoch, `average.NAME` if an average is kept) the file holds what the
//! optimiser remembers (`optimiser.NAME.INDEX`) and gradients that wait for its next step (`waiting.NAME`), and as metadata the steps
//! made, whether the next is spoilt, both random generators and the progress.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use panoply_tensor::{Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Arrays};
use crate::fit::{Progress, Run};
use crate::layer::Layer;
use crate::module::Module;
use crate::optimiser::{Average, LossScale, Optimiser, Rule};

/// What is not an array.
#[derive(Serialize, Deserialize)]
struct Numbers {
    steps: u64,
    rng: [u64; 3],
    order: [u64; 3],
    progress: Progress,
    #[serde(default)]
    scale: Option<LossScale>,
    #[serde(default)]
    spoilt: bool,
}

/// What the names of arrays begin with.
const PARTS: [&str; 5] = ["model", "best", "average", "optimiser", "waiting"];

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
        self.average.iter().for_each(|average| of("average", &average.model));
        arrays.extend(self.optimiser.waiting.iter().map(|(name, x)| (format!("waiting.{name}"), x.clone())));
        for (name, state) in &self.optimiser.state {
            arrays.extend(state.iter().enumerate().map(|(i, x)| (format!("optimiser.{name}.{i}"), x.clone())));
        }
        let words = |rng: &Rng| [rng.seed, rng.counter, rng.forks];
        let Optimiser { steps, scale, spoilt, .. } = self.optimiser;
        let (rng, order, progress) = (words(&self.rng), words(&self.order), self.progress.clone());
        let numbers = Numbers { steps, rng, order, progress, scale, spoilt };
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
        let mut parts = BTreeMap::<&str, BTreeMap<String, Tensor>>::new();
        for (name, tensor) in file.arrays {
            let of = |part: &&'static str| Some((*part, name.strip_prefix(*part)?.strip_prefix('.')?.to_string()));
            let Some((part, name)) = PARTS.iter().find_map(of) else {
                return Err(wrong(format!("{name} is no part of a training")));
            };
            parts.entry(part).or_default().insert(name, tensor);
        }
        let mut state = BTreeMap::<String, Vec<Tensor>>::new();
        for (place, tensor) in parts.remove("optimiser").unwrap_or_default() {
            let Some((name, index)) = place.rsplit_once('.') else {
                return Err(wrong(format!("optimiser.{place} is no part of a training")));
            };
            // Names come in order, and a rule remembers fewer than ten arrays.
            let kept = state.entry(name.to_string()).or_default();
            if index != kept.len().to_string() {
                return Err(wrong(format!("optimiser.{name}.{} is missing", kept.len())));
            }
            kept.push(tensor);
        }
        let model = |arrays: BTreeMap<String, Tensor>| {
            let mut model = self.model.clone();
            checkpoint::put(&mut model, &arrays, path).map(|()| model)
        };
        let own = model(parts.remove("model").unwrap_or_default())?;
        let [best, average] = ["best", "average"].map(|part| parts.remove(part).map(model).transpose());
        let (best, average) = (best?, average?.map(|model| Average { model, decay: 0.0 }));
        let rng = |[seed, counter, forks]: [u64; 3]| {
            let mut rng = Rng::seed(seed);
            (rng.counter, rng.forks) = (counter, forks);
            rng
        };
        (self.model, self.best, self.average) = (own, best, average);
        (self.rng, self.order) = (rng(numbers.rng), rng(numbers.order));
        (self.optimiser.steps, self.optimiser.state) = (numbers.steps, state);
        (self.optimiser.scale, self.optimiser.spoilt) = (numbers.scale, numbers.spoilt);
        self.optimiser.waiting = parts.remove("waiting").unwrap_or_default();
        self.progress = numbers.progress;
        Ok(())
    }
}
