//! Training loop: epochs, validation, history, early stopping, and checkpoints from which a run resumes bit for bit.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use panoply_tensor::{DType, Device, Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};
use web_time::Instant;

use crate::data::{Batch, BatchFeed, Cuts, Dataset, Targets, TrainData};
use crate::evaluate::{Evaluation, Metric, evaluate_feed, macro_f1};
use crate::layer::{ForwardContext, Layer};
use crate::module::Module;
use crate::network::Loss;
use crate::optim::{AveragedModel, GradScaler, LrSchedule, LrScheduler, Optimizer, ReduceLrOnPlateau, UpdateRule};
use crate::process_group::{ProcessGroup, all_agree};
use crate::sharding::{BatchLoss, MicroBatch, Sharding};
use crate::trainer_memory;

/// Settings of a training run.
#[derive(Clone, Debug)]
pub struct TrainConfig {
    /// Number of epochs.
    pub epochs: usize,
    /// Batch size. A last batch of one example is merged into the previous one.
    pub batch_size: usize,
    /// Early stopping: epochs without an improvement of [`TrainConfig::monitor`] before training stops. A later [`Trainer::fit`] of a
    /// run that stopped so counts anew.
    pub patience: Option<usize>,
    /// The validation figure by which the best epoch is chosen.
    pub monitor: Monitor,
    /// Factor of the learning rate at each step.
    pub lr_schedule: LrSchedule,
    /// Additional reduction of the learning rate when the validation loss stops falling.
    pub reduce_on_plateau: Option<ReduceLrOnPlateau>,
    /// Gradient accumulation: number of batches per optimizer step.
    pub accumulate_grad_batches: usize,
    /// Decay of the exponential moving average of the parameters at each step, smaller in the first steps. The averaged model is evaluated
    /// and kept as the best. [Polyak and Juditsky 1992]
    pub ema_decay: Option<f64>,
    /// Path of the checkpoint, written after every epoch and when training is stopped.
    pub checkpoint_path: Option<PathBuf>,
    /// Training loss.
    pub loss: Loss,
    /// Compute precision of the layers: f32, bf16 or f16. Parameters and optimizer state stay f32. With f16 the loss is scaled.
    pub precision: DType,
    /// Processes that train this model together, each on its rows of every batch. All must have the same model, data and random numbers.
    /// Rank 0 evaluates. `None` trains in this process alone. Processes exchange gradients once for each optimizer step, on CPUs those
    /// of the last layers while those of the first are computed.
    pub group: Option<Arc<dyn ProcessGroup>>,
    /// Number of shards of every batch, from the number of processes to the batch size. Each shard has its own random numbers, batch norm uses the
    /// statistics of its shard, and gradients are summed in a fixed tree over the shards. The trained bits depend on the number of shards,
    /// but not on the number of processes, if their devices are of one kind. `None` makes one shard for each process, with the random
    /// numbers of a single process.
    pub shards: Option<usize>,
}

impl TrainConfig {
    /// Creates a configuration with these epochs and this batch size, a constant learning rate, f32, no early stopping and no checkpoint.
    pub fn new(epochs: usize, batch_size: usize) -> TrainConfig {
        TrainConfig {
            epochs,
            batch_size,
            patience: None,
            monitor: Monitor::Loss,
            lr_schedule: LrSchedule::Constant,
            reduce_on_plateau: None,
            accumulate_grad_batches: 1,
            ema_decay: None,
            checkpoint_path: None,
            loss: Loss::default(),
            precision: DType::F32,
            group: None,
            shards: None,
        }
    }

    /// Creates a configuration with the fewest epochs over `num_examples` examples that make at least `min_steps` steps.
    pub fn with_min_steps(min_steps: usize, num_examples: usize, batch_size: usize) -> TrainConfig {
        TrainConfig::new(min_steps.div_ceil(Cuts::new(num_examples, batch_size).count().max(1)), batch_size)
    }

