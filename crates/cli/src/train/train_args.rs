//! Training options, from the command line or from the section `[training]` of a FILE.toml, with the same names and checks; see
//! [`super::file_options`].

use clap::{Args, ValueEnum};
use panoply::nn::data::Targets;
use panoply::nn::optim::{
    Adagrad, Adam, AdamW, Lion, LrSchedule, Optimizer, ReduceLrOnPlateau, RmsProp, Sgd, UpdateRule,
};
use panoply::nn::{LayerSpec, Monitor, TrainConfig};
use panoply::{Error, Result};
use serde::{Deserialize, Serialize};

use super::val_split::ValSplit;

/// All options.
#[derive(Args, Clone, Debug, Default)]
pub struct TrainOptions {
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub args: TrainArgs,
}

/// Duration of training.
#[derive(Args, Clone, Debug, Default)]
pub struct LengthArgs {
    /// Number of epochs [default: 30; for `mlp` on a table of fewer than 10000 rows 60, of fewer than 100 rows 300]
    #[arg(long, aliases = ["epoch", "num-epochs", "max-epochs"], value_parser = parse_count)]
    epochs: Option<usize>,
    /// Train whole epochs until at least this many batches have been processed
    #[arg(long, value_parser = parse_count, conflicts_with = "epochs")]
    min_steps: Option<usize>,
}

/// Options that a resumed run keeps.
#[derive(Args, Clone, Debug, Default)]
pub struct TrainArgs {
    /// Examples per batch, or `auto` for the largest batch that fits into memory [default: 64; for a text of
    /// fewer than 1280 windows a twentieth of them, at least 4]
    #[arg(long, visible_alias = "batch", alias = "bs", value_name = "N", value_parser = batch)]
    pub batch_size: Option<BatchSize>,
    /// Gradient accumulation: batches per optimizer step [default: 1]
    #[arg(long, alias = "gradient-accumulation-steps", value_name = "N", value_parser = parse_count)]
    pub accumulate_grad_batches: Option<usize>,
    /// Shards of every batch, at least the number of devices or ranks: with a batch size that is a number, the trained bits depend on this
    /// number, not on how many devices of one kind share the work [default: one per device; dropout and augmentation as on one device]
    #[arg(long, visible_alias = "num-shards", value_name = "N", value_parser = parse_count)]
    pub shards: Option<usize>,
    /// Optimizer [default: adamw]
    #[arg(long, visible_alias = "optim", alias = "opt", value_enum)]
    pub optimizer: Option<OptimizerKind>,
    /// Learning rate [default: 0.002 for adamw, adam and rmsprop, 0.3 for sgd, 0.02 for adagrad, 0.001 for lion]
    #[arg(long, visible_alias = "lr", value_parser = parse_positive, allow_negative_numbers = true)]
    pub learning_rate: Option<f64>,
    /// Momentum of sgd or rmsprop, such as 0.9 [default: 0]
    #[arg(long, value_parser = parse_fraction, allow_negative_numbers = true)]
    pub momentum: Option<f64>,
    /// L2 weight decay; biases and norms are exempt [default: 0.01 for adamw, 0 for adam, sgd and lion; not with rmsprop and adagrad]
    #[arg(long, visible_alias = "wd", value_parser = parse_weight_decay, allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Maximum norm of the gradients of all parameters, taken as one vector; larger gradients are scaled down to it [default: 1; with
    /// `target_scale` in a FILE.toml, the largest ratio of a target's standard deviation to it, squared for mse]
    #[arg(
        long,
        visible_alias = "max-grad-norm",
        aliases = ["clip-grad-norm", "grad-clip", "gradient-clip-val", "clipnorm"],
        value_parser = parse_positive,
        allow_negative_numbers = true
    )]
    pub clip_norm: Option<f64>,
    /// Maximum absolute value of each gradient element, instead of --clip-norm [default: not limited]
    #[arg(
        long,
        aliases = ["clip-grad-value", "clipvalue"],
        value_parser = parse_positive,
        allow_negative_numbers = true,
        conflicts_with = "clip_norm"
    )]
    pub clip_value: Option<f64>,
    /// Learning rate schedule [default: constant]
    #[arg(long, visible_alias = "lr-scheduler", alias = "scheduler", value_enum)]
    pub lr_schedule: Option<LrScheduleKind>,
    /// Decay of an exponential moving average of the parameters, such as 0.999; the average is evaluated and saved as the model; 0 turns it
    /// off [default: 0.99 for `mlp` on a table, otherwise off]
    #[arg(long, alias = "ema", value_name = "DECAY", value_parser = parse_fraction, allow_negative_numbers = true)]
    pub ema_decay: Option<f64>,
    /// Element type of layer computations; parameters stay f32 [default: f32]
    #[arg(long, visible_alias = "dtype", value_enum)]
    pub precision: Option<Precision>,
    /// Random augmentations in training, such as random-shift=2,horizontal-flip,gaussian-noise=0.1: shifts images by up to that many
    /// pixels, mirrors them with a probability (horizontal-flip=P, default 0.5), adds normal noise of that standard deviation
    #[arg(long, value_name = "AUGMENTATIONS", value_delimiter = ',', value_parser = parse_augmentation)]
    pub augment: Vec<LayerSpec>,
    /// Early stopping: epochs without an improvement of the monitored figure before training stops [default: off]
    #[arg(long, visible_alias = "early-stopping", value_name = "EPOCHS", value_parser = parse_count)]
    pub patience: Option<usize>,
    /// Validation figure that chooses the best epoch [default: accuracy for classification and multilabel, otherwise loss]
    #[arg(long, value_enum)]
    pub monitor: Option<MonitorArg>,
    /// Validation examples: a fraction (stratified for classes, the end of a text), `last` or `last:FRACTION` (for time series),
    /// `stratified`, `group:COLUMN` (rows of a table with the same value stay together) or `file:PATH` [default: 0.2]
    #[arg(
        long,
        visible_aliases = ["validation-split", "validation"],
        alias = "val",
        value_name = "SPLIT",
        allow_hyphen_values = true
    )]
    pub val_split: Option<ValSplit>,
    /// Seed of initial weights, example order and dropout [default: 0]
    #[arg(long, aliases = ["random-seed", "random-state"])]
    pub seed: Option<u64>,
}

