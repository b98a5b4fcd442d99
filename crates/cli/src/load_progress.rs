//! A progress bar in bytes, for work that takes longer than a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time without a bar.
const QUIET: Duration = Duration::from_secs(1);

/// A progress bar on stderr, if that is a terminal; it disappears when dropped.
pub struct LoadProgress {
    verb: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl LoadProgress {
    /// Creates a bar that is not shown yet. `verb` says what is done, such as `loading`.
    pub fn new(verb: &'static str) -> LoadProgress {
        LoadProgress { verb, started: Instant::now(), bar: None }
    }

    /// Shows that `done` of `all` bytes are processed.
    pub fn show(&mut self, done: u64, all: u64) {
        if self.bar.is_none() {
            if self.started.elapsed() < QUIET || !std::io::stderr().is_terminal() {
                return;
            }
            let style = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}, {eta} left");
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
