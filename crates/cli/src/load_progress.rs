//! A progress bar for work that takes longer than a second, in bytes or in percent.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use panoply::nn::data::ReadProgress;
use panoply::nn::data::reader::ReadOptions;

/// Time without a bar.
const QUIET: Duration = Duration::from_secs(1);

/// A progress bar on stderr, if that is a terminal; it disappears when dropped.
pub struct LoadProgress {
    verb: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
    template: &'static str,
}

/// Templates of indicatif.
const BYTES: &str = "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left";
const PERCENT: &str = "{msg} {bar:30} {percent} %, {eta} left";

/// Steps of a bar in percent.
const STEPS: u64 = 1000;

/// The options with a progress bar of reading, which ends with the read.
pub fn with_progress(reading: &ReadOptions) -> ReadOptions {
    let new = || (0, LoadProgress::with_template("reading", PERCENT));
    let shown = Mutex::new(new());
    let show = move |fraction: f64| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads can report out of order.
        let step = ((fraction * STEPS as f64) as u64).max(shown.0);
        shown.0 = step;
        shown.1.show(step, STEPS);
        if step >= STEPS {
            // The bar disappears; another read with these options has its own.
            *shown = new();
        }
    };
    ReadOptions { progress: ReadProgress::new(show), ..reading.clone() }
}

impl LoadProgress {
    /// Creates a bar that is not shown yet. `verb` says what is done, such as `loading`.
    pub fn new(verb: &'static str) -> LoadProgress {
        LoadProgress::with_template(verb, BYTES)
    }

    fn with_template(verb: &'static str, template: &'static str) -> LoadProgress {
        LoadProgress { verb, started: Instant::now(), bar: None, template }
    }

    /// Shows that `done` of `all` bytes or steps are processed.
    pub fn show(&mut self, done: u64, all: u64) {
        if self.bar.is_none() {
            if self.started.elapsed() < QUIET || !std::io::stderr().is_terminal() {
                return;
            }
            let style = ProgressStyle::with_template(self.template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = Some(ProgressBar::new(all).with_style(style).with_message(self.verb));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for LoadProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
