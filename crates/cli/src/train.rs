//! `panoply train digits`: the main job, on data that ships with Panoply.

mod network;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use panoply::nn::data::digits;
use panoply::nn::fit::{StepReport, Watch};
use panoply::nn::optimiser::Schedule;
use panoply::nn::{AdamW, EpochReport, Module, Run, Sequential, Training, checkpoint};
use panoply::{Error, Result, Rng};
use serde_json::json;

use crate::output::{self, DeviceChoice};
use network::{Kind, Network};

/// Train a network on the handwritten digits that ship with Panoply.
#[derive(Args)]
pub struct Arguments {
    /// What to learn.
    #[arg(value_enum, default_value = "digits")]
    data: Data,
    /// How often every example is seen.
    #[arg(long, default_value_t = 30)]
    epochs: usize,
    /// Examples of a step.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// The network.
    #[arg(long, value_enum, default_value = "mlp")]
    model: Kind,
    /// Widths of the hidden layers; of `cnn` the channels of its two convolutions, of `lstm` its memory.
    #[arg(long, value_delimiter = ',')]
    hidden: Option<Vec<usize>>,
    /// Learning rate of AdamW.
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
    /// What becomes of the learning rate over the epochs.
    #[arg(long, value_enum, default_value = "constant")]
    schedule: Course,
    /// Probability of dropping an activation in training.
    #[arg(long, default_value_t = 0.1)]
    dropout: f64,
    /// Stop after this many epochs without a better validation loss.
    #[arg(long)]
    patience: Option<usize>,
    /// Share of the examples held out for validation.
    #[arg(long, default_value_t = 0.2)]
    held_out: f64,
    /// Determines initial weights, order and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Go on with the training that `--out` holds, as if it had never stopped.
    #[arg(long)]
    resume: bool,
    /// Folder for the model and the history.
    #[arg(long, default_value = "runs/digits")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceChoice,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Data {
    /// 1797 handwritten digits of 8 × 8 points.
    Digits,
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

impl Course {
    fn over(self, steps: u64) -> Schedule {
        match self {
            Course::Constant => Schedule::Constant,
            Course::Cosine => Schedule::Cosine { steps, floor: 0.0 },
            Course::OneCycle => Schedule::one_cycle(steps),
        }
    }
}

/// Trains, reports, saves.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    choice.explain();
    let start = Instant::now();
    choice.device().scope(|| {
        let Data::Digits = arguments.data;
        let mut rng = Rng::seed(arguments.seed);
        let (train, validation) = digits::load()?.split(arguments.held_out, &mut rng)?;
        let network = Network::new(arguments.model, arguments.hidden.clone(), arguments.dropout).map_err(Error::mistake)?;
        let model = network.build(&mut rng);
        let mut run = Run::new(model, AdamW::new(arguments.learning_rate).clip_norm(1.0), rng);
        let state = arguments.out.join("training.safetensors");
        if arguments.resume {
            run.load(&state)?;
        } else {
            let failed = |error| Error::io(format!("cannot make {}", arguments.out.display()), error);
            std::fs::create_dir_all(&arguments.out).map_err(failed)?;
        }
        let done = run.progress.history.len();
        eprintln!(
            "digits: {} to learn from, {} held out; {} with {} parameters{}",
            train.len(),
            validation.len(),
            network.kind.name(),
            run.model.param_count(),
            if arguments.resume { format!("; going on after epoch {done}") } else { String::new() }
        );
        let steps = arguments.epochs * train.len().div_ceil(arguments.batch.max(1));
        let training = Training {
            patience: arguments.patience,
            schedule: arguments.schedule.over(steps as u64),
            file: Some(state),
            ..Training::new(arguments.epochs, arguments.batch)
        };
        let mut screen = Screen::new(arguments, stop_flag()?);
        run.classify(&training, (&train, &validation), &mut screen)?;
        screen.bar.finish_and_clear();
        let history = &run.progress.history;
        let best = run.progress.best.checked_sub(1).map(|at| &history[at]).ok_or_else(|| {
            Error::mistake("training was stopped before its first epoch ended; `--resume` goes on with it")
        })?;
        let file = save(run.best_model(), &network, arguments, history, best)?;
        let seconds = start.elapsed().as_secs_f64();
        if arguments.json {
            output::print_json(&json!({
                "schema": 1, "data": "digits", "device": choice.report(), "network": network.kind.name(), "parameters": run.model.param_count(),
                "epochs": history, "best_epoch": best.epoch, "accuracy": best.accuracy, "seconds": seconds,
                "model": file, "interrupted": screen.stopped(),
            }));
        } else {
            println!(
                "{:.1} % of the held-out digits right (epoch {}), {seconds:.2} s in all",
                best.accuracy * 100.0,
                best.epoch
            );
            println!("saved {}", file.display());
            println!("try it: panoply predict {}", file.display());
        }
        Ok(choice.exit_code())
    })
}

