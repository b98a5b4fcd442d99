//! `panoply train`: trains a network on data that ship with Panoply or on files.
//!
//! [`arguments`], [`train_args`] and [`data_args`] are the options, which a FILE.toml can also set ([`file_options`]); [`presets`] are the
//! networks known by name. [`ranks`] trains in one or several processes or on several devices. [`run_dir`] is the folder of a run, [`lock`]
//! its lock and [`manifest`] its description. [`metrics`] measures the result, [`progress`] and [`dashboard`] show progress, and
//! [`curves`], [`confusion`] and [`scatter`] draw images.

mod arguments;
mod augmentation;
mod confusion;
mod curves;
mod dashboard;
pub mod data_args;
mod data_info;
pub mod data_schema;
mod file_options;
mod fine_tune;
mod lock;
pub mod manifest;
pub mod metrics;
pub mod model_file;
mod predictions;
mod presets;
mod progress;
mod ranks;
pub mod run_dir;
mod scatter;
mod table_defaults;
mod target_scale;
mod timeline;
pub mod train_args;
mod val_split;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use panoply::mesh::RankGroup;
use panoply::nn::data::images::SplitFolder;
use panoply::nn::data::reader::DataFormat;
use panoply::nn::data::{Dataset, Targets};
use panoply::nn::generate::attends_to_future;
use panoply::nn::metrics::perplexity;
use panoply::nn::optim::{GradClip, UpdateRule};
use panoply::nn::{
    InverseStandardize, LayerSpec, LossKind, Metric, Model, Module, Monitor, Network, ProcessGroup, Standardize,
    TargetScale, TrainConfig, Trainer, checkpoint, evaluate,
};
use panoply::{DType, Error, Result, Rng};
use serde_json::json;

use crate::console::escaped;
use crate::load_progress::with_progress;
use crate::output::{self, DeviceSelection};
pub use arguments::TrainCommand;
use augmentation::changed_at_random;
use dashboard::Dashboard;
use data_info::{data_info, fingerprint, missing_classes, stem};
use file_options::FileOptions;
use fine_tune::FineTune;
use lock::RunLock;
use manifest::{Commands, DataInfo, Manifest, RunResult, TestResult, TrainSettings};
use presets::{LossArgs, SizeArgs};
use progress::{Screen, Silent};
pub use ranks::run;
use run_dir::RunDir;
use table_defaults::Defaults;
use target_scale::{deviations, rounded, target_stats};
use train_args::{BatchSize, TrainOptions, value_name};
use val_split::{ValSplit, split_dataset, split_notes};

/// A run before it begins or goes on.
struct TrainJob {
    folder: RunDir,
    manifest: Manifest,
    train: Dataset,
    held: Dataset,
    /// Examples that are evaluated once, at the end.
    test: Option<Dataset>,
    run: Trainer<Model, Box<dyn UpdateRule>>,
    /// Held until everything is written.
    lock: Option<RunLock>,
    /// The processes or devices of distributed training, if there are several. Only rank 0 uses the folder.
    ranks: Option<RankGroup>,
}

