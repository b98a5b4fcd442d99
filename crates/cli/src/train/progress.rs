//! Progress output during training, and stopping by Ctrl-C.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use panoply::nn::EpochReport;
use panoply::nn::trainer::{Callback, StepReport};
use panoply::{Error, Result};

use super::dashboard::{self, Dashboard, RunInfo};
use super::metrics::summary;
use super::run_dir::RunDir;
use crate::console::is_quiet;
use crate::interrupt;
use crate::output::INTERRUPTED;

/// Returns a flag that the first Ctrl-C or request to end sets; the second one ends the program. Prints a message after Ctrl-C, unless
/// `silent` in the first call.
pub fn stop_flag(silent: bool) -> Result<Arc<AtomicBool>> {
    static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
    let mut shared = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*shared {
        return Ok(stop.clone());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let set = interrupt::set_handler(move |is_ctrl_c| {
        if seen.swap(true, Ordering::SeqCst) {
            dashboard::leave();
            std::process::exit(INTERRUPTED);
        }
        if is_ctrl_c && !dashboard::is_open() && !silent {
            eprintln!("finishing this step; press Ctrl-C again to stop immediately");
        }
    });
    set?;
    *shared = Some(stop.clone());
    Ok(stop)
}

/// Callback without output, for ranks other than 0.
pub struct Silent {
    /// Set once the user requests a stop.
    pub stop: Arc<AtomicBool>,
}

impl Silent {
    /// Returns true once the user requests a stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl Callback for Silent {
    fn on_train_batch_end(&mut self, _: &StepReport) -> ControlFlow<()> {
        go_on_if(!self.stopped())
    }

    fn on_epoch_end(&mut self, _: &EpochReport) -> ControlFlow<()> {
        go_on_if(!self.stopped())
    }
}

fn go_on_if(proceeds: bool) -> ControlFlow<()> {
    if proceeds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Callback that shows progress, prints a line per epoch and writes the history to the run folder.
pub struct Screen {
    /// The first error in writing the history.
    pub failed: Option<Error>,
    show: Show,
    history: Vec<EpochReport>,
    folder: RunDir,
    epochs: usize,
    text: bool,
    stop: Arc<AtomicBool>,
}

/// The display of progress.
enum Show {
    Bar(ProgressBar),
    Dashboard(Box<Dashboard>),
}

impl Screen {
    /// Creates a screen without a display. `history` holds the epochs of earlier runs; `text` is true for a language model.
    pub fn new(epochs: usize, folder: RunDir, history: Vec<EpochReport>, text: bool, stop: Arc<AtomicBool>) -> Screen {
        Screen { failed: None, show: Show::Bar(ProgressBar::hidden()), history, folder, epochs, text, stop }
    }

    /// Shows a progress bar if stderr is a terminal and `quiet` is false.
    pub fn show_bar(&mut self, quiet: bool) {
        if quiet || is_quiet() || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix} {bar:30.cyan/dim} {pos}/{len} steps · {per_sec} · {msg}");
        bar.set_style(style.expect("the template is valid").progress_chars("━╸─"));
        self.show = Show::Bar(bar);
    }

    /// Shows the dashboard until [`Screen::close`].
    pub fn show_dashboard(&mut self, facts: RunInfo) -> Result<()> {
        let dashboard = Dashboard::open(facts, self.history.clone(), self.text, self.stop.clone())?;
        self.show = Show::Dashboard(Box::new(dashboard));
        Ok(())
    }

    /// Restores the terminal.
    pub fn close(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
        self.show = Show::Bar(ProgressBar::hidden());
    }

    /// Closes the dashboard after a terminal error; training continues.
    fn go_on_without_dashboard(&mut self, error: &Error) {
        self.show = Show::Bar(ProgressBar::hidden());
        eprintln!("{error}; training continues without the dashboard");
    }

    /// Returns true once the user requests a stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl Callback for Screen {
    fn on_train_batch_end(&mut self, report: &StepReport) -> ControlFlow<()> {
        match &mut self.show {
            Show::Bar(bar) => {
                let made = ((report.epoch - 1) * report.steps + report.step) as u64;
                bar.set_length((report.steps * self.epochs) as u64);
                bar.set_prefix(format!("epoch {:>3}/{}", report.epoch, self.epochs));
                bar.set_message(format!("loss {:.4}", report.loss));
                bar.set_position(made);
            }
            Show::Dashboard(dashboard) => {
                if let Err(error) = dashboard.step(report) {
                    self.go_on_without_dashboard(&error);
                }
            }
        }
        go_on_if(self.failed.is_none() && !self.stopped())
    }

    fn on_epoch_end(&mut self, report: &EpochReport) -> ControlFlow<()> {
        let EpochReport { epoch, train_loss: loss, val_loss: validation_loss, seconds, .. } = report;
        let reached = summary(report, self.text);
        let line = format!(
            "epoch {epoch:>3}  loss {loss:.4}  validation: loss {validation_loss:.4}, {reached}  {:.0} ms",
            seconds * 1e3
        );
        self.history.push(report.clone());
        let drawn = match &mut self.show {
            Show::Bar(bar) if bar.is_hidden() => {
                note!("{line}");
                Ok(())
            }
            Show::Bar(bar) => {
                bar.println(line);
                Ok(())
            }
            Show::Dashboard(dashboard) => dashboard.epoch(report),
        };
        if let Err(error) = drawn {
            self.go_on_without_dashboard(&error);
        }
        if let Err(error) = self.folder.write_history(&self.history) {
            self.failed.get_or_insert(error);
        }
        go_on_if(self.failed.is_none() && !self.stopped())
    }
}
