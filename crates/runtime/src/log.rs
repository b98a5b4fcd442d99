//! Log lines on stderr for this crate and the crates above it, filtered by `PANOPLY_LOG`.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::{self, LogLevel};

/// Set by programs with a quiet mode.
static SILENCED: AtomicBool = AtomicBool::new(false);

/// Turns logging off for this process, as `PANOPLY_LOG=off` does.
pub fn silence() {
    SILENCED.store(true, Ordering::Relaxed);
}

/// Logs something that the user should act on.
pub fn warn(message: impl FnOnce() -> String) {
    write(LogLevel::Warn, message);
}

/// Logs a choice and its reason.
pub(crate) fn info(message: impl FnOnce() -> String) {
    write(LogLevel::Info, message);
}

/// Logs an action.
pub(crate) fn debug(message: impl FnOnce() -> String) {
    write(LogLevel::Debug, message);
}

fn write(level: LogLevel, message: impl FnOnce() -> String) {
    let wanted = env::settings().map_or(LogLevel::default(), |settings| settings.log);
    if level <= wanted && !SILENCED.load(Ordering::Relaxed) {
        // Failing to write the log must not stop the program.
        let _ = writeln!(std::io::stderr(), "panoply: {}", message());
    }
}