impl TrainOptions {
    /// Returns whether batch size, duration and EMA decay are set.
    pub fn is_set(&self) -> [bool; 3] {
        [self.args.batch_size.is_some(), self.length.is_set(), self.args.ema_decay.is_some()]
    }

    /// Returns these options, with those of `other` where an option is not set. Settings of `other` that belong to another optimizer are
    /// dropped.
    #[must_use]
    pub fn merged_over(self, other: TrainOptions) -> TrainOptions {
        let (here, mut there) = (self.args, other.args);
        if let Some(optimizer) = here.optimizer.filter(|optimizer| *optimizer != there.optimizer()) {
            (there.learning_rate, there.momentum) = (None, None);
            there.weight_decay = there.weight_decay.filter(|_| optimizer.weight_decay().is_some());
        }
        if here.clip_norm.or(here.clip_value).is_some() {
            (there.clip_norm, there.clip_value) = (None, None);
        }
        TrainOptions {
            length: if self.length.epochs.or(self.length.min_steps).is_some() { self.length } else { other.length },
            args: TrainArgs {
                batch_size: here.batch_size.or(there.batch_size),
                accumulate_grad_batches: here.accumulate_grad_batches.or(there.accumulate_grad_batches),
                shards: here.shards.or(there.shards),
                optimizer: here.optimizer.or(there.optimizer),
                learning_rate: here.learning_rate.or(there.learning_rate),
                momentum: here.momentum.or(there.momentum),
                weight_decay: here.weight_decay.or(there.weight_decay),
                clip_norm: here.clip_norm.or(there.clip_norm),
                clip_value: here.clip_value.or(there.clip_value),
                lr_schedule: here.lr_schedule.or(there.lr_schedule),
                ema_decay: here.ema_decay.or(there.ema_decay),
                precision: here.precision.or(there.precision),
                augment: if here.augment.is_empty() { there.augment } else { here.augment },
                patience: here.patience.or(there.patience),
                monitor: here.monitor.or(there.monitor),
                val_split: here.val_split.or(there.val_split),
                seed: here.seed.or(there.seed),
            },
        }
    }
}

impl LengthArgs {
    /// Returns true if an option sets the duration.
    pub fn is_set(&self) -> bool {
        self.epochs.is_some() || self.min_steps.is_some()
    }

    /// Returns the number of epochs over `examples` in batches of size `batch`, if it was set.
    pub fn num_epochs(&self, examples: usize, batch: usize) -> Option<usize> {
        self.min_steps.map(|steps| TrainConfig::with_min_steps(steps, examples, batch).epochs).or(self.epochs)
    }
}

impl TrainArgs {
    /// Returns the optimizer.
    pub fn optimizer(&self) -> OptimizerKind {
        self.optimizer.unwrap_or_default()
    }

    /// Returns the momentum, if it was set; an error if the optimizer has none.
    pub fn momentum(&self) -> Result<Option<f64>> {
        match self.momentum {
            Some(momentum) if !self.optimizer().has_momentum() => {
                let message =
                    format!("--momentum {momentum} cannot be used with --optimizer {}", value_name(self.optimizer()));
                Err(Error::mistake(message).note("only sgd and rmsprop take a momentum"))
            }
            momentum => Ok(momentum),
        }
    }

