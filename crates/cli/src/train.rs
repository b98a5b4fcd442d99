//! `panoply train`: the main job, on data that ships with Panoply or on your own.
//!
//! [`presets`] are the networks known by name, [`folder`] is where all that comes of a run lies, [`manifest`] what a run says of
//! itself, [`screen`] what a person sees, [`curves`] and [`confusion`] the pictures.

mod confusion;
mod curves;
pub mod folder;
pub mod manifest;
mod presets;
mod screen;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use panoply::nn::data::Dataset;
use panoply::nn::data::source::{self, Labelled, Reading};
use panoply::nn::fit::predict_all;
use panoply::nn::metrics::Confusion;
use panoply::nn::optimiser::{AdamWRule, Schedule};
use panoply::nn::{AdamW, LayerSpec, Model, Module, Run, Standardise, Training, checkpoint};
use panoply::{Error, Result, Rng, Tensor};
use serde_json::json;

use crate::output::{self, Choice, DeviceChoice};
use folder::Folder;
use manifest::{Commands, Data, Manifest, Outcome, Settings};
use presets::Sizes;
use screen::Screen;

/// Train a network on the handwritten digits that ship with Panoply, or on your own tables and images.
///
/// DATA is `digits`, a table (.csv, .tsv), a folder with a sub-folder of images for each class, or a pair of IDX or NumPy
/// files, of which one is named or their folder. All that comes of it lies in a folder of its own under `runs`.
#[derive(Args)]
pub struct Arguments {
    /// What to learn: `digits`, a file or a folder.
    #[arg(default_value = "digits")]
    data: String,
    /// The network: mlp, cnn, lstm, transformer, or a FILE.toml that describes its layers.
    #[arg(long, default_value = "mlp", conflicts_with = "resume")]
    model: presets::Choice,
    /// How often every example is seen; 30 if nothing else is said.
    #[arg(long)]
    epochs: Option<usize>,
    /// Examples of a step, or `auto` for as many as fit.
    #[arg(long, default_value = "64", value_parser = batch, conflicts_with = "resume")]
    batch: Batch,
    /// Widths of the hidden layers; of `cnn` the channels of its convolutions, of `lstm` its memory, of `transformer` its
    /// width and its blocks.
    #[arg(long, value_delimiter = ',', conflicts_with = "resume")]
    hidden: Option<Vec<usize>>,
    /// Learning rate of AdamW.
    #[arg(long, default_value_t = 2e-3, conflicts_with = "resume")]
    learning_rate: f64,
    /// What becomes of the learning rate over the epochs.
    #[arg(long, value_enum, default_value = "constant", conflicts_with = "resume")]
    schedule: Course,
    /// What layers compute in; parameters stay f32.
    #[arg(long, value_enum, default_value = "f32", conflicts_with = "resume")]
    precision: Precision,
    /// Probability of dropping an activation in training.
    #[arg(long, default_value_t = 0.1, conflicts_with = "resume")]
    dropout: f64,
    /// Stop after this many epochs without a better validation loss.
    #[arg(long, conflicts_with = "resume")]
    patience: Option<usize>,
    /// Share of the examples held out for validation.
    #[arg(long, default_value_t = 0.2, conflicts_with = "resume")]
    held_out: f64,
    /// Determines initial weights, order and dropout.
    #[arg(long, default_value_t = 0, conflicts_with = "resume")]
    seed: u64,
    /// The column of classes of a table, by name or counted from 1.
    #[arg(long, conflicts_with = "resume")]
    label: Option<String>,
    /// Rows and columns to which images are scaled, such as 32x32.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = image_size, conflicts_with = "resume")]
    image_size: Option<(usize, usize)>,
    /// Go on with the run in this folder as if it had never stopped; --epochs may say for how long.
    #[arg(long, value_name = "FOLDER", conflicts_with = "data")]
    resume: Option<PathBuf>,
    /// Folder for all that comes of it; `runs/NAME-N` if nothing else is said.
    #[arg(long, conflicts_with = "resume")]
    out: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceChoice,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Batch {
    Auto,
    Count(usize),
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

fn image_size(text: &str) -> Result<(usize, usize), String> {
    let (rows, columns) = text.split_once(['x', '×']).unwrap_or((text, text));
    match (rows.parse(), columns.parse()) {
        (Ok(rows @ 1..=65536), Ok(columns @ 1..=65536)) => Ok((rows, columns)),
        _ => Err("take two numbers such as 32x32".to_string()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Precision {
    F32,
    Bf16,
    F16,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Course {
    /// It stays.
    Constant,
    /// It falls to nothing along half a cosine.
    Cosine,
    /// It rises and falls once.
    OneCycle,
}

/// What becomes of the learning rate, as it is spelled on the command line.
fn schedule(name: &str, steps: u64) -> Schedule {
    match name {
        "cosine" => Schedule::Cosine { steps, floor: 0.0 },
        "one-cycle" => Schedule::one_cycle(steps),
        _ => Schedule::Constant,
    }
}

fn spelled(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

/// A run before it begins or goes on.
struct Job {
    folder: Folder,
    manifest: Manifest,
    train: Dataset,
    held: Dataset,
    run: Run<Model, AdamWRule>,
}

/// Trains, reports, saves.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    choice.explain();
    let start = Instant::now();
    choice.device().scope(|| {
        let mut job = match &arguments.resume {
            Some(folder) => Job::resumed(folder, arguments, &choice)?,
            None => Job::new(arguments, &choice)?,
        };
        let training = job.training();
        job.greet(&training)?;
        job.manifest.write(&job.folder.0)?;
        let history = job.run.progress.history.clone();
        job.folder.write_history(&history)?;
        let stop = screen::stop_flag()?;
        let mut screen = Screen::new(arguments.json, training.epochs, job.folder.clone(), history, stop);
        let trained = job.run.classify(&training, (&job.train, &job.held), &mut screen);
        screen.bar.finish_and_clear();
        let resume = &job.manifest.commands.resume;
        trained.map_err(|error| match job.run.progress.history.is_empty() {
            true => error,
            false => error.note(format!("what was saved stands; `{resume}` goes on from there")),
        })?;
        screen.failed.clone().map_or(Ok(()), Err)?;
        job.finish(screen.stopped())?;
        job.report(arguments, &choice, start.elapsed().as_secs_f64());
        Ok(choice.exit_code())
    })
}

impl Job {
    fn new(arguments: &Arguments, choice: &Choice) -> Result<Job> {
        let reading = Reading { label: arguments.label.clone(), image_size: arguments.image_size };
        let labelled = open(&arguments.data, &reading)?;
        let sizes = Sizes { hidden: arguments.hidden.clone(), dropout: arguments.dropout };
        let table = matches!(labelled.source, source::Source::Csv { .. });
        let network = arguments.model.network(&labelled.data.lengths, labelled.classes.len(), table, &sizes)?;
        let settings = Settings {
            model: arguments.model.name(),
            epochs: arguments.epochs.unwrap_or(30),
            batch: if let Batch::Count(count) = arguments.batch { count } else { 1 },
            learning_rate: arguments.learning_rate,
            schedule: spelled(arguments.schedule),
            patience: arguments.patience,
            held_out: arguments.held_out,
            seed: arguments.seed,
            precision: spelled(arguments.precision),
        };
        let (train, held, run) = begin(&labelled, &network, &settings)?;
        let folder = Folder::new(arguments.out.as_deref(), &stem(&arguments.data))?;
        let shown = folder.0.display();
        let manifest = Manifest {
            schema: 1,
            panoply: env!("CARGO_PKG_VERSION").to_string(),
            parameters: run.model.param_count(),
            network,
            data: Data {
                path: arguments.data.clone(),
                examples: train.len(),
                held_out: held.len(),
                digest: format!("{:032x}", labelled.data.digest()),
                source: labelled.source,
                classes: labelled.classes,
                label: reading.label,
                image_size: reading.image_size,
            },
            settings,
            device: choice.report(),
            result: None,
            commands: Commands {
                resume: format!("panoply train --resume {shown}"),
                predict: format!("panoply predict {shown}/model.safetensors"),
            },
        };
        let mut job = Job { folder, manifest, train, held, run };
        if let Batch::Auto = arguments.batch {
            let suggested = job.run.suggest_batch(&job.training(), &job.train)?;
            job.manifest.settings.batch = suggested.ok_or_else(|| {
                Error::mistake(
                    "--batch auto: not even one example fits into the device's memory; use a smaller network",
                )
            })?;
        }
        Ok(job)
    }

    fn resumed(folder: &Path, arguments: &Arguments, choice: &Choice) -> Result<Job> {
        let mut manifest = Manifest::read(folder)?;
        let labelled = open(&manifest.data.path, &manifest.data.reading())?;
        if format!("{:032x}", labelled.data.digest()) != manifest.data.digest {
            let message = format!("{} has changed since {} began", manifest.data.path, folder.display());
            return Err(Error::mistake(message).note("a resumed run must see the same examples; start another run"));
        }
        let (train, held, mut run) = begin(&labelled, &manifest.network, &manifest.settings)?;
        let folder = Folder::existing(folder);
        let file = folder.training();
        if file.exists() {
            run.load(&file)?;
        }
        manifest.settings.epochs = arguments.epochs.unwrap_or(manifest.settings.epochs);
        manifest.device = choice.report();
        Ok(Job { folder, manifest, train, held, run })
    }

    fn training(&self) -> Training {
        let settings = &self.manifest.settings;
        let steps = settings.epochs * self.train.len().div_ceil(settings.batch.max(1));
        Training {
            patience: settings.patience,
            schedule: schedule(&settings.schedule, steps as u64),
            file: Some(self.folder.training()),
            loss: self.manifest.network.loss,
            precision: settings.dtype(),
            ..Training::new(settings.epochs, settings.batch)
        }
    }

    /// What is about to happen, on stderr.
    fn greet(&self, training: &Training) -> Result<()> {
        let Manifest { data, settings, .. } = &self.manifest;
        let done = self.run.progress.history.len();
        eprintln!(
            "{}: {} to learn from, {} held out, {} classes; {} with {} parameters{}",
            data.path,
            self.train.len(),
            self.held.len(),
            data.classes.len(),
            settings.model,
            self.manifest.parameters,
            if done > 0 { format!("; going on after epoch {done}") } else { String::new() }
        );
        if done >= settings.epochs {
            let message =
                format!("all {} epochs are made; `--epochs {}` goes on", settings.epochs, 2 * settings.epochs);
            return Err(Error::mistake(message));
        }
        let plan = self.run.memory(training, &self.train, training.batch)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        eprintln!(
            "a step of {} takes {:.1} MiB beside {:.1} MiB of data and parameters",
            training.batch,
            mib(plan.added()),
            mib(plan.inputs)
        );
        Ok(())
    }

    /// Writes the best model and what it takes for what.
    fn finish(&mut self, interrupted: bool) -> Result<()> {
        let history = &self.run.progress.history;
        let best = self.run.progress.best.checked_sub(1).map(|at| history[at].clone()).ok_or_else(|| {
            Error::mistake(format!(
                "training was stopped before its first epoch ended; `{}` goes on",
                self.manifest.commands.resume
            ))
        })?;
        let model = self.run.best_model();
        let shares = predict_all(model, &self.held)?;
        let classes = self.held.classes;
        let read: Vec<i32> = shares.chunks_exact(classes).map(|row| largest(row) as i32).collect();
        let [labels, read] = [&self.held.labels, &read].map(|classes| Tensor::from_slice(classes, [classes.len()]));
        let counts = Confusion::new(&labels, &read, classes)?;
        self.folder.write_confusion(&counts, &self.manifest.data.classes)?;
        self.manifest.result = Some(Outcome {
            interrupted,
            epochs: history.len(),
            best,
            macro_f1: counts.macro_f1(),
            skipped_steps: self.run.optimiser.scale.map_or(0, |scale| scale.skipped),
        });
        checkpoint::save(model, &self.folder.model(), self.manifest.metadata()?)?;
        self.manifest.write(&self.folder.0)
    }

    /// What came of it, on stdout.
    fn report(&self, arguments: &Arguments, choice: &Choice, seconds: f64) {
        let Manifest { data, settings, parameters, result, commands, .. } = &self.manifest;
        let Some(result) = result else { return };
        if arguments.json {
            output::print_json(&json!({
                "schema": 1, "data": data.path, "device": choice.report(), "network": settings.model, "parameters": parameters,
                "epochs": self.run.progress.history, "best_epoch": result.best.epoch, "accuracy": result.best.accuracy,
                "macro_f1": result.macro_f1, "skipped_steps": result.skipped_steps, "seconds": seconds,
                "folder": self.folder.0, "model": self.folder.model(), "interrupted": result.interrupted, "commands": commands,
            }));
            return;
        }
        println!(
            "{:.1} % of the held-out {} right (epoch {}), {seconds:.2} s in all",
            result.best.accuracy * 100.0,
            if data.path == "digits" { "digits" } else { "examples" },
            result.best.epoch
        );
        if result.skipped_steps > 0 {
            println!("{} steps were left out because gradients overflowed", result.skipped_steps);
        }
        println!("saved {}: the model, its history, curves.svg and confusion.svg", self.folder.0.display());
        println!("try it:   {}", commands.predict);
        let more = if result.interrupted { String::new() } else { format!(" --epochs {}", 2 * settings.epochs) };
        println!("go on:    {}{more}", commands.resume);
    }
}

/// The position of the largest of some shares.
pub fn largest(shares: &[f32]) -> usize {
    shares.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at)
}

fn open(data: &str, reading: &Reading) -> Result<Labelled> {
    match data {
        "digits" => source::digits(),
        path => source::open(Path::new(path), reading),
    }
}

/// A name for the folders of runs on this data.
fn stem(data: &str) -> String {
    let path = Path::new(data).canonicalize().unwrap_or_else(|_| PathBuf::from(data));
    path.file_stem().map_or_else(|| "data".to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// Both parts of the data and a run that has not begun. The same arguments give the same.
fn begin(
    labelled: &Labelled,
    network: &panoply::nn::Network,
    settings: &Settings,
) -> Result<(Dataset, Dataset, Run<Model, AdamWRule>)> {
    let mut rng = Rng::seed(settings.seed);
    let (train, held) = labelled.data.split(settings.held_out, &mut rng)?;
    if train.is_empty() || held.is_empty() {
        let message = format!(
            "--held-out {}: of {} examples that leaves {} to learn from and {} held out",
            settings.held_out,
            labelled.data.len(),
            train.len(),
            held.len()
        );
        return Err(Error::mistake(message).note("both parts need at least one"));
    }
    let mut model = network.build(&mut rng)?;
    if let Some(LayerSpec::Standardise {}) = network.layers.first() {
        model.layers.layers[0] = Box::new(Standardise::measured(&train.features, &network.input));
    }
    let run = Run::new(model, AdamW::new(settings.learning_rate).clip_norm(1.0), rng);
    Ok((train, held, run))
}