    /// Returns the number of optimizer steps over `examples` examples, which is what an [`LrSchedule`] counts.
    pub fn optimizer_steps(&self, examples: usize) -> u64 {
        let batches = Cuts::new(examples, self.batch_size).count();
        (self.epochs as u64).saturating_mul(batches.div_ceil(self.accumulate_grad_batches.max(1)) as u64)
    }

    /// Returns the weights of micro-batch number `batches` of an epoch in this order.
    fn part(&self, batches: usize, order: &[usize], targets: &Targets) -> MicroBatch {
        let (cuts, many) = (Cuts::new(order.len(), self.batch_size), self.accumulate_grad_batches.max(1));
        let mass = |from: usize, count: usize| {
            let examples = &order[cuts.range(from).start..cuts.range(from.saturating_add(count)).start];
            self.loss.mass(targets, examples.iter().copied())
        };
        let (mass, whole) = (mass(batches, 1), mass(batches / many * many, many));
        MicroBatch {
            weight: mass,
            weight_fraction: mass / whole,
            last: (batches + 1).is_multiple_of(many) || batches + 1 >= cuts.count(),
        }
    }

    /// Creates a training pass for these examples in this precision.
    pub(crate) fn pass<'a>(&self, batch: &Batch, rng: &'a mut Rng) -> ForwardContext<'a> {
        let pass = ForwardContext::train(rng).with_seq_lengths(batch.seq_lengths.as_ref());
        match self.precision {
            DType::F32 => pass,
            other => pass.autocast(other),
        }
    }
}

/// Results of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Number of the epoch, counted from 1.
    pub epoch: usize,
    /// Mean loss of the training examples, weighted as the loss is, each before its step.
    #[serde(with = "any_float")]
    pub train_loss: f64,
    /// Mean loss of the validation examples after the epoch.
    #[serde(with = "any_float")]
    pub val_loss: f64,
    /// Metric of the scores.
    #[serde(default)]
    pub metric: Metric,
    /// Score of training examples after the epoch: of a random sample as large as the validation set, the same in each epoch, or of all if
    /// there are fewer.
    #[serde(default, with = "any_float")]
    pub train_score: f64,
    /// Score of the validation examples after the epoch; NaN for R² of a single example.
    #[serde(with = "any_float")]
    pub val_score: f64,
    /// Macro-averaged F1 score of the validation examples, if it is the monitored figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_macro_f1: Option<f64>,
    /// The validation figure by which epochs are compared.
    #[serde(default)]
    pub monitor: Monitor,
    /// Time for the epoch, validation included; 0 if it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seconds: f64,
}

/// The validation figure by which epochs are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Monitor {
    /// The loss, which falls.
    #[default]
    Loss,
    /// The score of [`EpochReport::metric`], accuracy or R², which rises. Of equal scores, and of R² of a single example, the one with the
    /// smaller loss is better.
    Score,
    /// The macro-averaged F1 score of a classification, which rises. Of equal scores the one with the smaller loss is better.
    MacroF1,
}

impl EpochReport {
    /// True if the monitored figure is better than that of another epoch of the same run.
    pub fn is_better_than(&self, other: &EpochReport) -> bool {
        let score = |report: &EpochReport| match self.monitor {
            Monitor::Loss => 0.0,
            // R² of a single example is undefined, so that the loss decides.
            Monitor::Score if report.val_score.is_nan() => f64::NEG_INFINITY,
            Monitor::Score => report.val_score,
            Monitor::MacroF1 => report.val_macro_f1.unwrap_or(f64::NEG_INFINITY),
        };
        let (own, theirs) = (score(self), score(other));
        own > theirs || (own == theirs && self.val_loss < other.val_loss)
    }

    /// The best epoch of a history, the first of equals; `None` if it is empty.
    pub fn best(history: &[EpochReport]) -> Option<&EpochReport> {
        history.iter().reduce(|best, report| if report.is_better_than(best) { report } else { best })
    }
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Numbers of which JSON has no infinite ones: those are their names (`"inf"`, `"-inf"`), and `null` is NaN.
mod any_float {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Name(String),
        Nothing(()),
    }

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            value if value.is_nan() => serializer.serialize_unit(),
            value if value.is_finite() => serializer.serialize_f64(*value),
            value => serializer.collect_str(value),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(value),
            Written::Name(name) => name.parse().map_err(serde::de::Error::custom),
            Written::Nothing(()) => Ok(f64::NAN),
        }
    }
}

