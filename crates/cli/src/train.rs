//! `panoply train digits`: the main job, on data that ships with Panoply.

use std::collections::HashMap;
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
use panoply::nn::{AdamW, EpochReport, Mlp, Module, Training, checkpoint};
use panoply::{Error, Result, Rng};
use serde_json::json;

use crate::output::{self, DeviceChoice};

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
    /// Widths of the hidden layers.
    #[arg(long, value_delimiter = ',', default_value = "128,64")]
    hidden: Vec<usize>,
    /// Learning rate of AdamW.
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
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

/// Trains, reports, saves.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    choice.explain();
    let start = Instant::now();
    choice.device().scope(|| {
        let Data::Digits = arguments.data;
        let mut rng = Rng::seed(arguments.seed);
        let (train, validation) = digits::load()?.split(arguments.held_out, &mut rng)?;
        let widths: Vec<usize> =
            [train.width].into_iter().chain(arguments.hidden.clone()).chain([train.classes]).collect();
        let mut model = Mlp::new(&widths, arguments.dropout, &mut rng);
        let mut optimiser = AdamW::new(arguments.learning_rate).clip_norm(1.0);
        eprintln!(
            "digits: {} to learn from, {} held out; network {} with {} parameters",
            train.len(),
            validation.len(),
            widths.iter().map(usize::to_string).collect::<Vec<String>>().join("-"),
            model.param_count()
        );
        let training = Training { epochs: arguments.epochs, batch: arguments.batch, patience: arguments.patience };
        let mut screen = Screen::new(arguments, stop_flag()?);
        let history = training.classify(&mut model, &mut optimiser, (&train, &validation), &mut rng, &mut screen)?;
        screen.bar.finish_and_clear();
        let best = history.iter().min_by(|a, b| a.validation_loss.total_cmp(&b.validation_loss));
        let best =
            best.ok_or_else(|| Error::mistake("training was stopped before its first epoch ended; nothing was saved"))?;
        let file = save(&model, &widths, arguments, &history, best)?;
        let seconds = start.elapsed().as_secs_f64();
        if arguments.json {
            output::print_json(&json!({
                "schema": 1, "data": "digits", "device": choice.report(), "parameters": model.param_count(),
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
pub fn load(file: &Path) -> Result<Mlp> {
    let described = checkpoint::metadata(file)?;
    let wrong = || {
        Error::corrupt(format!(
            "{}: it does not say which network it holds; was it written by `panoply train`?",
            file.display()
        ))
    };
    let widths: Option<Vec<usize>> =
        described.get("widths").and_then(|text| text.split(',').map(|width| width.parse().ok()).collect());
    let widths = widths.filter(|widths| widths.len() > 1 && widths.iter().all(|width| (1..=1 << 20).contains(width)));
    let mut model = Mlp::new(&widths.ok_or_else(wrong)?, 0.0, &mut Rng::seed(0));
    checkpoint::load(&mut model, file)?;
    Ok(model)
}

fn save(
    model: &Mlp,
    widths: &[usize],
    arguments: &Arguments,
    history: &[EpochReport],
    best: &EpochReport,
) -> Result<PathBuf> {
    let folder = &arguments.out;
    std::fs::create_dir_all(folder).map_err(|error| Error::io(format!("cannot make {}", folder.display()), error))?;
    let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
    let described = HashMap::from([
        ("network".to_string(), "mlp".to_string()),
        ("widths".to_string(), widths.join(",")),
        ("panoply".to_string(), env!("CARGO_PKG_VERSION").to_string()),
        ("accuracy".to_string(), best.accuracy.to_string()),
    ]);
    let file = folder.join("model.safetensors");
    checkpoint::save(model, &file, described)?;
    let lines: Vec<String> = history.iter().map(|epoch| json!(epoch).to_string() + "\n").collect();
    checkpoint::write_whole(&folder.join("history.jsonl"), lines.concat().as_bytes())?;
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
