//! How to train, said on the command line or in the section `[training]` of a FILE.toml: the same names, the same checks. [`section`] reads
//! any section so.

use std::path::Path;

use clap::{Args, Parser, ValueEnum};
use panoply::nn::network::file::Setting;
use panoply::nn::optimiser::{Adagrad, Adam, AdamW, Lion, Optimiser, Plateau, RmsProp, Rule, Schedule, Sgd};
use panoply::nn::{LayerSpec, Training};
use panoply::{Error, Result};
use serde::{Deserialize, Serialize};

/// All that may be said.
#[derive(Args, Clone, Debug, Default)]
pub struct Recipe {
    #[command(flatten)]
    pub length: Length,
    #[command(flatten)]
    pub manner: Manner,
}

/// For how long.
#[derive(Args, Clone, Debug, Default)]
pub struct Length {
    /// How often every example is seen; 30 if nothing else is said.
    #[arg(long, value_parser = some)]
    epochs: Option<usize>,
    /// Batches in place of epochs: as many whole epochs as make so many.
    #[arg(long, value_parser = some, conflicts_with = "epochs")]
    steps: Option<usize>,
}

/// In which way; a run that goes on keeps to it.
#[derive(Args, Clone, Debug, Default)]
pub struct Manner {
    /// Examples of a batch, or `auto` for as many as fit; 64 if nothing is said.
    #[arg(long, value_parser = batch)]
    pub batch: Option<Batch>,
    /// Batches whose gradients make one step together: so many times the examples in the memory of one batch; 1 if nothing is said.
    #[arg(long, value_name = "BATCHES", value_parser = some)]
    pub accumulate: Option<usize>,
    /// What moves the parameters; adamw if nothing is said.
    #[arg(long, value_enum)]
    pub optimiser: Option<Mover>,
    /// Its learning rate; 0.002 for adamw, adam and rmsprop, 0.3 for sgd, 0.02 for adagrad, 0.001 for lion if nothing is said.
    #[arg(long, value_parser = rate, allow_negative_numbers = true)]
    pub learning_rate: Option<f64>,
    /// How much of its last step sgd or rmsprop keeps, such as 0.9; nothing if nothing is said.
    #[arg(long, value_parser = share, allow_negative_numbers = true)]
    pub momentum: Option<f64>,
    /// Pull of the weights towards zero, of biases and norms never; 0.01 for adamw, 0 for adam, sgd and lion if nothing is said.
    #[arg(long, value_parser = pull, allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Length to which longer gradients are cut, all parameters taken as one vector; if nothing is said 1, of numbers whose loss
    /// says a `scale` the largest deviation of one over its scale, squared for mse.
    #[arg(long, value_parser = rate, allow_negative_numbers = true)]
    pub clip_norm: Option<f64>,
    /// Limit of each element of the gradients, up and down, in place of a length of all.
    #[arg(long, value_parser = rate, allow_negative_numbers = true, conflicts_with = "clip_norm")]
    pub clip_value: Option<f64>,
    /// What becomes of the learning rate over the epochs; constant if nothing is said.
    #[arg(long, value_enum)]
    pub schedule: Option<Course>,
    /// Share that a running average of the parameters keeps at each step, such as 0.999: the average is measured and saved as the model.
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    pub average: Option<f64>,
    /// What layers compute in, parameters stay f32; f32 if nothing is said.
    #[arg(long, value_enum)]
    pub precision: Option<Precision>,
    /// How examples are changed at random as they are learned, such as shift=2,flip,noise=0.1: images moved by up to so many points, turned
    /// round with a probability (0.5 if nothing is said), numbers with normal ones of this deviation added.
    #[arg(long, value_name = "CHANGES", value_delimiter = ',', value_parser = change)]
    pub augment: Vec<LayerSpec>,
    /// Stop after this many epochs without a better validation loss.
    #[arg(long)]
    pub patience: Option<usize>,
    /// Share of the examples held out for validation; 0.2 if nothing is said.
    #[arg(long)]
    pub held_out: Option<f64>,
    /// Determines initial weights, order and dropout; 0 if nothing is said.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Settings of a file as if they stood on a command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line<A: Args> {
    #[command(flatten)]
    said: A,
}

/// What a section of a file says, under the names and with the checks of the command line.
pub fn section<A: Args>(file: &Path, name: &str, settings: &[Setting]) -> Result<A> {
    let option = |Setting { name, value, .. }: &Setting| format!("--{}={value}", name.replace('_', "-"));
    let wrong = |line: usize, what: String| Error::corrupt(format!("{}:{line}: {name}: {what}", file.display()));
    for setting in settings {
        let alone = Line::<A>::try_parse_from([option(setting)]);
        alone.map_err(|error| wrong(setting.line, format!("{}: {}", setting.name, sentence(&error))))?;
    }
    let first = settings.iter().map(|setting| setting.line).min().unwrap_or(1);
    let all = Line::try_parse_from(settings.iter().map(option));
    all.map(|line| line.said).map_err(|error| wrong(first, sentence(&error)))
}

