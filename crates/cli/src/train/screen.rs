//! What a person sees while a network trains, and how they stop it.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use panoply::nn::EpochReport;
use panoply::nn::fit::{StepReport, Watch};
use panoply::{Error, Result};

use super::folder::Folder;

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// True once the user pressed Ctrl-C; the second time the program ends at once.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let set = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED);
        }
        eprintln!("finishing this step; press Ctrl-C again to end at once");
    });
    set.map_err(|error| Error::mistake(format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(stop)
}

/// The progress bar, a line for each epoch, and the history in the run's folder.
pub struct Screen {
    /// On a terminal.
    pub bar: ProgressBar,
    /// The first failure to write the history.
    pub failed: Option<Error>,
    history: Vec<EpochReport>,
    folder: Folder,
    epochs: usize,
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// `history` is what earlier runs reached.
    pub fn new(quiet: bool, epochs: usize, folder: Folder, history: Vec<EpochReport>, stop: Arc<AtomicBool>) -> Screen {
        let bar = ProgressBar::new(0);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{prefix} {bar:30.cyan/dim} {pos}/{len} steps · {per_sec} · {msg}");
        bar.set_style(style.expect("the template is right").progress_chars("━╸─"));
        Screen { bar, failed: None, history, folder, epochs, stop }
    }

    /// Whether the user wants it to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl Watch for Screen {
    fn step(&mut self, report: &StepReport) -> bool {
        let made = ((report.epoch - 1) * report.steps + report.step) as u64;
        self.bar.set_length((report.steps * self.epochs) as u64);
        self.bar.set_prefix(format!("epoch {:>3}/{}", report.epoch, self.epochs));
        self.bar.set_message(format!("loss {:.4}", report.loss));
        self.bar.set_position(made);
        !self.stopped()
    }

    fn epoch(&mut self, report: &EpochReport) -> bool {
        let EpochReport { epoch, loss, validation_loss, accuracy, seconds, .. } = report;
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
        self.history.push(report.clone());
        if let Err(error) = self.folder.write_history(&self.history) {
            self.failed.get_or_insert(error);
        }
        self.failed.is_none() && !self.stopped()
    }
}