/// Progress within an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the epoch, counted from 1.
    pub epoch: usize,
    /// Number of the batch within the epoch, counted from 1.
    pub step: usize,
    /// Number of batches in the epoch.
    pub steps: usize,
    /// Loss before this step. If several processes share a batch that is accumulated for a later step, the loss of this process's rows.
    pub loss: f64,
}

/// Observer of a training run. [`ControlFlow::Break`] stops the run; a later [`Trainer::fit`] continues it. A run with shards or several
/// processes stops after the next optimizer step. Several processes may then have computed gradients of the step that follows, which are
/// discarded.
pub trait Callback {
    /// Called after every batch.
    fn on_train_batch_end(&mut self, _report: &StepReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Called after every epoch.
    fn on_epoch_end(&mut self, _report: &EpochReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// A callback that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoCallback;

impl Callback for NoCallback {}

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainState {
    /// Reports of the finished epochs.
    pub history: Vec<EpochReport>,
    /// Number of batches done in the current epoch.
    pub step: usize,
    /// Sum of the weighted losses of these batches.
    pub loss_sum: f64,
    /// The best epoch by [`TrainConfig::monitor`], counted from 1; `None` before the first one has ended.
    pub best_epoch: Option<usize>,
}

/// A training run with its complete state.
#[derive(Clone, Debug)]
pub struct Trainer<M, R> {
    /// Current model.
    pub model: M,
    /// Optimizer; its learning rate is `learning_rate` times the schedule's factor.
    pub optimizer: Optimizer<R>,
    /// Learning rate before the schedule.
    pub learning_rate: f64,
    /// Random generator of the next step.
    pub rng: Rng,
    /// Random generator at the start of the current epoch, which determines its order.
    pub epoch_rng: Rng,
    /// Progress of the run.
    pub state: TrainState,
    /// Model of the best epoch.
    pub best: Option<M>,
    /// Moving average of [`TrainConfig::ema_decay`].
    pub averaged_model: Option<AveragedModel<M>>,
}

/// Batch size of [`train`].
const BATCH: usize = 64;

/// Fraction of the examples that [`train`] holds out for validation.
const HELD_OUT: f64 = 0.2;

/// Trains a model in batches of 64 with a fifth of the examples held out for validation. Returns the run with its history, its last and its
/// best model. [`Trainer::fit`] has all options.
///
/// # Errors
/// If there are too few examples, or training fails; see [`Trainer::fit`].
pub fn train<M: Module + Layer + Clone, R: UpdateRule>(
    model: M,
    data: &Dataset,
    optimizer: Optimizer<R>,
    loss: Loss,
    epochs: usize,
) -> Result<Trainer<M, R>> {
    let mut rng = Rng::seed_from_u64(0);
    let (train, held) = data.train_test_split(HELD_OUT, &mut rng)?;
    let mut run = Trainer::new(model, optimizer, rng);
    run.fit(&TrainConfig { loss, ..TrainConfig::new(epochs, BATCH) }, &train, &held, &mut NoCallback)?;
    Ok(run)
}

/// Returns the sorted positions of a random sample of `count` of `all` examples. A resumed run takes the same sample.
fn sample(all: usize, count: usize) -> Vec<usize> {
    let mut positions = Rng::seed_from_u64(0).permutation(all);
    positions.truncate(count);
    positions.sort_unstable();
    positions
}

impl<M: Module + Layer + Clone, R: UpdateRule> Trainer<M, R> {
    /// Creates a run that has not started.
    pub fn new(model: M, optimizer: Optimizer<R>, rng: Rng) -> Trainer<M, R> {
        let (learning_rate, order) = (optimizer.learning_rate, rng.clone());
        Trainer {
            model,
            optimizer,
            learning_rate,
            rng,
            epoch_rng: order,
            state: TrainState::default(),
            best: None,
            averaged_model: None,
        }
    }

    /// The model of the best epoch by [`TrainConfig::monitor`], or the last one if no epoch has ended.
    pub fn best_model(&self) -> &M {
        self.best.as_ref().unwrap_or(self.eval_model())
    }

    /// Returns the model that is evaluated: the moving average if there is one.
    fn eval_model(&self) -> &M {
        self.averaged_model.as_ref().map_or(&self.model, |average| &average.model)
    }

    /// Trains up to [`TrainConfig::epochs`], from the current state, on a [`Dataset`] or a [`DataLoader`](crate::data::DataLoader). On
    /// error the state after the last good step is kept.
    ///
    /// # Errors
    /// - The training or the validation set is empty, or does not fit the loss.
    /// - A step does not fit into device memory.
    /// - The loss or a gradient is not finite.
    /// - A checkpoint cannot be written.
    pub fn fit<'a>(
        &mut self,
        training: &TrainConfig,
        train: impl Into<TrainData<'a>>,
        validation: &Dataset,
        callback: &mut dyn Callback,
    ) -> Result<()> {
        let supply = train.into();
        let train = supply.data();
        if train.is_empty() || validation.is_empty() {
            let message = format!("{} training and {} validation examples", train.len(), validation.len());
            return Err(Error::mistake(message).note("both sets need at least one example"));
        }
        let training = &TrainConfig { loss: training.loss.for_targets(&train.targets)?, ..training.clone() };
        self.averaged_model = training
            .ema_decay
            .map(|decay| self.averaged_model.take().unwrap_or_else(|| AveragedModel::new(&self.model, decay)));
        if training.precision == DType::F16 && self.optimizer.grad_scaler.is_none() {
            self.optimizer.grad_scaler = Some(GradScaler::default());
        }
        let seen = train.select(&sample(train.len(), validation.len()));
        let free = || Ok::<_, Error>(trainer_memory::free(&Device::current()?));
        let train = &BatchFeed::of(supply, training.batch_size.max(1), free()?)?;
        let [seen, validation] = [BatchFeed::new(&seen, free()?)?, BatchFeed::new(validation, free()?)?];
        let sharding = training.sharding()?;
        self.fits(training, train.data())?;
        if let (Monitor::MacroF1, false) =
            (training.monitor, matches!(train.data().targets, Targets::Classes { labels_per_example: 1, .. }))
        {
            return Err(Error::mistake("the F1 score is monitored, but the targets are not one class per example"));
        }
        let counted_from = self.patience_from(training);
        while self.state.history.len() < training.epochs {
            let start = Instant::now();
            if !self.finish_epoch((training, sharding.as_ref()), train, callback)? {
                return self.save_if_configured(training);
            }
            let ([held, learned], val_macro_f1) = self.evaluated(training, [&validation, &seen])?;
            let validation_loss = held.loss;
            let epoch = self.state.history.len() + 1;
            if !validation_loss.is_finite() {
                let message = format!("the validation loss is {validation_loss} after epoch {epoch}");
                let what =
                    if validation_loss.is_nan() { "an output of the model is NaN" } else { "the loss overflows" };
                let note =
                    format!("{what}; look for outliers in the validation examples, or use a smaller learning rate");
                return Err(Error::diverged(message).note(note));
            }
            let seconds = Duration::as_secs_f64(&start.elapsed());
            let report = EpochReport {
                epoch,
                train_loss: self.state.loss_sum / training.loss.mass(&train.data().targets, 0..train.data().len()),
                val_loss: validation_loss,
                metric: Metric::for_targets(&train.data().targets),
                train_score: learned.score,
                val_score: held.score,
                val_macro_f1,
                monitor: training.monitor,
                seconds,
            };
            let best = self.state.best_epoch.map(|best| &self.state.history[best - 1]);
            if best.is_none_or(|best| report.is_better_than(best)) {
                (self.state.best_epoch, self.best) = (Some(epoch), Some(self.eval_model().clone()));
            }
            (self.state.step, self.state.loss_sum) = (0, 0.0);
            self.state.history.push(report.clone());
            self.save_if_configured(training)?;
            let stale = epoch - self.state.best_epoch.unwrap_or(0).max(counted_from);
            let go_on = all_agree(training.group.as_ref(), callback.on_epoch_end(&report).is_continue())?;
            if !go_on || training.patience.is_some_and(|patience| stale >= patience) {
                break;
            }
        }
        Ok(())
    }

    /// Evaluates the model on each of these; the macro F1 score is of the first, if it is monitored. Of several processes rank 0 does it
    /// and tells the others.
    fn evaluated(&self, training: &TrainConfig, feeds: [&BatchFeed<'_>; 2]) -> Result<([Evaluation; 2], Option<f64>)> {
        let group = training.group.as_ref();
        let has_f1 = training.monitor == Monitor::MacroF1;
        let mut values = [0.0; 5];
        if group.is_none_or(|group| group.rank() == 0) {
            for (values, feed) in values.chunks_exact_mut(2).zip(feeds) {
                let Evaluation { loss, score } = evaluate_feed(self.eval_model(), feed, &training.loss)?;
                values.copy_from_slice(&[loss, score]);
            }
            if has_f1 {
                values[4] = macro_f1(self.eval_model(), feeds[0].data(), &training.loss)?;
            }
        }
        group.map_or(Ok(()), |group| group.broadcast(&mut values))?;
        let [held_loss, held, seen_loss, seen, f1] = values;
        let evaluations = [Evaluation { loss: held_loss, score: held }, Evaluation { loss: seen_loss, score: seen }];
        Ok((evaluations, has_f1.then_some(f1)))
    }

    /// Returns the epoch from which epochs without improvement are counted. For a run that had stopped early it is the last epoch, so a new
    /// fit gets the full patience. Otherwise it is 0, so a resumed run stops where it would have stopped.
    fn patience_from(&self, training: &TrainConfig) -> usize {
        let done = self.state.history.len();
        let ended =
            training.patience.is_some_and(|patience| done > 0 && done - self.state.best_epoch.unwrap_or(0) >= patience);
        if ended { done } else { 0 }
    }

    /// Runs the remaining steps of the current epoch. Returns false if a callback stopped it.
    fn finish_epoch(
        &mut self,
        (training, sharding): (&TrainConfig, Option<&Sharding>),
        train: &BatchFeed<'_>,
        callback: &mut dyn Callback,
    ) -> Result<bool> {
        if self.state.step == 0 {
            self.epoch_rng = self.rng.clone();
            // Shuffling forks the generator. Forking here makes the numbers drawn during the epoch independent of where it was resumed.
            self.rng.fork();
        }
        let (epoch, batch) = (self.state.history.len() + 1, training.batch_size.max(1));
        let finished = self.state.history.len() as u64;
        let order = train.order(finished, &self.epoch_rng);
        let steps = Cuts::new(order.len(), batch).count();
        let losses = self.state.history.iter().map(|epoch| epoch.val_loss);
        let base_lr = self.learning_rate
            * training.reduce_on_plateau.as_ref().map_or(1.0, |plateau| plateau.factor_after(losses));
        let scheduler = LrScheduler { base_lr, schedule: training.lr_schedule.clone() };
        let (mut pending, mut stops) = (None, false);
        let mut learning_rate = self.optimizer.learning_rate;
        train.each((finished, self.state.step), (&order, batch), |batch| {
            if pending.is_none() {
                learning_rate = self.optimizer.learning_rate;
            }
            scheduler.step(&mut self.optimizer);
            let targets = &train.data().targets;
            let (step, made) = (self.state.step, self.optimizer.steps);
            let part = training.part(step, &order, targets);
            let stepped = match sharding {
                None => self.step(training, &batch, part).map(Some),
                Some(sharding) => {
                    let examples = &order[Cuts::new(order.len(), training.batch_size).range(step)];
                    let mass = |rows: Range<usize>| training.loss.mass(targets, examples[rows].iter().copied());
                    self.sharded_step((training, sharding), &mut pending, &batch, part, mass, stops)
                }
            };
            let Some(BatchLoss { loss, weighted }) =
                stepped.map_err(|error| error.note(format!("in epoch {epoch}, step {}", step + 1)))?
            else {
                self.optimizer.learning_rate = learning_rate;
                return Ok(false);
            };
            if self.optimizer.steps > made {
                self.update_average(training)?;
            }
            self.state.loss_sum += weighted;
            self.state.step += 1;
            let report = StepReport { epoch, step: self.state.step, steps, loss };
            stops |= callback.on_train_batch_end(&report).is_break();
            // The gradients of a pending step are not saved in checkpoints. Processes agree to go on with the sums of the next step, which
            // saves a message, or here if none follows.
            let sums_follow = self.state.step < steps && sharding.is_some_and(Sharding::sums_stops);
            if pending.is_some() || sums_follow { Ok(true) } else { all_agree(training.group.as_ref(), !stops) }
        })
    }

    /// Makes a step, or accumulates a micro-batch. Returns the loss before it.
    fn step(
        &mut self,
        training: &TrainConfig,
        batch: &Batch,
        MicroBatch { weight, weight_fraction, last }: MicroBatch,
    ) -> Result<BatchLoss> {
        let before = self.rng.clone();
        let mut pass = training.pass(batch, &mut self.rng);
        let loss = training.loss.compute(&self.model.forward(&batch.inputs, &mut pass), &batch.targets);
        let loss = if weight_fraction < 1.0 { loss * weight_fraction } else { loss };
        let stepped = match last {
            true => self.optimizer.step(&mut self.model, loss, pass),
            false => self.optimizer.accumulate(&mut self.model, &loss, pass),
        };
        let loss = stepped.map_err(|error| match self.locate_nonfinite(training, batch, before) {
            Some(place) => error.note(format!("the first non-finite values are {place}")),
            None => error,
        })?;
        let loss = loss / weight_fraction;
        Ok(BatchLoss { loss, weighted: loss * weight })
    }

    /// Updates the moving average of the parameters after a step, if there is one.
    fn update_average(&mut self, training: &TrainConfig) -> Result<()> {
        if let (Some(average), Some(decay)) = (&mut self.averaged_model, training.ema_decay) {
            // A smaller decay at first lets the average forget the initial parameters quickly.
            let steps = self.optimizer.steps as f64;
            average.decay = decay.min((1.0 + steps) / (10.0 + steps));
            average.update_parameters(&self.model)?;
        }
        Ok(())
    }

    /// Returns the first place in a forward pass where a value is not finite, or `None`.
    pub(crate) fn locate_nonfinite(&self, training: &TrainConfig, batch: &Batch, mut rng: Rng) -> Option<String> {
        let wrong = |tensor: &Tensor| tensor.is_finite().all(..).item().is_ok_and(|all: bool| !all);
        if wrong(&batch.inputs) {
            return Some("in the inputs".to_string());
        }
        let params = self.model.named_parameters();
        if let Some((name, _)) = params.iter().find(|(_, param)| wrong(param.tensor())) {
            return Some(format!("in {name}"));
        }
        let mut pass = training.pass(batch, &mut rng).record_outputs();
        let outputs = self.model.forward(&batch.inputs, &mut pass);
        let layer = pass
            .recorded_outputs()
            .iter()
            .find(|(_, output)| wrong(output))
            .map(|(name, _)| format!("in the output of {name}"));
        let loss = || wrong(&training.loss.compute(&outputs, &batch.targets));
        layer.or_else(|| loss().then(|| "in the loss; the outputs are finite".to_string()))
    }

    fn save_if_configured(&self, training: &TrainConfig) -> Result<()> {
        training.checkpoint_path.as_ref().map_or(Ok(()), |file| self.save_checkpoint(file))
    }
}