/// Trains on one of the devices: that of the rank if there are several.
fn train(arguments: &TrainCommand, choices: &[DeviceSelection], ranks: Option<&RankGroup>) -> Result<ExitCode> {
    let choice = &choices[ranks.map_or(0, |ranks| ranks.rank() % choices.len())];
    let paths = arguments.output_dir.iter().chain(&arguments.resume);
    output::check_paths(arguments.json, paths.map(PathBuf::as_path))?;
    let reports = ranks.is_none_or(|ranks| ranks.rank() == 0);
    if reports {
        choices.iter().for_each(DeviceSelection::explain);
    }
    if arguments.tui && reports {
        // Before any file is written.
        Dashboard::check()?;
    }
    let start = Instant::now();
    choice.device().scope(|| {
        let mut job = match &arguments.resume {
            Some(folder) => TrainJob::resumed(folder, arguments, choice, ranks)?,
            None => TrainJob::new(arguments, choice, ranks)?,
        };
        let names = choices.iter().map(|choice| choice.device().device_string().to_string());
        job.manifest.devices = if choices.len() > 1 { names.collect() } else { Vec::new() };
        let training = job.training();
        if !reports {
            let mut silent = Silent { stop: progress::stop_flag(true)? };
            let recording = timeline::start(arguments, choice, ranks)?;
            job.run.fit(&training, &job.train, &job.held, &mut silent)?;
            ranks::any_stopped(ranks, silent.stopped())?;
            return timeline::finish(recording, None).map(|()| ExitCode::SUCCESS);
        }
        job.print_start(&training)?;
        job.manifest.write(&job.folder.0)?;
        let history = job.run.state.history.clone();
        job.folder.write_history(&history)?;
        let stop = progress::stop_flag(false)?;
        let text = matches!(job.manifest.data.format, DataFormat::Text { .. });
        let mut screen = Screen::new(training.epochs, job.folder.clone(), history, text, stop);
        match (arguments.tui, arguments.json) {
            (true, _) => screen.show_dashboard(job.facts(choice))?,
            (_, quiet) => screen.show_bar(quiet),
        }
        let recording = timeline::start(arguments, choice, ranks)?;
        let trained = job.run.fit(&training, &job.train, &job.held, &mut screen);
        screen.close();
        trained.and(screen.failed.clone().map_or(Ok(()), Err)).map_err(|error| job.on_error(error))?;
        let interrupted = ranks::any_stopped(ranks, screen.stopped())?;
        timeline::finish(recording, Some(&job.folder.0))?;
        job.finish(interrupted)?;
        // Everything is written: release the folder even if the report cannot be printed.
        drop(job.lock.take());
        job.report(arguments, choice, start.elapsed().as_secs_f64());
        Ok(ExitCode::SUCCESS)
    })
}

impl TrainJob {
    fn new(arguments: &TrainCommand, choice: &DeviceSelection, ranks: Option<&RankGroup>) -> Result<TrainJob> {
        let from_file = arguments.model.as_ref().map(presets::ModelArg::file_options).transpose()?.unwrap_or_default();
        let job = TrainJob::with_file_options(arguments, &from_file, choice, ranks);
        job.map_err(|error| from_file.explain(error, &arguments.recipe, &arguments.view))
    }

