//! `panoply train`: the main job, on data that ships with Panoply or on your own.
//!
//! [`arguments`] is what it is told, [`recipe`] and [`view`] what a file may say as well, [`presets`] are the networks known by name, [`folder`] is where all that comes of a run lies,
//! [`lock`] keeps others out of it, [`manifest`] what a run says of itself, [`outcome`] what came of it, [`screen`] and [`dashboard`] what a person sees, [`curves`],
//! [`confusion`] and [`scatter`] the pictures.

mod arguments;
mod confusion;
mod curves;
mod dashboard;
pub mod folder;
mod lock;
pub mod manifest;
pub mod outcome;
mod presets;
mod recipe;
mod scatter;
mod screen;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use panoply::nn::data::source::{Labelled, Reading, Source};
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::generate::reads_ahead;
use panoply::nn::metrics::perplexity;
use panoply::nn::optimiser::Rule;
use panoply::nn::{
    LayerSpec, LossKind, Measure, Model, Module, Network, Restore, Run, Scale, Standardise, Training, checkpoint,
};
use panoply::{Error, Result, Rng};
use serde_json::json;

use crate::console::escaped;
use crate::output::{self, Choice};
pub use arguments::Arguments;
use dashboard::Dashboard;
use folder::Folder;
use lock::RunLock;
use manifest::{Commands, Data, Manifest, Outcome, Settings};
use presets::{Sizes, Wanted};
use recipe::{Batch, Recipe, spelled};
use screen::Screen;

/// Epochs if nobody says how many.
const EPOCHS: usize = 30;

/// The share that is held out if nobody says how much.
const HELD_OUT: f64 = 0.2;

/// A run before it begins or goes on.
struct Job {
    folder: Folder,
    manifest: Manifest,
    train: Dataset,
    held: Dataset,
    run: Run<Model, Box<dyn Rule>>,
    /// Until all is written.
    lock: Option<RunLock>,
}

/// Trains, reports, saves.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let paths = arguments.out.iter().chain(&arguments.resume);
    output::check_paths(arguments.json, paths.map(PathBuf::as_path))?;
    let choice = arguments.device.select()?;
    choice.explain();
    if arguments.tui {
        // Before anything is written.
        Dashboard::check()?;
    }
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
        let text = matches!(job.manifest.data.source, Source::Text { .. });
        let mut screen = Screen::new(training.epochs, job.folder.clone(), history, text, stop);
        match (arguments.tui, arguments.json) {
            (true, _) => screen.show_dashboard(job.facts(&choice))?,
            (_, quiet) => screen.show_bar(quiet),
        }
        let trained = job.run.fit(&training, (&job.train, &job.held), &mut screen);
        screen.close();
        trained.and(screen.failed.clone().map_or(Ok(()), Err)).map_err(|error| job.left_by(error))?;
        job.finish(screen.stopped())?;
        // All is written: the folder is free even if the report cannot be printed.
        drop(job.lock.take());
        job.report(arguments, &choice, start.elapsed().as_secs_f64());
        Ok(choice.exit_code())
    })
}