impl Recipe {
    /// What is said here, and what another says where nothing is; of another optimiser it says nothing that only that one means.
    #[must_use]
    pub fn over(self, other: Recipe) -> Recipe {
        let (here, mut there) = (self.manner, other.manner);
        if let Some(mover) = here.optimiser.filter(|mover| *mover != there.optimiser()) {
            (there.learning_rate, there.momentum) = (None, None);
            there.weight_decay = there.weight_decay.filter(|_| mover.weight_decay().is_some());
        }
        if here.clip_norm.or(here.clip_value).is_some() {
            (there.clip_norm, there.clip_value) = (None, None);
        }
        Recipe {
            length: if self.length.epochs.or(self.length.steps).is_some() { self.length } else { other.length },
            manner: Manner {
                batch: here.batch.or(there.batch),
                accumulate: here.accumulate.or(there.accumulate),
                optimiser: here.optimiser.or(there.optimiser),
                learning_rate: here.learning_rate.or(there.learning_rate),
                momentum: here.momentum.or(there.momentum),
                weight_decay: here.weight_decay.or(there.weight_decay),
                clip_norm: here.clip_norm.or(there.clip_norm),
                clip_value: here.clip_value.or(there.clip_value),
                schedule: here.schedule.or(there.schedule),
                average: here.average.or(there.average),
                precision: here.precision.or(there.precision),
                augment: if here.augment.is_empty() { there.augment } else { here.augment },
                patience: here.patience.or(there.patience),
                held_out: here.held_out.or(there.held_out),
                seed: here.seed.or(there.seed),
            },
        }
    }
}

/// What the parser of the command line says, in one line.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines =
        text.lines().map(str::trim).take_while(|line| !line.starts_with("For more") && !line.starts_with("Usage"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ").trim_start_matches("error: ").to_string()
}

impl Length {
    /// How often so many examples are seen in batches of this size, if it was said.
    pub fn epochs(&self, examples: usize, batch: usize) -> Option<usize> {
        self.steps.map(|steps| Training::of_steps(steps, examples, batch).epochs).or(self.epochs)
    }
}

impl Manner {
    /// What moves the parameters.
    pub fn optimiser(&self) -> Mover {
        self.optimiser.unwrap_or_default()
    }

    /// How much of the last step is kept, if it was said of an optimiser that can.
    pub fn momentum(&self) -> Result<Option<f64>> {
        match self.momentum {
            Some(momentum) if !self.optimiser().has_momentum() => {
                let message = format!("--momentum {momentum} is not for --optimiser {}", spelled(self.optimiser()));
                Err(Error::mistake(message).note("sgd and rmsprop take it; the others have their own or none"))
            }
            momentum => Ok(momentum),
        }
    }

    /// The pull of the weights towards zero, if the optimiser knows one.
    pub fn weight_decay(&self) -> Result<Option<f64>> {
        match (self.weight_decay, self.optimiser().weight_decay()) {
            (Some(decay), None) => {
                let message = format!("--weight-decay {decay} is not for --optimiser {}", spelled(self.optimiser()));
                Err(Error::mistake(message).note("adamw, adam, sgd and lion take it"))
            }
            (said, own) => Ok(said.or(own)),
        }
    }
}

/// Examples of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Batch {
    /// As many as fit.
    Auto,
    /// So many.
    Count(usize),
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::Count(64)
    }
}

fn some(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "take a number of at least 1".to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "take a number above 0, such as 1e-3".to_string())
}

fn pull(text: &str) -> Result<f64, String> {
    let pull = text.parse().ok().filter(|pull: &f64| pull.is_finite() && *pull >= 0.0);
    pull.ok_or_else(|| "take a number of at least 0, such as 0.01".to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..1.0).contains(share));
    share.ok_or_else(|| "take a number in 0 .. 1, such as 0.9".to_string())
}

