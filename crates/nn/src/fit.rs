//! Training for epochs, with a validation part, history, early stopping, and files from which it goes on as if it had
//! never stopped.

use std::path::PathBuf;
use std::time::Duration;

use panoply_tensor::{DType, Device, Error, Result, Rng, Tensor};
use serde::{Deserialize, Serialize};
use web_time::Instant;

use crate::data::{Dataset, Examples, Feed};
use crate::evaluate::{Measure, evaluate_feed};
use crate::layer::{Layer, Pass};
use crate::memory;
use crate::module::Module;
use crate::network::Loss;
use crate::optimiser::{LossScale, Optimiser, Rule, Schedule};

/// How to train.
#[derive(Clone, Debug)]
pub struct Training {
    /// How often every example is seen.
    pub epochs: usize,
    /// Examples of a step.
    pub batch: usize,
    /// Epochs without a better validation loss after which to stop.
    pub patience: Option<usize>,
    /// Factor of the learning rate at each step.
    pub schedule: Schedule,
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
            file: None,
            loss: Loss::default(),
            precision: DType::F32,
        }
    }

    /// The same with as many whole epochs over so many examples as make at least so many steps.
    pub fn of_steps(steps: usize, examples: usize, batch: usize) -> Training {
        Training::new(steps.div_ceil(examples.div_ceil(batch.max(1)).max(1)), batch)
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

/// What one epoch reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Counted from 1.
    pub epoch: usize,
    /// Mean loss over the training examples, before each step.
    pub loss: f64,
    /// Mean loss over the validation examples, after the epoch.
    pub validation_loss: f64,
    /// What scores measure.
    #[serde(default)]
    pub measure: Measure,
    /// The score of as many training examples after the epoch as there are for validation.
    #[serde(default, alias = "train_accuracy")]
    pub train_score: f64,
    /// The score of the validation examples.
    #[serde(alias = "accuracy")]
    pub score: f64,
    /// Time for the epoch, validation included.
    pub seconds: f64,
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
    /// Sum of the losses of those steps' examples.
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

impl<M: Module + Layer + Clone, R: Rule> Run<M, R> {
    /// A run that has not begun.
    pub fn new(model: M, optimiser: Optimiser<R>, rng: Rng) -> Run<M, R> {
        let (learning_rate, order) = (optimiser.learning_rate, rng.clone());
        Run { model, optimiser, learning_rate, rng, order, progress: Progress::default(), best: None }
    }

    /// The model of the epoch with the smallest validation loss, or the last one if no epoch has ended.
    pub fn best_model(&self) -> &M {
        self.best.as_ref().unwrap_or(&self.model)
    }

    /// Trains from where it stands to the end. On error the last good step stands.
    pub fn fit(
        &mut self,
        training: &Training,
        (train, validation): (&Dataset, &Dataset),
        watch: &mut dyn Watch,
    ) -> Result<()> {
        if train.is_empty() || validation.is_empty() {
            let message = format!("{} training and {} validation examples", train.len(), validation.len());
            return Err(Error::mistake(message).note("both parts need at least one"));
        }
        if training.precision == DType::F16 && self.optimiser.scale.is_none() {
            self.optimiser.scale = Some(LossScale::default());
        }
        let seen = train.select(&(0..train.len().min(validation.len())).collect::<Vec<usize>>());
        let free = || Ok::<_, Error>(memory::free(&Device::current()?));
        let train = &Feed::new(train, free()?)?;
        let [seen, validation] = [Feed::new(&seen, free()?)?, Feed::new(validation, free()?)?];
        self.fits(training, train.data())?;
        while self.progress.history.len() < training.epochs {
            let start = Instant::now();
            if !self.rest_of_epoch(training, train, watch)? {
                return self.keep(training);
            }
            let held = evaluate_feed(&self.model, &validation, training.loss)?;
            let learned = evaluate_feed(&self.model, &seen, training.loss)?;
            let validation_loss = held.loss;
            let epoch = self.progress.history.len() + 1;
            let seconds = Duration::as_secs_f64(&start.elapsed());
            let report = EpochReport {
                epoch,
                loss: self.progress.loss_sum / train.data().len() as f64,
                validation_loss,
                measure: Measure::of(&train.data().targets),
                train_score: learned.score,
                score: held.score,
                seconds,
            };
            let best = self.progress.best.checked_sub(1).map(|at| self.progress.history[at].validation_loss);
            if best.is_none_or(|best| validation_loss < best) {
                (self.progress.best, self.best) = (epoch, Some(self.model.clone()));
            }
            (self.progress.step, self.progress.loss_sum) = (0, 0.0);
            self.progress.history.push(report.clone());
            self.keep(training)?;
            let stale = epoch - self.progress.best;
            if !watch.epoch(&report) || training.patience.is_some_and(|patience| stale >= patience) {
                break;
            }
        }
        Ok(())
    }

    /// The steps left of the epoch under way. Whether it was finished.
    fn rest_of_epoch(&mut self, training: &Training, train: &Feed<'_>, watch: &mut dyn Watch) -> Result<bool> {
        if self.progress.step == 0 {
            self.order = self.rng.clone();
            // The order forks the generator; what is drawn during the epoch must not depend on when it was resumed.
            self.rng.fork();
        }
        let (epoch, batch) = (self.progress.history.len() + 1, training.batch.max(1));
        let order = train.data().order(&mut self.order.clone());
        let steps = order.len().div_ceil(batch);
        let left = &order[self.progress.step.saturating_mul(batch).min(order.len())..];
        train.each(left, batch, |batch| {
            let stepped = self.step(training, &batch);
            let step = self.progress.step + 1;
            let (loss, examples) =
                stepped.map_err(|error| error.note(format!("in epoch {epoch}, step {step} of it")))?;
            self.progress.loss_sum += loss * examples as f64;
            self.progress.step += 1;
            Ok(watch.step(&StepReport { epoch, step: self.progress.step, steps, loss }))
        })
    }

    fn step(&mut self, training: &Training, batch: &Examples) -> Result<(f64, usize)> {
        self.optimiser.learning_rate = self.learning_rate * training.schedule.factor(self.optimiser.steps);
        let before = self.rng.clone();
        let mut pass = training.pass(batch, &mut self.rng);
        let loss = training.loss.of(&self.model.forward(&batch.inputs, &mut pass), &batch.targets);
        let loss = self.optimiser.step(&mut self.model, &loss, pass).map_err(|error| {
            match self.first_not_finite(training, batch, before) {
                Some(place) => error.note(format!("the first values that are no finite numbers are {place}")),
                None => error,
            }
        })?;
        Ok((loss, batch.examples()?))
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
        self.model.forward(&batch.inputs, &mut pass);
        let (name, _) = pass.seen().iter().find(|(_, output)| wrong(output))?;
        Some(format!("what {name} gives"))
    }

    fn keep(&self, training: &Training) -> Result<()> {
        training.file.as_ref().map_or(Ok(()), |file| self.save(file))
    }
}