/// The network a model file describes, with its parameters.
pub fn load(file: &Path) -> Result<Sequential> {
    let network = Network::described(&checkpoint::metadata(file)?).ok_or_else(|| {
        Error::corrupt(format!(
            "{}: it does not say which network it holds; was it written by `panoply train`?",
            file.display()
        ))
    })?;
    let mut model = network.build(&mut Rng::seed(0));
    checkpoint::load(&mut model, file)?;
    Ok(model)
}

fn save(
    model: &Sequential,
    network: &Network,
    arguments: &Arguments,
    history: &[EpochReport],
    best: &EpochReport,
) -> Result<PathBuf> {
    let mut described = network.describe();
    described.insert("panoply".to_string(), env!("CARGO_PKG_VERSION").to_string());
    described.insert("accuracy".to_string(), best.accuracy.to_string());
    let file = arguments.out.join("model.safetensors");
    checkpoint::save(model, &file, described)?;
    let lines: Vec<String> = history.iter().map(|epoch| json!(epoch).to_string() + "\n").collect();
    checkpoint::write_whole(&arguments.out.join("history.jsonl"), lines.concat().as_bytes())?;
    Ok(file)
}

/// True once the user pressed Ctrl-C; the second time the program ends at once.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let set = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("finishing this step; press Ctrl-C again to end at once");
    });
    set.map_err(|error| Error::mistake(format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(stop)
}

/// The progress bar and the line for each epoch.
struct Screen {
    bar: ProgressBar,
    epochs: usize,
    stop: Arc<AtomicBool>,
}

impl Screen {
    fn new(arguments: &Arguments, stop: Arc<AtomicBool>) -> Screen {
        let bar = ProgressBar::new(0);
        if arguments.json || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{prefix} {bar:30.cyan/dim} {pos}/{len} steps · {per_sec} · {msg}");
        bar.set_style(style.expect("the template is right").progress_chars("━╸─"));
        Screen { bar, epochs: arguments.epochs, stop }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl Watch for Screen {
    fn step(&mut self, report: &StepReport) -> bool {
        if report.step == 1 {
            self.bar.set_length((report.steps * self.epochs) as u64);
            self.bar.set_prefix(format!("epoch {:>3}/{}", report.epoch, self.epochs));
        }
        self.bar.set_message(format!("loss {:.4}", report.loss));
        self.bar.inc(1);
        !self.stopped()
    }

    fn epoch(&mut self, report: &EpochReport) -> bool {
        let EpochReport { epoch, loss, validation_loss, accuracy, seconds } = report;
        let line = format!(
            "epoch {epoch:>3}  loss {loss:.4}  held out: loss {validation_loss:.4}, {:.1} % right  {:.0} ms",
            accuracy * 100.0,
            seconds * 1e3
        );
        if self.bar.is_hidden() {
            eprintln!("{line}")
        } else {
            self.bar.println(line)
        }
        !self.stopped()
    }
}