fn change(text: &str) -> Result<LayerSpec, String> {
    let (name, number) = text.split_once('=').map_or((text, None), |(name, number)| (name, Some(number)));
    let wrong = || "take shift=POINTS, flip, flip=PROBABILITY or noise=DEVIATION".to_string();
    match (name.trim(), number.map(str::trim)) {
        ("shift", Some(by)) => by.parse().map(|by| LayerSpec::Shift { by }).map_err(|_| wrong()),
        ("flip", number) => match number.map_or(Ok(0.5), str::parse) {
            Ok(probability) => Ok(LayerSpec::Flip { probability }),
            Err(_) => Err(wrong()),
        },
        ("noise", Some(deviation)) => {
            deviation.parse().map(|deviation| LayerSpec::Noise { deviation }).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

fn batch(text: &str) -> Result<Batch, String> {
    match text {
        "auto" => Ok(Batch::Auto),
        _ => match text.parse() {
            Ok(count) if count > 0 => Ok(Batch::Count(count)),
            _ => Err("take a number of at least 1, or auto".to_string()),
        },
    }
}

/// What layers compute in.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, 8 of them for the exponent.
    Bf16,
    /// 16 bits, 5 of them for the exponent.
    F16,
}

/// What moves the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Mover {
    /// Adam with weight decay apart from the gradient.
    #[default]
    AdamW,
    /// Running means of gradients over the roots of those of their squares.
    Adam,
    /// Gradient descent.
    Sgd,
    /// Gradients over the root of the running mean of their squares.
    RmsProp,
    /// Gradients over the root of the sum of their squares.
    Adagrad,
    /// The sign of a running mean of gradients.
    Lion,
}

impl Mover {
    /// The learning rate if nothing is said.
    pub fn rate(self) -> f64 {
        match self {
            Mover::AdamW | Mover::Adam | Mover::RmsProp => 0.002,
            Mover::Sgd => 0.3,
            Mover::Adagrad => 0.02,
            Mover::Lion => 0.001,
        }
    }

    /// Whether it can keep some of its last step.
    pub fn has_momentum(self) -> bool {
        matches!(self, Mover::Sgd | Mover::RmsProp)
    }

    /// Its pull of the weights towards zero if nothing is said; none if it knows none.
    pub fn weight_decay(self) -> Option<f64> {
        match self {
            Mover::AdamW => Some(0.01),
            Mover::Adam | Mover::Sgd | Mover::Lion => Some(0.0),
            Mover::RmsProp | Mover::Adagrad => None,
        }
    }

    /// At the start of training. Runs of versions before weight decay could be said have none here and go on as they began: the usual
    /// pull, of biases and norms as well.
    pub fn optimiser(self, rate: f64, momentum: f64, weight_decay: Option<f64>) -> Optimiser<Box<dyn Rule>> {
        let decay = weight_decay.or(self.weight_decay()).unwrap_or(0.0);
        let optimiser = match self {
            Mover::AdamW => AdamW::new(rate).weight_decay(decay).boxed(),
            Mover::Adam => Adam::new(rate).weight_decay(decay).boxed(),
            Mover::Sgd => Sgd::new(rate).momentum(momentum).weight_decay(decay).boxed(),
            Mover::RmsProp => RmsProp::new(rate).momentum(momentum).boxed(),
            Mover::Adagrad => Adagrad::new(rate).boxed(),
            Mover::Lion => Lion::new(rate).weight_decay(decay).boxed(),
        };
        if weight_decay.is_some() { optimiser.sparing_vectors() } else { optimiser }
    }
}

/// What becomes of the learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// It stays.
    #[default]
    Constant,
    /// It falls to nothing along half a cosine.
    Cosine,
    /// It rises in the first twentieth of the steps and falls to nothing along half a cosine.
    WarmupCosine,
    /// It rises and falls once.
    OneCycle,
    /// A tenth after each third of the steps.
    Steps,
    /// It falls to a hundredth, by the same factor at every step.
    Exponential,
    /// It falls to a third whenever three epochs in a row had no better validation loss.
    Plateau,
}

impl Course {
    /// Over so many steps.
    pub fn schedule(self, steps: u64) -> Schedule {
        match self {
            Course::Constant | Course::Plateau => Schedule::Constant,
            Course::Cosine => Schedule::Cosine { steps, floor: 0.0 },
            Course::WarmupCosine => {
                let rising = steps.div_ceil(20).max(1);
                let falling = Schedule::Cosine { steps: steps.saturating_sub(rising), floor: 0.0 };
                falling.after_warmup(rising, 1.0 / rising as f64)
            }
            Course::OneCycle => Schedule::one_cycle(steps),
            Course::Steps => Schedule::Steps { every: steps.div_ceil(3), factor: 0.1 },
            Course::Exponential => Schedule::Exponential(0.01f64.powf(1.0 / steps.max(1) as f64)),
        }
    }
    /// What listens to the validation loss besides.
    pub fn plateau(self) -> Option<Plateau> {
        (self == Course::Plateau).then(|| Plateau::new(1.0 / 3.0, 2))
    }
}

/// A value as it is spelled on the command line.
pub fn spelled(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