impl Job {
    fn new(arguments: &Arguments, choice: &Choice) -> Result<Job> {
        let said = arguments.model.as_ref().map(presets::Choice::said).transpose()?;
        let (recipe, view) = said.unwrap_or_default();
        let recipe = arguments.recipe.clone().over(recipe);
        let reading = arguments.view.clone().over(view).reading();
        let labelled = manifest::open(&arguments.data, &reading)?;
        reading.suits(&labelled.source)?;
        labelled.guesses.iter().for_each(|guess| eprintln!("{}", escaped(guess)));
        let sizes = Sizes { hidden: arguments.hidden.clone(), dropout: arguments.dropout };
        let model = arguments.model.clone().unwrap_or(match labelled.source {
            Source::Text { .. } | Source::Csv { sequences: Some(_), .. } => presets::Choice::Lstm,
            _ => presets::Choice::Mlp,
        });
        let wanted = Wanted { kind: arguments.loss, class_weights: arguments.class_weights.clone() };
        let mut network = model.network(&labelled, &sizes, &wanted)?;
        let sequences = labelled.data.times.is_some();
        if sequences {
            network
                .heeds_ends()
                .map_err(|error| error.note("`--model lstm` and `--model transformer` read sequences"))?;
        }
        changed_at_random(&mut network, recipe.manner.augment.clone(), sequences)?;
        let settings = settings(&model, &recipe)?;
        let (train, held, mut rng) = divided(&labelled, &settings)?;
        network.loss = network.loss.fitted(&train.targets)?;
        if let Some(measured) = measured(&train).filter(|_| network.loss.kind.is_of_differences()) {
            if network.loss.scale.is_none() {
                network.loss.scale = Some(match &deviations(&measured)?[..] {
                    [one] => Scale::All(*one),
                    several => Scale::Each(several.to_vec()),
                });
            }
            // What a dense layer gives has no bounds, so nothing it could say is lost.
            if let Some(LayerSpec::Linear { .. }) = network.layers.last() {
                network.layers.push(LayerSpec::Restore {});
            }
        }
        let run = begin(&train, &network, &settings, &mut rng)?;
        if let Source::Text { .. } = labelled.source {
            reads_in_order(&model.name(), &run.model, &train)?;
        }
        let (folder, lock) = Folder::new(arguments.out.as_deref(), &stem(&arguments.data))?;
        let commands = Commands::of(&folder);
        let manifest = Manifest {
            schema: 1,
            panoply: env!("CARGO_PKG_VERSION").to_string(),
            parameters: run.model.param_count(),
            network,
            data: learned_from(&arguments.data, labelled, reading, (train.len(), held.len())),
            settings,
            device: choice.report(),
            result: None,
            commands,
        };
        let mut job = Job { folder, manifest, train, held, run, lock: Some(lock) };
        if let Some(Batch::Auto) = recipe.manner.batch {
            let suggested = job.run.suggest_batch(&job.training(), (&job.train, &job.held))?;
            job.manifest.settings.batch = suggested.ok_or_else(|| {
                Error::mistake(
                    "--batch auto: not even one example fits into the device's memory; use a smaller network",
                )
            })?;
        }
        let settings = &mut job.manifest.settings;
        settings.epochs = recipe.length.epochs(job.train.len(), settings.batch).unwrap_or(settings.epochs);
        Ok(job)
    }

    fn resumed(folder: &Path, arguments: &Arguments, choice: &Choice) -> Result<Job> {
        Manifest::read(folder)?;
        let lock = RunLock::acquire(folder)?;
        // Again, since a run that held the folder until now may have written it.
        let mut manifest = Manifest::read(folder)?;
        manifest::check_path(Path::new(manifest.data.place()))?;
        let labelled = manifest.data.open()?;
        if let Some(what) = manifest.data.changed(&labelled) {
            let message = format!("{} has changed since {} began: {what}", manifest.data.path, folder.display());
            return Err(Error::mistake(message).note("a resumed run must see the same examples; start another run"));
        }
        let (train, held, mut rng) = divided(&labelled, &manifest.settings)?;
        let mut run = begin(&train, &manifest.network, &manifest.settings, &mut rng)?;
        let folder = Folder::existing(folder, &lock);
        let file = folder.training();
        if file.exists() {
            run.load(&file).map_err(|error| folder.without_its_state(error))?;
        } else if let Some(left) = folder.left() {
            let message = format!("{} is missing, beside {}", file.display(), left.display());
            return Err(Error::mistake(message).note("put it back, or start another run; nothing was changed"));
        } else {
            eprintln!("nothing of {} was saved before it ended; it begins again", folder.0.display());
        }
        let settings = &mut manifest.settings;
        let said = arguments.recipe.length.epochs(train.len(), settings.batch);
        settings.epochs = said.unwrap_or(settings.epochs);
        manifest.device = choice.report();
        // The folder may have been moved or copied since.
        manifest.commands = Commands::of(&folder);
        Ok(Job { folder, manifest, train, held, run, lock: Some(lock) })
    }

