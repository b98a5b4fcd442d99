//! Training for epochs, with a validation part, history, early stopping, and files from which it goes on as if it had
//! never stopped.

use std::path::PathBuf;
use std::time::Duration;

use panoply_tensor::{DType, Device, Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};
use web_time::Instant;

use crate::data::{Cuts, Dataset, Examples, Feed, Supply, Targets};
use crate::evaluate::{Measure, evaluate_feed};
use crate::layer::{Layer, Pass};
use crate::memory;
use crate::module::Module;
use crate::network::Loss;
use crate::optimiser::{Average, LossScale, Optimiser, Plateau, Rule, Schedule};

/// How to train.
#[derive(Clone, Debug)]
pub struct Training {
    /// How often every example is seen.
    pub epochs: usize,
    /// Examples of a batch. A last batch of one example is merged into the one before it.
    pub batch: usize,
    /// Epochs without a better validation loss after which to stop. A later [`Run::fit`] of a run that stopped so counts anew.
    pub patience: Option<usize>,
    /// Factor of the learning rate at each step.
    pub schedule: Schedule,
    /// What lowers the learning rate besides, when the validation loss stops falling.
    pub plateau: Option<Plateau>,
    /// Batches whose gradients make one step together, as one batch of so many times the examples would.
    pub accumulate: usize,
    /// Share that a running average of the parameters keeps at each step, less at the beginning; the average is what is measured and
    /// kept as the best. [Polyak and Juditsky 1992]
    pub average: Option<f64>,
    /// Where the run is saved after every epoch and when it is stopped.
    pub file: Option<PathBuf>,
    /// What is made small.
    pub loss: Loss,
    /// What layers compute in, f32, bf16 or f16; parameters and what the optimiser remembers stay f32. With f16 the loss is
    /// scaled.
    pub precision: DType,
}

impl Training {
    /// So many epochs in batches of this size, at a constant rate in f32, without early stopping or a file.
    pub fn new(epochs: usize, batch: usize) -> Training {
        Training {
            epochs,
            batch,
            patience: None,
            schedule: Schedule::Constant,
            plateau: None,
            accumulate: 1,
            average: None,
            file: None,
            loss: Loss::default(),
            precision: DType::F32,
        }
    }

    /// The same with as many whole epochs over so many examples as make at least so many steps.
    pub fn of_steps(steps: usize, examples: usize, batch: usize) -> Training {
        Training::new(steps.div_ceil(Cuts::new(examples, batch).count().max(1)), batch)
    }

    /// Steps over so many examples: what a [`Schedule`] counts.
    pub fn updates(&self, examples: usize) -> u64 {
        let batches = Cuts::new(examples, self.batch).count();
        (self.epochs as u64).saturating_mul(batches.div_ceil(self.accumulate.max(1)) as u64)
    }

    /// What of a step the batch behind so many others of an epoch in this order is.
    fn part(&self, batches: usize, order: &[usize], targets: &Targets) -> Part {
        let (cuts, many) = (Cuts::new(order.len(), self.batch), self.accumulate.max(1));
        let mass = |from: usize, count: usize| {
            let examples = &order[cuts.range(from).start..cuts.range(from.saturating_add(count)).start];
            self.loss.mass(targets, examples.iter().copied())
        };
        let (mass, whole) = (mass(batches, 1), mass(batches / many * many, many));
        Part { mass, share: mass / whole, last: (batches + 1).is_multiple_of(many) || batches + 1 >= cuts.count() }
    }

    /// A training pass over these examples in this precision.
    pub(crate) fn pass<'a>(&self, batch: &Examples, rng: &'a mut Rng) -> Pass<'a> {
        let pass = Pass::train(rng).over(batch.times.as_ref());
        match self.precision {
            DType::F32 => pass,
            other => pass.in_precision(other),
        }
    }
}

/// A batch of those that make one step.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// How much its examples count in a mean.
    mass: f64,
    /// The same of all that the step's examples count.
    share: f64,
    /// Whether the step is made after it.
    last: bool,
}