    fn with_file_options(
        arguments: &TrainCommand,
        from_file: &FileOptions,
        choice: &DeviceSelection,
        ranks: Option<&RankGroup>,
    ) -> Result<TrainJob> {
        let reports = ranks.is_none_or(|ranks| ranks.rank() == 0);
        let mut recipe = arguments.recipe.clone().merged_over(from_file.training.clone());
        let mut reading = arguments.view.clone().merged_over(from_file.data.clone()).read_options();
        // `digits` are built in, whatever the current folder holds.
        let parts = SplitFolder::of(Path::new(&arguments.data)).filter(|_| arguments.data != "digits");
        let data = parts.as_ref().map_or(arguments.data.clone(), |parts| parts.train.display().to_string());
        if let (Some(val), None) = (parts.as_ref().and_then(|parts| parts.val.as_ref()), &recipe.args.val_split) {
            recipe.args.val_split = Some(ValSplit::File(val.display().to_string()));
        }
        if let Some(ValSplit::Group { column, .. }) = &recipe.args.val_split {
            reading.group_column = Some(column.clone());
        }
        let start = match &arguments.model {
            Some(presets::ModelArg::Onnx(file)) => Some(FineTune::open(file)?),
            _ => None,
        };
        // Rank 0 shows the progress.
        let shown = if reports { with_progress(&reading) } else { reading.clone() };
        let (mut labeled, is_format_fixed) = match &start {
            Some(start) => start.read(&data, &shown)?,
            None => (manifest::open(&data, &shown)?, false),
        };
        reading.check_for(&labeled.format)?;
        let reading = start.as_ref().map_or(reading.clone(), |start| start.reading(reading, is_format_fixed));
        labeled.assumptions.iter().filter(|_| reports).for_each(|guess| note!("{}", escaped(guess)));
        let model = arguments.model.clone().unwrap_or(match labeled.format {
            DataFormat::Text { .. } | DataFormat::Csv { sequence: Some(_), .. } => presets::ModelArg::Lstm,
            _ => presets::ModelArg::Mlp,
        });
        let defaults = Defaults::of(&labeled, &model);
        let dropout = arguments.dropout.unwrap_or(defaults.dropout);
        let sizes = SizeArgs { hidden: arguments.hidden_sizes.clone(), dropout };
        let [batch_size, epochs, ema_decay] = recipe.is_set();
        let given = [batch_size, sizes.hidden.is_some(), epochs, arguments.dropout.is_some(), ema_decay];
        defaults.note(&labeled, given).iter().filter(|_| reports).for_each(|note| note!("{note}"));
        let wanted = LossArgs { kind: arguments.loss, class_weights: arguments.class_weights.clone() };
        let mut network = model.network(&labeled, &sizes, (&wanted, start.as_ref()))?;
        let sequences = labeled.dataset.seq_lengths.is_some();
        if sequences {
            network
                .check_variable_lengths()
                .map_err(|error| error.note("use `--model lstm` or `--model transformer` for sequences"))?;
        }
        changed_at_random(&mut network, recipe.args.augment.clone(), sequences)?;
        let mut settings = settings(&model, &recipe, (&labeled.dataset.targets, defaults))?;
        let is_known = !matches!(recipe.args.batch_size, Some(BatchSize::Auto));
        let count = ranks.map_or(1, ProcessGroup::ranks);
        TrainConfig::check_shards(settings.shards, is_known.then_some(settings.batch_size), count)?;
        let test = arguments.test_data.clone().or(parts.and_then(|parts| parts.test));
        settings.test_data = test.map(|test| val_split::absolute(&test));
        let (train, held, mut rng) = split_dataset(&mut labeled, &settings, (&reading, reports))?;
        let test = val_split::read_test(&labeled, &settings, (&reading, reports))?;
        if reports {
            split_notes(&labeled, &settings, (&train, &held))?.iter().for_each(|note| note!("{note}"));
        }
        network.loss = network.loss.for_targets(&train.targets)?;
        if let Some(measured) = target_stats(&train).filter(|_| network.loss.kind.is_regression()) {
            if network.loss.target_scale.is_none() {
                network.loss.target_scale = Some(match &deviations(&measured)?[..] {
                    [one] => TargetScale::Uniform(*one),
                    several => TargetScale::PerTarget(several.to_vec()),
                });
            }
            // The output of a linear layer is unbounded, so scaling it loses nothing.
            if let Some(LayerSpec::Linear { .. }) = network.layers.last() {
                network.layers.push(LayerSpec::InverseStandardize {});
            }
        }
        if start.is_some() && settings.dtype() != DType::F32 {
            return Err(Error::mistake(
                "--precision: the network of an ONNX file is trained in f32; remove the option",
            ));
        }
        let mut run = new_trainer(&train, &network, &settings, &mut rng)?;
        start.iter().try_for_each(|start| start.load_into(&mut run.model))?;
        if let DataFormat::Text { .. } = labeled.format {
            check_causal(&model.name(), &run.model, &train)?;
        }
        let (folder, lock) = match reports {
            true => RunDir::new(arguments.output_dir.as_deref(), &stem(&arguments.data)).map(|(a, b)| (a, Some(b)))?,
            false => (RunDir(PathBuf::new()), None),
        };
        let commands = Commands::of(&folder);
        let manifest = Manifest {
            schema: 1,
            panoply_version: env!("CARGO_PKG_VERSION").to_string(),
            num_parameters: run.model.num_parameters(),
            network,
            data: DataInfo { is_format_fixed, ..data_info(&data, labeled, reading, (&train, &held), &settings) },
            settings,
            device: choice.report(),
            devices: Vec::new(),
            result: None,
            commands,
        };
        let mut job = TrainJob { folder, manifest, train, held, test, run, lock, ranks: ranks.cloned() };
        if let Some(BatchSize::Auto) = recipe.args.batch_size {
            let suggested = job.run.suggest_batch_size(&job.training(), &job.train, &job.held)?;
            let suggested = suggested.ok_or_else(|| {
                Error::mistake(
                    "--batch-size auto: not even one example fits into the device's memory; use a smaller network",
                )
            })?;
            // Devices of other ranks can have more or less memory.
            let mut agreed = [suggested as f64];
            ranks.map_or(Ok(()), |ranks| ranks.broadcast(&mut agreed))?;
            job.manifest.settings.batch_size = agreed[0] as usize;
        }
        let settings = &mut job.manifest.settings;
        settings.epochs = recipe.length.num_epochs(job.train.len(), settings.batch_size).unwrap_or(settings.epochs);
        Ok(job)
    }