    fn training(&self) -> Training {
        let settings = &self.manifest.settings;
        let training = Training {
            accumulate: settings.accumulate,
            average: settings.average,
            patience: settings.patience,
            plateau: settings.schedule.plateau(),
            file: Some(self.folder.training()),
            loss: self.manifest.network.loss.clone(),
            precision: settings.dtype(),
            ..Training::new(settings.epochs, settings.batch)
        };
        Training { schedule: settings.schedule.schedule(training.updates(self.train.len())), ..training }
    }

    /// What a dashboard says beside its curves.
    fn facts(&self, choice: &Choice) -> dashboard::Facts {
        let Manifest { data, settings, parameters, .. } = &self.manifest;
        dashboard::Facts {
            title: format!(
                "{} · {} with {parameters} parameters · batch {}",
                escaped(&data.path),
                escaped(&settings.model),
                settings.batch
            ),
            device: choice.in_words(),
            batch: settings.batch,
            epochs: settings.epochs,
            examples: self.train.len(),
        }
    }

    /// What is about to happen, on stderr.
    fn greet(&self, training: &Training) -> Result<()> {
        let Manifest { data, settings, .. } = &self.manifest;
        let done = self.run.progress.history.len();
        let going_on = if done > 0 { format!("; going on after epoch {done}") } else { String::new() };
        eprintln!(
            "{}: {} to learn from, {} held out, {}; {} with {} parameters{going_on}",
            escaped(&data.path),
            self.train.len(),
            self.held.len(),
            data.learned(),
            settings.model,
            self.manifest.parameters,
        );
        // Of a text each part lacks some rare characters.
        let text = matches!(data.source, Source::Text { .. });
        for (examples, which) in
            [(&self.train, "to learn from"), (&self.held, "held out")].into_iter().filter(|_| !text)
        {
            let absent = absent(examples, &data.classes);
            if !absent.is_empty() {
                let more = absent.len().saturating_sub(ABSENT_NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let named: Vec<_> = absent.into_iter().take(ABSENT_NAMED).map(escaped).collect();
                eprintln!("no example {which} is of class {}{more}", named.join(", "));
            }
        }
        if done >= settings.epochs {
            let message = format!(
                "all {} epochs are made; `--epochs {}` goes on",
                settings.epochs,
                settings.epochs.saturating_mul(2)
            );
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

    /// What ended the run, with what there is of it: the best model so far, which is written if it still can be.
    fn left_by(&mut self, error: Error) -> Error {
        if self.run.progress.history.is_empty() && !error.is_diverged() {
            return error;
        }
        let kept = match self.finish(true) {
            Ok(()) => format!("the best model so far is in {}; ", self.folder.0.display()),
            Err(_) => String::new(),
        };
        let resume = &self.manifest.commands.resume;
        let then = match self.folder.training().exists() {
            // The same numbers again come to the same.
            _ if error.is_diverged() => {
                "another run, in another folder, may take a smaller `--learning-rate`, or `--clip-norm`".to_string()
            }
            true => format!("what was saved stands; `{resume}` goes on from there"),
            false if self.folder.left().is_some() => "nothing was saved to go on from; start another run".to_string(),
            false => format!("nothing was saved to go on from; `{resume}` begins again"),
        };
        error.note(format!("{kept}{then}"))
    }

    /// Writes the best model and what it takes for what; nothing if the run was stopped before there was one.
    fn finish(&mut self, interrupted: bool) -> Result<()> {
        let history = &self.run.progress.history;
        let best = match self.run.progress.best.checked_sub(1) {
            Some(at) => history[at].clone(),
            None if interrupted => return Ok(()),
            None => return Err(Error::mistake("training ended, and no epoch of it was the best")),
        };
        let model = self.run.best_model();
        let measures = outcome::measure(model, &self.held, &self.manifest, &self.folder)?;
        self.manifest.result = Some(Outcome {
            interrupted,
            epochs: history.len(),
            best,
            measures,
            skipped_steps: self.run.optimiser.scale.map_or(0, |scale| scale.skipped),
        });
        checkpoint::save(model, &self.folder.model(), self.manifest.metadata()?)?;
        self.manifest.write(&self.folder.0)
    }

    /// What came of it, on stdout.
    fn report(&self, arguments: &Arguments, choice: &Choice, seconds: f64) {
        let Manifest { data, settings, parameters, result, commands, .. } = &self.manifest;
        let Some(result) = result else {
            match arguments.json {
                true => output::print_json(&json!({
                    "schema": 1, "data": data.path, "device": choice.report(), "network": settings.model, "parameters": parameters,
                    "epochs": [], "seconds": seconds, "folder": self.folder.0, "model": null, "interrupted": true, "commands": commands,
                })),
                false => println!(
                    "stopped before the first epoch ended: there is no model yet\ngo on:    {}",
                    commands.resume
                ),
            }
            return;
        };
        let (best, measures) = (&result.best, &result.measures);
        if arguments.json {
            // As the epochs have it, which name what is no finite number.
            let score = |measure: Measure| (best.measure == measure).then(|| json!(best)["score"].take());
            let text = matches!(data.source, Source::Text { .. });
            output::print_json(&json!({
                "schema": 1, "data": data.path, "device": choice.report(), "network": settings.model, "parameters": parameters,
                "epochs": self.run.progress.history, "best_epoch": best.epoch, "accuracy": score(Measure::Accuracy),
                "macro_f1": measures.macro_f1, "top_3_accuracy": measures.top_3_accuracy, "auc": measures.auc,
                "r2": score(Measure::R2), "absolute_error": measures.absolute_error, "each": measures.each,
                "perplexity": text.then_some(perplexity(best.validation_loss)), "skipped_steps": result.skipped_steps, "seconds": seconds,
                "folder": self.folder.0, "model": self.folder.model(), "interrupted": result.interrupted, "commands": commands,
            }));
            return;
        }
        println!("{}, {seconds:.2} s in all", outcome::headline(&self.manifest, best));
        measures.in_words().iter().for_each(|words| println!("{words}"));
        if result.skipped_steps > 0 {
            println!("{} steps were left out because gradients overflowed", result.skipped_steps);
        }
        let picture = outcome::picture(&data.source);
        println!("saved {}: the model, its history, curves.svg and {picture}", self.folder.0.display());
        println!("try it:   {}", commands.predict);
        let more =
            if result.interrupted { String::new() } else { format!(" --epochs {}", settings.epochs.saturating_mul(2)) };
        println!("go on:    {}{more}", commands.resume);
    }
}

/// Puts layers that change examples in training before those that learn from them, but behind one that knows the columns' scales.
fn changed_at_random(network: &mut Network, changes: Vec<LayerSpec>, sequences: bool) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    if let Some(LayerSpec::Embedding { .. }) = network.layers.first() {
        return Err(Error::mistake("--augment: words and characters cannot be changed by a little; leave it out"));
    }
    let at = usize::from(matches!(network.layers.first(), Some(LayerSpec::Standardise {})));
    network.layers.splice(at..at, changes);
    let ends = |_| if sequences { network.heeds_ends() } else { Ok(()) };
    network.shapes().and_then(ends).map_err(|error| error.note("what `--augment` says comes first"))
}

/// What was said, and what stands for nothing said. How long it goes on is decided when the batch is known.
fn settings(model: &presets::Choice, Recipe { manner, .. }: &Recipe) -> Result<Settings> {
    Ok(Settings {
        model: model.name(),
        epochs: EPOCHS,
        batch: if let Batch::Count(count) = manner.batch.unwrap_or_default() { count } else { 1 },
        accumulate: manner.accumulate.unwrap_or(1),
        optimiser: manner.optimiser(),
        learning_rate: manner.learning_rate.unwrap_or(manner.optimiser().rate()),
        momentum: manner.momentum()?,
        weight_decay: manner.weight_decay()?,
        clip_norm: manner.clip_norm,
        clip_value: manner.clip_value,
        schedule: manner.schedule.unwrap_or_default(),
        average: manner.average,
        patience: manner.patience,
        held_out: manner.held_out.unwrap_or(HELD_OUT),
        seed: manner.seed.unwrap_or(0),
        precision: spelled(manner.precision.unwrap_or_default()),
    })
}

/// A mistake if a network that is to write looks at characters that are not there yet.
fn reads_in_order(name: &str, model: &Model, train: &Dataset) -> Result<()> {
    if !reads_ahead(model, train)? {
        return Ok(());
    }
    let message = format!("{name}: what it gives at a time depends on later characters");
    Err(Error::mistake(message)
        .note("encoders take causal = true, recurrent layers no both = true, and nothing may mix the times otherwise"))
}

/// What was learned from, so many examples of it and so many held out.
fn learned_from(path: &str, labelled: Labelled, reading: Reading, (examples, held_out): (usize, usize)) -> Data {
    let shipped = labelled.source == Source::Digits;
    let absolute = std::path::absolute(path).ok().filter(|_| !shipped);
    Data {
        path: path.to_string(),
        absolute: absolute.and_then(|path| path.to_str().map(str::to_string)),
        examples,
        held_out,
        digest: format!("{:032x}", labelled.data.digest()),
        source: labelled.source,
        classes: labelled.classes,
        reading,
    }
}

/// A name for the folders of runs on this data.
fn stem(data: &str) -> String {
    let path = Path::new(data).canonicalize().unwrap_or_else(|_| PathBuf::from(data));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = Path::new(name.strip_suffix(".gz").unwrap_or(&name));
    plain.file_stem().map_or_else(|| "data".to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// Both parts of the data, and the random numbers that follow. The same settings give the same.
fn divided(labelled: &Labelled, settings: &Settings) -> Result<(Dataset, Dataset, Rng)> {
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
    Ok((train, held, rng))
}

/// So many classes without an example are named.
const ABSENT_NAMED: usize = 10;

/// The classes of which there is no example.
fn absent<'a>(train: &Dataset, classes: &'a [String]) -> Vec<&'a str> {
    let mut there = vec![false; classes.len()];
    train.labels().iter().for_each(|label| there[*label as usize] = true);
    classes.iter().zip(there).filter(|(_, there)| !there).map(|(class, _)| class.as_str()).collect()
}

/// Mean and deviation of the numbers that are to be learned.
fn measured(train: &Dataset) -> Option<Standardise> {
    match &train.targets {
        Targets::Numbers { values, width } => Some(Standardise::measured(values, &[*width])),
        Targets::Classes { .. } | Targets::Answers { .. } => None,
    }
}

/// The deviation of each.
fn deviations(measured: &Standardise) -> Result<Vec<f64>> {
    Ok(measured.deviation.tensor().to_vec::<f32>()?.into_iter().map(f64::from).collect())
}

/// A run that has not begun, of a network that knows the scales of what it learns from.
fn begin(train: &Dataset, network: &Network, settings: &Settings, rng: &mut Rng) -> Result<Run<Model, Box<dyn Rule>>> {
    let mut model = network.build(rng)?;
    if let Some(LayerSpec::Standardise {}) = network.layers.first() {
        model.layers.layers[0] = Box::new(Standardise::of(train, &network.input)?);
    }
    // Runs of versions before the loss had a scale go on as they began: their gradients are as large as their targets' deviation.
    let mut clip = 1.0;
    if let (Some(LayerSpec::Restore {}), Some(measured)) = (network.layers.last(), measured(train)) {
        let deviations = deviations(&measured)?.into_iter();
        let beyond: Vec<f64> = match &network.loss.scale {
            None => deviations.collect(),
            Some(Scale::All(scale)) => deviations.map(|deviation| deviation / scale).collect(),
            Some(Scale::Each(scales)) => deviations.zip(scales).map(|(deviation, scale)| deviation / scale).collect(),
        };
        let beyond = beyond.into_iter().fold(0.0, f64::max);
        clip = if network.loss.kind == LossKind::Mse { beyond.powi(2) } else { beyond };
        let last = model.layers.layers.len() - 1;
        model.layers.layers[last] = Box::new(Restore(measured));
    }
    let (rate, momentum) = (settings.learning_rate, settings.momentum.unwrap_or(0.0));
    let optimiser = settings.optimiser.optimiser(rate, momentum, settings.weight_decay);
    let optimiser = match settings.clip_value {
        Some(value) => optimiser.clip_value(value),
        None => optimiser.clip_norm(settings.clip_norm.unwrap_or(clip)),
    };
    Ok(Run::new(model, optimiser, rng.clone()))
}