/// What one epoch reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Counted from 1.
    pub epoch: usize,
    /// Mean loss over the training examples, weighted as the loss is, before each step.
    #[serde(with = "any_float")]
    pub loss: f64,
    /// Mean loss over the validation examples, after the epoch.
    #[serde(with = "any_float")]
    pub validation_loss: f64,
    /// What scores measure.
    #[serde(default)]
    pub measure: Measure,
    /// The score after the epoch of training examples: of a random sample as large as the validation part, the same in each epoch,
    /// or of all of them if they are fewer.
    #[serde(default, alias = "train_accuracy", with = "any_float")]
    pub train_score: f64,
    /// The score of the validation examples.
    #[serde(alias = "accuracy", with = "any_float")]
    pub score: f64,
    /// Time for the epoch, validation included.
    pub seconds: f64,
}

/// Numbers of which JSON has no infinite ones: those are their names (`"inf"`, `"-inf"`, `"NaN"`), and `null` is NaN.
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
        if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
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
    /// Counted from 1.
    pub epoch: usize,
    /// Counted from 1 within the epoch.
    pub step: usize,
    /// Steps of an epoch.
    pub steps: usize,
    /// Loss before this step.
    pub loss: f64,
}

/// Whoever watches training. Answers whether to go on.
pub trait Watch {
    /// After every step.
    fn step(&mut self, report: &StepReport) -> bool;

    /// After every epoch.
    fn epoch(&mut self, report: &EpochReport) -> bool;
}

/// Watches nothing and goes on.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Watch for Quiet {
    fn step(&mut self, _: &StepReport) -> bool {
        true
    }

    fn epoch(&mut self, _: &EpochReport) -> bool {
        true
    }
}

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What the finished epochs reached.
    pub history: Vec<EpochReport>,
    /// Steps made in the epoch under way.
    pub step: usize,
    /// Sum of the losses of those steps' examples, each as often as it counts.
    pub loss_sum: f64,
    /// The epoch with the smallest validation loss; 0 if there is none.
    pub best: usize,
}

/// A training under way: all that decides how it goes on.
#[derive(Clone, Debug)]
pub struct Run<M, R> {
    /// The model as the last step left it.
    pub model: M,
    /// The optimiser; its learning rate is `learning_rate` times what the schedule says.
    pub optimiser: Optimiser<R>,
    /// The learning rate without a schedule.
    pub learning_rate: f64,
    /// Random numbers of the next step.
    pub rng: Rng,
    /// Random numbers as the epoch under way began: they decide its order.
    pub order: Rng,
    /// Where it stands.
    pub progress: Progress,
    /// The model of the best epoch.
    pub best: Option<M>,
    /// What [`Training::average`] keeps.
    pub average: Option<Average<M>>,
}

/// Examples of a step of [`train`].
const BATCH: usize = 64;

/// The share of the examples that [`train`] holds out.
const HELD_OUT: f64 = 0.2;

/// Trains a model for some epochs in batches of 64, a fifth of the examples held out for validation: the run with its history, its
/// last and its best model. [`Run::fit`] leaves every choice to you.
pub fn train<M: Module + Layer + Clone, R: Rule>(
    model: M,
    data: &Dataset,
    optimiser: Optimiser<R>,
    loss: Loss,
    epochs: usize,
) -> Result<Run<M, R>> {
    let mut rng = Rng::seed(0);
    let (train, held) = data.split(HELD_OUT, &mut rng)?;
    let mut run = Run::new(model, optimiser, rng);
    run.fit(&Training { loss, ..Training::new(epochs, BATCH) }, (&train, &held), &mut Quiet)?;
    Ok(run)
}

/// Positions of a random sample of `count` of `all` examples, in order; a resumed run takes the same.
fn sample(all: usize, count: usize) -> Vec<usize> {
    let mut positions = Rng::seed(0).permutation(all);
    positions.truncate(count);
    positions.sort_unstable();
    positions
}

