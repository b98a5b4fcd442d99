//! Lines on stderr, as `PANOPLY_LOG` asks; of this crate and of those above it.

use std::io::Write;

use crate::env::{self, LogLevel};

/// What a user should do something about.
pub fn warn(message: impl FnOnce() -> String) {
    write(LogLevel::Warn, message);
}

/// A choice and its reason.
pub(crate) fn info(message: impl FnOnce() -> String) {
    write(LogLevel::Info, message);
}

/// What was done.
pub(crate) fn debug(message: impl FnOnce() -> String) {
    write(LogLevel::Debug, message);
}

fn write(level: LogLevel, message: impl FnOnce() -> String) {
    let wanted = env::settings().map_or(LogLevel::default(), |settings| settings.log);
    if level <= wanted {
        // A log that cannot be written is no reason to stop.
        let _ = writeln!(std::io::stderr(), "panoply: {}", message());
    }
}