    /// Returns the weight decay, if the optimizer supports it.
    pub fn weight_decay(&self) -> Result<Option<f64>> {
        match (self.weight_decay, self.optimizer().weight_decay()) {
            (Some(decay), None) => {
                let message =
                    format!("--weight-decay {decay} cannot be used with --optimizer {}", value_name(self.optimizer()));
                Err(Error::mistake(message).note("only adamw, adam, sgd and lion take a weight decay"))
            }
            (given, own) => Ok(given.or(own)),
        }
    }
}

/// A monitored figure as the command line spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MonitorArg {
    /// Validation loss
    Loss,
    /// Validation accuracy
    Accuracy,
    /// R² of the validation examples
    R2,
    /// Macro-averaged F1 score of the validation examples
    F1,
}

impl MonitorArg {
    /// The figure for these targets.
    ///
    /// # Errors
    /// A figure that they do not have.
    pub fn monitor(self, targets: &Targets) -> Result<Monitor> {
        let (monitor, fits) = match (self, targets) {
            (MonitorArg::Loss, _) => (Monitor::Loss, true),
            (MonitorArg::Accuracy, targets) => (Monitor::Score, !matches!(targets, Targets::Regression { .. })),
            (MonitorArg::R2, targets) => (Monitor::Score, matches!(targets, Targets::Regression { .. })),
            (MonitorArg::F1, targets) => {
                (Monitor::MacroF1, matches!(targets, Targets::Classes { labels_per_example: 1, .. }))
            }
        };
        let has = match targets {
            Targets::Classes { labels_per_example: 1, .. } => "a classification has loss, accuracy and f1",
            Targets::Classes { .. } | Targets::MultiLabel { .. } => "these targets have loss and accuracy",
            Targets::Regression { .. } => "a regression has loss and r2",
        };
        match fits {
            true => Ok(monitor),
            false => Err(Error::mistake(format!("--monitor {}: {has}", value_name(self)))),
        }
    }
}

/// Examples of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchSize {
    /// The largest batch that fits into memory.
    Auto,
    /// A fixed number.
    Count(usize),
}

impl BatchSize {
    /// Returns the number of examples, 1 until `auto` is resolved.
    pub fn count(self) -> usize {
        match self {
            BatchSize::Auto => 1,
            BatchSize::Count(count) => count,
        }
    }
}

pub fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number of at least 1".to_string())
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected a number above 0, such as 1e-3".to_string())
}

fn parse_weight_decay(text: &str) -> Result<f64, String> {
    let pull = text.parse().ok().filter(|pull: &f64| pull.is_finite() && *pull >= 0.0);
    pull.ok_or_else(|| "expected a number of at least 0, such as 0.01".to_string())
}

pub fn parse_fraction(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..1.0).contains(share));
    share.ok_or_else(|| "expected a number in 0 .. 1, such as 0.9".to_string())
}