impl<M: Module + Layer + Clone, R: Rule> Run<M, R> {
    /// A run that has not begun.
    pub fn new(model: M, optimiser: Optimiser<R>, rng: Rng) -> Run<M, R> {
        let (learning_rate, order) = (optimiser.learning_rate, rng.clone());
        Run { model, optimiser, learning_rate, rng, order, progress: Progress::default(), best: None, average: None }
    }

    /// The model of the epoch with the smallest validation loss, or the last one if no epoch has ended.
    pub fn best_model(&self) -> &M {
        self.best.as_ref().unwrap_or(self.shown())
    }

    /// The model that is measured: the average if there is one.
    fn shown(&self) -> &M {
        self.average.as_ref().map_or(&self.model, |average| &average.model)
    }

    /// Trains from where it stands to the end, on a [`Dataset`] or on what a [`Loader`](crate::data::Loader) makes of one. On error the
    /// last good step stands.
    pub fn fit<'a>(
        &mut self,
        training: &Training,
        (supply, validation): (impl Into<Supply<'a>>, &Dataset),
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let supply = supply.into();
        let train = supply.data();
        if train.is_empty() || validation.is_empty() {
            let message = format!("{} training and {} validation examples", train.len(), validation.len());
            return Err(Error::mistake(message).note("both parts need at least one"));
        }
        let training = &Training { loss: training.loss.fitted(&train.targets)?, ..training.clone() };
        self.average =
            training.average.map(|decay| self.average.take().unwrap_or_else(|| Average::new(&self.model, decay)));
        if training.precision == DType::F16 && self.optimiser.scale.is_none() {
            self.optimiser.scale = Some(LossScale::default());
        }
        let seen = train.select(&sample(train.len(), validation.len()));
        let free = || Ok::<_, Error>(memory::free(&Device::current()?));
        let train = &Feed::of(supply, training.batch.max(1), free()?)?;
        let [seen, validation] = [Feed::new(&seen, free()?)?, Feed::new(validation, free()?)?];
        self.fits(training, train.data())?;
        let counted_from = self.patience_from(training);
        while self.progress.history.len() < training.epochs {
            let start = Instant::now();
            if !self.rest_of_epoch(training, train, watch)? {
                return self.keep(training);
            }
            let held = evaluate_feed(self.shown(), &validation, &training.loss)?;
            let learned = evaluate_feed(self.shown(), &seen, &training.loss)?;
            let validation_loss = held.loss;
            let epoch = self.progress.history.len() + 1;
            if !validation_loss.is_finite() {
                let message = format!("the loss of the examples held out is {validation_loss} after epoch {epoch}");
                let what = if validation_loss.is_nan() {
                    "what the model makes of one of them is no number"
                } else {
                    "no number can be that large"
                };
                let note = format!("{what}: look for outliers among them, or take a smaller learning rate");
                return Err(Error::diverged(message).note(note));
            }
            let seconds = Duration::as_secs_f64(&start.elapsed());
            let report = EpochReport {
                epoch,
                loss: self.progress.loss_sum / training.loss.mass(&train.data().targets, 0..train.data().len()),
                validation_loss,
                measure: Measure::of(&train.data().targets),
                train_score: learned.score,
                score: held.score,
                seconds,
            };
            let best = self.progress.best.checked_sub(1).map(|at| self.progress.history[at].validation_loss);
            if best.is_none_or(|best| validation_loss < best) {
                (self.progress.best, self.best) = (epoch, Some(self.shown().clone()));
            }
            (self.progress.step, self.progress.loss_sum) = (0, 0.0);
            self.progress.history.push(report.clone());
            self.keep(training)?;
            let stale = epoch - self.progress.best.max(counted_from);
            if !watch.epoch(&report) || training.patience.is_some_and(|patience| stale >= patience) {
                break;
            }
        }
        Ok(())
    }

    /// The epoch behind which epochs without a better loss are counted: the last one of a run that had ended by its patience, which a
    /// new fit grants again, and otherwise none, so that a resumed run ends where it would have ended.
    fn patience_from(&self, training: &Training) -> usize {
        let done = self.progress.history.len();
        let ended = training.patience.is_some_and(|patience| done > 0 && done - self.progress.best >= patience);
        if ended { done } else { 0 }
    }