    fn resumed(
        folder: &Path,
        arguments: &TrainCommand,
        choice: &DeviceSelection,
        ranks: Option<&RankGroup>,
    ) -> Result<TrainJob> {
        Manifest::read(folder)?;
        let reports = ranks.is_none_or(|ranks| ranks.rank() == 0);
        let lock = reports.then(|| RunLock::acquire(folder)).transpose()?;
        // Read again: a run that held the lock until now can have written it.
        let mut manifest = Manifest::read(folder)?;
        let count = ranks.map_or(1, ProcessGroup::ranks);
        TrainConfig::check_shards(manifest.settings.shards, Some(manifest.settings.batch_size), count)?;
        manifest::check_path(Path::new(manifest.data.place()))?;
        if reports {
            manifest.data.reading = with_progress(&manifest.data.reading);
        }
        let mut labeled = manifest.data.open()?;
        if let Some(what) = manifest.data.changed(&labeled) {
            let message = format!("{} has changed since {} began: {what}", manifest.data.path, folder.display());
            return Err(Error::mistake(message).note("a resumed run needs the same examples; start another run"));
        }
        let (train, held, mut rng) =
            split_dataset(&mut labeled, &manifest.settings, (&manifest.data.reading, reports))?;
        let fingerprint = matches!(manifest.settings.val_split, ValSplit::File(_)).then(|| fingerprint(&held));
        if fingerprint != manifest.data.val_fingerprint {
            let message = format!("the validation examples have changed since {} began", folder.display());
            return Err(Error::mistake(message).note("a resumed run must see the same examples; start another run"));
        }
        let test = val_split::read_test(&labeled, &manifest.settings, (&manifest.data.reading, reports))?;
        let mut run = new_trainer(&train, &manifest.network, &manifest.settings, &mut rng)?;
        let folder = lock.as_ref().map_or(RunDir(folder.to_path_buf()), |lock| RunDir::existing(folder, lock));
        let file = folder.checkpoint_path();
        if file.exists() {
            run.load_checkpoint(&file).map_err(|error| folder.without_its_state(error))?;
        } else if let Some(left) = folder.leftover() {
            let message = format!("{} is missing, but {} exists", file.display(), left.display());
            return Err(Error::mistake(message).note("restore it, or start another run; nothing was changed"));
        } else {
            let start = FineTune::of(&manifest.network, &manifest.settings.model)?;
            start.iter().try_for_each(|start| start.load_into(&mut run.model))?;
            if reports {
                note!("{} ended before its first checkpoint; training starts over", folder.0.display());
            }
        }
        let settings = &mut manifest.settings;
        let num_epochs = arguments.recipe.length.num_epochs(train.len(), settings.batch_size);
        let before = settings.epochs;
        settings.epochs = num_epochs.unwrap_or(before);
        if reports && before != settings.epochs && settings.lr_schedule.depends_on_end() {
            note!(
                "the learning rate schedule {} was planned for {before} epochs and now ends after {}: \
                 the result differs from that of one run of {} epochs",
                value_name(settings.lr_schedule),
                settings.epochs,
                settings.epochs
            );
        }
        manifest.device = choice.report();
        // The folder can have been moved or copied since.
        manifest.commands = Commands::of(&folder);
        Ok(TrainJob { folder, manifest, train, held, test, run, lock, ranks: ranks.cloned() })
    }

    fn training(&self) -> TrainConfig {
        let settings = &self.manifest.settings;
        let training = TrainConfig {
            accumulate_grad_batches: settings.accumulate_grad_batches,
            shards: settings.shards,
            ema_decay: settings.ema_decay,
            patience: settings.patience,
            monitor: settings.monitor,
            reduce_on_plateau: settings.lr_schedule.plateau(),
            checkpoint_path: self.lock.is_some().then(|| self.folder.checkpoint_path()),
            group: self.ranks.clone().map(|ranks| Arc::new(ranks) as Arc<dyn ProcessGroup>),
            loss: self.manifest.network.loss.clone(),
            precision: settings.dtype(),
            ..TrainConfig::new(settings.epochs, settings.batch_size)
        };
        TrainConfig {
            lr_schedule: settings.lr_schedule.schedule(training.optimizer_steps(self.train.len())),
            ..training
        }
    }