fn parse_augmentation(text: &str) -> Result<LayerSpec, String> {
    let (name, number) = text.split_once('=').map_or((text, None), |(name, number)| (name, Some(number)));
    let wrong = || {
        "expected random-shift=PIXELS, horizontal-flip, horizontal-flip=PROBABILITY or gaussian-noise=STDDEV"
            .to_string()
    };
    match (name.trim(), number.map(str::trim)) {
        ("random-shift", Some(by)) => {
            by.parse().map(|by| LayerSpec::RandomShift { max_shift: by }).map_err(|_| wrong())
        }
        ("horizontal-flip", number) => match number.map_or(Ok(0.5), str::parse) {
            Ok(probability) => Ok(LayerSpec::RandomHorizontalFlip { p: probability }),
            Err(_) => Err(wrong()),
        },
        ("gaussian-noise", Some(deviation)) => {
            deviation.parse().map(|deviation| LayerSpec::GaussianNoise { stddev: deviation }).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

fn batch(text: &str) -> Result<BatchSize, String> {
    match text {
        "auto" => Ok(BatchSize::Auto),
        _ => match text.parse() {
            Ok(count) if count > 0 => Ok(BatchSize::Count(count)),
            _ => Err("expected a number of at least 1, or auto".to_string()),
        },
    }
}

/// Element type of layer computations.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Precision {
    /// 32-bit floating point
    #[default]
    F32,
    /// 16-bit floating point with 8 exponent bits
    Bf16,
    /// 16-bit floating point with 5 exponent bits
    F16,
}

/// Optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay
    #[default]
    AdamW,
    /// Adam: running mean of the gradient divided by the root of the running mean of its square
    Adam,
    /// Stochastic gradient descent
    Sgd,
    /// Gradient divided by the root of the running mean of its square
    RmsProp,
    /// Gradient divided by the root of the sum of its squares
    Adagrad,
    /// Sign of a running mean of the gradient
    Lion,
}

impl OptimizerKind {
    /// Returns the default learning rate.
    pub fn default_lr(self) -> f64 {
        match self {
            OptimizerKind::AdamW | OptimizerKind::Adam | OptimizerKind::RmsProp => 0.002,
            OptimizerKind::Sgd => 0.3,
            OptimizerKind::Adagrad => 0.02,
            OptimizerKind::Lion => 0.001,
        }
    }

    /// Returns true if the optimizer supports momentum.
    pub fn has_momentum(self) -> bool {
        matches!(self, OptimizerKind::Sgd | OptimizerKind::RmsProp)
    }

    /// Returns the default weight decay, or `None` if the optimizer has none.
    pub fn weight_decay(self) -> Option<f64> {
        match self {
            OptimizerKind::AdamW => Some(0.01),
            OptimizerKind::Adam | OptimizerKind::Sgd | OptimizerKind::Lion => Some(0.0),
            OptimizerKind::RmsProp | OptimizerKind::Adagrad => None,
        }
    }

    /// Creates the optimizer. Runs of versions before `--weight-decay` existed have `None` here and resume unchanged: with the default
    /// decay, applied to biases and norms as well.
    pub fn optimizer(self, rate: f64, momentum: f64, weight_decay: Option<f64>) -> Optimizer<Box<dyn UpdateRule>> {
        let decay = weight_decay.or(self.weight_decay()).unwrap_or(0.0);
        let optimizer = match self {
            OptimizerKind::AdamW => AdamW::new(rate).weight_decay(decay).boxed(),
            OptimizerKind::Adam => Adam::new(rate).weight_decay(decay).boxed(),
            OptimizerKind::Sgd => Sgd::new(rate).momentum(momentum).weight_decay(decay).boxed(),
            OptimizerKind::RmsProp => RmsProp::new(rate).momentum(momentum).boxed(),
            OptimizerKind::Adagrad => Adagrad::new(rate).boxed(),
            OptimizerKind::Lion => Lion::new(rate).weight_decay(decay).boxed(),
        };
        if weight_decay.is_some() { optimizer.exclude_1d_from_weight_decay() } else { optimizer }
    }
}

/// Learning rate schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LrScheduleKind {
    /// Constant
    #[default]
    Constant,
    /// Cosine decay to 0
    Cosine,
    /// Linear warmup over the first 5 % of the steps, then cosine decay to 0
    CosineWithWarmup,
    /// One cycle: rises, then falls
    OneCycle,
    /// Multiplied by 0.1 after each third of the steps
    Step,
    /// Exponential decay to 1 %
    Exponential,
    /// Divided by 3 after three epochs in a row without a better validation loss
    ReduceOnPlateau,
}

impl LrScheduleKind {
    /// True if the learning rate depends on the number of epochs.
    pub fn depends_on_end(self) -> bool {
        !matches!(self, LrScheduleKind::Constant | LrScheduleKind::ReduceOnPlateau)
    }

    /// Returns the schedule over a number of steps.
    pub fn schedule(self, steps: u64) -> LrSchedule {
        match self {
            LrScheduleKind::Constant | LrScheduleKind::ReduceOnPlateau => LrSchedule::Constant,
            LrScheduleKind::Cosine => LrSchedule::Cosine { t_max: steps, min_factor: 0.0 },
            LrScheduleKind::CosineWithWarmup => {
                let rising = steps.div_ceil(20).max(1);
                let falling = LrSchedule::Cosine { t_max: steps.saturating_sub(rising), min_factor: 0.0 };
                falling.with_warmup(rising, 1.0 / rising as f64)
            }
            LrScheduleKind::OneCycle => LrSchedule::one_cycle(steps),
            LrScheduleKind::Step => LrSchedule::Step { step_size: steps.div_ceil(3), gamma: 0.1 },
            LrScheduleKind::Exponential => LrSchedule::Exponential { gamma: 0.01f64.powf(1.0 / steps.max(1) as f64) },
        }
    }
    /// Returns the scheduler that reacts to the validation loss, if any.
    pub fn plateau(self) -> Option<ReduceLrOnPlateau> {
        (self == LrScheduleKind::ReduceOnPlateau).then(|| ReduceLrOnPlateau::new(1.0 / 3.0, 2))
    }
}

/// Returns the spelling of a value on the command line.
pub fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