    /// The steps left of the epoch under way. Whether it was finished.
    fn rest_of_epoch(&mut self, training: &Training, train: &Feed<'_>, watch: &mut dyn Watch) -> Result<bool> {
        if self.progress.step == 0 {
            self.order = self.rng.clone();
            // The order forks the generator; what is drawn during the epoch must not depend on when it was resumed.
            self.rng.fork();
        }
        let (epoch, batch) = (self.progress.history.len() + 1, training.batch.max(1));
        let finished = self.progress.history.len() as u64;
        let order = train.order(finished, &self.order);
        let steps = Cuts::new(order.len(), batch).count();
        let losses = self.progress.history.iter().map(|epoch| epoch.validation_loss);
        let rate = self.learning_rate * training.plateau.as_ref().map_or(1.0, |plateau| plateau.factor_after(losses));
        train.each((finished, self.progress.step), (&order, batch), |batch| {
            self.optimiser.learning_rate = rate * training.schedule.factor(self.optimiser.steps);
            let part = training.part(self.progress.step, &order, &train.data().targets);
            let stepped = self.step(training, &batch, part);
            let step = self.progress.step + 1;
            let loss = stepped.map_err(|error| error.note(format!("in epoch {epoch}, step {step} of it")))?;
            self.progress.loss_sum += loss * part.mass;
            self.progress.step += 1;
            Ok(watch.step(&StepReport { epoch, step: self.progress.step, steps, loss }))
        })
    }

    /// A step, or a part of one. The loss before it.
    fn step(&mut self, training: &Training, batch: &Examples, Part { share, last, .. }: Part) -> Result<f64> {
        let (before, steps) = (self.rng.clone(), self.optimiser.steps);
        let mut pass = training.pass(batch, &mut self.rng);
        let loss = training.loss.of(&self.model.forward(&batch.inputs, &mut pass), &batch.targets);
        let loss = if share < 1.0 { loss * share } else { loss };
        let stepped = match last {
            true => self.optimiser.step(&mut self.model, loss, pass),
            false => self.optimiser.accumulate(&mut self.model, &loss, pass),
        };
        let loss = stepped.map_err(|error| match self.first_not_finite(training, batch, before) {
            Some(place) => error.note(format!("the first values that are no finite numbers are {place}")),
            None => error,
        })?;
        let made = self.optimiser.steps > steps;
        if let (true, Some(average), Some(decay)) = (made, &mut self.average, training.average) {
            // What was at the beginning is forgotten soon.
            let steps = self.optimiser.steps as f64;
            average.decay = decay.min((1.0 + steps) / (10.0 + steps));
            average.update(&self.model)?;
        }
        Ok(loss / share)
    }

    /// Where a forward pass first gives something that is no finite number, if it does.
    fn first_not_finite(&self, training: &Training, batch: &Examples, mut rng: Rng) -> Option<String> {
        let wrong = |tensor: &Tensor| tensor.is_finite().all(..).cast(DType::F32).item().is_ok_and(|all| all == 0.0);
        if wrong(&batch.inputs) {
            return Some("among the inputs".to_string());
        }
        let params = self.model.named_params();
        if let Some((name, _)) = params.iter().find(|(_, param)| wrong(param.tensor())) {
            return Some(format!("in {name}"));
        }
        let mut pass = training.pass(batch, &mut rng).watched();
        let outputs = self.model.forward(&batch.inputs, &mut pass);
        let layer = pass.seen().iter().find(|(_, output)| wrong(output)).map(|(name, _)| format!("what {name} gives"));
        let loss = || wrong(&training.loss.of(&outputs, &batch.targets));
        layer.or_else(|| loss().then(|| "the loss's own, of outputs that are finite".to_string()))
    }

    fn keep(&self, training: &Training) -> Result<()> {
        training.file.as_ref().map_or(Ok(()), |file| self.save(file))
    }
}