    /// Returns the text that a dashboard shows beside its curves.
    fn facts(&self, choice: &DeviceSelection) -> dashboard::RunInfo {
        let Manifest { data, settings, num_parameters: parameters, .. } = &self.manifest;
        dashboard::RunInfo {
            title: format!(
                "{} · {} with {parameters} parameters · batch {}",
                escaped(&data.path),
                escaped(&settings.model),
                settings.batch_size
            ),
            device: choice.summary(),
            batch: settings.batch_size,
            epochs: settings.epochs,
            examples: self.train.len(),
        }
    }

    /// Writes a summary of the run to stderr before it starts.
    fn print_start(&self, training: &TrainConfig) -> Result<()> {
        let Manifest { data, settings, .. } = &self.manifest;
        let done = self.run.state.history.len();
        let going_on = if done > 0 { format!("; resuming after epoch {done}") } else { String::new() };
        note!(
            "{}: {} training and {} validation examples, {}; {} with {} parameters{going_on}",
            escaped(&data.path),
            self.train.len(),
            self.held.len(),
            data.learned(),
            settings.model,
            self.manifest.num_parameters,
        );
        let norm = match self.run.optimizer.grad_clip {
            // A default for regression is a ratio of standard deviations, with digits that do not matter.
            Some(GradClip::Norm(norm)) => settings.clip_norm.or(Some(rounded(norm))),
            Some(GradClip::Value(_)) | None => None,
        };
        let resolved = TrainSettings { clip_norm: norm, ..settings.clone() };
        let (words, loss) = (resolved.summary(), &self.manifest.network.loss);
        let epochs = if settings.epochs == 1 { "1 epoch".to_string() } else { format!("{} epochs", settings.epochs) };
        note!("{epochs}, optimizer {words}, seed {}; loss {loss}", settings.seed);
        // In a text, rare characters are often missing from one part.
        let text = matches!(data.format, DataFormat::Text { .. });
        for (examples, which) in [(&self.train, "training"), (&self.held, "validation")].into_iter().filter(|_| !text) {
            let absent = missing_classes(examples, &data.class_names);
            if !absent.is_empty() {
                let more = absent.len().saturating_sub(ABSENT_NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let named: Vec<_> = absent.into_iter().take(ABSENT_NAMED).map(escaped).collect();
                note!("no {which} example has class {}{more}", named.join(", "));
            }
        }
        if done >= settings.epochs {
            let done = format!("epoch {} is the last one of this run", settings.epochs);
            let message = format!("{done}; use `--epochs {}` to continue", settings.epochs.saturating_mul(2));
            return Err(Error::mistake(message));
        }
        let plan = self.run.memory_plan(training, &self.train, training.batch_size)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        note!(
            "a batch of {} takes {:.1} MiB of memory in addition to {:.1} MiB of data and parameters",
            training.batch_size,
            mib(plan.allocated_bytes()),
            mib(plan.inputs)
        );
        Ok(())
    }

    /// Adds a note to the error that ended the run: where the best model is, which is written if possible, and how to continue.
    fn on_error(&mut self, error: Error) -> Error {
        if self.run.state.history.is_empty() && !error.is_diverged() {
            return error;
        }
        let kept = match (self.run.state.best_epoch, self.finish(true)) {
            (None, _) => "no model was saved, because no epoch was completed; ".to_string(),
            (Some(_), Ok(())) => format!("the best model so far is in {}; ", self.folder.0.display()),
            (Some(_), Err(_)) => String::new(),
        };
        let resume = &self.manifest.commands.resume;
        let then = match self.folder.checkpoint_path().exists() {
            // Resuming with the same settings would diverge again.
            _ if error.is_diverged() => {
                "start another run in another folder with a smaller `--learning-rate` or `--clip-norm`".to_string()
            }
            true => format!("the last checkpoint is kept; `{resume}` continues from it"),
            false if self.folder.leftover().is_some() => {
                "no checkpoint was saved to resume from; start another run".to_string()
            }
            false => format!("no checkpoint was saved; `{resume}` starts over"),
        };
        error.note(format!("{kept}{then}"))
    }

    /// Writes the best model and its metrics; does nothing if the run was stopped before the first epoch ended.
    fn finish(&mut self, interrupted: bool) -> Result<()> {
        let history = &self.run.state.history;
        let best = match self.run.state.best_epoch {
            Some(best) => history[best - 1].clone(),
            None if interrupted => return Ok(()),
            None => return Err(Error::mistake("training ended without a best epoch")),
        };
        let model = self.run.best_model();
        let measures = metrics::measure(model, &self.held, &self.manifest, &self.folder)?;
        let test = self.test.as_ref().map(|test| evaluate(model, test, &self.manifest.network.loss)).transpose()?;
        self.manifest.result = Some(RunResult {
            interrupted,
            epochs: history.len(),
            best_epoch_report: best,
            measures,
            test: test.map(|test| TestResult {
                loss: test.loss,
                score: test.score,
                examples: self.test.as_ref().map_or(0, Dataset::len),
            }),
            skipped_steps: self.run.optimizer.grad_scaler.map_or(0, |scale| scale.skipped_steps),
        });
        checkpoint::save(model, &self.folder.model_path(), self.manifest.metadata()?)?;
        self.manifest.write(&self.folder.0)
    }

    /// Writes the results to stdout.
    fn report(&self, arguments: &TrainCommand, choice: &DeviceSelection, seconds: f64) {
        let Manifest { data, settings, num_parameters: parameters, result, commands, .. } = &self.manifest;
        let Some(result) = result else {
            match arguments.json {
                true => output::print_json(&choice.document(json!({
                    "data": data.path, "model_name": settings.model, "num_parameters": parameters,
                    "history": [], "seconds": seconds, "run_dir": self.folder.0, "model_path": null, "interrupted": true, "commands": commands,
                }))),
                false => println!(
                    "stopped before the end of the first epoch: there is no model yet\nresume:   {}",
                    commands.resume
                ),
            }
            return;
        };
        let (best, measures) = (&result.best_epoch_report, &result.measures);
        if arguments.json {
            // As in the history, non-finite numbers are written as strings.
            let score = |measure: Metric| (best.metric == measure).then(|| json!(best)["val_score"].take());
            let text = matches!(data.format, DataFormat::Text { .. });
            output::print_json(&choice.document(json!({
                "data": data.path, "model_name": settings.model, "num_parameters": parameters, "devices": self.manifest.devices,
                "history": self.run.state.history, "best_epoch": best.epoch, "accuracy": score(Metric::Accuracy),
                "macro_f1": measures.macro_f1, "top_3_accuracy": measures.top_3_accuracy, "roc_auc": measures.roc_auc,
                "r2": score(Metric::R2), "mae": measures.mae, "per_label": measures.per_label,
                "perplexity": text.then_some(perplexity(best.val_loss)), "skipped_steps": result.skipped_steps, "seconds": seconds,
                "test": result.test, "run_dir": self.folder.0, "model_path": self.folder.model_path(), "interrupted": result.interrupted, "commands": commands,
            })));
            return;
        }
        println!("{}, {seconds:.2} s in total", metrics::headline(&self.manifest, best));
        measures.summary().iter().for_each(|words| println!("{words}"));
        result.test.iter().for_each(|test| println!("test set: {}", metrics::test_summary(best.metric, test)));
        if result.skipped_steps > 0 {
            println!("{} steps were skipped because gradients overflowed", result.skipped_steps);
        }
        let picture = metrics::main_artifact(&data.format);
        let timeline = if arguments.timeline { ", timeline.svg" } else { "" };
        println!("saved {}: the model, its history, curves.svg{timeline} and {picture}", self.folder.0.display());
        println!("predict:  {}", commands.predict);
        let more =
            if result.interrupted { String::new() } else { format!(" --epochs {}", settings.epochs.saturating_mul(2)) };
        println!("resume:   {}{more}", commands.resume);
    }
}

/// The settings that were given, and defaults for the others. The number of epochs is set when the batch size is known.
fn settings(
    model: &presets::ModelArg,
    TrainOptions { args, .. }: &TrainOptions,
    (targets, defaults): (&Targets, Defaults),
) -> Result<TrainSettings> {
    let usual = match targets {
        Targets::Classes { labels_per_example: 1, .. } | Targets::MultiLabel { .. } => Monitor::Score,
        Targets::Classes { .. } | Targets::Regression { .. } => Monitor::Loss,
    };
    Ok(TrainSettings {
        model: model.name(),
        epochs: defaults.epochs,
        batch_size: args.batch_size.map_or(defaults.batch_size, BatchSize::count),
        accumulate_grad_batches: args.accumulate_grad_batches.unwrap_or(1),
        shards: args.shards,
        optimizer: args.optimizer(),
        learning_rate: args.learning_rate.unwrap_or(args.optimizer().default_lr()),
        momentum: args.momentum()?,
        weight_decay: args.weight_decay()?,
        clip_norm: args.clip_norm,
        clip_value: args.clip_value,
        lr_schedule: args.lr_schedule.unwrap_or_default(),
        // A decay of 0 is the last value: no average.
        ema_decay: args.ema_decay.or(defaults.ema_decay).filter(|decay| *decay > 0.0),
        patience: args.patience,
        test_data: None,
        monitor: args.monitor.map(|monitor| monitor.monitor(targets)).transpose()?.unwrap_or(usual),
        val_split: args.val_split.clone().unwrap_or_default().absolute(),
        seed: args.seed.unwrap_or(0),
        precision: value_name(args.precision.unwrap_or_default()),
    })
}

/// Returns an error if a language model attends to later characters.
fn check_causal(name: &str, model: &Model, train: &Dataset) -> Result<()> {
    if !attends_to_future(model, train)? {
        return Ok(());
    }
    let message = format!("{name}: the output at a position depends on later characters");
    Err(Error::mistake(message)
        .note("set is_causal = true in encoder layers and bidirectional = false in recurrent layers; other layers must not mix time steps"))
}

/// Number of classes without an example that are named.
const ABSENT_NAMED: usize = 10;

/// Creates the trainer of a new run; standardizing layers are fitted to the training data.
fn new_trainer(
    train: &Dataset,
    network: &Network,
    settings: &TrainSettings,
    rng: &mut Rng,
) -> Result<Trainer<Model, Box<dyn UpdateRule>>> {
    let mut model = network.build(rng)?;
    if let Some(LayerSpec::Standardize {}) = network.layers.first() {
        model.layers.layers[0] = Box::new(Standardize::fit(train, &network.input)?);
    }
    // Runs of versions before `target_scale` resume unchanged: their gradients are as large as the standard deviation of their targets.
    let mut clip = 1.0;
    if let (Some(LayerSpec::InverseStandardize {}), Some(measured)) = (network.layers.last(), target_stats(train)) {
        let deviations = deviations(&measured)?.into_iter();
        let beyond: Vec<f64> = match &network.loss.target_scale {
            None => deviations.collect(),
            Some(TargetScale::Uniform(scale)) => deviations.map(|deviation| deviation / scale).collect(),
            Some(TargetScale::PerTarget(scales)) => {
                deviations.zip(scales).map(|(deviation, scale)| deviation / scale).collect()
            }
        };
        let beyond = beyond.into_iter().fold(0.0, f64::max);
        clip = if network.loss.kind == LossKind::Mse { beyond.powi(2) } else { beyond };
        let last = model.layers.layers.len() - 1;
        model.layers.layers[last] = Box::new(InverseStandardize(measured));
    }
    let (rate, momentum) = (settings.learning_rate, settings.momentum.unwrap_or(0.0));
    let optimizer = settings.optimizer.optimizer(rate, momentum, settings.weight_decay);
    let optimizer = match settings.clip_value {
        Some(value) => optimizer.clip_grad_value(value),
        None => optimizer.clip_grad_norm(settings.clip_norm.unwrap_or(clip)),
    };
    Ok(Trainer::new(model, optimizer, rng.clone()))
}
